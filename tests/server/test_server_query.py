from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import requests
from deltalake import DeltaTable
from served_tables import DELTA, DELTA_END, END, Caller, add, at, column, metadata, protocol, remove, write_table

ORDERS = "retail.sales.orders"


def iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")


@pytest.fixture
def file_count(sample_directory: Path) -> int:
    return len(DeltaTable(sample_directory / "retail/sales/orders").file_uris())


def test_the_latest_version_is_in_the_header(sample: Caller, sample_directory: Path) -> None:
    assert sample.get(f"{at(ORDERS)}/version").version == "7"
    head = sample.call("HEAD", at("RETAIL.Sales.ORDERS"))
    assert (head.status, head.version) == (200, "7")
    assert sample.get(f"{at(ORDERS)}/version").response.content == b""
    sample.get(at("retail.sales.nope") + "/version").error(404)


def test_the_version_at_a_timestamp(sample: Caller, sample_directory: Path) -> None:
    history = DeltaTable(sample_directory / "retail/sales/orders").history()
    assert len(history) == 8
    version = f"{at(ORDERS)}/version"
    assert sample.get(version, startingTimestamp="2001-01-01T00:00:00Z").version == "0"
    shown = sample.query(ORDERS, version=3).files[0]["timestamp"]
    assert sample.get(version, startingTimestamp=iso(shown)).version == "3"
    assert "older" in sample.get(version, startingTimestamp="2999-01-01T00:00:00Z").error(400)
    for bad in ("yesterday", "2024-01-01", "2024-01-01T00:00:00", "1700000000000"):
        assert "startingTimestamp" in sample.get(version, startingTimestamp=bad).error(400)


def test_metadata_in_parquet_format(sample: Caller, sample_directory: Path) -> None:
    answer = sample.get(f"{at(ORDERS)}/metadata")
    assert answer.version == "7"
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    assert [set(line) for line in answer.lines] == [{"protocol"}, {"metaData"}]
    assert answer.lines[0] == {"protocol": {"minReaderVersion": 1}}
    shown = answer.metadata
    table = DeltaTable(sample_directory / "retail/sales/orders")
    assert shown["id"] == str(table.metadata().id)
    assert shown["name"] == "orders"
    assert shown["format"] == {"provider": "parquet"}
    assert shown["partitionColumns"] == ["order_date"]
    assert shown["configuration"] == {"enableChangeDataFeed": "true"}
    assert shown["numFiles"] == len(table.file_uris())
    assert shown["size"] == sum(Path(uri).stat().st_size for uri in table.file_uris())
    assert "version" not in shown
    assert json.loads(shown["schemaString"])["fields"][0] == column("order_id", "long")


def test_metadata_in_delta_format(sample: Caller, file_count: int) -> None:
    answer = sample.get(f"{at(ORDERS)}/metadata", DELTA_END)
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=delta;includeendstreamaction=true"
    assert answer.lines[0] == {"protocol": {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}}
    assert answer.metadata["deltaMetadata"]["configuration"] == {"delta.enableChangeDataFeed": "true"}
    assert answer.metadata["numFiles"] == file_count
    assert answer.lines[2:] == [{"endStreamAction": {}}]


def test_metadata_of_a_version(sample: Caller) -> None:
    answer = sample.get(f"{at(ORDERS)}/metadata", version=2)
    assert (answer.version, answer.metadata["version"], answer.metadata["numFiles"]) == ("2", 2, 3)
    assert sample.get(f"{at(ORDERS)}/metadata", DELTA, version=2).metadata["version"] == 2
    assert "versions 0 to 7" in sample.get(f"{at(ORDERS)}/metadata", version=8).error(400)
    assert "newer" in sample.get(f"{at(ORDERS)}/metadata", timestamp="2001-01-01T00:00:00Z").error(400)
    assert "after the latest version (7)" in sample.get(
        f"{at(ORDERS)}/metadata", timestamp="2999-01-01T00:00:00Z"
    ).error(400)
    assert "Only one" in sample.get(f"{at(ORDERS)}/metadata", version=2, timestamp="2001-01-01T00:00:00Z").error(
        400
    )
    sample.get(f"{at(ORDERS)}/metadata", version="-1").error(400)


