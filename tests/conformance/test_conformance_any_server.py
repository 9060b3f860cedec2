"""Requirements on every sharing server; the tests only read."""

from __future__ import annotations

import contextlib
import json
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from conformance_targets import Target, other_case, parse_capabilities, path_of

from delta_sharing_client import SharingClient, Table
from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    RestError,
    UnsupportedTableError,
)

TABLES = 3
ROWS = 5
NO_SUCH = "no_such_thing_4f1b"
#: A server that does not let a recipient know whether something is there answers 403 for 404.
ABSENT = (NotFoundError, ForbiddenError)


@pytest.fixture(scope="session")
def readable(any_server: Target) -> list[Table]:
    """The first tables that this release can read, whatever format they take."""
    found: list[Table] = []
    for table in any_server.client.iter_all_tables():
        try:
            any_server.client.table(table).scan(limit=0).to_arrow()
            any_server.client.table(table).scan(limit=1).to_arrow()
        except (UnsupportedTableError, BadRequestError, ForbiddenError):
            continue
        found.append(table)
        if len(found) == TABLES:
            break
    assert found, "there is no table to read"
    return found


def test_shares_and_schemas(any_server: Target) -> None:
    client = any_server.client
    shares = client.list_shares()
    assert shares
    assert len({share.name.lower() for share in shares}) == len(shares)
    for share in shares[:3]:
        assert client.get_share(share.name) == share
        assert client.get_share(other_case(share.name)).name.lower() == share.name.lower()
        schemas = client.list_schemas(share)
        assert {schema.share for schema in schemas} <= {share.name}
        again = client.list_schemas(other_case(share.name))
        assert [schema.name for schema in again] == [schema.name for schema in schemas]


def test_tables_of_schemas_and_of_shares_agree(any_server: Target) -> None:
    client = any_server.client
    for share in client.list_shares()[:3]:
        by_schema = [table for schema in client.list_schemas(share) for table in client.list_tables(schema)]
        assert {table.share for table in by_schema} <= {share.name}
        assert set(client.list_all_tables(share)) == set(by_schema)
        assert len(set(by_schema)) == len(by_schema)


def test_pages_add_up_to_the_whole_listing(any_server: Target) -> None:
    whole = any_server.get("/shares").json.get("items") or []
    expected = [share.name for share in any_server.client.list_shares()]
    names: list[str] = []
    token = None
    for _ in range(len(expected) + 5):
        page = any_server.get("/shares", maxResults=1, **({"pageToken": token} if token else {})).json
        names += [item["name"] for item in page.get("items") or []]
        token = page.get("nextPageToken")
        if not token or len(names) > 5:
            break
    assert names == (expected[: len(names)] if token else expected)
    assert [item["name"] for item in whole] == expected[: len(whole)]


def test_missing_names_are_not_found(any_server: Target, readable: list[Table]) -> None:
    client, table = any_server.client, readable[0]
    with pytest.raises(ABSENT):
        client.get_share(NO_SUCH)
    with pytest.raises(ABSENT):
        client.list_schemas(NO_SUCH)
    with pytest.raises(ABSENT):
        client.list_tables(f"{table.share}.{NO_SUCH}")
    for name in (f"{table.share}.{table.schema}.{NO_SUCH}", f"{table.share}.{NO_SUCH}.{table.name}"):
        for ask in (client.table(name).version, client.table(name).metadata, client.table(name).scan().to_arrow):
            with pytest.raises(ABSENT, match=NO_SUCH):
                ask()


@pytest.mark.parametrize("token", ["wrong", ""])
def test_wrong_token_is_unauthorized(any_server: Target, token: str) -> None:
    if token:
        with SharingClient(any_server.stranger) as stranger, pytest.raises((AuthenticationError, ForbiddenError)):
            stranger.list_shares()
    answer = any_server.call("GET", "/shares", headers={"Authorization": f"Bearer {token}".strip()})
    assert answer.status in (401, 403)
    # The reference server's answer to a wrong token is plain text.
    if "json" in answer.headers.get("Content-Type", ""):
        assert {"errorCode", "message"} <= set(answer.json)


def test_versions(any_server: Target, readable: list[Table]) -> None:
    for table in readable:
        shared = any_server.client.table(table)
        version = shared.version()
        assert version >= 0
        assert any_server.get(f"{path_of(table.full_name)}/version").version >= version
        assert any_server.client.table(other_case(table.full_name)).version() >= version
        try:
            first = shared.version(datetime(1971, 1, 1, tzinfo=UTC))
        except BadRequestError:
            continue  # no history is shared
        assert 0 <= first <= version


@pytest.mark.parametrize("wanted", ["auto", "parquet", "delta"])
def test_metadata(any_server: Target, readable: list[Table], wanted: Any) -> None:
    for table in readable:
        shared = any_server.client.table(table)
        try:
            metadata = shared.metadata(response_format=wanted)
        except BadRequestError:
            assert wanted == "parquet"  # a table with features that parquet format cannot say
            continue
        protocol = shared.protocol(response_format=wanted)
        assert protocol.min_reader_version >= 1
        assert metadata.id
        assert metadata.schema.names
        names = {name.lower() for name in metadata.schema.names}
        assert {name.lower() for name in metadata.partition_columns} <= names
        assert protocol.response_format == "parquet" or wanted != "parquet"


