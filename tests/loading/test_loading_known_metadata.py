"""Scans with a row filter: metadata is requested only if nothing else gives the types for hints."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient, load_as_arrow
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.scan import planner
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.server import SharingServer

FILTER = "p >= '2' AND id < 25"


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
        assert load_as_arrow(f"{profile}#s.s.t", filters="id > 26").num_rows == 3
        assert listings(server) == expected


class TestChangedTable:
    """Text is compared in another order than numbers, so hints of the earlier type would skip files."""

    @pytest.fixture
    def client(self, server: SharingServer) -> Iterator[SharingClient]:
        with SharingClient(server.profile) as client:
            yield client

    @pytest.fixture
    def change(self, server: SharingServer, client: SharingClient, tmp_path: Path) -> Callable[..., None]:
        assert client.table("s.s.t").scan(filters=[("p", ">", "1")]).count() == 20
        server.reset_requests()

        def replace(kind: str, *extra: Any) -> None:
            shutil.rmtree(tmp_path / "t")
            write(tmp_path / "t", kind, *extra)

        return replace

    def test_query_is_sent_again_with_hints_of_the_new_type(
        self, server: SharingServer, client: SharingClient, change: Callable[..., None]
    ) -> None:
        change("integer")
        with client:
            scan = client.table("s.s.t").scan(filters="p >= 2 AND id < 25")
            assert scan.to_arrow()["id"].to_pylist() == list(range(10, 25))
            assert listings(server)[-1] == "query"
            server.reset_requests()
            assert scan.count() == 15
            assert listings(server) == ["query"]

    def test_only_the_query_is_sent_again_if_the_filter_fits_both_types(
        self, server: SharingServer, client: SharingClient, change: Callable[..., None]
    ) -> None:
        change("integer")
        with client:
            scan = client.table("s.s.t").scan(filters="p >= 2")
            assert scan.count() == 20
            change("long")
            server.reset_requests()
            assert scan.count() == 20
            assert listings(server) == ["query", "query"]

    def test_filter_on_a_new_column(self, client: SharingClient, change: Callable[..., None]) -> None:
        change("string", column("new", "long"))
        with client:
            assert client.table("s.s.t").scan(filters=[("new", "is", None)]).count() == 30

    def test_filter_on_a_removed_partition_column_raises(
        self, server: SharingServer, tmp_path: Path, client: SharingClient, change: Callable[..., None]
    ) -> None:
        shutil.rmtree(tmp_path / "t")
        write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows(0), name="a.parquet")])
        with client, pytest.raises(ValueError, match="'p'"):
            client.table("s.s.t").scan(filters=[("p", "=", "1")]).to_arrow()


def test_a_scan_without_a_filter_makes_the_metadata_known(server: SharingServer) -> None:
    with SharingClient(server.profile) as client:
        assert client.table("s.s.t").scan(limit=1).to_arrow().num_rows == 1
        server.reset_requests()
        assert client.table("s.s.t").scan(filters=FILTER).count() == 0
    assert listings(server) == ["query"]


def test_a_schema_that_does_not_change_is_bound_once() -> None:
    binder = planner._Binder(ScanOptions(filters=[("id", ">", 1)]), "table s.s.t")
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("id", "n")]
    schemas = [json.dumps({"type": "struct", "fields": fields[: count + 1]}) for count in range(2)]
    known, changed = (Metadata("m", schema, partition_columns=("id",)) for schema in schemas)
    spec, hints = binder.spec(Protocol(1), known), binder.hints(Protocol(1), known)
    grown = dataclasses.replace(known, version=7, size=10, num_files=1)
    assert binder.spec(Protocol(1), grown) is spec
    assert binder.spec(Protocol(1), changed) is not spec
    assert binder.hints(Protocol(1), changed) == hints


class TestInferredTypes:
    """The first query of a table has hints of the types that the filter's values are likely to be of."""

    COLUMNS: ClassVar = [column("id", "long"), column("p", "string"), column("n", "integer"), column("d", "date")]
    COLUMNS += [column("x", "double"), column("s", "string")]

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[SharingServer]:
        files = [
            File(
                rows=pa.table(
                    {
                        "id": pa.array([n], pa.int64()),
                        "n": pa.array([n], pa.int32()),
                        "d": pa.array([date(2024, 1, n)], pa.date32()),
                        "x": pa.array([n / 1], pa.float64()),
                        "s": pa.array([f"2024-01-0{n}"]),
                    }
                ),
                name=f"{n}.parquet",
                values={"p": f"p{n}"},
            )
            for n in (1, 2, 3)
        ]
        write_table(tmp_path / "t", self.COLUMNS, files, partitions=["p"])
        with SharingServer({"s.s.t": tmp_path / "t"}) as running:
            yield running

    def found(self, server: SharingServer, filters: Any) -> list[int]:
        with SharingClient(server.profile) as client:
            return client.table("s.s.t").scan(filters=filters).to_arrow()["id"].to_pylist()

    @pytest.mark.parametrize(
        "filters",
        [
            [("p", "=", "p2")],
            [("p", "in", ["p2", "p9"])],
            [("p", "!=", "p1"), ("p", "!=", "p3")],
            [[("p", "=", "p2")], [("p", "=", "p8")]],
            [("p", "is not", None), ("p", "=", "p2")],
            [("id", ">", 1), ("id", "<", 3)],
            [("n", "=", 2)],
            [("d", "=", date(2024, 1, 2))],
            [("d", "=", "2024-01-02")],
            [("x", "=", 2.0)],
            [("p", "=", "p2"), ("n", ">=", 0)],
        ],
        ids=str,
    )
    def test_one_request(self, server: SharingServer, filters: Any) -> None:
        assert self.found(server, filters) == [2]
        assert listings(server) == ["query"]
        (sent,) = [request.body for request in server.requests if request.path.endswith("/query")]
        assert "jsonPredicateHints" in sent
        assert "predicateHints" not in sent

    @pytest.mark.parametrize(
        "filters",
        [
            [("x", "=", 2)],
            [("s", "=", "2024-01-02")],
            [("n", "!=", 1), ("n", "!=", 3)],
            [("n", "=", 2), ("p", "=", "p2")],
            [("P", "=", "p2")],
            [("n", "not in", [1, 3])],
        ],
        ids=str,
    )
    def test_other_types_than_inferred_take_a_second_query(self, server: SharingServer, filters: Any) -> None:
        with SharingClient(server.profile) as client:
            scan = client.table("s.s.t").scan(filters=filters)
            for sent in (["query", "query"], ["query"]):
                server.reset_requests()
                assert scan.to_arrow()["id"].to_pylist() == [2]
                assert listings(server) == sent

    @pytest.mark.parametrize(
        "filters",
        [
            "p = 'p2'",
            [("id", "=", Decimal(2))],
            [("p", "=", "p2"), ("s", "is not", None)],
            [("id", "in", [2, 2.0])],
            [("s", "=", "2024-01-02"), ("s", ">", "2024")],
        ],
        ids=str,
    )
    def test_filters_without_inferred_types_request_the_metadata(
        self, server: SharingServer, filters: Any
    ) -> None:
        assert self.found(server, filters) == [2]
        assert listings(server) == ["metadata", "query"]

    def test_members_of_enumerations_are_compared_by_their_value(self, server: SharingServer) -> None:
        class Key(str, Enum):  # noqa: UP042 - `str` of a member of StrEnum is its value
            SECOND = "p2"

        class Number(int, Enum):
            SECOND = 2

        class Amount(float, Enum):
            SECOND = 2.0

        for column_name, value in (("p", Key.SECOND), ("n", Number.SECOND), ("x", Amount.SECOND)):
            assert self.found(server, [(column_name, "=", value)]) == [2]
            assert self.found(server, [(column_name, "in", [value])]) == [2]

    def test_errors_of_the_filter_take_one_request(self, server: SharingServer) -> None:
        for filters in ([("none", "=", 1)], [("p", "=", 1)]):
            server.reset_requests()
            with pytest.raises(ValueError, match=filters[0][0]):
                self.found(server, filters)
            assert listings(server) == ["query"]

    def test_errors_of_the_filter_take_one_request_after_the_table_has_changed(
        self, server: SharingServer, tmp_path: Path
    ) -> None:
        assert self.found(server, [("n", "=", 2)]) == [2]
        shutil.rmtree(tmp_path / "t")
        write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows(0), name="a.parquet")])
        server.reset_requests()
        with pytest.raises(ValueError, match="'n'"):
            self.found(server, [("n", "=", 2)])
        assert listings(server) == ["query"]

    @pytest.mark.parametrize(
        "filters", [[("p", "=", 1)], [("none", "=", 1)], [("d", "=", "2024-13-01")], [("p", "like", "x")]], ids=str
    )
    def test_errors_are_those_of_the_table(self, server: SharingServer, filters: Any) -> None:
        with pytest.raises(ValueError, match=str(filters[0][0])):
            self.found(server, filters)
