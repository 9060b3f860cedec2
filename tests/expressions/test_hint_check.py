"""Warnings about a caller's `jsonPredicateHints` that servers cannot evaluate."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import delta_sharing_client as ds
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hint_check import PredicateHintWarning, warn_about_hint
from delta_sharing_client.expressions.hints import HintColumns, json_hint
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType
from delta_sharing_client.server import SharingServer

KINDS = ["boolean", "byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp"]
SCHEMA = StructType(
    (
        *(StructField(kind, PrimitiveType(kind)) for kind in KINDS),
        StructField("price", DecimalType(5, 2)),
        StructField("nested", StructType((StructField("x", PrimitiveType("long")),))),
        StructField("a.b", PrimitiveType("string")),
        StructField("Case", PrimitiveType("string")),
        StructField("case", PrimitiveType("long")),
    )
)


def column(name: Any, kind: Any) -> dict[str, Any]:
    return {"op": "column", "name": name, "valueType": kind}


def literal(value: Any, kind: Any) -> dict[str, Any]:
    return {"op": "literal", "value": value, "valueType": kind}


def node(op: Any, *children: Any) -> dict[str, Any]:
    return {"op": op, "children": list(children)}


LONG = node("equal", column("long", "long"), literal("5", "long"))

FITTING = [
    LONG,
    node("equal", column("long", "int"), literal(5, "int")),
    node("equal", column("byte", "long"), literal("-5", "long")),
    node("and", LONG, node("not", node("isNull", column("date", "date")))),
    node("or", LONG, node("lessThan", literal("2024-01-01", "date"), column("date", "date"))),
    node("greaterThanOrEqual", column("boolean", "bool"), literal(True, "bool")),
    node("equal", column("boolean", "bool"), literal("FALSE", "bool")),
    node("equal", column("timestamp", "timestamp"), literal("2024-01-01T00:00:00.000Z", "timestamp")),
    node("equal", column("timestamp", "timestamp"), literal("2024-01-01T00:00+02:00", "timestamp")),
    node("equal", column("float", "float"), literal("-1.5e3", "float")),
    node("equal", column("double", "double"), literal(0.5, "double")),
    node("equal", column("string", "string"), literal("", "string")),
    node("equal", column("string", "string"), literal("5", "string")),
    node("lessThan", column("integer", "long"), column("long", "long")),
    node("equal", column("a.b", "string"), literal("x", "string")),
    node("equal", column("Case", "string"), literal("x", "string")),
    node("equal", column("case", "long"), literal("1", "long")),
    column("boolean", "bool"),
    node("not", column("boolean", "bool")),
    {**LONG, "comment": "further fields are for the server"},
]

UNFIT = [
    ({}, r"have the unknown operator None; there are and, or, not, isNull, equal, "),
    (node("equals", *LONG["children"]), "unknown operator 'equals'"),
    (node("and", LONG, node("EQUAL", *LONG["children"])), "unknown operator 'EQUAL'"),
    (node("not", node("in", column("long", "long"), literal("5", "long"))), "unknown operator 'in'"),
    (node(["equal"], *LONG["children"]), "unknown operator"),
    (column("long", "long"), "unknown operator 'column'"),
    (node("not", literal("true", "bool")), "unknown operator 'literal'"),
    ({"op": "and"}, "'and' with other children than a list of 2 or more"),
    (node("and"), "'and' with other children"),
    (node("or", LONG), "'or' with other children"),
    (node("not", LONG, LONG), "'not' with other children than a list of 1"),
    (node("isNull", column("long", "long"), column("long", "long")), "'isNull' with other children"),
    (node("isNull", literal("5", "long")), "the operator 'isNull' without a column"),
    (node("equal", column("long", "long")), "'equal' with other children"),
    (node("lessThan", *LONG["children"], literal("5", "long")), "'lessThan' with other children"),
    (node("equal", literal("5", "long"), literal("5", "long")), "the operator 'equal' without a column"),
    (node("and", LONG, "x"), "have 'x' in the place of an object"),
    (node("equal", LONG, literal("5", "long")), "have the operand 'equal'"),
    (
        node("equal", column("long", "bigint"), literal("5", "long")),
        "unknown valueType 'bigint'; there are bool, int",
    ),
    (node("equal", column("long", "Long"), literal("5", "Long")), "unknown valueType 'Long'"),
    (node("equal", column("boolean", "boolean"), literal("true", "boolean")), "unknown valueType 'boolean'"),
    (node("equal", column("long", "long"), literal("5", None)), "unknown valueType None"),
    (node("equal", column("long", ["long"]), literal("5", "long")), "unknown valueType"),
    (node("equal", column("lnog", "long"), literal("5", "long")), "the column 'lnog', .* did you mean 'long'"),
    (node("equal", column("LONG", "long"), literal("5", "long")), "'LONG', which is 'long' in the table"),
    (node("isNull", column("LONG", "long")), "'LONG', which is 'long' in the table"),
    (node("isNull", column(None, "long")), "the column None, which the table does not have"),
    (node("isNull", column("nested", "string")), "'nested' the valueType 'string', and it is struct"),
    (node("equal", column("nested.x", "long"), literal("5", "long")), "the column 'nested.x', .* does not have"),
    (node("equal", column("long", "string"), literal("5", "string")), "valueType 'string', and it is long"),
    (node("equal", column("string", "int"), literal(5, "int")), "valueType 'int', and it is string"),
    (node("equal", column("timestamp", "date"), literal("2024-01-01", "date")), "and it is timestamp"),
    (node("equal", column("price", "double"), literal("5", "double")), r"and it is decimal\(5,2\)"),
    (node("equal", column("long", "int"), literal("5", "long")), "compare values of the types int and long"),
    (node("equal", column("float", "float"), literal("0.5", "double")), "compare values of the types"),
    (node("equal", column("long", "long"), literal("5", "string")), "compare values of the types long and string"),
]

#: By value type: literals that servers refuse, or understand in different ways.
BAD_LITERALS: dict[str, list[Any]] = {
    "bool": ["1", 1, "yes", " true", None],
    "int": ["abc", "5.5", 5.0, " 5", "5_0", "0x5", "", "3000000000", True, None, ["5"], {}],
    "long": ["abc", "1e3", "9223372036854775808", "__HIVE_DEFAULT_PARTITION__"],
    "string": [5, 0.5, True, None, ["a"]],
    "date": ["2024-13-01", "2024-02-30", "2024-1-1", "01/02/2024", "2024-01-01 10:00:00", "", 20240101, None],
    "float": ["abc", "", "1,5", True, None],
    "double": ["abc", "__HIVE_DEFAULT_PARTITION__", [0.5]],
    "timestamp": [
        "2024-01-01",
        "2024-01-01 10:00:00",
        "2024-01-01T10:00:00",
        "2024-01-01T25:00:00Z",
        "2024-01-01T10:00:00 Europe/Paris",
        1704067200000,
        None,
    ],
}


@pytest.mark.parametrize("hint", FITTING, ids=json.dumps)
def test_a_fitting_hint(hint: Any) -> None:
    warn_about_hint(json.dumps(hint), SCHEMA, "table s.s.t")


@pytest.mark.parametrize(("hint", "words"), UNFIT, ids=[str(n) for n in range(len(UNFIT))])
def test_a_hint_that_does_not_fit(hint: Any, words: str) -> None:
    with pytest.warns(
        PredicateHintWarning, match=f"table s.s.t: jsonPredicateHints .*{words}.*use filters="
    ) as caught:
        warn_about_hint(json.dumps(hint), SCHEMA, "table s.s.t")
    assert len(caught) == 1


@pytest.mark.parametrize(
    ("kind", "value"), [(kind, value) for kind in BAD_LITERALS for value in BAD_LITERALS[kind]]
)
def test_a_literal_that_does_not_fit(kind: str, value: Any) -> None:
    name = {"bool": "boolean", "int": "integer"}.get(kind, kind)
    with pytest.warns(PredicateHintWarning, match=f"is not of the valueType '{kind}'.*use filters=") as caught:
        warn_about_hint(json.dumps(node("equal", column(name, kind), literal(value, kind))), SCHEMA, "table s.s.t")
    assert len(caught) == 1


def test_the_hints_of_filters_fit() -> None:
    values = dict(zip(KINDS, (True, 1, 1, 1, 1, 0.5, 0.5, "a", "2024-01-01", "2024-01-01 10:00:00"), strict=True))
    columns = HintColumns(partitions=frozenset(KINDS))
    for name, value in values.items():
        for op, given in (("=", value), ("!=", value), ("in", [value]), ("is", None), ("is not", None)):
            warn_about_hint(json_hint(bind_filters([(name, op, given)], SCHEMA), columns), SCHEMA, "table s.s.t")


def test_deep_hints() -> None:
    deep: Any = LONG
    for _ in range(5000):
        deep = f'{{"op":"not","children":[{deep if isinstance(deep, str) else json.dumps(deep)}]}}'
    warn_about_hint(deep, SCHEMA, "table s.s.t")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("hints") / "t"
    write_deltalake(path, pa.table({"p": ["a", "b"], "n": [1, 2]}), partition_by=["p"])
    with SharingServer({"s.s.t": path}) as server, ds.SharingClient(server.profile) as client:
        yield client.table("s.s.t")


class TestLoads:
    WRONG = json.dumps(node("equals", column("p", "string"), literal("a", "string")))

    @pytest.mark.parametrize("more", [{}, {"limit": 1}, {"limit": 0}, {"filters": [("n", ">", 0)]}], ids=str)
    @pytest.mark.parametrize("load", ["to_arrow", "to_pandas", "count"])
    def test_a_load_warns_once_at_its_caller_and_sends_the_hint(self, table: Any, load: str, more: Any) -> None:
        plan = table.scan(json_predicate_hints=json.dumps(LONG | {"op": "and", "children": []}), **more)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(plan, load)()
        assert [(one.category, one.filename) for one in caught] == [(PredicateHintWarning, __file__)]

    def test_the_hint_is_sent(self, table: Any) -> None:
        with pytest.warns(PredicateHintWarning, match="equals"):
            plan = table.scan(json_predicate_hints=self.WRONG).plan()
        assert plan.request.json_predicate_hints == self.WRONG
        assert len(plan.tasks) == 2

    def test_a_fitting_hint_skips_files(self, table: Any) -> None:
        hint = json.dumps(node("equal", column("p", "string"), literal("a", "string")))
        assert table.scan(json_predicate_hints=hint).count() == 1

    def test_materialize(self, table: Any, tmp_path: Path) -> None:
        with pytest.warns(PredicateHintWarning, match="equals"):
            table.scan(json_predicate_hints=self.WRONG).materialize(tmp_path / "copy")

    def test_functions_with_a_table_url(self, table: Any) -> None:
        with pytest.warns(PredicateHintWarning, match="equals") as caught:
            assert table.snapshot(jsonPredicateHints=self.WRONG).to_arrow().num_rows == 2
        assert [one.filename for one in caught] == [__file__]
