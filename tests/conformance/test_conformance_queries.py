"""Read Data from a Table: formats, time travel, limits, pages, EndStreamAction, refresh tokens."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance_targets import (
    EVOLVED,
    LATEST,
    ORDERS,
    Target,
    at_hour,
    load,
    path_of,
)
from deltalake import DeltaTable

from delta_sharing_client.errors import BadRequestError, VersionMismatchError
from delta_sharing_client.model.names import Table
from delta_sharing_client.wire.requests import QueryRequest

END = "includeendstreamaction=true"


@pytest.fixture(scope="module")
def rows_of(tables: dict[str, Path]) -> Callable[[int], list[dict[str, Any]]]:
    """What deltalake reads of a version of `orders`."""
    kept: dict[int, list[dict[str, Any]]] = {}

    def read(version: int) -> list[dict[str, Any]]:
        if version not in kept:
            table = DeltaTable(str(tables[ORDERS]), version=version).to_pyarrow_table()
            kept[version] = sorted(table.to_pylist(), key=lambda row: row["id"])
        return kept[version]

    return read


class TestSnapshots:
    def test_the_latest(
        self, target: Target, response_format: Any, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        assert load(target, response_format=response_format) == rows_of(LATEST)
        assert load(target) == rows_of(LATEST)

    @pytest.mark.parametrize("version", [0, EVOLVED - 1, EVOLVED, LATEST - 1])
    @pytest.mark.protocol("POST .../tables/{table}/query", "version", "timestamp")
    def test_by_version_and_by_time(
        self, target: Target, version: int, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        points: list[dict[str, Any]] = [
            {"version": version, "response_format": "delta"},
            {"timestamp": at_hour(version), "response_format": "parquet"},
            {"timestamp": (at_hour(version) + timedelta(minutes=59)).isoformat()},
        ]
        for point in points:
            if not target.history:
                with pytest.raises(BadRequestError, match="history is not shared"):
                    load(target, **point)
                continue
            assert load(target, **point) == rows_of(version)
            names = target.client.table(ORDERS).scan(**point).schema.names
            assert ("note" in names) == (version >= EVOLVED)

    def test_missing_versions_and_times_are_refused(self, target: Target) -> None:
        for point in ({"version": LATEST + 1}, {"timestamp": at_hour(-1)}, {"timestamp": "2999-01-01T00:00:00Z"}):
            with pytest.raises(BadRequestError):
                load(target, **point)
        with pytest.raises(ValueError, match="together"):
            load(target, version=1, timestamp=at_hour(1))

    def test_the_versions_header(self, target: Target) -> None:
        assert target.query(ORDERS).version == LATEST
        if target.history:
            assert target.query(ORDERS, version=2).version == 2
            assert {file["version"] for file in target.query(ORDERS, version=2).all("file")} == {2}

    def test_an_answer_for_another_version_is_refused(self, faults: Any) -> None:
        from faults.server import Reply

        from delta_sharing_client import SharingClient

        faults.on("POST", "*", Reply.of_lines({}, headers={"Delta-Table-Version": "8"}))
        with SharingClient(faults.profile) as client, pytest.raises(VersionMismatchError) as caught:
            client.table("s.s.t").scan(version=7).to_arrow()
        assert (caught.value.expected, caught.value.actual) == (7, 8)

    def test_files_are_the_same_in_every_answer(self, target: Target) -> None:
        plain = [file["id"] for file in target.query(ORDERS).all("file")]
        wrapped = [file["id"] for file in target.query(ORDERS, "responseformat=delta").all("file")]
        chosen = wrapped if target.options.get("prefer_format") == "delta" else plain
        assert chosen == [task.file_id for task in target.client.table(ORDERS).scan().files()]
        assert len(set(plain)) == len(plain) == len(wrapped)
        assert (plain == wrapped) != target.like_reference


class TestLimits:
    def test_limits_are_exact(self, target: Target, response_format: Any) -> None:
        scan = target.client.table(ORDERS).scan(response_format=response_format, columns=["id"])
        whole = scan.to_arrow()
        for limit in (0, 1, 7, 10**9):
            assert scan.replace(limit=limit).to_arrow().equals(whole.slice(0, limit))

    @pytest.mark.protocol("limitHint")
    def test_the_hint_is_sent_unless_rows_are_filtered(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        table = newest.client.table(ORDERS)
        table.scan(limit=7).to_arrow()
        table.scan(limit=2**40).to_arrow()
        table.scan(limit=7, filters=[("region", "=", "north")]).to_arrow()
        table.scan(limit=0).to_arrow()
        bodies = [request.body for request in newest.server.requests if request.method == "POST"]
        assert [body.get("limitHint") for body in bodies if body is not None] == [7, 2**31 - 1, None]

    @pytest.mark.protocol("limitHint")
    def test_limit_hint_leaves_out_files(self, target: Target) -> None:
        every = len(target.query(ORDERS).all("file"))
        counts = [len(target.query(ORDERS, limitHint=limit).all("file")) for limit in (0, 1, 10**6)]
        assert counts[0] == 0
        assert counts[1] < every
        assert counts[2] == every


class TestPages:
    @pytest.mark.parametrize("size", [1, 3, 100])
    def test_pages_add_up_to_the_whole_answer(self, target: Target, response_format: Any, size: int) -> None:
        table = Table.parse(ORDERS)
        whole = target.rest.query_table(table, QueryRequest(formats=(response_format,)))
        paged = target.rest.query_table(table, QueryRequest(formats=(response_format,), max_files=size))
        assert [item.id for item in paged.items] == [item.id for item in whole.items]
        assert (paged.version, paged.protocol, paged.metadata) == (LATEST, whole.protocol, whole.metadata)

    @pytest.mark.protocol("maxFiles", "pageToken")
    def test_a_page_on_the_wire(self, target: Target) -> None:
        first = target.query(ORDERS, END, maxFiles=2)
        token = first.lines[-1].get("endStreamAction", {}).get("nextPageToken")
        if not target.ends_streams:
            assert token is None
            assert len(first.all("file")) > 2
            return
        assert 1 <= len(first.all("file")) <= 2
        second = target.query(ORDERS, END, maxFiles=2, pageToken=token)
        assert second.lines[:2] == first.lines[:2]
        assert second.version == first.version
        assert not {f["id"] for f in first.all("file")} & {f["id"] for f in second.all("file")}
        assert target.query(ORDERS, END, maxFiles=2, pageToken=token, limitHint=5).status == 400

    def test_following_pages_ask_for_the_same(self, start: Callable[..., Target]) -> None:
        paged = start("paged")
        assert paged.server is not None
        paged.server.reset_requests()
        rows = paged.client.table(ORDERS).scan(filters=[("region", "=", "north")]).to_arrow()
        assert rows.num_rows
        bodies = [request.body for request in paged.server.requests if request.method == "POST"]
        assert len(bodies) > 2
        first, *others = [dict(body or {}) for body in bodies]
        assert "pageToken" not in first
        assert first.pop("includeRefreshToken")  # which only the first page takes
        assert all(body.pop("pageToken") for body in others)
        assert all(body == first for body in others)
        headers = {request.capabilities for request in paged.server.requests if request.method == "POST"}
        assert len(headers) == 1

    def test_a_table_that_changes_between_two_pages(self, start: Callable[..., Target], tmp_path: Path) -> None:
        """The pages stay at the version of the first one."""
        import pyarrow as pa
        from deltalake import write_deltalake

        from delta_sharing_client import SharingClient
        from delta_sharing_client.model.profile import Profile
        from delta_sharing_client.rest.client import RestClient
        from delta_sharing_client.server import SharingServer

        path = str(tmp_path / "t")
        for number in range(4):
            write_deltalake(path, pa.table({"id": [number]}), mode="append")
        with SharingServer({"s.s.t": path}, max_files_per_page=1) as server:
            grown = False

            def convert(protocol: Any, metadata: Any) -> Callable[[Any], Any]:
                nonlocal grown
                if not grown:
                    write_deltalake(path, pa.table({"id": [99]}), mode="append")
                    grown = True
                return list

            with RestClient(Profile.from_dict(server.profile)) as rest:
                answer = rest.query_table(Table("t", "s", "s"), QueryRequest(), convert)
            assert (answer.version, len(answer.items)) == (3, 4)
            with SharingClient(server.profile) as client:
                assert client.table("s.s.t").scan().count() == 5


class TestEndStreamAction:
    @pytest.mark.protocol("endStreamAction", "includeendstreamaction")
    def test_end_action_is_last_when_requested(self, target: Target, response_format: Any) -> None:
        answer = target.query(ORDERS, f"responseformat={response_format};{END}")
        ends = [number for number, line in enumerate(answer.lines) if "endStreamAction" in line]
        if target.ends_streams:
            assert ends == [len(answer.lines) - 1]
            expires = answer.all("endStreamAction")[0]["minUrlExpirationTimestamp"]
            assert expires == min(file["expirationTimestamp"] for file in answer.all("file"))
        else:
            assert ends == []
        assert not target.query(ORDERS, f"responseformat={response_format}").all("endStreamAction")

    def test_the_client_reads_answers_with_and_without(
        self, target: Target, rows_of: Callable[[int], list[dict[str, Any]]]
    ) -> None:
        answer = target.rest.query_table(Table.parse(ORDERS), QueryRequest())
        assert (answer.end is not None) == target.ends_streams
        assert load(target) == rows_of(LATEST)


class TestRefreshTokens:
    @pytest.mark.protocol("includeRefreshToken", "refreshToken")
    def test_the_same_files_with_fresh_urls(self, target: Target, response_format: Any) -> None:
        table = Table.parse(ORDERS)
        asked = QueryRequest(formats=(response_format,), include_refresh_token=True)
        first = target.rest.query_table(table, asked)
        token = first.end.refresh_token if first.end is not None else None
        assert (token is not None) == target.ends_streams
        if token is None:
            return
        again = target.rest.query_table(table, QueryRequest(formats=(response_format,), refresh_token=token))
        assert [item.id for item in again.items] == [item.id for item in first.items]
        assert {item.url for item in again.items}.isdisjoint(item.url for item in first.items)
        assert target.fetch(again.items[0].url.reveal()) == target.fetch(first.items[0].url.reveal())

    @pytest.mark.parametrize(
        "body",
        [
            {"version": 1, "includeRefreshToken": True},
            {"timestamp": "2024-01-01T03:00:00Z", "includeRefreshToken": True},
            {"startingVersion": 1, "includeRefreshToken": True},
            {"version": 1, "refreshToken": "x"},
        ],
    )
    def test_only_for_the_latest_snapshot(self, target: Target, body: dict[str, Any]) -> None:
        assert target.query(ORDERS, END, **body).status == 400

    def test_unknown_refresh_token_is_refused(self, target: Target) -> None:
        answer = target.query(ORDERS, END, refreshToken="made up")
        assert answer.status == (400 if target.ends_streams else 200)


@pytest.mark.parametrize(
    "body",
    [{}, {"version": None, "limitHint": None, "predicateHints": None}, {"somethingNew": {"a": 1}}, None],
)
def test_empty_bodies_return_the_whole_table(target: Target, body: Any) -> None:
    answer = (
        target.call("POST", f"{path_of(ORDERS)}/query", json=body)
        if body is not None
        else target.call("POST", f"{path_of(ORDERS)}/query", data=b"")
    )
    assert len(answer.all("file")) == len(target.query(ORDERS).all("file"))
