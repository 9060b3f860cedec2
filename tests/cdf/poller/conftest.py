from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[2] / "cdf" / "feed"))
sys.path.append(str(Path(__file__).parents[2] / "loading"))

from change_tables import ChangeTable, rows
from faults.server import FaultServer

from delta_sharing_client import SharingClient
from delta_sharing_client.server import ServerOptions, SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Ten versions, the row `n` inserted in version `n`."""
    table = ChangeTable(tmp_path / "t")
    for version in range(10):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


SERVERS = {"protocol": ServerOptions(), "reference": ServerOptions.like_reference()}


@pytest.fixture(params=SERVERS)
def server(table: ChangeTable, request: pytest.FixtureRequest) -> Iterator[SharingServer]:
    with SharingServer({"s.s.t": table.root}, options=SERVERS[request.param]) as server:
        yield server


@pytest.fixture
def shared(server: SharingServer) -> Iterator[SharedTable]:
    with SharingClient(server.profile) as client:
        yield client.table("s.s.t")


@pytest.fixture
def share() -> Iterator[Callable[..., SharedTable]]:
    """Share another table; keywords are those of `ServerOptions`."""
    with ExitStack() as stack:

        def start(path: Path, **options: Any) -> SharedTable:
            server = stack.enter_context(SharingServer({"s.s.t": path}, **options))
            return stack.enter_context(SharingClient(server.profile)).table("s.s.t")

        yield start


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server
