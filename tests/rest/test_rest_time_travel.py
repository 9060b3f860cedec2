"""Answers for a version or a time are checked against the request."""

import json

import pytest
from faults.server import Reply
from test_rest_tables import (
    DELTA_METADATA,
    DELTA_PROTOCOL,
    END,
    METADATA,
    PATH,
    PROTOCOL,
    QUERY,
    TABLE,
    add,
    delta_add,
    ids,
)

from delta_sharing_client.errors import VersionMismatchError
from delta_sharing_client.wire.requests import QueryRequest

NOON = "2024-01-31T12:00:00Z"
NOON_MS = 1706702400000


def answer(*files, version=None, metadata_version=None, delta=False):
    protocol, metadata = (DELTA_PROTOCOL, DELTA_METADATA) if delta else (PROTOCOL, METADATA)
    if metadata_version is not None:
        metadata = {"metaData": {**metadata["metaData"], "version": metadata_version}}
    headers = {} if version is None else {"Delta-Table-Version": str(version)}
    return Reply.of_lines(protocol, metadata, *files, END, headers=headers)


def file(number, *, delta=False, vector=None, **fields):
    line = delta_add(number, vector=vector) if delta else add(number)
    return {"file": {**line["file"], **fields}}


BY_VERSION = {"version": 3}
BY_TIME = {"timestamp": NOON}

RIGHT = {
    "no version anywhere": (BY_VERSION, {}, {}),
    "version in the header": (BY_VERSION, {"version": 3}, {}),
    "versions everywhere": (BY_VERSION, {"version": 3, "metadata_version": 3}, {"version": 3, "timestamp": 1}),
    "earlier lines": (BY_VERSION, {"version": 3, "metadata_version": 0}, {"version": 1, "timestamp": 1}),
    "by time: no version anywhere": (BY_TIME, {}, {}),
    "by time: version in the header": (BY_TIME, {"version": 8}, {}),
    "by time: versions everywhere": (
        BY_TIME,
        {"version": 8, "metadata_version": 8},
        {"version": 8, "timestamp": NOON_MS},
    ),
    "by time: rounded up": (BY_TIME, {"version": 8}, {"version": 8, "timestamp": NOON_MS + 1}),
    "by time: no header": (BY_TIME, {"metadata_version": 8}, {"version": 8, "timestamp": NOON_MS - 5}),
    "the latest": ({}, {"version": 3, "metadata_version": 9}, {"version": 9, "timestamp": 2 * NOON_MS}),
}
WRONG = {
    "the header": (BY_VERSION, {"version": 9}, {}),
    "an earlier version": (BY_VERSION, {"version": 2}, {}),
    "the metadata": (BY_VERSION, {"metadata_version": 9}, {}),
    "the metadata, against the header": (BY_VERSION, {"version": 3, "metadata_version": 9}, {}),
    "a file": (BY_VERSION, {"version": 3}, {"version": 9, "timestamp": 1}),
    "a file, without a header": (BY_VERSION, {}, {"version": 4}),
    "by time: committed later": (BY_TIME, {"version": 8}, {"timestamp": NOON_MS + 2}),
    "by time: committed later, no header": (BY_TIME, {}, {"version": 9, "timestamp": NOON_MS + 86_400_000}),
    "by time: the metadata": (BY_TIME, {"version": 8, "metadata_version": 9}, {}),
    "by time: a file": (BY_TIME, {"version": 8}, {"version": 9, "timestamp": 1}),
}


@pytest.mark.parametrize("kind", ["parquet", "delta", "vector"])
class TestQuery:
    def ask(self, server, rest, case, kind):
        request, head, fields = case
        delta = kind != "parquet"
        files = [file(1, delta=delta), file(2, delta=delta, vector=1 if kind == "vector" else None, **fields)]
        server.on("POST", QUERY, answer(*files, delta=delta, **head))
        return rest.query_table(TABLE, QueryRequest(**request))

    @pytest.mark.parametrize("case", RIGHT)
    def test_consistent_answers_are_accepted(self, server, rest, case, kind):
        assert ids(self.ask(server, rest, RIGHT[case], kind)) == ["f1", "f2"]

    @pytest.mark.parametrize("case", WRONG)
    @pytest.mark.protocol("version", "timestamp")
    def test_inconsistent_answers_are_refused(self, server, rest, case, kind):
        with pytest.raises(VersionMismatchError, match=TABLE.full_name):
            self.ask(server, rest, WRONG[case], kind)
        assert len(server.requests) == 1


def test_every_file_is_checked(server, rest):
    lines = [file(number, version=3, timestamp=5) for number in range(3000)]
    server.on("POST", QUERY, answer(*lines, version=3), answer(*lines, file(3000, version=4), version=3))
    assert len(rest.query_table(TABLE, QueryRequest(version=3)).items) == 3000
    with pytest.raises(VersionMismatchError) as caught:
        rest.query_table(TABLE, QueryRequest(version=3))
    assert (caught.value.expected, caught.value.actual) == (3, 4)


def test_later_pages_are_checked(server, rest):
    first = Reply.of_lines(
        PROTOCOL,
        METADATA,
        file(1),
        {"endStreamAction": {"nextPageToken": "t"}},
        headers={"Delta-Table-Version": "3"},
    )
    server.on("POST", QUERY, first, answer(file(2, version=4), version=None))
    with pytest.raises(VersionMismatchError):
        rest.query_table(TABLE, QueryRequest(version=3))


@pytest.mark.parametrize(
    ("asked", "head"),
    [
        ({"version": 3}, {"version": 9}),
        ({"version": 3}, {"metadata_version": 9}),
        ({"timestamp": NOON}, {"version": 3, "metadata_version": 9}),
    ],
)
def test_metadata_is_checked(server, rest, asked, head):
    server.on("GET", PATH + "/metadata", answer(**head), answer(version=3, metadata_version=3))
    with pytest.raises(VersionMismatchError):
        rest.table_metadata(TABLE, **asked)
    assert rest.table_metadata(TABLE, **asked).version == 3
    assert json.loads(rest.table_metadata(TABLE, **asked).metadata.schema_string)["fields"]
