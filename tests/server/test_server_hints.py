"""The server leaves out files by JSON hints on partition values and by limits, and never one that may count."""

from __future__ import annotations

import json
from typing import Any

import pytest
from served_tables import Caller, add, column, metadata, protocol, write_table

from delta_sharing_client.server import SharingServer

COLUMNS = [
    column("Day", "date"),
    column("n", "integer"),
    column("s", "string"),
    column("flag", "boolean"),
    column("at", "timestamp"),
    column("x", "double"),
    column("f", "float"),
    column("m", "decimal(10,2)"),
    column("v", "long"),
    column("name", "string"),
    column("when", "timestamp"),
    column("ratio", "double"),
    column("struct", {"type": "struct", "fields": []}),  # type: ignore[arg-type]
]
PARTITIONS = ["Day", "n", "s", "flag", "at", "x", "f", "m"]


def file(number: int, partition: dict[str, str | None], stats: Any = None) -> dict[str, Any]:
    return add(f"f{number}", partition=dict.fromkeys(PARTITIONS) | partition, stats=stats)


FILES = [
    file(
        0,
        {
            "Day": "2024-01-01",
            "n": "1",
            "s": "a",
            "flag": "true",
            "at": "2024-01-01 00:00:00",
            "x": "1.5",
            "f": "0.1",
            "m": "1.10",
        },
    ),
    file(
        1,
        {
            "Day": "2024-01-02",
            "n": "10",
            "s": "b'c",
            "flag": "false",
            "at": "2024-01-01T12:00:00.000500Z",
            "x": "-2",
            "f": "0.2",
            "m": "10.00",
        },
    ),
    file(2, {"Day": None, "n": "", "s": None, "flag": None}),
    file(
        3,
        {
            "Day": "2024-02-01",
            "n": "-5",
            "s": "é",
            "flag": "true",
            "at": "2025-01-01 00:00:00",
            "x": "NaN",
            "m": "-3",
        },
    ),
]


def col(name: str, kind: str) -> dict[str, Any]:
    return {"op": "column", "name": name, "valueType": kind}


def lit(value: Any, kind: str) -> dict[str, Any]:
    return {"op": "literal", "value": value, "valueType": kind}


def op(name: str, *children: Any) -> dict[str, Any]:
    return {"op": name, "children": list(children)}


FLAG = op("equal", col("flag", "bool"), lit("true", "bool"))
ONE = op("equal", col("n", "int"), lit("1", "int"))
JSON_CASES: list[tuple[dict[str, Any], list[int]]] = [
    (op("equal", col("day", "date"), lit("2024-01-02", "date")), [1]),
    (op("equal", lit("2024-01-02", "date"), col("Day", "date")), [1]),
    (op("lessThan", col("Day", "date"), lit("2024-01-02", "date")), [0]),
    (op("lessThanOrEqual", col("Day", "date"), lit("2024-01-02", "date")), [0, 1]),
    (op("greaterThan", col("Day", "date"), lit("2024-01-02", "date")), [3]),
    (op("greaterThanOrEqual", col("Day", "date"), lit("2024-01-02", "date")), [1, 3]),
    (op("not", op("equal", col("Day", "date"), lit("2024-01-02", "date"))), [0, 3]),
    (op("isNull", col("Day", "date")), [2]),
    (op("not", op("isNull", col("n", "int"))), [0, 1, 3]),
    (op("lessThan", col("n", "int"), lit("9", "int")), [0, 3]),
    (op("lessThan", col("n", "long"), lit(9, "long")), [0, 3]),
    (op("lessThan", col("n", "string"), lit("9", "string")), [0, 1, 3]),
    (op("equal", col("flag", "bool"), lit("true", "bool")), [0, 3]),
    (op("equal", col("flag", "bool"), lit(False, "bool")), [1]),
    (op("greaterThan", col("at", "timestamp"), lit("2024-01-01T12:00:00.0004Z", "timestamp")), [1, 3]),
    (op("equal", col("at", "timestamp"), lit("2024-01-01T01:00:00+01:00", "timestamp")), [0]),
    (op("equal", col("x", "double"), lit("1.5", "double")), [0, 3]),
    (op("lessThan", col("x", "float"), lit("0", "float")), [0, 1, 2, 3]),
    (op("equal", col("f", "float"), lit("0.1", "float")), [0, 1, 2, 3]),
    (op("and", FLAG, op("lessThan", col("n", "int"), lit("0", "int"))), [3]),
    (op("or", op("isNull", col("s", "string")), op("equal", col("n", "int"), lit("-5", "int")), ONE), [0, 2, 3]),
    (op("not", op("or", ONE, op("equal", col("n", "int"), lit("10", "int")))), [3]),
    (op("equal", col("n", "int"), lit(None, "int")), []),
    (op("lessThan", col("n", "int"), col("x", "double")), [0, 3]),
]  # fmt: skip

#: Hints that cannot be evaluated.
BAD_HINTS = [
    "{",
    "[]",
    '"x"',
    "[" * 100_000,
    json.dumps(op("between", col("n", "int"), lit("1", "int"), lit("2", "int"))),
    json.dumps(op("not")),
    json.dumps(op("equal", col("nope", "int"), lit("1", "int"))),
    json.dumps(op("equal", col("s", "int"), lit("1", "int"))),
    json.dumps(op("equal", col("n", "int"), lit("x", "int"))),
    json.dumps(op("equal", col("n", "int"), lit("2024-01-01", "date"))),
    json.dumps(op("equal", col("n", "interval"), lit("1", "interval"))),
    json.dumps(op("equal", col("x", "double"), lit("NaN", "double"))),
    json.dumps(op("equal", {"op": "column", "valueType": "int"}, lit("1", "int"))),
    json.dumps(op("equal", col("n", "int"), {"op": "literal", "valueType": "int"})),
    json.dumps(op("equal", col("n", "int"), op("not"))),
    json.dumps(op("startsWith", col("n", "int"), lit("1", "int"))),
    json.dumps(op("in", col("n", "int"), lit("1", "int"), lit("-5", "int"))),
    json.dumps(op("notEqual", col("n", "int"), lit("1", "int"))),
    json.dumps({"op": "equal"}),
]

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


@pytest.mark.parametrize(("hint", "expected"), JSON_CASES, ids=lambda value: json.dumps(value)[:80])
def test_json_hints_skip_files_by_partition_values(
    partitioned: Caller, hint: dict[str, Any], expected: list[int]
) -> None:
    assert numbers(partitioned, jsonPredicateHints=json.dumps(hint)) == expected


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
