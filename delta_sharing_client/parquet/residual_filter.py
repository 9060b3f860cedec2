"""The residual filter: a bound predicate evaluated on record batches, with SQL's NULL and IEEE's NaN."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    is_collated,
    is_float,
)
from delta_sharing_client.model.partition_values import INTEGER_BITS, Value
from delta_sharing_client.model.schema import PrimitiveType, StructField
from delta_sharing_client.parquet.arrow_types import array_of, scalar_of

_COMPARE: Final[Mapping[str, Callable[[Any, Any], Any]]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}


def filter_batch(batch: pa.RecordBatch, predicate: Predicate) -> pa.RecordBatch:
    """Return the rows for which a predicate that is bound to the table's schema is true, in order."""
    return batch.filter(_evaluate(predicate, batch), null_selection_behavior="drop")


def _evaluate(predicate: Predicate, batch: pa.RecordBatch) -> pa.Array:
    if isinstance(predicate, And | Or):
        combine = pc.and_kleene if isinstance(predicate, And) else pc.or_kleene
        result = _evaluate(predicate.parts[0], batch)
        for part in predicate.parts[1:]:
            result = combine(result, _evaluate(part, batch))
        return result
    if isinstance(predicate, Not):
        return pc.invert(_evaluate(predicate.part, batch))
    if isinstance(predicate, Constant):
        return pa.repeat(scalar_of(predicate.value, pa.bool_()), len(batch))
    column = batch.column(batch.schema.get_field_index(predicate.column.name))
    if isinstance(predicate, IsNull):
        return pc.is_null(column)
    if is_collated(predicate.column):
        column = _lower_case(column)
    if isinstance(predicate, Compare):
        return _COMPARE[predicate.op](column, literal(predicate.value, predicate.column, column.type))
    return _is_in(predicate, column)


def _is_in(predicate: In, column: pa.Array) -> pa.Array:
    # Null for null, unlike pc.is_in. NaN is in no list.
    values = [value for value in predicate.values if value == value]
    if is_float(predicate.column.type) and 0.0 in values:
        values += [0.0, -0.0]  # equal values, but not for pc.is_in
    if not values:
        found = pc.is_valid(pa.nulls(len(column)))
    else:
        scalars = [literal(value, predicate.column, column.type) for value in values]
        if column.type != scalars[0].type:
            column = column.cast(scalars[0].type)
        found = pc.is_in(column, value_set=array_of(scalars))
    return pc.if_else(pc.is_null(column), scalar_of(None, pa.bool_()), found)


def literal(value: Value, column: StructField, kind: pa.DataType) -> pa.Scalar:
    """Return a bound literal as an Arrow scalar that compares with the column."""
    if isinstance(column.type, PrimitiveType):
        if column.type.name in INTEGER_BITS:
            return scalar_of(value, pa.int64())
        if column.type.name == "float":
            # As double: float columns are compared exactly, as in Python and SQL.
            return scalar_of(value, pa.float64())
    scalar = scalar_of(value, kind)
    return _lower_case(array_of([scalar]))[0] if is_collated(column) else scalar


def _lower_case(texts: pa.Array) -> pa.Array:
    """Return strings as the collation `UTF8_LCASE` compares them."""
    # Lower case is that of single code points, but for these two.
    dotted = pc.replace_substring(texts, "\u0130", "i\u0307")
    return pc.replace_substring(pc.utf8_lower(dotted), "\u03c2", "\u03c3")
