from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Literal

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer

from delta_sharing_client import SharingClient
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import SharingServer


@pytest.fixture(scope="module")
def serve() -> Iterator[Callable[..., SharingServer]]:
    """Start an embedded server that lasts as long as the module's tests."""
    with ExitStack() as stack:

        def start(tables: Any, **options: Any) -> SharingServer:
            return stack.enter_context(SharingServer(tables, **options))

        yield start


@pytest.fixture(scope="module")
def connect() -> Iterator[Callable[..., SharingClient]]:
    """Make a client of a server; `options` are those of `TransportOptions`."""
    with ExitStack() as stack:

        def client(server: SharingServer | FaultServer, **options: Any) -> SharingClient:
            return stack.enter_context(SharingClient(server.profile, options=TransportOptions(**options)))

        yield client


@pytest.fixture(params=["parquet", "delta"])
def response_format(request: pytest.FixtureRequest) -> Literal["parquet", "delta"]:
    return request.param


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server
