"""Predicates on files: whether a file may have a row that satisfies a predicate.

A predicate is evaluated to the *set* of truth values (true, false, NULL) that it may have among the rows of
a file. Partition values give exact answers, statistics a range, a missing statistic anything. The sets
only ever err on the side of more, under NOT too, so a file that is left out holds no row that matches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from math import isnan
from typing import Any, Final, Literal, TypeAlias

Outcomes: TypeAlias = frozenset[bool | None]
Kind: TypeAlias = Literal["bool", "long", "double", "string", "date", "timestamp", "decimal"]

ANY: Final[Outcomes] = frozenset({True, False, None})


class PredicateError(ValueError):
    """A predicate that this server cannot parse or evaluate; it is skipped."""


@dataclass(frozen=True, kw_only=True)
class Range:
    """What the values of a column in one file, or a literal, may be.

    Attributes:
        low: no value is less; None if that is not known.
        high: no value is greater; None if that is not known.
        exact: there is one value, `low`.
        may_be_null: some row may be NULL.
        may_be_value: some row may not be NULL.
    """

    low: Any = None
    high: Any = None
    exact: bool = False
    may_be_null: bool = True
    may_be_value: bool = True


ANYTHING: Final = Range()
NULL: Final = Range(may_be_value=False)
Lookup: TypeAlias = Callable[["Column"], Range]


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column; `kind` is what its values are cast to for comparing, None for the column's own type."""

    name: str
    kind: Kind | None = None

    def range(self, lookup: Lookup) -> Range:
        """Return what the file's values may be."""
        return lookup(self)


@dataclass(frozen=True, kw_only=True)
class Value:
    """A literal; None is NULL."""

    value: Any

    def range(self, lookup: Lookup) -> Range:
        """Return the literal as a range."""
        if self.value is None:
            return NULL
        return Range(low=self.value, high=self.value, exact=True, may_be_null=False)


Operand: TypeAlias = Column | Value


@dataclass(frozen=True, kw_only=True)
class Compare:
    """`left op right`; `starts` is "the text begins with"."""

    op: Literal["=", "<", "<=", "starts"]
    left: Operand
    right: Operand

    def evaluate(self, lookup: Lookup) -> Outcomes:
        """Return the truth values that the comparison may have."""
        left, right = self.left.range(lookup), self.right.range(lookup)
        outcomes: set[bool | None] = set()
        if left.may_be_null or right.may_be_null:
            outcomes.add(None)
        if left.may_be_value and right.may_be_value:
            true, false = _COMPARISONS[self.op](left, right)
            outcomes |= {value for value, possible in ((True, true), (False, false)) if possible}
        return frozenset(outcomes)


@dataclass(frozen=True, kw_only=True)
class IsNull:
    """`operand IS NULL`."""

    operand: Operand

    def evaluate(self, lookup: Lookup) -> Outcomes:
        """Return the truth values that the check may have."""
        values = self.operand.range(lookup)
        possible = ((True, values.may_be_null), (False, values.may_be_value))
        return frozenset(value for value, may_be in possible if may_be)


@dataclass(frozen=True, kw_only=True)
class Not:
    """`NOT child`."""

    child: Predicate

    def evaluate(self, lookup: Lookup) -> Outcomes:
        """Return the truth values that the negation may have."""
        return frozenset(None if value is None else not value for value in self.child.evaluate(lookup))


@dataclass(frozen=True, kw_only=True)
class Combine:
    """All children joined by AND, or by OR."""

    op: Literal["and", "or"]
    children: tuple[Predicate, ...]

    def evaluate(self, lookup: Lookup) -> Outcomes:
        """Return the truth values that the combination may have."""
        decisive = self.op == "or"
        result: Outcomes = frozenset({not decisive})
        for child in self.children:
            outcomes = child.evaluate(lookup)
            result = frozenset(_join(a, b, decisive) for a in result for b in outcomes)
        return result


Predicate: TypeAlias = Compare | IsNull | Not | Combine


def may_match(predicate: Predicate, lookup: Lookup) -> bool:
    """Return whether a file may hold a row for which the predicate is true.

    Args:
        predicate: the predicate.
        lookup: returns the possible values of a column in the file.

    Raises:
        PredicateError: the predicate does not fit the table.
        TypeError: it compares what cannot be compared.
    """
    return True in predicate.evaluate(lookup)


def parse_value(text: str, kind: Kind) -> Any:
    """Return a literal, a partition value or a statistic as a Python value.

    Timestamps without a zone are taken as UTC.

    Args:
        text: the text.
        kind: what it stands for.

    Raises:
        PredicateError: the text is no such value, or is NaN, which has no place in an order.
    """
    try:
        value = _PARSERS[kind](text)
        if isinstance(value, float | Decimal) and isnan(value):
            raise ValueError
    except (ValueError, InvalidOperation, OverflowError):
        raise PredicateError(f"not a {kind}") from None
    return value


def _join(a: bool | None, b: bool | None, decisive: bool) -> bool | None:
    if decisive in (a, b):
        return decisive
    return None if None in (a, b) else not decisive


def _less(left: Range, right: Range) -> tuple[bool, bool]:
    true = left.low is None or right.high is None or left.low < right.high
    false = left.high is None or right.low is None or left.high >= right.low
    return true, false


def _less_or_equal(left: Range, right: Range) -> tuple[bool, bool]:
    greater, not_greater = _less(right, left)
    return not_greater, greater


def _equal(left: Range, right: Range) -> tuple[bool, bool]:
    true = _less_or_equal(left, right)[0] and _less_or_equal(right, left)[0]
    return true, not (left.exact and right.exact and left.low == right.low)


def _starts(left: Range, right: Range) -> tuple[bool, bool]:
    if not right.exact or not isinstance(right.low, str):
        raise PredicateError("the start of a text must be a literal string")
    prefix = right.low
    if left.exact:
        return left.low.startswith(prefix), not left.low.startswith(prefix)
    below = left.low is not None and left.low[: len(prefix)] > prefix
    above = left.high is not None and left.high < prefix
    return not (below or above), True


def _boolean(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()] if text.lower() in ("true", "false") else _refuse()


def _refuse() -> bool:
    raise ValueError


def _timestamp(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)


_COMPARISONS: Final[dict[str, Callable[[Range, Range], tuple[bool, bool]]]] = {
    "=": _equal,
    "<": _less,
    "<=": _less_or_equal,
    "starts": _starts,
}
_PARSERS: Final[dict[Kind, Callable[[str], Any]]] = {
    "bool": _boolean,
    "long": int,
    "double": float,
    "string": str,
    "date": date.fromisoformat,
    "timestamp": _timestamp,
    "decimal": Decimal,
}


def comparison(op: str, left: Operand, right: Operand) -> Predicate:
    """Return a comparison by its SQL operator.

    Args:
        op: one of ``=``, ``<``, ``<=``, ``>``, ``>=``, ``<>``, ``!=``.
        left: the left side.
        right: the right side.

    Raises:
        PredicateError: the operator is another.
    """
    match op:
        case "=" | "<" | "<=":
            return Compare(op=op, left=left, right=right)
        case ">":
            return Compare(op="<", left=right, right=left)
        case ">=":
            return Compare(op="<=", left=right, right=left)
        case "<>" | "!=":
            return Not(child=Compare(op="=", left=left, right=right))
        case _:
            raise PredicateError(f"unknown operator {op!r}")


def combine(op: Literal["and", "or"], children: Iterable[Predicate]) -> Predicate:
    """Join predicates by AND or OR."""
    return Combine(op=op, children=tuple(children))