@pytest.mark.parametrize("table", ["retail.sales.orders", "retail.sales.customers", "retail.ops.sensor_readings"])
def test_files_hold_the_rows_of_the_table(sample: Caller, sample_directory: Path, table: str) -> None:
    """The rows behind the URLs are those that deltalake reads, in both formats."""
    expected = DeltaTable(sample_directory.joinpath(*table.split(".")))
    key = {"orders": "order_id", "customers": "customer_id"}.get(table.rsplit(".", 1)[1], "read_at")
    plain = sample.query(table)
    assert set(plain.files[0]) == {"url", "id", "partitionValues", "size", "stats", "expirationTimestamp"}
    wrapped = sample.query(table, DELTA)
    assert [file["id"] for file in plain.files] == [file["id"] for file in wrapped.files]
    rows = 0
    names = set()
    for file, delta in zip(plain.files, wrapped.files, strict=True):
        content = sample.file(file["url"]).content
        assert len(content) == file["size"] == delta["size"]
        assert content == sample.file(delta["deltaSingleAction"]["add"]["path"]).content
        read = pq.read_table(io.BytesIO(content))
        assert json.loads(file["stats"])["numRecords"] == len(read)
        assert delta["deltaSingleAction"]["add"]["partitionValues"] == file["partitionValues"]
        assert delta["deltaSingleAction"]["add"]["stats"] == file["stats"]
        assert key in read.column_names
        rows += len(read)
        names.add(file["url"].split("?")[0])
    assert len(names) == len(plain.files) == len(expected.file_uris())
    assert rows == sum(pq.read_metadata(uri).num_rows for uri in expected.file_uris())


def test_ids_are_stable_and_urls_show_no_local_path(sample: Caller, sample_directory: Path, serve: Any) -> None:
    first = sample.query(ORDERS)
    with Caller(serve(sample_directory).server) as other:
        again = other.query(ORDERS)
    assert [file["id"] for file in first.files] == [file["id"] for file in again.files]
    signatures = [{file["url"].rpartition("=")[2] for file in answer.files} for answer in (first, again)]
    assert signatures[0].isdisjoint(signatures[1])
    assert str(sample_directory) not in first.response.text
    assert "part-0" not in first.response.text


def test_time_travel(sample: Caller) -> None:
    for headers in (None, DELTA):
        answer = sample.query(ORDERS, headers, version=1)
        assert answer.version == "1"
        assert len(answer.files) == 2
        assert {file["version"] for file in answer.files} == {1}
        assert answer.metadata["version"] == 1
    assert sample.query(ORDERS, timestamp=iso(answer.files[0]["timestamp"])).version == "1"
    assert "versions 0 to 7" in sample.query(ORDERS, version=8).error(400)
    assert "after the latest" in sample.query(ORDERS, timestamp="2999-01-01T00:00:00Z").error(400)
    assert "newer" in sample.query(ORDERS, timestamp="1999-01-01T00:00:00Z").error(400)


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"version": "1"}, None),
        ({"version": -1}, "version"),
        ({"version": 1.5}, "version"),
        ({"version": True}, "version"),
        ({"timestamp": 5}, "timestamp"),
        ({"limitHint": "many"}, "limitHint"),
        ({"limitHint": -1}, "limitHint"),
        ({"predicateHints": [1]}, "predicateHints"),
        ({"predicateHints": {"a": 1}}, "predicateHints"),
        ({"jsonPredicateHints": {"op": "and"}}, "jsonPredicateHints"),
        ({"maxFiles": 0}, "maxFiles"),
        ({"includeRefreshToken": "perhaps"}, "includeRefreshToken"),
        ({"version": 1, "timestamp": "2024-01-01T00:00:00Z"}, "Only one"),
        ({"version": 1, "startingVersion": 1}, "Only one"),
        ({"endingVersion": 1}, "startingVersion"),
        ({"version": 1, "includeRefreshToken": True}, "latest snapshot"),
        ({"startingVersion": 1, "refreshToken": "x"}, "latest snapshot"),
        ({"includeRefreshToken": True, "pageToken": "x"}, "first page"),
        ({"somethingNew": 1, "version": None, "predicateHints": None, "limitHint": None}, None),
    ],
)
def test_fields_of_a_query_are_validated(sample: Caller, body: dict[str, Any], word: str | None) -> None:
    answer = sample.query(ORDERS, **body)
    if word is None:
        assert answer.status == 200
    else:
        assert word in answer.error(400)


