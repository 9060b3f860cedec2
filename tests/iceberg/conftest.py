"""The Iceberg catalog of these tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1]))

from faults.server import FaultServer
from iceberg_server import IcebergServer


@pytest.fixture
def iceberg(tmp_path: Path) -> Iterator[IcebergServer]:
    with FaultServer() as server:
        running = IcebergServer(server, tmp_path)
        yield running
        running.catalog.engine.dispose()
