"""Fixtures of the tests of materialized tables and mirrors."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent / "loading"))

from faults.server import FaultServer

from delta_sharing_client import SharingClient
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import SharingServer


@pytest.fixture
def serve() -> Iterator[Callable[..., SharingServer]]:
    with ExitStack() as stack:

        def start(tables: Any, **options: Any) -> SharingServer:
            return stack.enter_context(SharingServer(tables, **options))

        yield start


@pytest.fixture
def connect() -> Iterator[Callable[..., SharingClient]]:
    with ExitStack() as stack:

        def client(server: SharingServer | FaultServer, **options: Any) -> SharingClient:
            return stack.enter_context(SharingClient(server.profile, options=TransportOptions(**options)))

        yield client


@pytest.fixture
def faults() -> Iterator[FaultServer]:
    with FaultServer() as server:
        yield server


@pytest.fixture(autouse=True)
def no_kept_logs() -> Iterator[None]:
    yield
    DeltaLog.clear_cache()
