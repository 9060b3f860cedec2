"""Column bounds, and the evaluation of predicates over them.

The result is a superset of the outcomes (`TRUE`, `FALSE`, `NULL`, combined by `|`) for the rows of a file. A file
can be skipped if `TRUE` is not included. Unknown bounds enlarge the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from delta_sharing_client.expressions.predicates import And, Constant, In, IsNull, Not, Or, Predicate, is_float
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import StructField

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4
ANY: Final = TRUE | FALSE | NULL
_JOINED: Final = (And, Or)


class ColumnBounds(Struct, frozen=True):
    """The bounds of one column in one file. A `Struct`, because one is created for each file.

    Attributes:
        lower, upper: bounds of values that are neither null nor NaN; None if unknown.
        has_null: whether there may be nulls.
        has_value: whether there may be values that are not null.
        may_be_nan: whether there may be NaN, which bounds ignore.
    """

    lower: Value = None
    upper: Value = None
    has_null: bool = True
    has_value: bool = True
    may_be_nan: bool = False

    @classmethod
    def constant(cls, value: Value) -> ColumnBounds:
        """Return the bounds of a constant column, such as a partition column."""
        if value is None:
            return cls(has_value=False)
        if isinstance(value, float) and value != value:
            return cls(has_null=False, may_be_nan=True)
        return cls(value, value, has_null=False)


def outcomes(predicate: Predicate, bounds_of: Callable[[StructField], ColumnBounds | None]) -> int:
    """Return the possible outcomes of a predicate over a file: `TRUE`, `FALSE` and `NULL`, combined by `|`.

    `bounds_of` returns the bounds of a column; None if they are unknown.
    """
    if isinstance(predicate, _JOINED):
        # In AND, FALSE overrides NULL; in OR, TRUE does.
        strong, weak = (FALSE, TRUE) if isinstance(predicate, And) else (TRUE, FALSE)
        result = weak
        for part in predicate.parts:
            result = _combine(result, outcomes(part, bounds_of), strong, weak)
        return result
    if isinstance(predicate, Not):
        inner = outcomes(predicate.part, bounds_of)
        return (FALSE if inner & TRUE else 0) | (TRUE if inner & FALSE else 0) | (inner & NULL)
    if isinstance(predicate, Constant):
        return NULL if predicate.value is None else TRUE if predicate.value else FALSE
    bounds = bounds_of(predicate.column)
    if bounds is None:
        if isinstance(predicate, In) and not predicate.values:
            return FALSE | NULL
        return TRUE | FALSE if isinstance(predicate, IsNull) else ANY
    if isinstance(predicate, IsNull):
        return (TRUE if bounds.has_null else 0) | (FALSE if bounds.has_value else 0)
    result = NULL if bounds.has_null else 0
    if bounds.has_value:
        if isinstance(predicate, In):
            each = [_compare("=", value, bounds, predicate.column) for value in predicate.values]
            result |= TRUE if any(one & TRUE for one in each) else 0
            result |= FALSE if all(one & FALSE for one in each) else 0
        else:
            result |= _compare(predicate.op, predicate.value, bounds, predicate.column)
    return result


def _combine(left: int, right: int, strong: int, weak: int) -> int:
    result = (left | right) & strong
    if (left | right) & NULL and left & (NULL | weak) and right & (NULL | weak):
        result |= NULL
    if left & weak and right & weak:
        result |= weak
    return result


def _compare(op: str, value: Any, bounds: ColumnBounds, column: StructField) -> int:
    """Return the outcomes for values that are not null."""
    nan_column = bounds.may_be_nan or is_float(column.type)
    if isinstance(value, float) and value != value:
        return TRUE if op == "!=" else FALSE
    try:
        result = _ordered(op, value, bounds.lower, bounds.upper)
    except TypeError:
        return TRUE | FALSE
    if nan_column and not (bounds.lower is not None and bounds.lower == bounds.upper and not bounds.may_be_nan):
        result |= TRUE if op == "!=" else FALSE
    return result


def _ordered(op: str, value: Any, lower: Any, upper: Any) -> int:
    """Return the outcomes for the three orders of a column's value and the literal that the bounds allow."""
    result = 0
    if lower is None or lower < value:
        result |= TRUE if op in ("<", "<=", "!=") else FALSE
    if upper is None or upper > value:
        result |= TRUE if op in (">", ">=", "!=") else FALSE
    if (lower is None or lower <= value) and (upper is None or upper >= value):
        result |= TRUE if op in ("=", "<=", ">=") else FALSE
    return result
