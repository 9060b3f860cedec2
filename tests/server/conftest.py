from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from served_tables import Caller

from delta_sharing_client.server import SharingServer, write_sample_tables


@pytest.fixture(scope="session")
def sample_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("samples")
    write_sample_tables(directory)
    return directory


@pytest.fixture(scope="session")
def sample_server(sample_directory: Path) -> Iterator[SharingServer]:
    with SharingServer(sample_directory) as server:
        yield server


@pytest.fixture
def sample(sample_server: SharingServer) -> Iterator[Caller]:
    sample_server.reset_requests()
    with Caller(sample_server) as caller:
        yield caller


@pytest.fixture
def serve() -> Iterator[Any]:
    """Start a server with the options a test wants, and return a caller of it."""
    with ExitStack() as stack:

        def start(tables: Any, **options: Any) -> Caller:
            return stack.enter_context(Caller(stack.enter_context(SharingServer(tables, **options))))

        yield start
