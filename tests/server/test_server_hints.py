"""The server leaves out files by JSON hints on partition values and by limits, and never one that may count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hint_oracle.hint_cases import BAD_HINTS, COLUMNS, FILES, JSON_CASES, PARTITIONS, col, lit, op
from served_tables import Caller, add, column, metadata, protocol, write_table

from delta_sharing_client.server import SharingServer

#: What the protocol's text lists; other operations are ignored.
OPERATIONS = {
    "and", "or", "not", "isNull", "equal", "lessThan", "lessThanOrEqual", "greaterThan", "greaterThanOrEqual",
    "column", "literal",
}  # fmt: skip
DELTA = {"delta-sharing-capabilities": "responseformat=delta;readerfeatures=columnmapping"}


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    table = write_table(
        tmp_path_factory.mktemp("p") / "t", [protocol(), metadata(*COLUMNS, partitions=PARTITIONS), *FILES]
    )
    with SharingServer({"s.s.t": table}) as server, Caller(server) as caller:
        yield caller


def numbers(caller: Caller, **body: Any) -> list[int]:
    everything = [file["id"] for file in caller.query("s.s.t", DELTA).files]
    return [everything.index(file["id"]) for file in caller.query("s.s.t", DELTA, **body).files]


def words(node: Any) -> set[str]:
    return {node["op"], node.get("valueType", "")} | {w for c in node.get("children", []) for w in words(c)}


@pytest.mark.parametrize(("hint", "expected"), JSON_CASES, ids=lambda value: json.dumps(value)[:80])
def test_json_hints_skip_files_by_partition_values(
    partitioned: Caller, hint: dict[str, Any], expected: list[int]
) -> None:
    found = numbers(partitioned, jsonPredicateHints=json.dumps(hint))
    assert set(found) >= set(expected)
    if "float" not in words(hint) and words(hint) & {"in", "notEqual", "startsWith"} == set():
        assert found == expected


@pytest.mark.parametrize("hint", BAD_HINTS)
def test_json_hints_that_cannot_be_evaluated_skip_no_file(partitioned: Caller, hint: str) -> None:
    assert numbers(partitioned, jsonPredicateHints=hint) == [0, 1, 2, 3]


def test_an_or_of_many_comparisons_is_evaluated_at_once(partitioned: Caller) -> None:
    others = [op("equal", col("v", "long"), lit(str(n), "long")) for n in range(2000)]
    ones = [op("equal", col("n", "int"), lit(str(n), "int")) for n in range(2, 2000)]
    assert numbers(partitioned, jsonPredicateHints=json.dumps(op("or", *ones))) == [1]
    assert numbers(partitioned, jsonPredicateHints=json.dumps(op("or", *ones, *others))) == [0, 1, 2, 3]


def test_sql_hints_are_accepted_and_ignored(partitioned: Caller) -> None:
    for hints in (["n = 1"], ["nope("], "n = 1"):
        assert numbers(partitioned, predicateHints=hints) == [0, 1, 2, 3]


@pytest.mark.parametrize("reader", [1, 2])
def test_hints_of_mapped_columns_find_their_values(tmp_path: Any, serve: Any, reader: int) -> None:
    """Partition values stand under physical names; a property without the feature maps nothing."""
    mapped = {"delta.columnMapping.mode": "name"}
    day = column("day", "date", **{"delta.columnMapping.physicalName": "col-1", "delta.columnMapping.id": 1})
    key = "col-1" if reader == 2 else "day"
    table = write_table(
        tmp_path / "t",
        [
            protocol(reader, 5),
            metadata(day, partitions=["day"], configuration=mapped),
            *(add(f"f{number}", partition={key: f"2024-01-0{number}"}) for number in (1, 2)),
        ],
    )
    hint = op("equal", col("DAY", "date"), lit("2024-01-02", "date"))
    assert numbers(serve({"s.s.t": table}), jsonPredicateHints=json.dumps(hint)) == [1]


def test_numbers_with_huge_exponents_are_never_expanded(tmp_path: Any, serve: Any) -> None:
    stats = '{"numRecords":1e999999999}'
    head = metadata(*COLUMNS, partitions=["m", "n", "x"])
    values: dict[str, str | None] = dict.fromkeys(("m", "n", "x"), "1e999999999")
    caller = serve(
        {"s.s.t": write_table(tmp_path / "t", [protocol(), head, add("f", partition=values, stats=stats)])}
    )
    for kind, name in (("long", "n"), ("double", "x"), ("decimal", "m")):
        for literal in ("1e999999999", "-1e999999999", "1e-999999999", "sNaN", "9" * 5000):
            hint = json.dumps(op("greaterThanOrEqual", col(name, kind), lit(literal, kind)))
            assert numbers(caller, jsonPredicateHints=hint, limitHint=5) == [0]


def test_limits_count_the_rows_of_matching_files(tmp_path: Any, serve: Any) -> None:
    stats: list[Any] = [{"numRecords": 10}, {"numRecords": 10}, {"numRecords": 10}, None, "not json", {}]
    files = [add(f"f{n}", partition={"p": str(n)}, stats=value) for n, value in enumerate(stats)]
    caller = serve(
        {
            "s.s.t": write_table(
                tmp_path / "t", [protocol(), metadata(column("p", "integer"), partitions=["p"]), *files]
            )
        }
    )
    assert numbers(caller, limitHint=5) == [0]
    assert numbers(caller, limitHint=11) == [0, 1]
    after_0 = json.dumps(op("greaterThan", col("p", "int"), lit("0", "int")))
    assert numbers(caller, limitHint=11, jsonPredicateHints=after_0) == [1, 2]
    # Files without a row count are included, and count as 0 rows.
    assert numbers(caller, limitHint=31) == [0, 1, 2, 3, 4, 5]
    assert numbers(caller, limitHint=0) == []
