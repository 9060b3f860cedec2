"""Row filters as callers write them; `binding` makes predicates of them, which only loads with a filter import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from delta_sharing_client.errors import FilterError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from delta_sharing_client.expressions.predicates import Predicate

#: A list of (column, operator, value), AND-ed; a list of such lists, OR-ed; SQL text; or a bound predicate.
Filters: TypeAlias = "str | Sequence[tuple[str, str, Any] | Sequence[tuple[str, str, Any]]] | Predicate"


def freeze_filters(filters: Any) -> Any:
    """Return an immutable copy of filters; raise `FilterError` if they are neither a list nor SQL text.

    Malformed terms are kept, and raise when they are bound.
    """
    if filters is None:
        return None
    from delta_sharing_client.expressions.predicates import Predicate

    if isinstance(filters, str) and not filters.strip():
        raise FilterError("filters is an empty text; leave it out, or pass None, for all rows")
    if isinstance(filters, str | Predicate):
        return filters
    if not isinstance(filters, list | tuple):
        raise FilterError(
            "filters takes a list of (column, operator, value) tuples, a list of such lists, or SQL text, "
            f"not {type(filters).__name__}"
        )
    if len(filters) == 3 and isinstance(filters[0], str) and isinstance(filters[1], str):
        raise FilterError(f"filters takes a list of tuples: write [({filters[0]!r}, {filters[1]!r}, ...)]")
    return _frozen(filters)


def _frozen(filters: Any) -> Any:
    if isinstance(filters, list | tuple):
        return tuple(_frozen(item) for item in filters)
    if isinstance(filters, Iterator):  # can be read only once
        return tuple(filters)
    return frozenset(filters) if isinstance(filters, set) else filters
