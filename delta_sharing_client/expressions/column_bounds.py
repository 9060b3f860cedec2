"""What a predicate can come out as over a whole file, from what is known of the file's columns.

The answer is a set of outcomes (`TRUE`, `FALSE`, `NULL`, or-ed together) that is never too small: a file
may be left out only where `TRUE` is not among them. What is not known widens the set.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from msgspec import Struct

from delta_sharing_client.expressions.predicates import And, In, IsNull, Not, Or, Predicate, is_float
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import StructField

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4
ANY: Final = TRUE | FALSE | NULL
_JOINED: Final = (And, Or)


class ColumnBounds(Struct, frozen=True):
    """What is known of one column in one file; a `Struct`, because one is made for each file.

    Attributes:
        lower, upper: bounds of its values that are not null (and not NaN); None where not known.
        has_null: whether a null may be among them.
        has_value: whether a value that is not null may be among them.
        may_be_nan: whether a NaN may be among them, which no bound tells.
    """

    lower: Value = None
    upper: Value = None
    has_null: bool = True
    has_value: bool = True
    may_be_nan: bool = False

    @classmethod
    def constant(cls, value: Value) -> ColumnBounds:
        """The domain of a column with one value throughout: a partition column."""
        if value is None:
            return cls(has_value=False)
        if isinstance(value, float) and value != value:
            return cls(has_null=False, may_be_nan=True)
        return cls(value, value, has_null=False)


def outcomes(predicate: Predicate, bounds_of: Callable[[StructField], ColumnBounds | None]) -> int:
    """Return the outcomes that are possible over a file.

    Args:
        predicate: a bound predicate.
        bounds_of: what is known of a column; None for nothing.

    Returns:
        `TRUE`, `FALSE` and `NULL`, or-ed.
    """
    if isinstance(predicate, _JOINED):
        # NULL loses against FALSE in AND, against TRUE in OR.
        strong, weak = (FALSE, TRUE) if isinstance(predicate, And) else (TRUE, FALSE)
        result = weak
        for part in predicate.parts:
            result = _combine(result, outcomes(part, bounds_of), strong, weak)
        return result
    if isinstance(predicate, Not):
        inner = outcomes(predicate.part, bounds_of)
        return (FALSE if inner & TRUE else 0) | (TRUE if inner & FALSE else 0) | (inner & NULL)
    domain = bounds_of(predicate.column)
    if domain is None:
        if isinstance(predicate, In) and not predicate.values:
            return FALSE | NULL
        return TRUE | FALSE if isinstance(predicate, IsNull) else ANY
    if isinstance(predicate, IsNull):
        return (TRUE if domain.has_null else 0) | (FALSE if domain.has_value else 0)
    result = NULL if domain.has_null else 0
    if domain.has_value:
        if isinstance(predicate, In):
            each = [_compare("=", value, domain, predicate.column) for value in predicate.values]
            result |= TRUE if any(one & TRUE for one in each) else 0
            result |= FALSE if all(one & FALSE for one in each) else 0
        else:
            result |= _compare(predicate.op, predicate.value, domain, predicate.column)
    return result


def _combine(left: int, right: int, strong: int, weak: int) -> int:
    result = (left | right) & strong
    if (left | right) & NULL and left & (NULL | weak) and right & (NULL | weak):
        result |= NULL
    if left & weak and right & weak:
        result |= weak
    return result


def _compare(op: str, value: Any, domain: ColumnBounds, column: StructField) -> int:
    """Outcomes over the values that are not null."""
    nan_column = domain.may_be_nan or is_float(column.type)
    if isinstance(value, float) and value != value:
        return TRUE if op == "!=" else FALSE
    try:
        result = _ordered(op, value, domain.lower, domain.upper)
    except TypeError:
        return TRUE | FALSE
    if nan_column and not (domain.lower is not None and domain.lower == domain.upper and not domain.may_be_nan):
        result |= TRUE if op == "!=" else FALSE
    return result


def _ordered(op: str, value: Any, lower: Any, upper: Any) -> int:
    below = lower is None or lower < value  # some value may be less
    above = upper is None or upper > value  # some value may be greater
    equal = (lower is None or lower <= value) and (upper is None or upper >= value)
    true = {
        "=": equal,
        "!=": below or above,
        "<": below,
        "<=": below or equal,
        ">": above,
        ">=": above or equal,
    }[op]
    false = {
        "=": below or above,
        "!=": equal,
        "<": above or equal,
        "<=": above,
        ">": below or equal,
        ">=": below,
    }[op]
    return (TRUE if true else 0) | (FALSE if false else 0)
