"""Tables in Azure and Google stores, read from imitations of them over real sockets.

pyarrow's file systems take no address of a store from the environment, so it is added to what they are made with.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.fs
import pytest
from deltalake import write_deltalake
from directory_store import DirectoryServer
from other_stores import azure, google

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import FileGoneError

STORES = {"AzureFileSystem": azure, "GcsFileSystem": google}


@pytest.mark.parametrize("name", STORES)
class TestStores:
    @pytest.fixture
    def client(self, name: str, shared: DirectoryServer, monkeypatch: pytest.MonkeyPatch) -> SharingClient:
        write_deltalake(shared.path, pa.table({"p": ["a b", "c"] * 3, "x": range(6)}), partition_by=["p"])
        make: Callable[[DirectoryServer], dict[str, Any]] = STORES[name]
        where = make(shared)
        kind = getattr(pyarrow.fs, name)

        @functools.wraps(kind, updated=())
        def reached(**settings: Any) -> Any:
            return kind(**{**settings, **where})

        monkeypatch.setattr(pyarrow.fs, name, reached)
        return SharingClient(shared.api.profile)

    def test_rows(self, client: SharingClient) -> None:
        rows = client.table("s.d.t").scan().to_arrow()
        assert sorted(zip(rows["p"].to_pylist(), rows["x"].to_pylist(), strict=True)) == [
            *(("a b", x) for x in (0, 2, 4)),
            *(("c", x) for x in (1, 3, 5)),
        ]

    def test_a_file_that_is_gone(self, client: SharingClient, shared: DirectoryServer) -> None:
        next(shared.path.rglob("*part-*.parquet")).unlink()
        with pytest.raises(FileGoneError):
            client.table("s.d.t").scan().to_arrow()

    def test_no_secret_shows(
        self, client: SharingClient, shared: DirectoryServer, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        from faults.server import Reply

        shared.store.on("*", "*", lambda request: Reply(status=403, body=f"{request.target}".encode()))
        with pytest.raises(Exception) as caught:
            client.table("s.d.t").scan().to_arrow()
        assert "canary" not in str(caught.value) + repr(caught.value) + caplog.text
