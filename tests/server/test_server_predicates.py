from __future__ import annotations

import json
from datetime import UTC, date, datetime
from operator import eq, ge, gt, le, lt, ne
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served_tables import Caller, add, column, metadata, protocol, write_table

from delta_sharing_client.server.hints import parse_json_hint, parse_sql_hint
from delta_sharing_client.server.predicates import (
    Column,
    Compare,
    Not,
    PredicateError,
    Range,
    Value,
    combine,
    comparison,
    may_match,
    parse_value,
)

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


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from delta_sharing_client.server import SharingServer

    table = write_table(
        tmp_path_factory.mktemp("p") / "t", [protocol(), metadata(*COLUMNS, partitions=PARTITIONS), *FILES]
    )
    with SharingServer({"s.s.t": table}) as server, Caller(server) as caller:
        yield caller


def numbers(caller: Caller, **body: Any) -> list[int]:
    answer = caller.query("s.s.t", {"delta-sharing-capabilities": "responseformat=delta"}, **body)
    ids = {f["id"]: int(f["deltaSingleAction"]["add"]["size"]) for f in answer.files}
    everything = [f["id"] for f in caller.query("s.s.t").files]
    return [everything.index(one) for one in ids]


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


@pytest.mark.parametrize(("hint", "expected"), JSON_CASES, ids=lambda value: json.dumps(value)[:80])
def test_json_hints(partitioned: Caller, hint: dict[str, Any], expected: list[int]) -> None:
    assert numbers(partitioned, jsonPredicateHints=json.dumps(hint)) == expected


@pytest.mark.parametrize(
    "hint",
    [
        "{",
        "[]",
        '"x"',
        "[" * 100_000,
        json.dumps(op("between", col("n", "int"), lit("1", "int"), lit("2", "int"))),
        json.dumps(op("and", op("equal", col("n", "int"), lit("1", "int")))),
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
    ],
)
def test_json_hints_that_fail_filter_nothing(partitioned: Caller, hint: str) -> None:
    assert numbers(partitioned, jsonPredicateHints=hint) == [0, 1, 2, 3]


def test_deep_json_hints_filter_nothing(partitioned: Caller) -> None:
    hint = op("isNull", col("n", "int"))
    for _ in range(100):
        hint = op("not", hint)
    assert numbers(partitioned, jsonPredicateHints=json.dumps(hint)) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("n = 1", [0]),
        ("1 = n", [0]),
        ("n > 0", [0, 1]),
        ("0 < n", [0, 1]),
        ("n >= -5 ", [0, 1, 3]),
        ("n<1.5", [0, 3]),
        ("n <> 1", [1, 3]),
        ("n != 1", [1, 3]),
        ("s = 'b''c'", [1]),
        ("`s` >= 'b'", [1, 3]),
        ("DAY = '2024-01-02'", [1]),
        ("day >= DATE '2024-01-02' and day < date'2024-02-01'", [1]),
        ("at > TIMESTAMP '2024-01-01 00:00:00'", [1, 3]),
        ("flag = TRUE", [0, 3]),
        ("flag = false AND n = 10", [1]),
        ("m = 1.1", [0]),
        ("m < 0", [3]),
        ("x = -2.0", [1, 3]),
        ("day IS NULL", [2]),
        ("day is not null", [0, 1, 3]),
        ("n = NULL", []),
        # more than these expressions: skipped
        ("n = 1 OR n = 10", [0, 1, 2, 3]),
        ("n IN (1, 2)", [0, 1, 2, 3]),
        ("s LIKE 'a%'", [0, 1, 2, 3]),
        ("(n = 1)", [0, 1, 2, 3]),
        ("nope = 1", [0, 1, 2, 3]),
        ("n = '1'", [0, 1, 2, 3]),
        ("s = 1", [0, 1, 2, 3]),
        ("day = TIMESTAMP '2024-01-01 00:00:00'", [0, 1, 2, 3]),
        ("f = 0.1", [0, 1, 2, 3]),
        ("struct IS NULL", [0, 1, 2, 3]),
        ("n", [0, 1, 2, 3]),
        ("n =", [0, 1, 2, 3]),
        ("= 1", [0, 1, 2, 3]),
        ("n = 1 AND", [0, 1, 2, 3]),
        ("1 = 1", [0, 1, 2, 3]),
        ("1 IS NULL", [0, 1, 2, 3]),
        ("n = 1; DROP TABLE t", [0, 1, 2, 3]),
        ("", [0, 1, 2, 3]),
        ("'", [0, 1, 2, 3]),
    ],
)
def test_sql_hints(partitioned: Caller, hint: str, expected: list[int]) -> None:
    assert numbers(partitioned, predicateHints=[hint]) == expected


def test_hints_are_joined(partitioned: Caller) -> None:
    assert numbers(partitioned, predicateHints=["n > 0", "gibberish(", "flag = true"]) == [0]
    both = {
        "predicateHints": ["n > 0"],
        "jsonPredicateHints": json.dumps(op("equal", col("n", "int"), lit("10", "int"))),
    }
    assert numbers(partitioned, **both) == [1]
    assert numbers(partitioned, predicateHints="n > 5") == [1]


