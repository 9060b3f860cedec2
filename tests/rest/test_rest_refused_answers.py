"""Answers whose head shows that they are of no use: the rest is not read, and nothing of them is kept."""

import json

import pytest
from faults.server import Reply
from test_rest_tables import END, METADATA, PROMISED, PROTOCOL, QUERY, TABLE, add, ids, page

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ServerPlanner
from delta_sharing_client.wire.requests import QueryRequest


def of_type(kind, *lines, **changes):
    """An answer of a table whose column `c` is of a type."""
    schema = {"type": "struct", "fields": [{"name": "c", "type": kind, "nullable": True, "metadata": {}}]}
    metadata = {"metaData": {**METADATA["metaData"], "schemaString": json.dumps(schema)}}
    return Reply.of_lines(PROTOCOL, metadata, *lines, headers=PROMISED, **changes)


def endless(kind):
    return of_type(kind, endless=json.dumps(add(0)).encode() + b"\n", length=None)


def hint_types(server):
    return [sent.json()["jsonPredicateHints"].split('"valueType":"')[1].split('"')[0] for sent in server.requests]


def test_the_rest_is_not_read(server, rest):
    server.on("POST", QUERY, endless("long"), page(add(1)))
    answer = rest.query_table(TABLE, QueryRequest(), lambda protocol, metadata: None)
    assert (answer.complete, answer.items, answer.version) == (False, [], 7)
    assert answer.metadata.schema.names == ["c"]
    assert len(server.requests) == 1
    answer = rest.query_table(TABLE, QueryRequest())
    assert answer.complete
    assert ids(answer) == ["f1"]


def test_the_head_is_used_before_the_rest_has_arrived(server, rest):
    """The listing never ends; a part of it has the metadata."""
    listing = of_type("long", *(add(number) for number in range(10_000)), END)
    assert len(listing.body) > 900_000
    server.on("POST", QUERY, listing.but(cut_at=900_000, ending="stall"))
    assert not rest.query_table(TABLE, QueryRequest(), lambda protocol, metadata: None).complete


def test_no_further_page_is_requested(server, rest):
    server.on("POST", QUERY, page(add(1), token="t1"), page(add(2)))
    pages = []

    def convert(protocol, metadata):
        pages.append(len(server.requests))
        return list if len(pages) == 1 else None

    assert not rest.query_table(TABLE, QueryRequest(), lambda protocol, metadata: None).complete
    assert len(server.requests) == 1
    server.on("POST", QUERY, page(add(1), token="t1"), page(add(2), token="t2"), page(add(3)))
    answer = rest.query_table(TABLE, QueryRequest(), convert)
    assert (answer.complete, answer.items) == (False, [])
    assert len(server.requests) == 3


def test_a_query_with_the_right_hints_follows_and_is_retried_alone(server, rest):
    whole = of_type("string", *(add(number) for number in range(300)), END)
    server.on("POST", QUERY, endless("string"), whole.but(cut_at=20_000), whole)
    plan = ServerPlanner(rest, TABLE).plan(ScanOptions(filters=[("c", ">", "2024-01-02")]))
    assert [task.file_id for task in plan.tasks] == [f"f{number}" for number in range(300)]
    assert hint_types(server) == ["date", "string", "string"]


def test_metadata_that_change_with_each_answer_end_in_a_query_without_hints(server, rest):
    server.on("POST", QUERY, endless("string"), endless("date"), endless("string"), of_type("date", add(1), END))
    plan = ServerPlanner(rest, TABLE).plan(ScanOptions(filters=[("c", ">", "2024-01-02")]))
    assert [task.file_id for task in plan.tasks] == ["f1"]
    assert plan.spec.predicate.column.type.name == "date"
    *hinted, last = server.requests
    assert ["jsonPredicateHints" in sent.json() for sent in hinted] == [True] * 3
    assert "jsonPredicateHints" not in last.json()


def test_later_pages_of_other_metadata_raise(server, rest):
    server.on("POST", QUERY, page(add(1), token="t1"), of_type("string", add(2), END))
    with pytest.raises(ProtocolError, match="metadata changed between two pages"):
        rest.query_table(TABLE, QueryRequest())
