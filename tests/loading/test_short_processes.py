"""Processes that end just after a load of one file end with exit code 0."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import short_processes
from loading_tables import File, column, write_table

from delta_sharing_client.server import SharingServer


@pytest.mark.parametrize("runs", [3, pytest.param(30, marks=pytest.mark.slow)])
def test_short_processes(serve: Callable[..., SharingServer], tmp_path: Path, runs: int) -> None:
    rows = pa.table({"id": np.random.default_rng(7).integers(0, 2**62, 650_000)})  # 5 MB
    root = write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows, name="only.parquet")])
    profile = tmp_path / "profile.share"
    profile.touch(0o600)
    profile.write_text(json.dumps(serve({"s.s.t": root}).profile))
    assert list(short_processes.problems(str(profile), runs, ["s.s.t"])) == []
