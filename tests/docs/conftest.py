from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from delta_sharing_client.server import SharingServer, write_sample_tables

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository."""
    return ROOT


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharingServer]:
    """A folder with a profile and Delta tables, as the texts suppose it; the current one while it lasts."""
    write_sample_tables(tmp_path / "warehouse")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DELTA_SHARING_PROFILE", "nowhere.share")  # so that what a text sets is undone
    logger = logging.getLogger("delta_sharing_client")
    level = logger.level
    with SharingServer(tmp_path / "warehouse") as server:
        server.write_profile(tmp_path / "config.share")
        yield server
    logger.setLevel(level)  # a text sets it to DEBUG
