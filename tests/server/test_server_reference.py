"""`ServerOptions.like_reference`: what the reference server was seen to do, asked for by bare HTTP."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
import requests
from served_tables import Caller, add, at, column, metadata, protocol, write_table
from waiting import HANG

from delta_sharing_client.server import ServerOptions

BOTH = {"delta-sharing-capabilities": "responseformat=delta,parquet;readerfeatures=deletionvectors,columnmapping"}
DELTA = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=deletionvectors,columnmapping"}
ASYNC = {"delta-sharing-capabilities": f"{BOTH['delta-sharing-capabilities']};asyncquery=true"}
VECTOR = {"storageType": "u", "pathOrInlineDv": "0" * 20, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
HINT = json.dumps(
    {
        "op": "equal",
        "children": [
            {"op": "column", "name": "p", "valueType": "int"},
            {"op": "literal", "value": "2", "valueType": "int"},
        ],
    }
)
FEED = {"delta.enableChangeDataFeed": "true"}


@pytest.fixture
def caller(tmp_path: Path, serve: Any) -> Caller:
    columns = [column("a", "long"), column("p", "integer")]
    head = metadata(*columns, partitions=["p"], configuration=FEED)
    files = [add(f"p={n}/f", partition={"p": str(n)}, stats={"numRecords": 1}) for n in (1, 2)]
    plain = write_table(tmp_path / "plain", [protocol(), head, files[0]], [files[1]])
    vectors = write_table(
        tmp_path / "vectors",
        [
            protocol(3, 7, ["deletionVectors"]),
            head,
            files[0],
            add("p=2/f", partition={"p": "2"}, deletionVector=VECTOR),
        ],
    )
    mapping = metadata(*columns, configuration={"delta.columnMapping.mode": "name"})
    mapped = write_table(tmp_path / "mapped", [protocol(2, 5), mapping, add("f")])
    grown = write_table(
        tmp_path / "grown", [protocol(), head, files[0]], [protocol(3, 7, ["deletionVectors"]), files[1]]
    )
    tables = {"s.s.plain": plain, "s.s.vectors": vectors, "s.s.mapped": mapped, "s.s.grown": grown}
    for table in tables.values():
        for version, log in enumerate(sorted((table / "_delta_log").glob("*.json"))):
            os.utime(log, (1_700_000_000 + version, 1_700_000_000 + version))
    return serve(tables, options=ServerOptions.like_reference())


def response_format(answer: Any) -> str:
    return "delta" if "deltaProtocol" in answer.lines[0]["protocol"] else "parquet"


def check_too_new(answer: Any) -> None:
    message = answer.response.json()["message"]
    assert (answer.status, answer.json["errorCode"]) == (400, "UNSUPPORTED_OPERATION")
    assert "is too new for this version of Delta Standalone" in message


def test_file_ids_differ_between_the_formats(caller: Caller) -> None:
    path = b"p=1/f"
    assert caller.query("s.s.plain").files[0]["id"] == hashlib.md5(path).hexdigest()
    assert caller.query("s.s.plain", DELTA).files[0]["id"] == hashlib.sha256(path).hexdigest()


def test_file_lines_have_no_id_of_the_deletion_vector(caller: Caller) -> None:
    (file,) = [file for file in caller.query("s.s.vectors", BOTH).files if "deletionVector" in str(file)]
    assert "deletionVectorFileId" not in file
    assert file["deltaSingleAction"]["add"]["deletionVector"]["storageType"] == "p"


@pytest.mark.parametrize("table", ["s.s.vectors", "s.s.mapped"])
def test_tables_with_features_are_served_in_delta_format_only(caller: Caller, table: str) -> None:
    assert response_format(caller.query(table, BOTH)) == "delta"
    assert response_format(caller.get(f"{at(table)}/metadata", BOTH)) == "delta"
    assert response_format(caller.query(table, BOTH, jsonPredicateHints=HINT, limitHint=5)) == "delta"
    assert caller.query(table).status == 400
    for body in ({"predicateHints": ["a = 1"]}, {"maxFiles": 10}, {"startingVersion": 0}, {"pageToken": "x"}):
        check_too_new(caller.query(table, BOTH, **body))


@pytest.mark.parametrize("table", ["s.s.vectors", "s.s.mapped", "s.s.grown"])
def test_the_change_feed_of_tables_with_features_is_refused(caller: Caller, table: str) -> None:
    check_too_new(caller.changes(table, BOTH, startingVersion=0, endingVersion=0))


def test_tables_without_features_support_all_queries(caller: Caller) -> None:
    for headers in (BOTH, DELTA, {}):
        expected = "delta" if headers is DELTA else "parquet"
        for body in (
            {"predicateHints": ["p = 2"]},
            {"maxFiles": 10},
            {"startingVersion": 0},
            {"jsonPredicateHints": HINT},
            {"version": 1},
        ):
            assert response_format(caller.query("s.s.plain", headers, **body)) == expected
        assert response_format(caller.changes("s.s.plain", headers, startingVersion=0)) == expected


def test_the_format_follows_the_protocol_of_the_requested_version(caller: Caller) -> None:
    assert response_format(caller.query("s.s.grown", BOTH)) == "delta"
    assert response_format(caller.query("s.s.grown", BOTH, version=0)) == "parquet"
    assert response_format(caller.query("s.s.grown", BOTH, version=1)) == "delta"
    assert response_format(caller.query("s.s.grown", BOTH, timestamp="2023-11-14T22:13:20Z")) == "parquet"


def test_versions_and_timestamps_out_of_range_are_refused(caller: Caller) -> None:
    for body in ({"version": 9}, {"timestamp": "2999-01-01T00:00:00Z"}):
        assert caller.query("s.s.plain", BOTH, **body).error(400)


@pytest.mark.parametrize(
    "body", [{}, {"version": 0}, {"idempotencyKey": "k", "timestamp": "2023-11-14T22:13:20Z"}]
)
def test_asynchronous_queries_ignore_the_body_of_the_query(caller: Caller, body: dict[str, Any]) -> None:
    first = caller.query("s.s.plain", ASYNC, **body)
    assert first.headers["delta-sharing-capabilities"] == "responseformat=parquet"
    (line,) = first.lines
    path = f"{at('s.s.plain')}/queries/{line['queryStatus']['queryId']}"
    for _ in range(3):
        pending = caller.call("POST", path, headers=ASYNC, json={})
        assert pending.lines == [line]
        assert line["queryStatus"]["status"] == "pending"
    done = caller.call("POST", path, headers=ASYNC, json={"maxFiles": 1})
    assert (done.version, response_format(done), len(done.files)) == ("1", "parquet", 2)
    assert done.headers["delta-sharing-capabilities"] == "responseformat=parquet"


def test_asynchronous_queries_of_tables_with_features_fail(caller: Caller) -> None:
    (line,) = caller.query("s.s.vectors", ASYNC).lines
    path = f"{at('s.s.vectors')}/queries/{line['queryStatus']['queryId']}"
    for _ in range(3):
        assert caller.call("POST", path, headers=ASYNC, json={}).lines == [line]
    check_too_new(caller.call("POST", path, headers=ASYNC, json={}))
    assert caller.call("POST", f"{at('s.s.plain')}/queries/nope", json={}).error(404)


def test_a_wrong_token_is_answered_with_plain_text(caller: Caller) -> None:
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        answer = requests.get(f"{caller.server.endpoint}/shares", headers=headers, timeout=HANG)
        assert answer.status_code == 401
        with pytest.raises(requests.JSONDecodeError):
            answer.json()


def test_like_reference_accepts_other_options(tmp_path: Path, serve: Any) -> None:
    options = ServerOptions.like_reference(history=False)
    assert (options.history, options.imitate) == (False, "reference")
    with pytest.raises(TypeError):
        ServerOptions.like_reference(no_such_option=1)
