"""Predicates: row filters bound to a table's schema, as a tree.

A predicate is

* sent to the server as `jsonPredicateHints` and `predicateHints` (`hints`),
* evaluated over column bounds, to skip files that cannot match (`column_bounds`),
* evaluated on rows (`parquet.residual_filter`).

NULL follows SQL: a comparison with null is neither true nor false, and only rows for which the filter is true are
returned. NaN follows IEEE 754: it is not equal to any value.

Strings compare by the collation of their column ("Collated String Type"), which changes no stored value.
`UTF8_BINARY`, the default, orders strings by their bytes. `UTF8_LCASE` orders them so after a conversion to lower
case, code point by code point. Others need the library ICU.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, Literal, TypeAlias

from msgspec import Struct

from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import DataType, PrimitiveType, StructField

#: The collation that ignores case.
LOWER_CASE: Final = "UTF8_LCASE"
_BINARY: Final = "UTF8_BINARY"
#: The key of the collation in the metadata of a column.
_COLLATION: Final = "__COLLATIONS"

Operator: TypeAlias = Literal["=", "!=", "<", "<=", ">", ">="]


class Compare(Struct, frozen=True):
    """A comparison of a column with a literal of its type."""

    column: StructField
    op: Operator
    value: Value


class In(Struct, frozen=True):
    """Membership of a column in a list of literals; false for all values if the list is empty, null for null."""

    column: StructField
    values: tuple[Value, ...]


class IsNull(Struct, frozen=True):
    """Whether a column is null; never null itself."""

    column: StructField


class Constant(Struct, frozen=True):
    """A condition without a column; None is SQL's NULL."""

    value: bool | None


class And(Struct, frozen=True):
    """The conjunction of predicates."""

    parts: tuple[Predicate, ...]


class Or(Struct, frozen=True):
    """The disjunction of predicates."""

    parts: tuple[Predicate, ...]


class Not(Struct, frozen=True):
    """The negation of a predicate; null stays null."""

    part: Predicate


Predicate: TypeAlias = Compare | In | IsNull | Constant | And | Or | Not


def joined(kind: type[And | Or], parts: Iterable[Predicate]) -> Predicate:
    """Return the conjunction or the disjunction of predicates, flattened, without neutral constants."""
    flat = [inner for part in parts for inner in (part.parts if isinstance(part, kind) else (part,))]
    neutral, decisive = Constant(kind is And), Constant(kind is Or)
    if decisive in flat:
        return decisive
    rest = tuple(part for part in flat if part != neutral)
    return kind(rest) if len(rest) > 1 else rest[0] if rest else neutral


def is_collated(column: StructField) -> bool:
    """Whether comparisons of a column follow a collation, for which the bounds of statistics have no meaning."""
    return bool(column.metadata) and collation_of(column) is not None


def collation_of(column: StructField) -> str | None:
    """Return the collation of a column of strings; None if its strings compare as bytes.

    A collation of another provider than Spark keeps its provider: ``icu.UNICODE``. A malformed one is its text.
    """
    given = column.metadata.get(_COLLATION)
    if not given:
        return None
    names = set(map(str, given.values())) if isinstance(given, dict) else {str(given)}
    name = names.pop() if len(names) == 1 else str(given)
    provider, _, rest = name.partition(".")
    known = (rest if provider.lower() == "spark" else name).upper()
    if known in (_BINARY, LOWER_CASE):
        return None if known == _BINARY else LOWER_CASE
    return name


def columns_of(predicate: Predicate) -> Iterator[StructField]:
    """Yield the columns of a predicate, with repetitions."""
    if isinstance(predicate, And | Or):
        for part in predicate.parts:
            yield from columns_of(part)
    elif isinstance(predicate, Not):
        yield from columns_of(predicate.part)
    elif not isinstance(predicate, Constant):
        yield predicate.column


def is_float(data_type: DataType) -> bool:
    """Whether a type has NaN."""
    return isinstance(data_type, PrimitiveType) and data_type.name in ("float", "double")
