"""The hint oracle keeps every file that may match, and skips the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from operator import eq, ge, gt, le, lt, ne
from pathlib import Path
from typing import Any

import pytest
from hint_oracle.hint_cases import BAD_HINTS, COLUMNS, FILES, JSON_CASES, PARTITIONS, col, lit, op
from hint_oracle.notations import parse_json_hint, parse_sql_hint
from hint_oracle.predicates import (
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
from hint_oracle.pruning import prune
from hypothesis import given
from hypothesis import strategies as st
from served_tables import add, metadata, protocol, write_table

from delta_sharing_client.log import DeltaLog, Snapshot


def snapshot_of(folder: Path, *actions: dict[str, Any]) -> Snapshot:
    return DeltaLog.for_table(write_table(folder / "t", [protocol(), *actions])).snapshot()


@pytest.fixture(scope="module")
def partitioned(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    return snapshot_of(tmp_path_factory.mktemp("p"), metadata(*COLUMNS, partitions=PARTITIONS), *FILES)


def numbers(snapshot: Snapshot, json_hints: str | None = None, sql_hints: Sequence[str] = ()) -> list[int]:
    return [int(add.path[1:]) for add in prune(snapshot, json_hints=json_hints, sql_hints=sql_hints)]


@pytest.mark.parametrize(("hint", "expected"), JSON_CASES, ids=lambda value: json.dumps(value)[:80])
def test_json_hints(partitioned: Snapshot, hint: dict[str, Any], expected: list[int]) -> None:
    assert numbers(partitioned, json_hints=json.dumps(hint)) == expected


@pytest.mark.parametrize("hint", BAD_HINTS)
def test_json_hints_that_fail_filter_nothing(partitioned: Snapshot, hint: str) -> None:
    assert numbers(partitioned, json_hints=hint) == [0, 1, 2, 3]


def test_deep_json_hints_filter_nothing(partitioned: Snapshot) -> None:
    hint = op("isNull", col("n", "int"))
    for _ in range(100):
        hint = op("not", hint)
    assert numbers(partitioned, json_hints=json.dumps(hint)) == [0, 1, 2, 3]


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
def test_sql_hints(partitioned: Snapshot, hint: str, expected: list[int]) -> None:
    assert numbers(partitioned, sql_hints=[hint]) == expected


def test_hints_are_joined(partitioned: Snapshot) -> None:
    assert numbers(partitioned, sql_hints=["n > 0", "gibberish(", "flag = true"]) == [0]
    ten = json.dumps(op("equal", col("n", "int"), lit("10", "int")))
    assert numbers(partitioned, ten, ["n > 0"]) == [1]


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
def with_stats(tmp_path_factory: pytest.TempPathFactory) -> Snapshot:
    files = [add(f"f{number}", stats=stats) for number, stats in enumerate(STATS)]
    return snapshot_of(tmp_path_factory.mktemp("s"), metadata(*COLUMNS), *files)


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
def test_statistics(with_stats: Snapshot, hint: str, expected: list[int]) -> None:
    assert numbers(with_stats, sql_hints=[hint]) == expected


def test_statistics_of_another_type_decide_nothing(with_stats: Snapshot) -> None:
    hint = op("equal", col("v", "string"), lit("777", "string"))
    assert numbers(with_stats, json_hints=json.dumps(hint)) == [0, 1, 3, 4, 5]


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


def test_bounds_are_read_as_writers_change_them(tmp_path: Path) -> None:
    files = [
        add(f"f{number:02}", stats={"numRecords": 2, "minValues": {name: low}, "maxValues": {name: high}})
        for number, (name, low, high, _) in enumerate(CHANGED)
    ]
    snapshot = snapshot_of(tmp_path, metadata(*COLUMNS), *files)
    for number, (_, _, _, hint) in enumerate(CHANGED):
        assert number in numbers(snapshot, sql_hints=[hint]), hint


def test_numbers_with_huge_exponents_are_never_expanded(tmp_path: Path) -> None:
    stats = '{"numRecords":1e999999999,"minValues":{"v":1e999999999,"ratio":-1e999999999},"maxValues":{"v":1e-9}}'
    table = [metadata(*COLUMNS, partitions=["m"]), add("f0", partition={"m": "1e999999999"}, stats=stats)]
    snapshot = snapshot_of(tmp_path, *table)
    for kind, name in (("long", "v"), ("double", "ratio"), ("decimal", "m")):
        for literal in ("1e999999999", "-1e999999999", "1e-999999999", "sNaN", "9" * 5000):
            numbers(snapshot, json.dumps(op("lessThanOrEqual", col(name, kind), lit(literal, kind))))
            numbers(snapshot, sql_hints=[f"{name} <= {literal}"])


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
