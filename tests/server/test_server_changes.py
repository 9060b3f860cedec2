from __future__ import annotations

import io
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from served_tables import DELTA, DELTA_END, END, Caller, add, column, metadata, protocol, remove, write_table

ORDERS = "retail.sales.orders"
FEED = {"delta.enableChangeDataFeed": "true"}
CHANGES = ("add", "remove", "cdf")


def cdc(path: str) -> dict[str, Any]:
    return {"cdc": {"path": path, "partitionValues": {}, "size": 10, "dataChange": False}}


def listed(answer: Any) -> list[tuple[str, int]]:
    """The kind and the version of every line of a change, in either format."""
    found = []
    for line in answer.lines:
        if "file" in line:
            (kind,) = line["file"]["deltaSingleAction"]
            found.append((kind, line["file"]["version"]))
        for kind in CHANGES:
            if kind in line:
                found.append((kind, line[kind]["version"]))
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Version by version: add; cdc beside add and remove; a rewrite without change; a new column; remove."""
    return write_table(
        tmp_path / "t",
        [protocol(), metadata(configuration=FEED), add("f0"), add("f1")],
        [remove("f0", size=10, partitionValues={}), add("f2"), cdc("_change_data/c1")],
        [remove("f1", size=10, partitionValues={}, dataChange=False), add("f3", dataChange=False)],
        [metadata(column("a", "long"), column("b", "string"), configuration=FEED), protocol(1, 4)],
        [remove("f2", size=10, partitionValues={})],
    )


@pytest.fixture
def caller(table: Path, serve: Any) -> Caller:
    return serve({"s.s.t": table})


@pytest.mark.parametrize(("headers", "cdf"), [(None, "cdf"), (DELTA, "cdc")])
def test_change_feed(caller: Caller, headers: dict[str, str] | None, cdf: str) -> None:
    answer = caller.changes("s.s.t", headers, startingVersion=0)
    assert answer.version == "0"
    assert listed(answer) == [("add", 0), ("add", 0), (cdf, 1), ("remove", 4)]
    assert [key for line in answer.lines for key in line][:2] == ["protocol", "metaData"]
    assert len(answer.all("metaData")) == 1
    assert "version" not in answer.metadata
    assert listed(caller.changes("s.s.t", headers, startingVersion=1, endingVersion=3)) == [(cdf, 1)]
    assert caller.changes("s.s.t", headers, startingVersion=1, endingVersion=3).version == "1"
    assert listed(caller.changes("s.s.t", headers, startingVersion=2, endingVersion=2)) == []
    assert listed(caller.changes("s.s.t", headers, startingVersion=4, endingVersion=99)) == [("remove", 4)]


def test_a_change_has_the_fields_of_the_protocol(caller: Caller) -> None:
    lines = caller.changes("s.s.t", startingVersion=0)
    change = lines.all("cdf")[0]
    assert set(change) == {"url", "id", "partitionValues", "size", "timestamp", "version", "expirationTimestamp"}
    assert caller.file(change["url"]).content == b"_change_data/c1"[:10]
    removed = lines.all("remove")[0]
    assert set(removed) == set(change)
    wrapped = caller.changes("s.s.t", DELTA, startingVersion=4).files[0]
    assert wrapped["id"] == removed["id"]
    assert wrapped["deltaSingleAction"]["remove"]["deletionTimestamp"] == 1
    assert wrapped["deltaSingleAction"]["remove"]["path"].startswith("http://127.0.0.1")


@pytest.mark.parametrize(("headers", "protocols"), [(None, 1), (DELTA, 2)])
def test_historical_metadata_and_protocol(caller: Caller, headers: dict[str, str] | None, protocols: int) -> None:
    answer = caller.changes("s.s.t", headers, startingVersion=1, includeHistoricalMetadata="true")
    assert [item["version"] for item in answer.all("metaData")] == [1, 3]
    first, second = (item.get("deltaMetadata", item) for item in answer.all("metaData"))
    assert "b" not in first["schemaString"].replace("nullable", "")
    assert '"b"' in second["schemaString"]
    with_protocol = caller.changes(
        "s.s.t", headers, startingVersion=1, includeHistoricalMetadata="true", includeHistoricalProtocol="true"
    )
    assert len(with_protocol.all("protocol")) == protocols
    kinds = [next(iter(line)) for line in with_protocol.lines]
    assert kinds.index("metaData", 2) > 1


def test_latest_metadata_by_default(caller: Caller) -> None:
    assert '"b"' in caller.changes("s.s.t", startingVersion=0, endingVersion=0).metadata["schemaString"]


def test_changes_between_timestamps(caller: Caller, table: Path) -> None:
    import os

    for version in range(5):
        os.utime(table / "_delta_log" / f"{version:020}.json", (1_700_000_000 + version * 60,) * 2)

    def at(version: int, offset: int = 0) -> str:
        return (
            datetime.fromtimestamp(1_700_000_000 + version * 60 + offset, UTC).isoformat().replace("+00:00", "Z")
        )

    answer = caller.changes("s.s.t", startingTimestamp=at(0, 1), endingTimestamp=at(3, -1))
    assert answer.version == "1"
    assert listed(answer) == [("cdf", 1)]
    assert {line["timestamp"] for line in answer.all("cdf")} == {1_700_000_060_000}
    assert "older" in caller.changes("s.s.t", startingTimestamp=at(5)).error(400)
    assert "newer" in caller.changes("s.s.t", startingVersion=0, endingTimestamp=at(-1)).error(400)
    assert "before the starting" in caller.changes("s.s.t", startingVersion=3, endingTimestamp=at(1)).error(400)


@pytest.mark.parametrize(
    ("params", "word"),
    [
        ({}, "Exactly one of startingVersion"),
        ({"startingVersion": 0, "startingTimestamp": "2024-01-01T00:00:00Z"}, "Exactly one of startingVersion"),
        (
            {"startingVersion": 0, "endingVersion": 1, "endingTimestamp": "2024-01-01T00:00:00Z"},
            "Only one of ending",
        ),
        ({"startingVersion": 5}, "after the latest version 4"),
        ({"startingVersion": 3, "endingVersion": 2}, "before the starting"),
        ({"startingVersion": -1}, "startingVersion"),
        ({"startingVersion": "x"}, "startingVersion"),
        ({"startingVersion": 0, "includeHistoricalMetadata": "maybe"}, "includeHistoricalMetadata"),
        ({"startingVersion": 0, "pageToken": "x"}, "pageToken"),
    ],
)
def test_malformed_parameters_of_changes_are_refused(caller: Caller, params: dict[str, Any], word: str) -> None:
    assert word in caller.changes("s.s.t", **params).error(400)


def test_change_feed_must_be_on(tmp_path: Path, serve: Any) -> None:
    table = write_table(
        tmp_path / "u",
        [protocol(), metadata(), add("f0")],
        [metadata(configuration=FEED)],
        [add("f1")],
        [metadata()],
        [add("f2")],
    )
    caller = serve({"s.s.u": table})
    assert "not enabled for version 0" in caller.changes("s.s.u", startingVersion=0).error(400)
    assert listed(caller.changes("s.s.u", startingVersion=1, endingVersion=2)) == [("add", 2)]
    assert "not enabled for version 3" in caller.changes("s.s.u", startingVersion=1).error(400)
    # Files added and removed need no change data feed.
    assert listed(caller.query("s.s.u", startingVersion=0)) == [("add", 0), ("add", 2), ("add", 4)]


@pytest.mark.parametrize("headers", [None, DELTA])
def test_query_from_a_version(caller: Caller, headers: dict[str, str] | None) -> None:
    answer = caller.query("s.s.t", headers, startingVersion=0)
    assert answer.version == "0"
    assert listed(answer) == [("add", 0), ("add", 0), ("remove", 1), ("add", 1), ("remove", 4)]
    assert [item["version"] for item in answer.all("metaData")] == [0, 3]
    window = caller.query("s.s.t", headers, startingVersion=1, endingVersion=2)
    assert listed(window) == [("remove", 1), ("add", 1)]
    assert "after the latest version" in caller.query("s.s.t", headers, startingVersion=5).error(400)


@pytest.mark.parametrize("headers", [END, DELTA_END])
@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_paging(caller: Caller, table: Path, headers: dict[str, str], size: int) -> None:
    whole = caller.changes("s.s.t", headers, startingVersion=0, includeHistoricalMetadata="true")
    pages: list[Any] = []
    token: dict[str, str] = {}
    while not pages or token:
        page = caller.changes(
            "s.s.t", headers, startingVersion=0, includeHistoricalMetadata="true", maxFiles=size, **token
        )
        assert len(listed(page)) <= size
        assert page.lines[:2] == whole.lines[:2]
        if not pages:
            write_table(table, [add("later")])
        pages.append(page)
        token = {"pageToken": page.end["nextPageToken"]} if "nextPageToken" in page.end else {}
    assert [change for page in pages for change in listed(page)] == listed(whole)
    assert sum(len(page.all("metaData")) - 1 for page in pages) == 1


def test_page_tokens_are_bound_to_their_range(caller: Caller) -> None:
    token = caller.changes("s.s.t", END, startingVersion=0, maxFiles=1).end["nextPageToken"]
    assert caller.changes("s.s.t", END, startingVersion=0, pageToken=token).status == 200
    for params in ({"startingVersion": 1}, {"startingVersion": 0, "endingVersion": 3}):
        assert "pageToken" in caller.changes("s.s.t", END, pageToken=token, **params).error(400)
    assert "another response format" in caller.changes(
        "s.s.t", DELTA_END, startingVersion=0, pageToken=token
    ).error(400)


@pytest.mark.parametrize("headers", [None, DELTA])
def test_a_remove_without_size_has_the_size_of_the_added_file(
    tmp_path: Path, serve: Any, headers: dict[str, str] | None
) -> None:
    """A remove that does not repeat the file's size and partition gets them from the file's add."""
    meta = metadata(column("a", "long"), column("p", "string"), partitions=["p"], configuration=FEED)
    table = write_table(tmp_path / "u", [protocol(), meta, add("p=x/f", partition={"p": "x"})], [remove("p=x/f")])
    answer = serve({"s.s.u": table}).changes("s.s.u", headers, startingVersion=1)
    action = answer.files[0]["deltaSingleAction"]["remove"] if headers else answer.all("remove")[0]
    assert action["partitionValues"] == {"p": "x"}
    assert action["size"] == 10


def test_a_remove_of_an_unknown_file_answers_500(tmp_path: Path, serve: Any) -> None:
    table = write_table(tmp_path / "u", [protocol(), metadata(configuration=FEED)], [remove("f")])
    assert "without its size and partition values" in serve({"s.s.u": table}).changes(
        "s.s.u", startingVersion=1
    ).error(500)


def test_a_feature_added_within_the_range_is_required(tmp_path: Path, serve: Any) -> None:
    table = write_table(
        tmp_path / "u",
        [protocol(), metadata(configuration=FEED), add("f0")],
        [protocol(3, 7, ["deletionVectors"]), add("f1")],
    )
    caller = serve({"s.s.u": table})
    assert caller.query("s.s.u", version=0).status == 200
    assert "deletionVectors" in caller.changes("s.s.u", startingVersion=0).error(400)
    assert "deletionVectors" in caller.query("s.s.u", startingVersion=0).error(400)
    able = {"delta-sharing-capabilities": "responseformat=delta,parquet;readerfeatures=deletionvectors"}
    assert len(caller.changes("s.s.u", able, startingVersion=0).files) == 2


def test_the_change_feed_equals_that_of_deltalake(sample: Caller, sample_directory: Path) -> None:
    """The rows of the change feed, counted by version and kind, are those that deltalake reads."""
    path = sample_directory / "retail/sales/orders"
    theirs = pa.table(DeltaTable(path).load_cdf(starting_version=0).read_all())
    expected: dict[tuple[int, str], int] = {}
    for version, kind in zip(
        theirs["_commit_version"].to_pylist(), theirs["_change_type"].to_pylist(), strict=True
    ):
        expected[version, kind] = expected.get((version, kind), 0) + 1
    ours: dict[tuple[int, str], int] = {}
    for line in sample.changes(ORDERS, startingVersion=0).lines[2:]:
        ((name, change),) = line.items()
        read = pq.read_table(io.BytesIO(sample.file(change["url"]).content))
        kinds = (
            read["_change_type"].to_pylist()
            if name == "cdf"
            else [{"add": "insert", "remove": "delete"}[name]] * len(read)
        )
        for kind in kinds:
            ours[change["version"], kind] = ours.get((change["version"], kind), 0) + 1
    assert ours == expected
    assert {kind for _, kind in ours} == {"insert", "delete", "update_preimage", "update_postimage"}
