"""Partitioned files, and JSON hints with the files that they select, for the oracle and the server."""

from __future__ import annotations

import json
from typing import Any

from served_tables import add, column

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
    (op("lessThan", col("x", "float"), lit("0", "float")), [1, 3]),
    (op("equal", col("f", "float"), lit("0.1", "float")), [0, 1, 2, 3]),
    (op("and", FLAG, op("lessThan", col("n", "int"), lit("0", "int"))), [3]),
    (op("or", op("isNull", col("s", "string")), op("equal", col("n", "int"), lit("-5", "int")), ONE), [0, 2, 3]),
    (op("not", op("or", ONE, op("equal", col("n", "int"), lit("10", "int")))), [3]),
    (op("in", col("n", "int"), lit("1", "int"), lit("-5", "int")), [0, 3]),
    (op("notEqual", col("n", "int"), lit("1", "int")), [1, 3]),
    (op("startsWith", col("s", "string"), lit("b'", "string")), [1]),
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
    json.dumps({"op": "equal"}),
]
