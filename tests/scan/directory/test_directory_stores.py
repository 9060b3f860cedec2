"""Tables in Azure and Google stores, read from imitations of them over real sockets.

pyarrow's file systems take no address of a store from the environment, so it is added to what they are made with.
The imitation of Google's store runs in a process of its own: pyarrow holds Python still while it asks that one.
"""

from __future__ import annotations

import functools
import json
import logging
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import write_deltalake
from directory_store import DirectoryServer
from faults.server import Reply
from other_stores import azure
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DeltaSharingError, FileGoneError


@pytest.fixture
def reached(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, dict[str, Any]], None]:
    """Have a file system of pyarrow reach a store on this machine."""

    def reach(name: str, where: dict[str, Any]) -> None:
        kind = getattr(pyarrow.fs, name)

        @functools.wraps(kind, updated=())
        def made(**settings: Any) -> Any:
            return kind(**{**settings, **where})

        monkeypatch.setattr(pyarrow.fs, name, made)

    return reach


def write(path: Path) -> None:
    write_deltalake(path, pa.table({"p": ["a b", "c"] * 3, "x": range(6)}), partition_by=["p"])


def rows(client: SharingClient) -> list[tuple[str, int]]:
    found = client.table("s.d.t").scan().to_arrow()
    return sorted(zip(found["p"].to_pylist(), found["x"].to_pylist(), strict=True))


EXPECTED = [*(("a b", x) for x in (0, 2, 4)), *(("c", x) for x in (1, 3, 5))]


class TestAzure:
    @pytest.fixture
    def client(
        self, shared: DirectoryServer, reached: Callable[[str, dict[str, Any]], None]
    ) -> Iterator[SharingClient]:
        write(shared.path)
        reached("AzureFileSystem", azure(shared))
        with SharingClient(shared.api.profile) as client:
            yield client

    def test_rows(self, client: SharingClient) -> None:
        assert rows(client) == EXPECTED

    def test_a_file_that_is_gone(self, client: SharingClient, shared: DirectoryServer) -> None:
        next(shared.path.rglob("*part-*.parquet")).unlink()
        with pytest.raises(FileGoneError):
            rows(client)

    def test_no_secret_shows(
        self, client: SharingClient, shared: DirectoryServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        shared.store.on("*", "*", lambda request: Reply(status=403, body=request.target.encode()))
        with pytest.raises(DeltaSharingError) as caught:
            rows(client)
        assert "canary" not in str(caught.value) + repr(caught.value) + caplog.text


class TestGoogle:
    @pytest.fixture
    def client(self, tmp_path: Path, reached: Callable[[str, dict[str, Any]], None]) -> Iterator[SharingClient]:
        write(tmp_path / "table")
        script = Path(__file__).with_name("other_stores.py")
        with subprocess.Popen(
            [sys.executable, str(script), str(tmp_path / "table")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            reached("GcsFileSystem", told["where"])
            with SharingClient(told["profile"]) as client:
                yield client
            process.communicate("", timeout=HANG)

    def test_rows(self, client: SharingClient) -> None:
        assert rows(client) == EXPECTED

    def test_a_file_that_is_gone(self, client: SharingClient, tmp_path: Path) -> None:
        next((tmp_path / "table").rglob("*part-*.parquet")).unlink()
        with pytest.raises(FileGoneError):
            rows(client)