@pytest.mark.parametrize("wanted", ["auto", "parquet", "delta"])
def test_limit_returns_that_many_rows(any_server: Target, readable: list[Table], wanted: Any) -> None:
    for table in readable:
        scan = any_server.client.table(table).scan(limit=ROWS, response_format=wanted)
        try:
            rows = scan.to_arrow()
        except BadRequestError:
            assert wanted == "parquet"
            continue
        assert rows.num_rows <= ROWS
        assert rows.schema == scan.schema
        rows.validate(full=True)
        assert scan.replace(limit=0).to_arrow().schema == rows.schema
        first = scan.schema.names[-1:]
        assert scan.replace(columns=first).to_arrow().column_names == first


def test_rows_that_are_filtered_by_a_partition_column(any_server: Target, readable: list[Table]) -> None:
    """Hints are best effort: whatever a server makes of them, the rows are the right ones."""
    for table in readable:
        shared = any_server.client.table(table)
        for partition in shared.metadata().partition_columns[-1:]:
            scan = shared.scan(limit=ROWS, columns=[partition])
            rows = scan.to_arrow()
            name = rows.column_names[0]
            values = [value for value in rows[name].to_pylist() if comparable(value)]
            for value in values[:1]:
                found = scan.replace(filters=[(name, "=", value)]).to_arrow()
                assert found.num_rows
                assert set(found[name].to_pylist()) == {value}
            nulls = scan.replace(filters=[(name, "is", None)]).to_arrow()
            assert nulls[name].null_count == nulls.num_rows


def comparable(value: Any) -> bool:
    return isinstance(value, bool | int | str | date) or (isinstance(value, float) and value == value)


def test_time_travel_returns_the_version_or_a_typed_error(any_server: Target, readable: list[Table]) -> None:
    for table in readable:
        shared = any_server.client.table(table)
        version = shared.version()
        for scan in (
            shared.scan(limit=ROWS, version=version),
            shared.scan(limit=ROWS, timestamp=datetime.now(UTC)),
        ):
            with contextlib.suppress(BadRequestError):  # no history is shared
                assert scan.to_arrow().num_rows <= ROWS
        with pytest.raises(RestError) as caught:
            shared.scan(version=version + 1_000_000).to_arrow()
        assert caught.value.status in (400, 403, 404)


class TestWire:
    """The bytes that the protocol specifies."""

    def test_without_the_header_the_answer_is_parquet(self, any_server: Target, readable: list[Table]) -> None:
        answered = 0
        for table in readable:
            answer = any_server.query(table.full_name, limitHint=1)
            if answer.status == 400:
                continue
            answered += 1
            self.check_head(answer, "parquet")
            for file in answer.all("file"):
                assert {"url", "id", "partitionValues", "size"} <= set(file)
                assert isinstance(file["partitionValues"], dict)
                json.loads(file.get("stats") or "{}")
            metadata = any_server.get(f"{path_of(table.full_name)}/metadata")
            self.check_head(metadata, "parquet")
            assert len([line for line in metadata.lines if "endStreamAction" not in line]) == 2
        assert answered

    @pytest.mark.parametrize("wanted", ["parquet", "delta", "delta,parquet", "Delta,Parquet"])
    def test_with_the_header_the_answer_has_a_requested_format(
        self, any_server: Target, readable: list[Table], wanted: str
    ) -> None:
        features = "deletionvectors,columnmapping,timestampntz"
        header = f"responseformat={wanted};readerfeatures={features};includeendstreamaction=true"
        for table in readable:
            answer = any_server.query(table.full_name, header, limitHint=1)
            if answer.status == 400:
                assert wanted == "parquet"
                continue
            kind = "delta" if "deltaProtocol" in answer.lines[0]["protocol"] else "parquet"
            assert kind in wanted.lower() or kind == "parquet"
            self.check_head(answer, kind)
            echoed = answer.capabilities
            if echoed.get("includeendstreamaction") == ["true"]:
                assert list(answer.lines[-1]) == ["endStreamAction"]
            if "responseformat" in echoed:
                assert echoed["responseformat"] == [kind]
            for file in answer.all("file") if kind == "delta" else []:
                assert file["id"]
                (action,) = file["deltaSingleAction"].values()
                assert action["path"].startswith("http")

    def check_head(self, answer: Any, kind: str) -> None:
        assert answer.version >= 0
        assert answer.headers["Content-Type"].split(";")[0].strip() in ("application/x-ndjson", "application/json")
        assert [next(iter(line)) for line in answer.lines[:2]] == ["protocol", "metaData"]
        protocol, metadata = answer.lines[0]["protocol"], answer.lines[1]["metaData"]
        if kind == "delta":
            protocol, metadata = protocol["deltaProtocol"], metadata["deltaMetadata"]
        assert protocol["minReaderVersion"] >= 1
        assert json.loads(metadata["schemaString"])["type"] == "struct"
        assert metadata["format"]["provider"] == "parquet"


def test_the_header_parser_of_this_suite() -> None:
    assert parse_capabilities("ResponseFormat=Delta, parquet; a=b") == {
        "responseformat": ["delta", "parquet"],
        "a": ["b"],
    }
    assert parse_capabilities("") == {}


def test_a_stream_of_rows(any_server: Target, readable: list[Table]) -> None:
    reader = any_server.client.table(readable[0]).scan(limit=ROWS).to_record_batch_reader()
    assert isinstance(reader, pa.RecordBatchReader)
    assert sum(batch.num_rows for batch in reader) <= ROWS
