"""Predicate hints: each operator and type against a plain evaluation of the files' values."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from conformance_targets import (
    TYPED,
    TYPED_VALUES,
    Target,
    load,
    typed_rows,
)


def operand(name: str, value: Any = None) -> dict[str, Any]:
    kind = "long" if name == "id" else TYPED_VALUES[name][1]
    if value is None:
        return {"op": "column", "name": name, "valueType": kind}
    return {"op": "literal", "value": value, "valueType": kind}


def hint(op: str, *children: dict[str, Any]) -> dict[str, Any]:
    return {"op": op, "children": list(children)}


def served_ids(target: Target, capabilities: str | None = None, **body: Any) -> set[int]:
    """The rows of `typed` whose files a query names; each file is one row, in the order of its id."""
    order = {file: number for number, file in enumerate(_typed_files(target))}
    answer = target.query(TYPED, capabilities, **body)
    return {order[file["id"]] for file in answer.all("file")}


def _typed_files(target: Target) -> list[str]:
    found: dict[int, str] = {}
    for file in target.query(TYPED).all("file"):
        (position,) = [
            number
            for number, row in enumerate(typed_rows())
            if all((file["partitionValues"].get(name) or None) == _text(name, row[name]) for name in TYPED_VALUES)
        ]
        found[position] = file["id"]
    return [found[number] for number in sorted(found)]


def _text(name: str, value: Any) -> str | None:
    return next(
        text for text, known in TYPED_VALUES[name][2] if known == value and (known is None) == (value is None)
    )


COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "equal": lambda a, b: a == b,
    "lessThan": lambda a, b: a < b,
    "lessThanOrEqual": lambda a, b: a <= b,
    "greaterThan": lambda a, b: a > b,
    "greaterThanOrEqual": lambda a, b: a >= b,
}
SQL = {"equal": "=", "lessThan": "<", "lessThanOrEqual": "<=", "greaterThan": ">", "greaterThanOrEqual": ">="}
WRITTEN = {"p_float": "1.5", "p_double": "0.1", "p_timestamp": "2022-01-01T00:00:00Z", "p_bool": "true"}


def literal_text(name: str) -> str:
    return WRITTEN.get(name) or str(TYPED_VALUES[name][2][0][0])


class TestHints:
    """A hint may leave in too much, and never leaves out a file with a row that matches."""

    def check(self, name: str, ids: set[int], matching: set[int]) -> None:
        """Check the files that are left in after a hint on a partition column."""
        assert ids >= matching
        if name != "p_float":  # the text of a 32-bit float is not its value: such hints prune nothing here
            assert ids == matching
            assert len(ids) < len(typed_rows())

    @pytest.mark.parametrize("name", TYPED_VALUES)
    @pytest.mark.protocol("jsonPredicateHints")
    def test_json_comparisons_of_every_value_type(self, newest: Target, name: str) -> None:
        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        for op, compare in COMPARISONS.items():
            matching = {row["id"] for row in rows if row[name] is not None and compare(row[name], wanted)}
            for tree in (
                hint(op, operand(name), operand(name, literal_text(name))),
                hint(
                    "not",
                    hint(
                        "not",
                        hint(op, operand(name.upper()[:1].lower() + name[1:]), operand(name, literal_text(name))),
                    ),
                ),
            ):
                self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(tree)), matching)

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_json_null_checks_of_every_value_type(self, newest: Target, name: str) -> None:
        rows = typed_rows()
        null = hint("isNull", operand(name))
        nulls = {row["id"] for row in rows if row[name] is None}
        self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(null)), nulls)
        others = {row["id"] for row in rows if row[name] is not None}
        self.check(name, served_ids(newest, jsonPredicateHints=json.dumps(hint("not", null))), others)

    def test_json_and_or(self, target: Target) -> None:
        first = hint("equal", operand("p_int", None), operand("p_int", "12"))
        second = hint("equal", operand("p_long", None), operand("p_long", "7"))
        ids = {row["id"]: row for row in typed_rows()}
        either = {number for number, row in ids.items() if row["p_int"] == 12 or row["p_long"] == 7}
        assert served_ids(target, jsonPredicateHints=json.dumps(hint("or", first, second))) == either
        assert served_ids(target, jsonPredicateHints=json.dumps(hint("and", first, second))) == set()
        three = hint("or", first, second, hint("isNull", operand("p_bool")))
        assert served_ids(target, jsonPredicateHints=json.dumps(three)) == {
            number for number, row in ids.items() if number in either or row["p_bool"] is None
        }

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_sql_comparisons_of_every_type(self, target: Target, name: str) -> None:
        """The embedded server ignores SQL hints."""

        def check(hint: str, matching: set[int]) -> None:
            assert served_ids(target, predicateHints=[hint]) >= matching

        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        text = literal_text(name)
        quoted = text if TYPED_VALUES[name][1] in ("bool", "int", "long", "float", "double") else repr_sql(text)
        for op, compare in COMPARISONS.items():
            matching = {row["id"] for row in rows if row[name] is not None and compare(row[name], wanted)}
            check(f"{name} {SQL[op]} {quoted}", matching)
        turned = {row["id"] for row in rows if row[name] is not None and wanted < row[name]}
        check(f"{quoted} < {name}", turned)
        nulls = {row["id"] for row in rows if row[name] is None}
        check(f"{name} IS NULL", nulls)
        check(f"{name} IS NOT NULL", set(range(len(rows))) - nulls)
        unequal = {row["id"] for row in rows if row[name] is not None and row[name] != wanted}
        check(f"{name} <> {quoted}", unequal)

    @pytest.mark.protocol("predicateHints")
    def test_sql_hints_are_joined_by_and(self, target: Target) -> None:
        both = ["p_int >= -5", "p_int < 12"]
        assert served_ids(target, predicateHints=both) >= {row["id"] for row in typed_rows() if row["p_int"] == -5}

    @pytest.mark.parametrize(
        "body",
        [
            {"jsonPredicateHints": "{not json"},
            {"jsonPredicateHints": json.dumps({"op": "sounds-like", "children": []})},
            {"jsonPredicateHints": json.dumps(hint("equal", operand("p_int"), operand("p_int", "many")))},
            {"jsonPredicateHints": json.dumps(hint("isNull", {"op": "column", "name": "no", "valueType": "int"}))},
            {"predicateHints": ["p_int LIKE '1%'", "(((", "nope = 1", "p_int = 'x'"]},
        ],
    )
    def test_unknown_hints_filter_nothing(self, target: Target, body: Any) -> None:
        assert served_ids(target, **body) == set(range(len(typed_rows())))

    @pytest.mark.parametrize("name", TYPED_VALUES)
    def test_a_filter_of_the_client_is_exact(self, newest: Target, name: str) -> None:
        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        operators: dict[str, Callable[[Any], bool]] = {
            "=": lambda v: v == wanted,
            "!=": lambda v: v != wanted,
            "<": lambda v: v < wanted,
            "<=": lambda v: v <= wanted,
            ">": lambda v: v > wanted,
            ">=": lambda v: v >= wanted,
            "in": lambda v: v == wanted,
            "not in": lambda v: v != wanted,
        }
        scan = newest.client.table(TYPED).scan(columns=["id"])
        for op, keep in operators.items():
            expected = {row["id"] for row in rows if row[name] is not None and keep(row[name])}
            found = scan.replace(filters=[(name, op, [wanted] if "in" in op else wanted)]).to_arrow()
            assert set(found["id"].to_pylist()) == expected, op
        for op in ("is", "is not"):
            expected = {row["id"] for row in rows if (row[name] is None) == (op == "is")}
            assert set(scan.replace(filters=[(name, op, None)]).to_arrow()["id"].to_pylist()) == expected, op

    @pytest.mark.parametrize("name", TYPED_VALUES)
    @pytest.mark.protocol("jsonPredicateHints")
    def test_hints_of_the_client_keep_matching_files(self, newest: Target, name: str) -> None:
        assert newest.server is not None
        rows, wanted = typed_rows(), TYPED_VALUES[name][2][0][1]
        filters = [(name, op, wanted) for op in ("=", "!=", "<", "<=", ">", ">=")]
        filters += [(name, "in", [wanted]), (name, "is", None), (name, "is not", None)]
        for one in filters:
            newest.server.reset_requests()
            matching = {row["id"] for row in load(newest, TYPED, columns=["id"], filters=[one])}
            (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
            assert body is not None
            json_hints, sql_hints = body.get("jsonPredicateHints"), body.get("predicateHints", [])
            assert json_hints or sql_hints
            assert matching < set(range(len(rows)))
            if json_hints is None:
                continue
            left_in = served_ids(newest, jsonPredicateHints=json_hints)
            assert left_in >= matching, one
            # Bounds of times are sent with their ends included, because servers cut times differently.
            if name != "p_float":
                assert len(left_in - matching) <= (name == "p_timestamp"), one

    def test_hints_of_the_client_express_the_filter(self, newest: Target) -> None:
        """The two notations of one filter, on the wire, as the protocol spells them."""
        assert newest.server is not None
        filters = [
            ("p_int", ">=", -5),
            ("p_long", "!=", 7),
            ("p_string", "!=", "Zürich"),
            ("p_date", "<", date(2021, 4, 29)),
            ("p_timestamp", "<=", datetime(2022, 1, 1, tzinfo=UTC)),
            ("p_bool", "=", True),
            ("p_double", ">", 0.5),
            ("p_float", "is not", None),
            ("id", ">", 3),
        ]
        newest.server.reset_requests()
        newest.client.table(TYPED).scan(filters=filters).to_arrow()
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert json.loads(body["jsonPredicateHints"]) == hint(
            "and",
            hint("greaterThanOrEqual", operand("p_int"), operand("p_int", "-5")),
            hint("not", hint("equal", operand("p_long"), operand("p_long", "7"))),
            hint("not", hint("equal", operand("p_string"), operand("p_string", "Zürich"))),
            hint("lessThan", operand("p_date"), operand("p_date", "2021-04-29")),
            hint("lessThanOrEqual", operand("p_timestamp"), operand("p_timestamp", "2022-01-01T00:00:00Z")),
            hint("equal", operand("p_bool"), operand("p_bool", "true")),
            hint("greaterThan", operand("p_double"), operand("p_double", "0.5")),
            hint("not", hint("isNull", operand("p_float"))),
            hint("greaterThan", operand("id"), operand("id", "3")),
        )
        assert body["predicateHints"] == [
            "p_int >= -5",
            "p_long <> 7",
            "p_string <> 'Zürich'",
            "p_date < '2021-04-29'",
            "p_timestamp <= '2022-01-01T00:00:00Z'",
            "p_bool = true",
            "p_double > 0.5",
            "p_float IS NOT NULL",
        ]

    def test_one_side_of_an_or_is_not_a_hint(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        either = [[("p_int", "=", 12)], [("id", "not in", [1, 2, 3, *range(4, 100)])]]
        assert {row["id"] for row in load(newest, TYPED, filters=either)} == {0, 3}
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert not {"jsonPredicateHints", "predicateHints"} & set(body)

    def test_hints_on_data_columns(self, newest: Target) -> None:
        assert newest.server is not None
        newest.server.reset_requests()
        either = [[("p_int", "=", 12)], [("id", "=", 0)]]
        assert {row["id"] for row in load(newest, TYPED, filters=either)} == {0, 3}
        (body,) = [request.body for request in newest.server.requests if request.method == "POST"]
        assert body is not None
        assert json.loads(body["jsonPredicateHints"]) == hint(
            "or",
            hint("equal", operand("p_int"), operand("p_int", "12")),
            hint("equal", operand("id"), operand("id", "0")),
        )


def repr_sql(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
