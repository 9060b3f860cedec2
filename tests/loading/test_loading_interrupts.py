"""An interrupt at any moment of a load, its imports included, ends the process."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

import interrupted_loads
import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client.server import SharingServer


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process")
@pytest.mark.parametrize("runs", [6, pytest.param(40, marks=pytest.mark.slow)])
def test_interrupted_loads_end(serve: Callable[..., SharingServer], tmp_path: Path, runs: int) -> None:
    files = [File(rows=pa.table({"id": list(range(n, n + 50))}), name=f"{n:03}.parquet") for n in range(20)]
    server = serve({"s.s.t": write_table(tmp_path / "t", [column("id", "long")], files)})
    profile = tmp_path / "profile.share"
    profile.touch(0o600)
    profile.write_text(json.dumps(server.profile))
    assert interrupted_loads.main(f"{profile}#s.s.t", runs, random.randrange(10**6)) == []
