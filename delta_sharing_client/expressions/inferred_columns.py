"""Row filters bound to columns of types that are inferred from their values, for tables of unknown schema."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import date, datetime
from itertools import islice
from typing import Any, Final

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.expressions.literals import is_null, plain_value
from delta_sharing_client.expressions.predicates import Predicate
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType

_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
#: Values of a list that are looked at.
_MOST: Final = 1_000
#: Texts that may be times, or dates with one.
_TIME: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.")


def inferred_predicate(filters: Filters | None) -> Predicate | None:
    """Bind filters to the columns that they name, with the types that their values are likely to be of.

    Integers are `long`, texts `string`, texts of dates and dates `date`, floats `double`, booleans `boolean`.

    Returns:
        None if a type cannot be inferred: of SQL text, times, decimals, and columns compared with null alone.
    """
    if not isinstance(filters, list | tuple):
        return None
    try:
        types: dict[str, set[str | None]] = {}
        for name, values in _terms(filters):
            types.setdefault(name, set()).update(
                _type(value) for value in islice(values, _MOST) if not is_null(value)
            )
        if any(len(found) != 1 or None in found for found in types.values()):
            return None
        columns = (StructField(name, PrimitiveType(str(found.pop()))) for name, found in types.items())
        return bind_filters(filters, StructType(tuple(columns)))
    except (TypeError, ValueError, LookupError, DeltaSharingError):  # binding it again raises
        return None


def _terms(filters: Iterable[Any]) -> Iterator[tuple[str, Iterable[Any]]]:
    for item in filters:
        if item and isinstance(item[0], str):
            name, _, value = item
            yield name, value if isinstance(value, tuple | list | frozenset | range) else [value]
        else:
            yield from _terms(item)


def _type(value: Any) -> str | None:
    value = plain_value(value)
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "long"
    if isinstance(value, float):
        return "double"
    if isinstance(value, str):
        return "date" if _DATE.fullmatch(value) else None if _TIME.match(value) else "string"
    return "date" if isinstance(value, date) and not isinstance(value, datetime) else None
