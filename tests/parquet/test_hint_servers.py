"""Hints keep every file with a matching row, on servers that read them in ways of their own.

`Reference` reads a hint as the reference server does, over partition values and statistics; `Older` as it did
when it knew partition columns alone; `embedded` is the server of this package.
"""

from __future__ import annotations

import itertools
import json
from datetime import date
from fractions import Fraction
from types import SimpleNamespace

import duckdb
import pytest
from filter_oracle import (
    KINDS,
    POOLS,
    Term,
    data_type,
    moment,
    partition_text,
    plain_literals,
    schema_of,
    stats_json,
    tables,
    terms,
    values,
)
from hint_servers import Older, Reference, java, java_day
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.hints import HintColumns, json_hint, sql_hints, with_long_integers
from delta_sharing_client.expressions.predicates import And, Not, Or
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.server.file_selection import select_files

MANY = settings(
    max_examples=examples(120),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


# ---- filters: trees of terms, with negations, and what they mean ----


def trees(kinds):
    """A tree of terms: a term, ("not", tree), or ("and" | "or", [tree, ...])."""
    return st.recursive(
        terms(kinds),
        lambda inner: (
            st.tuples(st.just("not"), inner)
            | st.tuples(st.sampled_from(["and", "or"]), st.lists(inner, min_size=1, max_size=3))
        ),
        max_leaves=5,
    )


def bound(tree, schema):
    if not isinstance(tree, tuple):
        return bind_filters([tree.as_tuple], schema)
    op, inner = tree
    if op == "not":
        return Not(bound(inner, schema))
    return (And if op == "and" else Or)(tuple(bound(part, schema) for part in inner))


def truth(tree, row):
    """SQL's three-valued truth of a tree for a row."""
    if not isinstance(tree, tuple):
        return tree.holds(row)
    op, inner = tree
    if op == "not":
        held = truth(inner, row)
        return None if held is None else not held
    each = [truth(part, row) for part in inner]
    return (op == "or") if (op == "or") in each else None if None in each else op == "and"


# ---- servers ----


def embedded(schema, partitions, partition, hint):
    """Whether the server of this package keeps the file; it evaluates hints on partition values alone."""
    fields = [
        {"name": f.name, "type": str(f.type), "nullable": True, "metadata": f.metadata} for f in schema.fields
    ]
    snapshot = SimpleNamespace(
        metadata=SimpleNamespace(partition_columns=partitions),
        schema_string=json.dumps({"type": "struct", "fields": fields}),
        files=[SimpleNamespace(partition_values=partition)],
    )
    return bool(select_files(snapshot, hint, None))


# ---- the property ----


def check(data, kinds, rows, partitions):
    """If a row of a file matches, no server leaves the file out."""
    partition = {}
    for name in partitions:
        value = data.draw(st.none() | values(kinds[name]), label=f"partition {name}")
        value = None if value in ("", b"", b"\xff") else value
        partition[name] = partition_text(kinds[name], value)
        if kinds[name] == "timestamp" and value is not None and data.draw(st.booleans()):
            partition[name] = partition[name].replace(" ", "T") + "Z"
        for row in rows:
            row[name] = value
    tree = data.draw(trees(kinds), label="filter")
    inside = {name: kind for name, kind in kinds.items() if name not in partitions}
    stats = stats_json(data.draw, inside, rows) if data.draw(st.integers(0, 5), label="stats?") else None
    schema = schema_of(kinds)
    predicate = bound(tree, schema)
    columns = HintColumns.of(schema, partitions)
    hint = json_hint(predicate, columns)
    if not any(truth(tree, row) is True for row in rows):
        return
    for form in forms(hint):
        assert embedded(schema, partitions, partition, form), (form, partition, stats)
        assert Reference(partition, stats).keeps(form), (form, partition, stats)
        assert Older(partition, stats).keeps(form), (form, partition, stats)


def forms(hint):
    """The hint, and the same with `long` as the type of all integers."""
    return set() if hint is None else {hint, with_long_integers(hint)}


#: The types of columns that SQL hints have, by DuckDB's names.
SQL_TYPES = {
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "boolean": "BOOLEAN",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
}
#: Besides the pools, what servers trip over.
MORE = {
    "date": [date(1582, 10, 10), date(1582, 10, 16), date(1583, 1, 1)],
    "timestamp": [1_000, 1_400, 1_600, 2_000],
    "string": ["x" * 31, "x" * 40, "\uffff", "b"],
    "double": [-1.0, 0.5],
    "float": [-1.0, 0.5],
}


def every(kind):
    """Values of a kind, and every comparison with each of them: what it is for a row, and its predicate."""
    schema, found = schema_of({"c": kind}), [*POOLS[kind], *MORE.get(kind, [])]
    literals = list(plain_literals(kind))
    for value in MORE.get(kind, []):
        literals.append(
            (moment(value), Fraction(value))
            if kind == "timestamp"
            else (value, Fraction(value) if isinstance(value, float) else value)
        )
    made = []
    for op in ("=", "!=", "<", "<=", ">", ">=", "in", "not in"):
        for shown, meaning in literals:
            term = Term("c", op, [shown], [meaning]) if op.endswith("in") else Term("c", op, shown, meaning)
            made += [(tree, bound(tree, schema)) for tree in (term, ("not", term))]
    made += [(tree, bound(tree, schema)) for op in ("is", "is not") for tree in [Term("c", op, None, None)]]
    return found, made


def written(kind, found):
    """Statistics of a file of these values, as Spark writes them."""
    there = [value for value in found if value is not None and value == value]
    told = {"numRecords": len(found), "nullCount": {"c": found.count(None)}, "minValues": {}, "maxValues": {}}
    if there and kind not in ("binary", "boolean"):
        for group, value in (("minValues", min(there)), ("maxValues", max(there))):
            if kind in ("timestamp", "timestamp_ntz"):
                value = moment(value - value % 1000).isoformat(timespec="milliseconds") + "Z"
            told[group]["c"] = value[:32] if kind == "string" else value.isoformat() if kind == "date" else value
    return json.dumps(told, default=str)


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_with_every_file(kind):
    schema = schema_of({"c": kind})
    found, comparisons = every(kind)
    hints = [(tree, json_hint(predicate, HintColumns.of(schema, []))) for tree, predicate in comparisons]
    said = [(tree, form) for tree, hint in hints for form in forms(hint)]
    # Three strings, so that there is one between the bounds whatever the order of characters.
    for rows in itertools.combinations_with_replacement([None, *found], 3 if kind == "string" else 2):
        stats = written(kind, list(rows))
        for tree, hint in said:
            if any(truth(tree, {"c": value}) is True for value in rows):
                assert Reference({}, stats).keeps(hint), (hint, stats)
                assert Older({}, stats).keeps(hint), (hint, stats)


@pytest.mark.parametrize("kind", KINDS)
def test_every_comparison_with_every_partition_value(kind):
    schema = schema_of({"c": kind})
    found, comparisons = every(kind)
    columns = HintColumns.of(schema, ["c"])
    hints = [(tree, json_hint(predicate, columns)) for tree, predicate in comparisons]
    for value in [None, *found]:
        if value in ("", b"", b"\xff"):
            continue  # null, or no text
        text = partition_text(kind, value)
        texts = {text, text.replace(" ", "T") + "Z"} if kind == "timestamp" and text else {text}
        for partition in ({"c": one} for one in texts):
            for tree, hint in hints:
                if truth(tree, {"c": value}) is not True:
                    continue
                for form in forms(hint):
                    assert embedded(schema, ["c"], partition, form), (form, partition)
                    assert Reference(partition, None).keeps(form), (form, partition)
                    assert Older(partition, None).keeps(form), (form, partition)


@pytest.mark.parametrize("kind", SQL_TYPES)
def test_sql_hints_are_true_for_every_matching_partition_value(kind):
    """In DuckDB, whose column has the type of the partition column, and reads its values as texts."""
    found, comparisons = every(kind)
    columns = HintColumns.of(schema_of({"c": kind}), ["c"])
    there = [value for value in [None, *found] if value != ""]
    left_out = 0
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE TABLE t (n INTEGER, c {SQL_TYPES[kind]})")
        texts = [(n, partition_text(kind, value)) for n, value in enumerate(there)]
        connection.executemany("INSERT INTO t VALUES (?, ?)", texts)
        for tree, predicate in comparisons:
            matching = {n for n, value in enumerate(there) if truth(tree, {"c": value}) is True}
            for hint in sql_hints(predicate, columns):
                selected = {n for (n,) in connection.execute(f"SELECT n FROM t WHERE {hint}").fetchall()}
                assert matching <= selected, hint
                left_out += len(there) - len(selected)
    assert left_out


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("partitions", [[], ["c"]], ids=["data", "partition"])
@given(data=st.data())
@settings(MANY, max_examples=examples(25))
def test_files_with_matching_rows_are_kept(kind, partitions, data):
    rows = [{"c": value} for value in data.draw(st.lists(st.none() | values(kind), min_size=1, max_size=3))]
    check(data, {"c": kind}, rows, partitions)


@given(data=st.data())
@MANY
def test_files_of_several_columns_with_matching_rows_are_kept(data):
    kinds, rows = data.draw(tables(), label="table")
    partitions = data.draw(st.lists(st.sampled_from(sorted(kinds)), unique=True), label="partitions")
    check(data, kinds, rows, partitions)


@pytest.mark.parametrize("partitions", [[], ["a"], ["a", "b"]], ids=["none", "a", "ab"])
def test_files_of_renamed_columns_with_matching_rows_are_kept(partitions):
    """A server that knows nothing of column mapping looks for columns under their names."""
    terms_of = [Term(name, op, None, None) for name in "abc" for op in ("is", "is not")]
    terms_of += [Term(name, op, 1, Fraction(1)) for name in "abc" for op in ("=", "!=", "<", ">")]
    for names in itertools.permutations("abcd", 3):
        physical = dict(zip("abc", names, strict=True))
        fields = (
            StructField(name, data_type("long"), metadata={"delta.columnMapping.physicalName": physical[name]})
            for name in "abc"
        )
        schema = StructType(tuple(fields))
        columns = HintColumns.of(schema, partitions, "name")
        hints = [(term, json_hint(bound(term, schema), columns)) for term in terms_of]
        for row in (dict(zip("abc", row, strict=True)) for row in itertools.product([None, 0, 1, 2], repeat=3)):
            partition = {physical[name]: partition_text("long", row[name]) for name in partitions}
            bounds = {
                physical[name]: row[name] for name in "abc" if name not in partitions and row[name] is not None
            }
            stats = json.dumps({"numRecords": 1, "minValues": bounds, "maxValues": bounds})
            for term, hint in hints:
                if hint is not None and term.holds(row) is True:
                    assert Reference(partition, stats).keeps(hint), (hint, partition, stats)
                    assert Older(partition, stats).keeps(hint), (hint, partition, stats)


def test_the_servers_themselves():
    """What they leave out, on cases that can be checked by eye."""
    column = {"op": "column", "name": "c", "valueType": "int"}

    def node(op, *literals):
        return {
            "op": op,
            "children": [column, *({"op": "literal", "value": v, "valueType": "int"} for v in literals)],
        }

    five, null = json.dumps(node("equal", "5")), json.dumps(node("isNull"))
    stats = '{"minValues":{"c":1},"maxValues":{"c":4}}'
    assert not Reference({}, stats).keeps(five)
    assert Reference({}, stats.replace("4", "5")).keeps(five)
    assert not Reference({}, stats.replace("4", "5")).keeps(
        json.dumps({"op": "not", "children": [node("equal", "5")]})
    )
    assert not Reference({}, stats).keeps(null)
    assert Reference({}, None).keeps(five)
    assert Older({}, stats).keeps(five)
    assert not Older({"c": "4"}, None).keeps(five)
    assert Older({"c": None}, None).keeps(null)
    assert java_day("1582-10-15") - java_day("1582-10-04") == 1
    assert java_day("1582-10-10") > java_day("1582-10-16")
    assert java_day("2000-01-01") == 2_451_545
    assert java("NaN", "double") > java("Infinity", "double") > java("0.0", "double") > java("-0.0", "double")
    schema = schema_of({"c": "long"})
    (task,) = [bind_filters([("c", ">", 4)], schema)]
    hint = json_hint(task, HintColumns.of(schema, []))
    assert hint is not None
    assert embedded(schema, [], {}, hint)
    assert not embedded(schema, ["c"], {"c": "4"}, hint)
    assert embedded(schema, ["c"], {"c": "5"}, hint)
    assert not Reference({}, stats).keeps(hint)
    assert Older({}, stats).keeps(hint)
