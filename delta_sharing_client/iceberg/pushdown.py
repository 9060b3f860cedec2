"""Row filters as Iceberg expressions, by which pyiceberg skips files and row groups.

The expression is true for every row for which the filter is true, and may be true for more: what Iceberg cannot
express, or compares otherwise, becomes `AlwaysTrue`. The residual filter decides about the rows.
"""

from __future__ import annotations

import math
import struct
from datetime import date
from typing import Any, Final

from pyiceberg import expressions as iceberg
from pyiceberg.expressions import BooleanExpression

from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    is_float,
)
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField

_EPOCH: Final = date(1970, 1, 1).toordinal()
_EVERY: Final = iceberg.AlwaysTrue()
_NONE: Final = iceberg.AlwaysFalse()
#: Their types are those of pydantic's fields, not of their constructors.
_IS_NULL: Final[Any] = iceberg.IsNull
_NOT_NULL: Final[Any] = iceberg.NotNull
_IN: Final[Any] = iceberg.In
_OPERATORS: Final[dict[str, Any]] = {
    "=": iceberg.EqualTo,
    "<": iceberg.LessThan,
    "<=": iceberg.LessThanOrEqual,
    ">": iceberg.GreaterThan,
    ">=": iceberg.GreaterThanOrEqual,
}
_INVERSE: Final = {"<": ">=", "<=": ">", ">": "<=", ">=": "<", "=": "!=", "!=": "="}
#: Types whose values Iceberg compares as this package does. Decimals and floats are apart.
_COMPARABLE: Final = frozenset({"integer", "long", "string", "date", "timestamp", "timestamp_ntz"})


def iceberg_expression(predicate: Predicate | None) -> BooleanExpression:
    """Return an expression that is true for every row for which a bound predicate is true."""
    expression: BooleanExpression = _EVERY if predicate is None else _translated(predicate, negated=False)
    return expression


def _translated(predicate: Predicate, *, negated: bool) -> Any:
    if isinstance(predicate, Not):
        return _translated(predicate.part, negated=not negated)
    if isinstance(predicate, And | Or):
        parts = [_translated(part, negated=negated) for part in predicate.parts]
        result = parts[0]
        join = iceberg.And if isinstance(predicate, And) != negated else iceberg.Or
        for part in parts[1:]:
            result = join(result, part)
        return result
    if isinstance(predicate, Constant):
        return _EVERY if predicate.value is (not negated) else _NONE
    column = predicate.column
    if "." in column.name:  # Iceberg's path of a nested field
        return _EVERY
    if isinstance(predicate, IsNull):
        return _NOT_NULL(column.name) if negated else _IS_NULL(column.name)
    if isinstance(predicate, Compare):
        return _comparison(column, _INVERSE[predicate.op] if negated else predicate.op, predicate.value, negated)
    return _membership(predicate, negated=negated)


def _comparison(column: StructField, op: str, value: Value, negated: bool) -> Any:
    literal = _literal(column, value)
    # A NaN fails every comparison, so it passes the negation of one, unlike the inverse comparison.
    if op == "!=" or literal is None or (negated and is_float(column.type)):
        return _NOT_NULL(column.name)
    return _OPERATORS[op](column.name, literal)


def _membership(predicate: In, *, negated: bool) -> Any:
    column = predicate.column
    if not negated and not predicate.values:
        return _NONE
    literals = [_literal(column, value) for value in predicate.values]
    if negated or is_float(column.type) or None in literals:
        return _NOT_NULL(column.name)
    return _IN(column.name, literals)


def _literal(column: StructField, value: Value) -> Any:
    """Return a value as a literal that Iceberg converts to the column's type exactly; None if there is none."""
    kind = column.type
    if isinstance(kind, DecimalType):
        return value
    if not isinstance(kind, PrimitiveType):
        return None
    if isinstance(value, date):
        return value.toordinal() - _EPOCH
    if isinstance(value, float) and value and math.isfinite(value):
        # pyiceberg rounds literals to the type of a column of floats, and infinity is beyond its range.
        exact = kind.name == "double" or (kind.name == "float" and _is_single(value))
        return value if exact else None
    return value if kind.name in _COMPARABLE else None


def _is_single(value: float) -> bool:
    try:
        return bool(struct.unpack("f", struct.pack("f", value))[0] == value)
    except OverflowError:
        return False