STATS = [
    {
        "numRecords": 10,
        "minValues": {"v": 0, "name": "a", "when": "2024-01-01T00:00:00.000Z", "ratio": -1.0},
        "maxValues": {"v": 9, "name": "b", "when": "2024-01-01T00:00:00.999Z", "ratio": 1.0},
        "nullCount": {"v": 0, "name": 0, "when": 0, "ratio": 0},
    },
    {
        "numRecords": 10,
        "minValues": {"v": 10, "name": "x" * 32},
        "maxValues": {"v": 19, "name": "x" * 32},
        "nullCount": {"v": 3},
    },
    {"numRecords": 10, "nullCount": {"v": 10, "name": 10}},
    None,
    "not json",
    {"numRecords": 10, "minValues": {"v": "junk"}, "maxValues": 3, "nullCount": {"v": 0}},
]


@pytest.fixture(scope="module")
def with_stats(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from delta_sharing_client.server import SharingServer

    files = [add(f"f{number}", stats=stats) for number, stats in enumerate(STATS)]
    table = write_table(tmp_path_factory.mktemp("s") / "t", [protocol(), metadata(*COLUMNS), *files])
    with SharingServer({"s.s.t": table}) as server, Caller(server) as caller:
        yield caller


@pytest.mark.parametrize(
    ("hint", "expected"),
    [
        ("v = 5", [0, 3, 4, 5]),
        ("v < 10", [0, 3, 4, 5]),
        ("v > 9", [1, 3, 4, 5]),
        ("v >= 20", [3, 4, 5]),
        ("v <> 5", [0, 1, 3, 4, 5]),
        ("v IS NULL", [1, 2, 3, 4]),
        ("v IS NOT NULL", [0, 1, 3, 4, 5]),
        ("name = 'a'", [0, 3, 4, 5]),
        ("name > 'c'", [1, 3, 4, 5]),
        (f"name = '{'x' * 33}'", [1, 3, 4, 5]),
        ("name < 'x'", [0, 3, 4, 5]),
        # statistics are cut to milliseconds, so the greatest value may lie up to one above
        ("when > '2024-01-01T00:00:00.9995Z'", [0, 1, 2, 3, 4, 5]),
        ("when > '2024-01-01T00:00:01.001Z'", [1, 2, 3, 4, 5]),
        # NaN is greater than any number, and statistics don't see it
        ("ratio > 5", [0, 1, 2, 3, 4, 5]),
        ("ratio < -5", [1, 2, 3, 4, 5]),
    ],
)
def test_statistics(with_stats: Caller, hint: str, expected: list[int]) -> None:
    assert numbers(with_stats, predicateHints=[hint]) == expected


def test_statistics_of_another_type_decide_nothing(with_stats: Caller) -> None:
    hint = op("equal", col("v", "string"), lit("777", "string"))
    assert numbers(with_stats, jsonPredicateHints=json.dumps(hint)) == [0, 1, 3, 4, 5]


CUT = "y" * 31
#: Bounds (least, greatest) as writers leave them, and a hint that a row of the file may satisfy nevertheless.
CHANGED = [
    ("v", 2**53, 2**53, f"v = {2**53 + 1}"),  # through a double
    ("ratio", 0.10000000149011612, 5.0, "ratio < 0.100000001"),  # through a float
    ("ratio", -3.4028234663852886e38, 5.0, "ratio < -1e39"),  # saturated
    ("name", CUT + "?", CUT + "?\ufffd", f"name = '{CUT}\U0001f600'"),  # cut inside a character
    ("name", CUT + "\ufffd", CUT + "\ufffd", f"name = '{CUT}é'"),
    ("name", CUT + "\ud83d", CUT + "\ud83d", f"name = '{CUT}\U0001f600z'"),
    ("when", "1970-01-01T00:00:00.000Z", "1970-01-01T00:00:01.000Z", "when < '1969-12-31T23:59:59.9999995Z'"),
    ("when", "2024-01-01T00:00:00Z", "9999-12-31T23:59:59.999Z", "when > '9999-12-31T23:59:59.9999Z'"),
    ("when", 5, 5, "when > '2024-01-01'"),  # numbers in place of times, and the like
    ("v", "5", "5", "v = 6"),
    ("v", 1.5, True, "v = 6"),
    ("name", 5, 5, "name = 'x'"),
]


def test_bounds_are_read_as_writers_change_them(tmp_path: Any) -> None:
    from delta_sharing_client.server import SharingServer

    files = [
        add(f"f{number:02}", stats={"numRecords": 2, "minValues": {name: low}, "maxValues": {name: high}})
        for number, (name, low, high, _) in enumerate(CHANGED)
    ]
    table = write_table(tmp_path / "t", [protocol(), metadata(*COLUMNS), *files])
    with SharingServer({"s.s.t": table}) as server, Caller(server) as caller:
        for number, (_, _, _, hint) in enumerate(CHANGED):
            assert number in numbers(caller, predicateHints=[hint]), hint


def test_numbers_with_huge_exponents_are_never_expanded(tmp_path: Any) -> None:
    from delta_sharing_client.server import SharingServer

    stats = '{"numRecords":1e999999999,"minValues":{"v":1e999999999,"ratio":-1e999999999},"maxValues":{"v":1e-9}}'
    table = write_table(
        tmp_path / "t",
        [protocol(), metadata(*COLUMNS, partitions=["m"]), add("f0", partition={"m": "1e999999999"}, stats=stats)],
    )
    with SharingServer({"s.s.t": table}) as server, Caller(server) as caller:
        for kind, name in (("long", "v"), ("double", "ratio"), ("decimal", "m")):
            for literal in ("1e999999999", "-1e999999999", "1e-999999999", "sNaN", "9" * 5000):
                hint = op("lessThanOrEqual", col(name, kind), lit(literal, kind))
                numbers(caller, jsonPredicateHints=json.dumps(hint))
                numbers(caller, predicateHints=[f"{name} <= {literal}"], limitHint=5)


def test_limit_comes_after_predicates(with_stats: Caller) -> None:
    assert numbers(with_stats, limitHint=5) == [0]
    assert numbers(with_stats, limitHint=11) == [0, 1]
    assert numbers(with_stats, limitHint=11, predicateHints=["v IS NULL"]) == [1, 2]
    # Files without a row count are taken along, and count for nothing.
    assert numbers(with_stats, limitHint=31) == [0, 1, 2, 3, 4, 5]
    assert numbers(with_stats, limitHint=0) == []


values = st.one_of(st.none(), st.integers(-3, 3))
ops = st.sampled_from(["=", "<", "<=", ">", ">=", "<>"])


def truth(operator: str, value: int | None, literal: int) -> bool | None:
    if value is None:
        return None
    compare = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge, "<>": ne}[operator]
    return bool(compare(value, literal))