@pytest.mark.parametrize("raw", ["{", "[]", "3", '"x"', "[" * 100_000, b"\xff"])
def test_malformed_bodies_are_refused(sample: Caller, raw: Any) -> None:
    assert "body" in sample.call("POST", f"{at(ORDERS)}/query", data=raw).error(400)


def test_an_empty_body_is_a_query_without_conditions(sample: Caller, file_count: int) -> None:
    assert len(sample.call("POST", f"{at(ORDERS)}/query", data=b"").files) == file_count


def test_a_body_above_the_limit_is_refused(sample: Caller) -> None:
    assert "too large" in sample.call("POST", f"{at(ORDERS)}/query", data=b" " * (17 << 20)).error(400)


@pytest.mark.parametrize(
    "headers",
    [END, DELTA_END, {"Delta-Sharing-Capabilities": "ResponseFormat=Delta; INCLUDEENDSTREAMACTION=True"}],
)
def test_end_stream_action(sample: Caller, headers: dict[str, str]) -> None:
    answer = sample.query(ORDERS, headers)
    assert list(answer.end) == ["minUrlExpirationTimestamp"]
    assert {file["expirationTimestamp"] for file in answer.files} == {answer.end["minUrlExpirationTimestamp"]}
    assert answer.headers["delta-sharing-capabilities"].endswith("includeendstreamaction=true")


def test_no_end_stream_action_without_the_capability(sample: Caller) -> None:
    answer = sample.query(ORDERS)
    assert not answer.all("endStreamAction")
    assert "includeendstreamaction" not in answer.headers["delta-sharing-capabilities"]


@pytest.mark.parametrize("headers", [None, DELTA_END])
@pytest.mark.parametrize("size", [1, 4, 6, 100])
def test_paging(sample: Caller, headers: dict[str, str] | None, size: int) -> None:
    whole = [file["id"] for file in sample.query(ORDERS, headers).files]
    ids, token, heads = [], None, []
    while True:
        page = sample.query(ORDERS, headers, maxFiles=size, **({"pageToken": token} if token else {}))
        assert len(page.files) <= size
        assert page.version == "7"
        heads.append(page.lines[:2])
        ids += [file["id"] for file in page.files]
        token = page.all("endStreamAction")[0].get("nextPageToken") if page.all("endStreamAction") else None
        if token is None:
            break
    assert ids == whole
    assert all(head == heads[0] for head in heads)


def test_pages_stay_at_their_version(tmp_path: Path, serve: Any) -> None:
    table = write_table(
        tmp_path / "t", [protocol(), metadata(), *(add(f"f{n}", modificationTime=n) for n in range(4))]
    )
    caller = serve({"s.s.t": table})
    first = caller.query("s.s.t", END, maxFiles=2)
    write_table(table, [remove("f3"), add("f9", modificationTime=9)])
    second = caller.query("s.s.t", END, maxFiles=2, pageToken=first.end["nextPageToken"])
    assert second.version == first.version == "0"
    assert second.lines[:2] == first.lines[:2]
    assert len({file["id"] for file in first.files + second.files}) == 4
    assert "nextPageToken" not in second.end
    assert caller.query("s.s.t").version == "1"


def test_page_tokens_are_bound_to_their_query(sample: Caller) -> None:
    token = sample.query(ORDERS, END, maxFiles=1).end["nextPageToken"]
    assert sample.query(ORDERS, END, maxFiles=3, pageToken=token).status == 200
    for change in ({"limitHint": 10**9}, {"version": 7}, {"predicateHints": ["order_id > 0"]}):
        assert "pageToken" in sample.query(ORDERS, END, pageToken=token, **change).error(400)
    assert "another response format" in sample.query(ORDERS, DELTA_END, pageToken=token).error(400)
    assert "pageToken" in sample.query("retail.sales.customers", END, pageToken=token).error(400)
    assert "pageToken" in sample.changes(ORDERS, END, startingVersion=0, pageToken=token).error(400)
    assert "refreshToken" in sample.query(ORDERS, END, refreshToken=token).error(400)
    listing = sample.get("/shares/retail/all-tables", maxResults=1).json["nextPageToken"]
    assert "pageToken" in sample.query(ORDERS, END, pageToken=listing).error(400)


