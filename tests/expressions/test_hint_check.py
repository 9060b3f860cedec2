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
    node("equal", column("LONG", "int"), literal(5, "int")),
    node("and", LONG, node("not", node("isNull", column("date", "date")))),
    node("or", LONG, node("lessThan", literal("2024-01-01", "date"), column("date", "date"))),
    node("greaterThanOrEqual", column("boolean", "bool"), literal(True, "bool")),
    node("equal", column("timestamp", "timestamp"), literal("2024-01-01T00:00:00.000Z", "timestamp")),
    node("equal", column("float", "float"), literal("0.5", "double")),
    node("equal", column("string", "string"), literal(None, "string")),
    {**LONG, "comment": "further fields are for the server"},
]

UNFIT = [
    ({}, r"have the unknown operator None; there are and, or, not, isNull, equal, "),
    (node("equals", *LONG["children"]), "unknown operator 'equals'"),
    (node("and", LONG, node("EQUAL", *LONG["children"])), "unknown operator 'EQUAL'"),
    (node("not", node("in", column("long", "long"), literal("5", "long"))), "unknown operator 'in'"),
    (node(["equal"], *LONG["children"]), "unknown operator"),
    (column("long", "long"), "unknown operator 'column'"),
    ({"op": "and"}, "'and' with other children"),
    (node("and"), "'and' with other children"),
    (node("not", LONG, LONG), "'not' with other children"),
    (node("equal", column("long", "long")), "'equal' with other children"),
    (node("and", LONG, "x"), "have 'x' in the place of an object"),
    (node("equal", LONG, literal("5", "long")), "have the operand 'equal'"),
    (
        node("equal", column("long", "bigint"), literal("5", "long")),
        "unknown valueType 'bigint'; there are bool, int",
    ),
    (node("equal", column("long", "long"), literal("5", None)), "unknown valueType None"),
    (node("equal", column("long", ["long"]), literal("5", "long")), "unknown valueType"),
    (node("equal", column("lnog", "long"), literal("5", "long")), "the column 'lnog', .* did you mean 'long'"),
    (node("isNull", column(None, "long")), "the column None, which the table does not have"),
    (node("equal", column("long", "string"), literal("5", "string")), "valueType 'string', and it is long"),
    (node("equal", column("price", "double"), literal("5", "double")), r"and it is decimal\(5,2\)"),
    (node("equal", column("date", "date"), literal("2024-13-01", "date")), "'2024-13-01', .* valueType 'date'"),
    (node("equal", column("long", "int"), literal("5.5", "int")), "'5.5', .* valueType 'int'"),
    (node("equal", column("long", "long"), literal(["5"], "long")), "valueType 'long'"),
    (node("equal", column("long", "long"), literal("5", "string")), "compare values of the types long and string"),
]


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
