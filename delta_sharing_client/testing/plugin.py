"""The pytest plugin: fixtures with a sharing server for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from delta_sharing_client.testing.table_server import TableServer


@pytest.fixture
def delta_sharing_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TableServer]:
    """A sharing server on this machine, without tables at first: `share` adds them, `faults` makes it fail."""
    from delta_sharing_client.testing.table_server import TableServer

    with TableServer(tmp_path_factory.mktemp("delta_sharing")) as server:
        yield server


@pytest.fixture
def delta_sharing_profile(delta_sharing_server: TableServer) -> str:
    """The path of a profile file for `delta_sharing_server`, for code under test that takes one."""
    return str(delta_sharing_server.profile_path)
