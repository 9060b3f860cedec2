"""Loads under a memory budget: bounded, never stuck, always the same rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

PLAIN = {"compression": "none", "use_dictionary": False, "row_group_size": 50_000}


def rows(first: int, count: int) -> pa.Table:
    return pa.table(
        {"id": np.arange(first, first + count), "noise": np.random.default_rng(abs(first)).integers(0, 2**62, count)}
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    root = tmp_path_factory.mktemp("budgets")
    columns = [column("id", "long"), column("noise", "long")]
    small = [File(rows=rows(10**6 * n, 2_000), name=f"small-{n}.parquet") for n in range(1, 7)]
    large = [File(rows=rows(-(10**6) * n, 800_000), name=f"large-{n}.parquet", options=PLAIN) for n in (1, 2)]
    tables = {
        "s.s.large_first": write_table(root / "large_first", columns, [large[0], *small]),
        "s.s.small_first": write_table(root / "small_first", columns, [*small, large[0]]),
        "s.s.large_only": write_table(root / "large_only", columns, large),
    }
    return serve(tables)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("budget", [1, 5_000_000, 30_000_000])
@pytest.mark.parametrize("table", ["large_first", "small_first", "large_only"])
def test_any_budget_gives_the_same_rows(
    server: SharingServer, connect: Callable[..., SharingClient], table: str, budget: int
) -> None:
    """The file whose rows are wanted next always gets on, whatever those behind it hold of the budget."""
    loaded = connect(server, memory_budget=budget).table(f"s.s.{table}").scan(columns=["id"]).to_arrow()
    expected = connect(server).table(f"s.s.{table}").scan(columns=["id"]).to_arrow()
    assert loaded.equals(expected)
    assert loaded.num_rows > 800_000
