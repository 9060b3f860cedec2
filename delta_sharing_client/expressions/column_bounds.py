"""Column bounds, and the evaluation of predicates over them.

The result is a superset of the outcomes (`TRUE`, `FALSE`, `NULL`, combined by `|`) for the rows of a file. A file
can be skipped if `TRUE` is not included. Unknown bounds enlarge the set.

The evaluation uses only operators that work alike on numbers and on arrays: over the bounds of one file or row
group the result is an int, over those of a block of files (`scan.file_filter`) an array with an element per file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias

from msgspec import Struct

from delta_sharing_client.expressions.predicates import (
    And,
    Constant,
    In,
    IsNull,
    Not,
    Or,
    Predicate,
    is_collated,
    is_float,
)
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import StructField

TRUE: Final = 1
FALSE: Final = 2
NULL: Final = 4
ANY: Final = TRUE | FALSE | NULL
_JOINED: Final = (And, Or)

#: A truth value, or an array of one for each file of a block.
Truth: TypeAlias = Any
#: Outcomes combined by `|`, or an array of them for the files of a block.
Outcomes: TypeAlias = Any


class Bounds(Protocol):
    """The bounds of one column, in one file or in each file of a block.

    Attributes:
        has_null: whether there may be nulls.
        has_value: whether there may be values that are not null.
        may_be_nan: whether there may be NaN, which bounds ignore.
    """

    @property
    def has_null(self) -> Truth:
        """See above."""

    @property
    def has_value(self) -> Truth:
        """See above."""

    @property
    def may_be_nan(self) -> Truth:
        """See above."""

    def reach(self, value: Any) -> tuple[Truth, Truth, Truth]:
        """Return whether there may be values that are less than, equal to and greater than a value.

        Raises:
            TypeError: the bounds are of another type.
        """


class ColumnBounds(Struct, frozen=True):
    """The bounds of one column in one file or row group.

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

    def reach(self, value: Any) -> tuple[bool, bool, bool]:
        """See `Bounds`."""
        lower: Any = self.lower
        upper: Any = self.upper
        return (
            lower is None or lower < value,
            (lower is None or lower <= value) and (upper is None or upper >= value),
            upper is None or upper > value,
        )


def outcomes(predicate: Predicate, bounds_of: Callable[[StructField], Bounds | None]) -> Outcomes:
    """Return the possible outcomes of a predicate: `TRUE`, `FALSE` and `NULL`, combined by `|`.

    `bounds_of` returns the bounds of a column; None if they are unknown.
    """
    if isinstance(predicate, _JOINED):
        # In AND, FALSE overrides NULL; in OR, TRUE does.
        strong, weak = (FALSE, TRUE) if isinstance(predicate, And) else (TRUE, FALSE)
        result: Outcomes = weak
        for part in predicate.parts:
            result = _combine(result, outcomes(part, bounds_of), strong, weak)
        return result
    if isinstance(predicate, Not):
        inner = outcomes(predicate.part, bounds_of)
        return (inner & TRUE) << 1 | (inner & FALSE) >> 1 | (inner & NULL)
    if isinstance(predicate, Constant):
        return NULL if predicate.value is None else TRUE if predicate.value else FALSE
    bounds = bounds_of(predicate.column) or ColumnBounds(may_be_nan=is_float(predicate.column.type))
    if isinstance(predicate, IsNull):
        return bounds.has_null * TRUE | bounds.has_value * FALSE
    if is_collated(predicate.column):
        result = TRUE | FALSE
    elif isinstance(predicate, In):
        some, every = 0, FALSE
        for value in predicate.values:
            one = _compare("=", value, bounds, predicate.column)
            some, every = some | one, every & one
        result = (some & TRUE) | every
    else:
        result = _compare(predicate.op, predicate.value, bounds, predicate.column)
    return bounds.has_null * NULL | bounds.has_value * result


def _combine(left: Outcomes, right: Outcomes, strong: int, weak: int) -> Outcomes:
    # NULL is possible if it is for one part, and NULL or the weak outcome for the other one.
    either, null = left | right, NULL // weak
    both = (left | (left & weak) * null) & (right | (right & weak) * null)
    return (either & strong) | (left & right & weak) | (either & both & NULL)


def _compare(op: str, value: Any, bounds: Bounds, column: StructField) -> Outcomes:
    """Return the outcomes for values that are not null."""
    if isinstance(value, float) and value != value:
        return TRUE if op == "!=" else FALSE
    try:
        less, equal, greater = bounds.reach(value)
    except TypeError:
        return TRUE | FALSE
    result = (
        less * (TRUE if op in ("<", "<=", "!=") else FALSE)
        | equal * (TRUE if op in ("=", "<=", ">=") else FALSE)
        | greater * (TRUE if op in (">", ">=", "!=") else FALSE)
    )
    if is_float(column.type):
        result = result | bounds.may_be_nan * (TRUE if op == "!=" else FALSE)
    return result
