"""Scans with a row filter of a table that was scanned before: its metadata is not requested again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient, load_as_arrow
from delta_sharing_client.server import SharingServer

FILTER = [("p", ">=", "2"), ("id", "<", 25)]


def rows(first: int) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + 10), pa.int64())})


def write(path: Path, kind: str, *extra: Any) -> None:
    """Write a table with three files; `p` is a partition column of a type."""
    files = [File(rows=rows(n * 10), name=f"{kind}-{n}.parquet", values={"p": str(n * 9 + 1)}) for n in range(3)]
    write_table(path, [column("id", "long"), column("p", kind), *extra], files, partitions=["p"])


@pytest.fixture
def server(tmp_path: Path) -> Iterator[SharingServer]:
    write(tmp_path / "t", "string")
    with SharingServer({"s.s.t": tmp_path / "t"}) as running:
        yield running


def listings(server: SharingServer) -> list[str]:
    return [request.path.rpartition("/")[2] for request in server.requests if not request.is_file]


def test_the_second_scan_takes_one_request(server: SharingServer) -> None:
    with SharingClient(server.profile) as client:
        first = client.table("s.s.t").scan(filters=FILTER).to_arrow()
        assert listings(server) == ["metadata", "query"]
        server.reset_requests()
        second = client.table("s.s.t").scan(filters=[("p", "=", "10")])
        assert second.to_arrow()["id"].to_pylist() == list(range(10, 20))
        assert listings(server) == ["query"]
        assert sum(request.is_file for request in server.requests) == 1
    assert first["id"].to_pylist() == []


def test_functions_that_take_a_table_url_know_the_metadata_too(server: SharingServer, tmp_path: Path) -> None:
    profile = tmp_path / "config.share"
    server.write_profile(profile)
    for expected in (["metadata", "query"], ["query"], ["query"]):
        server.reset_requests()
        assert load_as_arrow(f"{profile}#s.s.t", filters=[("id", ">", 26)]).num_rows == 3
        assert listings(server) == expected


class TestChangedTable:
    """Text is compared in another order than numbers, so hints of the earlier type would skip files."""

    @pytest.fixture
    def change(self, server: SharingServer, tmp_path: Path) -> Callable[..., None]:
        with SharingClient(server.profile) as client:
            assert client.table("s.s.t").scan(filters=[("p", ">", "1")]).count() == 20
        server.reset_requests()

        def replace(kind: str, *extra: Any) -> None:
            shutil.rmtree(tmp_path / "t")
            write(tmp_path / "t", kind, *extra)

        return replace

    def test_query_is_sent_again_with_hints_of_the_new_type(
        self, server: SharingServer, change: Callable[..., None]
    ) -> None:
        change("integer")
        with SharingClient(server.profile) as client:
            scan = client.table("s.s.t").scan(filters="p >= 2 AND id < 25")
            assert scan.to_arrow()["id"].to_pylist() == list(range(10, 25))
            assert listings(server)[-1] == "query"
            server.reset_requests()
            assert scan.count() == 15
            assert listings(server) == ["query"]

    def test_only_the_query_is_sent_again_if_the_filter_fits_both_types(
        self, server: SharingServer, change: Callable[..., None]
    ) -> None:
        change("integer")
        with SharingClient(server.profile) as client:
            scan = client.table("s.s.t").scan(filters="p >= 2")
            assert scan.count() == 20
            change("long")
            server.reset_requests()
            assert scan.count() == 20
            assert listings(server) == ["query", "query"]

    def test_filter_on_a_new_column(self, server: SharingServer, change: Callable[..., None]) -> None:
        change("string", column("new", "long"))
        with SharingClient(server.profile) as client:
            assert client.table("s.s.t").scan(filters=[("new", "is", None)]).count() == 30

    def test_filter_on_a_removed_partition_column_raises(
        self, server: SharingServer, tmp_path: Path, change: Callable[..., None]
    ) -> None:
        shutil.rmtree(tmp_path / "t")
        write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows(0), name="a.parquet")])
        with SharingClient(server.profile) as client, pytest.raises(ValueError, match="'p'"):
            client.table("s.s.t").scan(filters=[("p", "=", "1")]).to_arrow()
