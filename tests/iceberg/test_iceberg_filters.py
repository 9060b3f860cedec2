"""Filters of Iceberg tables: pyiceberg never drops a row for which the filter is true."""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from faults.server import FaultServer
from hypothesis import given, settings
from hypothesis import strategies as st
from iceberg_server import IcebergServer
from pyiceberg.expressions import AlwaysFalse, AlwaysTrue, EqualTo, GreaterThanOrEqual, NotNull
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from thorough import examples

import delta_sharing_client as ds
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import And, Not, Or, Predicate
from delta_sharing_client.iceberg.pushdown import iceberg_expression
from delta_sharing_client.iceberg.table import IcebergTable
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.residual_filter import filter_batch

TENTH = struct.unpack("f", struct.pack("f", 0.1))[0]
NUMBERS = [None, float("nan"), 0.0, -0.0, 0.1, TENTH, -1.5, 7.0, float("inf"), 1e300]
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "flag": (pa.bool_(), [None, True, False]),
    "small": (pa.int32(), [None, -3, 0, 7, 2**31 - 1]),
    "large": (pa.int64(), [None, -3, 0, 7, 2**63 - 1]),
    "single": (pa.float32(), [*NUMBERS[:-1]]),
    "real": (pa.float64(), NUMBERS),
    "price": (pa.decimal128(9, 2), [None, Decimal("-0.01"), Decimal("0.00"), Decimal("7.10")]),
    "day": (pa.date32(), [None, dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    "at": (pa.timestamp("us", "UTC"), [None, dt.datetime(1969, 12, 31, 23, 59, 59, 999999, dt.UTC)]),
    "wall": (pa.timestamp("us"), [None, dt.datetime(2024, 1, 1, 0, 0, 0, 1)]),
    "text": (pa.string(), [None, "", "a", "a" * 40, "a" * 16 + "z", "é", "\U0001f3bf"]),
    "bytes": (pa.binary(), [None, b"", b"\xff" * 20]),
    "dotted.name": (pa.int64(), [None, 1, 2]),
}


def rows(length: int) -> pa.Table:
    """Rows with each value in turn; the files below differ in the values that they have."""
    return pa.table({name: pa.array((v * length)[:length], kind) for name, (kind, v) in VALUES.items()})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[IcebergTable]:
    with FaultServer() as server:
        iceberg = IcebergServer(server, tmp_path_factory.mktemp("filters"))
        iceberg.create("sales.values", *(rows(30).slice(n, size) for n, size in ((0, 12), (1, 1), (2, 1), (3, 4))))
        with iceberg.client() as client:
            yield client.iceberg.table("retail.sales.values")
        iceberg.catalog.engine.dispose()


@pytest.fixture(scope="module")
def batch(table: IcebergTable) -> pa.RecordBatch:
    return table.to_arrow().combine_chunks().to_batches()[0]


@pytest.fixture(scope="module")
def schema(table: IcebergTable) -> StructType:
    return table.schema()


@pytest.mark.parametrize("name", list(VALUES))
def test_no_comparison_drops_a_row_for_which_it_is_true(
    table: IcebergTable, batch: pa.RecordBatch, schema: StructType, name: str
) -> None:
    """Each operator and value, negated too: the rows that pyiceberg keeps, by its own evaluation on rows."""
    columns = table._catalog.load(table.name).schema()
    numbered = batch.append_column("row", pa.array(range(batch.num_rows)))
    known = [value for value in VALUES[name][1] if value is not None]
    terms = [(name, op, value) for op in ("=", "!=", "<", "<=", ">", ">=") for value in known]
    terms += [(name, op, known[:size]) for op in ("in", "not in") for size in range(len(known) + 1)]
    for term in [*terms, (name, "is", None), (name, "is not", None)]:
        for predicate in (bound(term, schema), Not(bound(term, schema))):
            expression = bind(columns, iceberg_expression(predicate), case_sensitive=True)
            kept = pa.Table.from_batches([numbered]).filter(expression_to_pyarrow(expression, columns))
            assert set(filter_batch(numbered, predicate)["row"].to_pylist()) <= set(kept["row"].to_pylist()), term


@st.composite
def terms(draw: st.DrawFn) -> tuple[str, str, Any]:
    name = draw(st.sampled_from(list(VALUES)))
    known = [value for value in VALUES[name][1] if value is not None]
    op = draw(st.sampled_from(["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is", "is not"]))
    if op in ("is", "is not"):
        return name, op, None
    if op in ("in", "not in"):
        return name, op, draw(st.lists(st.sampled_from(known), max_size=3))
    return name, op, draw(st.sampled_from(known))


@settings(max_examples=examples(100))
@given(
    st.recursive(
        terms(), lambda parts: st.tuples(st.sampled_from([And, Or, Not]), st.lists(parts, min_size=1, max_size=3))
    )
)
def test_rows_are_exactly_those_for_which_the_filter_is_true(
    table: IcebergTable, batch: pa.RecordBatch, schema: StructType, tree: Any
) -> None:
    predicate = bound(tree, schema)
    expected = filter_batch(batch, predicate)
    assert str(table.to_arrow(filters=predicate).to_pylist()) == str(expected.to_pylist())
    assert table.count(filters=predicate) == expected.num_rows


def bound(tree: Any, schema: StructType) -> Predicate:
    if isinstance(tree[0], str):
        found = bind_filters([tree], schema)
        assert found is not None
        return found
    kind, parts = tree
    inner = [bound(part, schema) for part in parts]
    return Not(inner[0]) if kind is Not else kind(tuple(inner))


@pytest.mark.parametrize(
    ("term", "negated", "expression"),
    [
        (("large", "=", 7), False, EqualTo("large", 7)),
        (("large", "<", 7), True, GreaterThanOrEqual("large", 7)),
        (("large", "!=", 7), False, NotNull("large")),
        (("day", "=", dt.date(1970, 1, 2)), False, EqualTo("day", 1)),
        (("real", ">=", 7.0), False, GreaterThanOrEqual("real", 7.0)),
        (("real", "<", 7.0), True, NotNull("real")),  # NaN is not less than 7
        (("single", ">=", 0.5), False, GreaterThanOrEqual("single", 0.5)),
        (("single", ">=", 0.1), False, NotNull("single")),  # Iceberg would round 0.1
        (("dotted.name", "=", 1), False, AlwaysTrue()),  # a path, for Iceberg
        (("large", "in", []), False, AlwaysFalse()),
    ],
)
def test_expressions(schema: StructType, term: tuple[str, str, Any], negated: bool, expression: Any) -> None:
    predicate = bound(term, schema)
    assert iceberg_expression(Not(predicate) if negated else predicate) == expression


def test_files_are_skipped(table: IcebergTable) -> None:
    assert len(table.scan().files()) == 4
    assert len(table.scan(filters=[("large", "=", 2**63 - 1)]).files()) < 4
    assert len(table.scan(filters="day > '2025-01-01'").files()) == 0
    assert ds.IcebergScan is type(table.scan())
