from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

sys.path.append(str(Path(__file__).parents[2] / "loading"))

from faults.server import FaultServer

from delta_sharing_client import SharingClient
from delta_sharing_client.server import ServerOptions, SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture
def serve() -> Iterator[Callable[..., SharingServer]]:
    """Start an embedded server that lasts as long as the test; keywords are those of `ServerOptions`."""
    with ExitStack() as stack:

        def start(path: Path, **options: Any) -> SharingServer:
            return stack.enter_context(SharingServer({"s.s.t": path}, options=ServerOptions(**options)))

        yield start


@pytest.fixture
def share(serve: Callable[..., SharingServer]) -> Iterator[Callable[..., SharedTable]]:
    """Share a table and open it as a client does; keywords are those of `ServerOptions`."""
    with ExitStack() as stack:

        def start(path: Path, **options: Any) -> SharedTable:
            server = serve(path, **options)
            return stack.enter_context(SharingClient(server.profile)).table("s.s.t")

        yield start


@pytest.fixture(params=["parquet", "delta"])
def response_format(request: pytest.FixtureRequest) -> Literal["parquet", "delta"]:
    return request.param


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server
