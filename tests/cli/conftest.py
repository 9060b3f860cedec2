from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_sharing_client.server import SharingServer, write_sample_tables


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    folder = tmp_path_factory.mktemp("cli")
    with SharingServer(write_sample_tables(folder / "warehouse")) as running:
        running.write_profile(folder / "config.share")
        yield running


@pytest.fixture
def profile(server: SharingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The path of a profile; the current folder is empty, and the environment selects no profile."""
    for name in ("DELTA_SHARING_PROFILE", "DELTA_SHARING_ENDPOINT", "DELTA_SHARING_BEARER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return str(server.write_profile(tmp_path / "config.share"))


@pytest.fixture
def orders(profile: str) -> str:
    return f"{profile}#retail.sales.orders"


@pytest.fixture
def customers(profile: str) -> str:
    return f"{profile}#retail.sales.customers"