@given(
    rows=st.lists(values, min_size=1, max_size=4),
    parts=st.lists(st.tuples(ops, st.integers(-3, 3), st.booleans()), min_size=1, max_size=3),
    joined=st.sampled_from(["and", "or"]),
)
def test_no_file_with_a_matching_row_is_left_out(
    rows: list[int | None], parts: list[tuple[str, int, bool]], joined: Any
) -> None:
    present = [row for row in rows if row is not None]
    known = Range(
        low=min(present, default=None),
        high=max(present, default=None),
        may_be_null=None in rows,
        may_be_value=bool(present),
    )
    children = []
    for operator, literal, negated in parts:
        child = comparison(operator, Column(name="c"), Value(value=literal))
        children.append(Not(child=child) if negated else child)
    predicate = combine(joined, children)

    def row_truth(row: int | None) -> bool | None:
        results = []
        for operator, literal, negated in parts:
            result = truth(operator, row, literal)
            results.append(result if result is None or not negated else not result)
        if joined == "and":
            return False if False in results else None if None in results else True
        return True if True in results else None if None in results else False

    outcomes = predicate.evaluate(lambda _: known)
    assert {row_truth(row) for row in rows} <= outcomes
    if any(row_truth(row) for row in rows):
        assert may_match(predicate, lambda _: known)


def test_parse_value() -> None:
    assert parse_value("TRUE", "bool") is True
    assert parse_value("2024-01-02", "date") == date(2024, 1, 2)
    assert parse_value("2024-01-02 03:04:05", "timestamp") == datetime(2024, 1, 2, 3, 4, 5, tzinfo=UTC)
    for text, kind in [
        ("yes", "bool"),
        ("1.5", "long"),
        ("nan", "double"),
        ("NaN", "decimal"),
        ("sNaN", "decimal"),
        ("x", "date"),
        ("x", "decimal"),
    ]:
        with pytest.raises(PredicateError):
            parse_value(text, kind)  # type: ignore[arg-type]
    with pytest.raises(PredicateError):
        comparison("~", Column(name="c"), Value(value=1))


@given(st.text(max_size=60))
def test_any_text_as_a_hint(text: str) -> None:
    for parse in (lambda: parse_sql_hint(text, lambda name: "string"), lambda: parse_json_hint(text)):
        try:
            parse()
        except PredicateError:
            continue


def test_starts_with_on_ranges() -> None:
    def possible(low: str | None, high: str | None, prefix: str) -> bool:
        known = Range(low=low, high=high, may_be_null=False)
        return may_match(Compare(op="starts", left=Column(name="c"), right=Value(value=prefix)), lambda _: known)

    assert possible("a", "c", "b")
    assert possible("ba", "bz", "b")
    assert possible("a", "bb", "bb")
    assert not possible("a", "b", "bb")
    assert not possible("c", "d", "b")
    assert possible(None, None, "b")
