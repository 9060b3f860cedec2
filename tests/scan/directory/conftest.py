"""A table that is offered by its directory only: a sharing server, and an S3 imitation beside it on loopback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[2]))

from directory_store import DirectoryServer


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectoryServer]:
    with DirectoryServer(tmp_path / "table") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.store.url)
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE"):
            monkeypatch.delenv(name, raising=False)
        yield server
