from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "cdf" / "feed"))
sys.path.append(str(Path(__file__).parents[1] / "loading"))

from change_tables import ChangeTable, rows
from sink_targets import CASES, TABLES, Target

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture(params=["delta", "duckdb", "sqlite"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """Where a sink stores, for each kind of sink."""
    return Target(request.param, tmp_path / "target")


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Three rows, in two versions."""
    table = ChangeTable(tmp_path / "source")
    table.commit(table.add("f0", rows(1, 2)))
    table.commit(table.add("f1", rows(3)))
    return table


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in CASES}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


@pytest.fixture
def share() -> Iterator[Callable[..., SharedTable]]:
    """Share a local table; keywords are those of `ServerOptions`."""
    with ExitStack() as stack:

        def start(path: Path, **options: Any) -> SharedTable:
            server = stack.enter_context(SharingServer({"s.s.t": path}, **options))
            return stack.enter_context(SharingClient(server.profile)).table("s.s.t")

        yield start
