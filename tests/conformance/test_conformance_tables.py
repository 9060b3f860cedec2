"""Query Table Version and Query Table Metadata, and the capabilities header that goes with the latter."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from conformance_targets import EVOLVED, LATEST, MAPPED, ORDERS, Target, at_hour, parse_capabilities, path_of
from deltalake import DeltaTable
from faults.server import FaultServer, Reply

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, NotFoundError, ProtocolError, RestError
from delta_sharing_client.model.reader_features import ADVERTISED_FEATURES

SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module")
def columns_of(tables: dict[str, Path]) -> Callable[[int], list[str]]:
    """The columns of a version of `orders`, from deltalake."""
    return lambda version: [
        field.name for field in DeltaTable(str(tables[ORDERS]), version=version).schema().fields
    ]


class TestVersions:
    @pytest.mark.protocol("GET .../tables/{table}/version", "delta-table-version")
    def test_the_latest(self, target: Target) -> None:
        assert target.client.table(ORDERS).version() == LATEST
        answer = target.get(f"{path_of(ORDERS)}/version")
        assert (answer.version, answer.content) == (LATEST, b"")

    @pytest.mark.parametrize(
        ("moment", "version"),
        [
            (datetime(1970, 1, 1, tzinfo=UTC), 0),
            (at_hour(0) - SECOND, 0),
            (at_hour(0), 0),
            (at_hour(0) + SECOND, 1),
            (at_hour(2.5), 3),
            (at_hour(LATEST), LATEST),
            (at_hour(LATEST) + SECOND, None),
            (datetime(2999, 1, 1, tzinfo=UTC), None),
        ],
    )
    @pytest.mark.protocol("startingTimestamp")
    def test_the_first_at_or_after_a_time(self, target: Target, moment: datetime, version: int | None) -> None:
        table = target.client.table(ORDERS)
        if target.history and version is not None:
            assert table.version(moment) == version
            assert table.version(moment.isoformat().replace("+00:00", "Z")) == version
            assert table.version(moment.replace(tzinfo=None)) == version
            assert table.version(moment.astimezone(at_hour(0).tzinfo)) == version
        else:
            with pytest.raises(BadRequestError, match="older" if target.history else "history is not shared"):
                table.version(moment)

    def test_times_are_sent_in_utc(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        table = newest.client.table(ORDERS)
        tokyo = datetime.fromisoformat("2024-01-01T09:30:00+09:00")
        table.version(tokyo)
        table.version(date(2024, 1, 1))
        sent = [request.query["startingTimestamp"] for request in newest.server.requests]
        assert sent == ["2024-01-01T00:30:00Z", "2024-01-01T00:00:00Z"]

    def test_the_deprecated_head_request_is_still_answered(self, target: Target) -> None:
        answer = target.call("HEAD", path_of(ORDERS))
        assert (answer.status, answer.version, answer.content) == (200, LATEST, b"")
        assert target.call("HEAD", path_of("shop.sales.nope")).status == 404

    @pytest.mark.parametrize("status", [404, 405, 501])
    @pytest.mark.protocol("HEAD .../tables/{table}")
    def test_head_request_is_the_fallback_for_old_servers(self, faults: FaultServer, status: int) -> None:
        path = "/shares/s/schemas/s/tables/t"
        faults.on("GET", f"{path}/version", Reply.of_json({"errorCode": "X", "message": "none"}, status=status))
        faults.on("HEAD", path, Reply(headers={"delta-table-version": "123"}))
        with SharingClient(faults.profile) as client:
            table = client.table("s.s.t")
            assert table.version() == 123
            with pytest.raises(RestError, match=str(status)):
                table.version("2024-01-01T00:00:00Z")  # HEAD takes no time
        # What follows a 404 looks for the name in the listings.
        assert [(request.method, request.path) for request in faults.requests][:3] == [
            ("GET", f"{path}/version"),
            ("HEAD", path),
            ("GET", f"{path}/version"),
        ]
        assert "authorization" in faults.requests[1].headers

    def test_missing_table_is_not_found_by_head(self, newest: Target) -> None:
        with pytest.raises(NotFoundError, match=r"shop\.sales\.nope"):
            newest.client.table("shop.sales.nope").version()

    @pytest.mark.parametrize("headers", [{}, {"Delta-Table-Version": "soon"}, {"Delta-Table-Version": ""}])
    def test_answer_without_a_version_raises(self, faults: FaultServer, headers: dict[str, str]) -> None:
        faults.on("GET", "/shares/s/schemas/s/tables/t/version", Reply(headers=headers))
        with SharingClient(faults.profile) as client, pytest.raises(ProtocolError, match="Delta-Table-Version"):
            client.table("s.s.t").version()


class TestMetadata:
    def test_of_the_latest_version(
        self, target: Target, response_format: Any, columns_of: Callable[[int], list[str]]
    ) -> None:
        table = target.client.table(ORDERS)
        metadata = table.metadata(response_format=response_format)
        assert metadata.schema.names == columns_of(LATEST)
        types = {field.name: str(field.type) for field in metadata.schema}
        assert types == {"id": "long", "day": "date", "region": "string", "amount": "double", "note": "string"}
        assert metadata.partition_columns == ("day", "region")
        assert table.schema() == metadata.schema
        assert any(key.endswith("enableChangeDataFeed") for key in metadata.configuration)
        expected = response_format if target.knows_formats else "parquet"
        assert table.protocol(response_format=response_format).response_format == expected

    def test_both_formats_agree(self, target: Target) -> None:
        table = target.client.table(ORDERS)
        plain, wrapped = (table.metadata(response_format=name) for name in ("parquet", "delta"))
        assert (plain.id, plain.schema, plain.size, plain.num_files) == (
            wrapped.id,
            wrapped.schema,
            wrapped.size,
            wrapped.num_files,
        )
        assert plain.num_files

    @pytest.mark.parametrize("version", [0, EVOLVED - 1, EVOLVED, LATEST])
    @pytest.mark.protocol("GET .../tables/{table}/metadata", "version", "timestamp")
    def test_of_a_version_or_a_time(
        self, target: Target, response_format: Any, version: int, columns_of: Callable[[int], list[str]]
    ) -> None:
        table = target.client.table(ORDERS)
        for point in ({"version": version}, {"timestamp": at_hour(version)}):
            if not target.history:
                with pytest.raises(BadRequestError, match="history is not shared"):
                    table.metadata(**point, response_format=response_format)
                continue
            metadata = table.metadata(**point, response_format=response_format)
            assert metadata.schema.names == columns_of(version)
            assert ("note" in metadata.schema.names) == (version >= EVOLVED)
            assert metadata.version == version
            assert table.schema(**point) == metadata.schema

    def test_missing_version_or_time_is_refused(self, target: Target) -> None:
        table = target.client.table(ORDERS)
        for point in (
            {"version": LATEST + 1},
            {"timestamp": at_hour(-1)},
            {"timestamp": at_hour(LATEST) + SECOND},
        ):
            with pytest.raises(BadRequestError):
                table.metadata(**point)

    @pytest.mark.protocol("protocol", "metaData")
    def test_answer_has_two_lines_and_an_end(self, target: Target) -> None:
        plain = target.get(f"{path_of(ORDERS)}/metadata")
        assert [list(line) for line in plain.lines] == [["protocol"], ["metaData"]]
        assert plain.version == LATEST
        ended = target.get(f"{path_of(ORDERS)}/metadata", "includeendstreamaction=true")
        assert [list(line) for line in ended.lines][2:] == ([["endStreamAction"]] if target.ends_streams else [])

    def test_table_not_expressible_in_parquet_format_is_refused(self, target: Target) -> None:
        table = target.client.table(MAPPED)
        with pytest.raises(BadRequestError, match="columnMapping"):
            table.metadata(response_format="parquet")
        if target.knows_formats:
            assert table.protocol().response_format == "delta"
            assert table.scan().to_arrow().to_pylist() == [{"id": 1}, {"id": 2}]
        else:
            with pytest.raises(BadRequestError, match="columnMapping"):
                table.metadata()

    def test_answers_come_without_delay(self, newest: Target) -> None:
        """An answer in several packets is not held back for an acknowledgement, which takes 40 ms."""
        assert newest.server is not None
        newest.client.table(ORDERS).metadata()
        connections = list(newest.server._server.server_state.connections)
        assert connections
        for connection in connections:
            socket_of_it = connection.transport.get_extra_info("socket")
            assert socket_of_it.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


class TestCapabilities:
    @pytest.mark.protocol("delta-sharing-capabilities", "responseformat", "readerfeatures")
    def test_what_the_client_sends(self, newest: Target) -> None:
        assert newest.server is not None
        table = newest.client.table(ORDERS)
        for wanted, formats in (("auto", ["delta", "parquet"]), ("delta", ["delta"]), ("parquet", ["parquet"])):
            newest.server.reset_requests()
            table.metadata(response_format=wanted)  # type: ignore[arg-type]
            table.scan(response_format=wanted, limit=1).to_arrow()  # type: ignore[arg-type]
            sent = [request.capabilities for request in newest.server.requests if not request.is_file]
            assert len(sent) == 2
            for header in sent:
                parsed = parse_capabilities(header or "")
                assert parsed["responseformat"] == formats
                assert parsed["includeendstreamaction"] == ["true"]
                if "delta" in formats:
                    assert set(parsed["readerfeatures"]) == set(ADVERTISED_FEATURES)
                    assert {"deletionvectors", "columnmapping", "timestampntz"} <= set(parsed["readerfeatures"])
                else:
                    assert "readerfeatures" not in parsed

    @pytest.mark.protocol("delta-sharing-capabilities")
    def test_header_is_sent_only_where_it_applies(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        newest.client.list_all_tables()
        newest.client.table(ORDERS).version()
        newest.client.table(ORDERS).scan(limit=1, columns=["id"]).to_arrow()
        silent = [request for request in newest.server.requests if not request.path.endswith("/query")]
        assert len(silent) > 4
        assert {request.capabilities for request in silent} == {None}

    @pytest.mark.parametrize(
        ("asked", "auto", "delta_first"),
        [
            (None, "parquet", "parquet"),
            ("responseformat=parquet", "parquet", "parquet"),
            ("responseformat=delta", "delta", "delta"),
            ("responseformat=delta,parquet", "parquet", "delta"),
            ("RESPONSEFORMAT=Parquet, DELTA ; readerfeatures=x", "parquet", "delta"),
            ("readerfeatures=deletionvectors", "parquet", "parquet"),
        ],
    )
    def test_what_the_server_echoes(self, target: Target, asked: str | None, auto: str, delta_first: str) -> None:
        answer = target.get(f"{path_of(ORDERS)}/metadata", asked)
        if not target.knows_formats:
            expected = "parquet"
            assert not answer.capabilities
        else:
            expected = delta_first if target.options.get("prefer_format") == "delta" else auto
            assert answer.capabilities["responseformat"] == [expected]
        assert ("deltaProtocol" in answer.lines[0]["protocol"]) == (expected == "delta")

    def test_format_is_detected_from_the_lines_without_the_header(self, faults: FaultServer) -> None:
        schema = json.dumps({"type": "struct", "fields": [{"name": "a", "type": "long", "metadata": {}}]})
        metadata = {"id": "x", "format": {"provider": "parquet"}, "schemaString": schema, "partitionColumns": []}
        plain = Reply.of_lines({"protocol": {"minReaderVersion": 1}}, {"metaData": metadata})
        wrapped = Reply.of_lines(
            {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 2}}},
            {"metaData": {"deltaMetadata": metadata}},
        )
        faults.on("GET", "/shares/s/schemas/s/tables/t/metadata", plain, wrapped)
        with SharingClient(faults.profile) as client:
            table = client.table("s.s.t")
            assert table.protocol(response_format="delta").response_format == "parquet"
            assert table.protocol().response_format == "delta"
            with pytest.raises(ProtocolError, match="requested parquet format"):
                table.protocol(response_format="parquet")
