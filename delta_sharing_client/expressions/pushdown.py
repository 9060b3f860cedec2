"""Pushdown of filters that query engines pass to a scan.

An engine's filter may contain conditions that predicates cannot express, and it follows the engine's rules for
NULL and NaN. Each condition therefore becomes two predicates: one that holds for every row where the condition may
be true, and one that holds for every row where it may be false. The scan reads the rows of the first predicate.
The engine's own filter is applied to them afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.errors import FilterError
from delta_sharing_client.expressions.binding import bind_comparison, bind_membership
from delta_sharing_client.expressions.predicates import (
    And,
    Constant,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    is_collated,
    is_float,
    joined,
)
from delta_sharing_client.model.schema import StructField

#: Lists of more values become a range, because row filters compare each value with every batch.
_MAX_VALUES: Final = 1000
#: The operator after the operands of a comparison are exchanged.
EXCHANGED: Final[dict[Operator, Operator]] = {
    "=": "=", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<=",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of an engine's filter, bounded by predicates.

    Attributes:
        maybe_true: holds for all rows where the condition is true, and perhaps for more.
        maybe_false: holds for all rows where the condition is false, and perhaps for more.
    """

    maybe_true: Predicate
    maybe_false: Predicate

    def __invert__(self) -> Condition:
        return Condition(self.maybe_false, self.maybe_true)


#: A condition that predicates cannot express.
UNKNOWN: Final = Condition(Constant(True), Constant(True))
#: SQL's NULL.
NULL: Final = Condition(Constant(False), Constant(False))


def constant(value: bool) -> Condition:
    """Return a condition that is the same for all rows."""
    return Condition(Constant(value), Constant(not value))


def exact(predicate: Predicate) -> Condition:
    """Return a condition that a predicate expresses, NULL included."""
    return Condition(predicate, Not(predicate))


def is_null(column: StructField) -> Condition:
    """Return the condition that a column is null."""
    return exact(IsNull(column))


def all_of(parts: Iterable[Condition]) -> Condition:
    """Return the conjunction of conditions."""
    parts = list(parts)
    return Condition(
        joined(And, [part.maybe_true for part in parts]), joined(Or, [part.maybe_false for part in parts])
    )


def any_of(parts: Iterable[Condition]) -> Condition:
    """Return the disjunction of conditions."""
    return ~all_of([~part for part in parts])


def otherwise_null(condition: Condition, result: Condition) -> Condition:
    """Return `result` where a condition is true, and NULL elsewhere."""
    return Condition(
        joined(And, [condition.maybe_true, result.maybe_true]),
        joined(And, [condition.maybe_true, result.maybe_false]),
    )


def comparison(column: StructField, op: Operator, value: Any) -> Condition:
    """Return the comparison of a column with a literal that the engine has converted to the column's type.

    NaN follows IEEE 754. A literal that does not fit the column gives `UNKNOWN`, and so does a column with a
    collation, of which the engine knows nothing.
    """
    if value != value or is_collated(column):
        return UNKNOWN
    try:
        return exact(bind_comparison(column, op, value))
    except FilterError:
        return UNKNOWN


def membership(column: StructField, values: list[Any], *, null_is_false: bool) -> Condition:
    """Return the membership of a column in a list of literals of its type, none of them null.

    Args:
        column: the column.
        values: the literals.
        null_is_false: whether the engine's result for null is false, and not NULL.
    """
    if is_collated(column):
        return UNKNOWN
    # Engines differ in NaN, and in whether 0.0 and -0.0 are the same value of a list.
    if any(value is None or value != value or (value == 0 and is_float(column.type)) for value in values):
        return UNKNOWN
    try:
        if len(values) > _MAX_VALUES:
            ends: list[tuple[Operator, Any]] = [(">=", min(values)), ("<=", max(values))]
            within = joined(And, [bind_comparison(column, op, value) for op, value in ends])
            return Condition(within, Constant(True))
        found = bind_membership(column, values, negated=False)
    except FilterError:
        return UNKNOWN
    absent: Predicate = Or((Not(found), IsNull(column))) if null_is_false else Not(found)
    return Condition(found, absent)