def test_the_server_limits_the_files_of_a_page(sample_directory: Path, file_count: int, serve: Any) -> None:
    caller = serve(sample_directory, max_files_per_page=4)
    assert len(caller.query(ORDERS, END).files) == 4
    assert len(caller.query(ORDERS, END, maxFiles=3).files) == 3
    assert len(caller.query(ORDERS, END, maxFiles=5).files) == 4
    # A client that would not see the token gets everything.
    assert len(caller.query(ORDERS).files) == file_count


def test_refresh_tokens(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f0"), add("f1")])
    caller = serve({"s.s.t": table, "s.s.u": table})
    first = caller.query("s.s.t", END, includeRefreshToken=True)
    token = first.end["refreshToken"]
    write_table(table, [remove("f0"), add("f2")])
    again = caller.query("s.s.t", END, refreshToken=token, includeRefreshToken=True)
    assert again.version == "0"
    assert [file["id"] for file in again.files] == [file["id"] for file in first.files]
    assert [file["url"] for file in again.files] != [file["url"] for file in first.files]
    assert caller.query("s.s.t", refreshToken=again.end["refreshToken"]).version == "0"
    assert "refreshToken" in caller.query("s.s.u", refreshToken=token).error(400)
    assert "refreshToken" in caller.query("s.s.t", refreshToken="made-up").error(400)


def test_an_older_server_sends_no_end_stream_action(sample_directory: Path, file_count: int, serve: Any) -> None:
    caller = serve(sample_directory, send_end_stream_action=False)
    answer = caller.query(ORDERS, END, maxFiles=1, includeRefreshToken=True)
    assert len(answer.files) == file_count
    assert not answer.all("endStreamAction")
    assert answer.headers["delta-sharing-capabilities"] == "responseformat=parquet"


def test_a_server_without_history_refuses_versions(sample_directory: Path, serve: Any) -> None:
    caller = serve(sample_directory, history=False)
    assert caller.query(ORDERS).version == "7"
    for answer in (
        caller.query(ORDERS, version=1),
        caller.query(ORDERS, timestamp="2024-01-01T00:00:00Z"),
        caller.query(ORDERS, startingVersion=0),
        caller.changes(ORDERS, startingVersion=0),
        caller.get(f"{at(ORDERS)}/metadata", version=1),
        caller.get(f"{at(ORDERS)}/version", startingTimestamp="2001-01-01T00:00:00Z"),
    ):
        assert "history is not shared" in answer.error(400)


def test_damaged_logs_answer_500(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f")])
    caller = serve({"s.s.t": table})
    (table / "_delta_log" / f"{1:020}.json").write_text("{")
    reason = "00000000000000000001.json, line 1: not JSON"
    assert caller.query("s.s.t").error(500) == f"The log of table s.s.t cannot be read: {reason}."
    for file in (table / "_delta_log").iterdir():
        file.unlink()
    assert "no longer there" in caller.query("s.s.t").error(404)


def test_a_failure_before_the_first_chunk_is_a_status(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "t", [protocol(), metadata(), add("f"), add("z/../../outside")])
    caller = serve({"s.s.t": table})
    for headers in (None, END, DELTA_END):
        assert "outside its own directory" in caller.query("s.s.t", headers).error(403)


def test_a_later_failure_ends_the_answer_with_an_error(tmp_path: Path, serve: Any) -> None:
    """A failure after the status has been sent is reported in the last line, if the client requests one."""
    files = [add(f"f{number:05}") for number in range(2_000)]
    table = write_table(tmp_path / "t", [protocol(), metadata(), *files, add("z/../../outside")])
    caller = serve({"s.s.t": table})
    answer = caller.query("s.s.t", END)
    assert len(answer.files) == 2_000
    assert answer.end["httpStatusErrorCode"] == 403
    assert "outside its own directory" in answer.end["errorMessage"]
    assert str(tmp_path) not in answer.response.text
    with pytest.raises(requests.exceptions.ChunkedEncodingError):
        caller.query("s.s.t")
