"""Fields of a JSON object, converted to the types that actions have.

Numbers may be written as strings and integers as whole floats. Each function raises ValueError if a value has
another type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_sharing_client.model.numbers import MAX_INTEGER


def text(item: Mapping[str, Any], key: str) -> str:
    """Return a text that must not be missing or empty."""
    value = item.get(key)
    if not isinstance(value, str) or not value:
        raise ValueError(f"{key!r} is missing")
    return value


def optional_text(item: Mapping[str, Any], key: str) -> str | None:
    """Return a text that may be missing; None also for the empty text."""
    value = item.get(key)
    if value is None or isinstance(value, str):
        return value or None
    if isinstance(value, dict | list):
        raise ValueError(f"{key!r} is not a string")
    return str(value)


def integer(item: Mapping[str, Any], key: str) -> int:
    """Return an integer of 64 bits that must not be missing."""
    value = optional_integer(item, key)
    if value is None:
        raise ValueError(f"{key!r} is missing")
    return value


def optional_integer(item: Mapping[str, Any], key: str) -> int | None:
    """Return an integer of 64 bits that may be missing."""
    value = item.get(key)
    if value is None:
        return None
    number: int = value
    if type(value) is not int:
        try:
            converted = int(value) if isinstance(value, str | float) else None
        except (ValueError, OverflowError):
            converted = None
        if converted is None or (isinstance(value, float) and converted != value):
            raise ValueError(f"{key!r} is not an integer")
        number = converted
    if not -MAX_INTEGER <= number <= MAX_INTEGER:
        raise ValueError(f"{key!r} is beyond 64 bits")
    return number


def names(item: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """Return a list of names; empty if it is missing."""
    value = item.get(key)
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ValueError(f"{key!r} is not a list")
    return tuple(str(name) for name in value)


def text_map(item: Mapping[str, Any], key: str) -> Mapping[str, str]:
    """Return an object of texts; empty if it is missing or not an object."""
    value = item.get(key)
    if not isinstance(value, dict):
        return {}
    return {str(name): "" if each is None else str(each) for name, each in value.items()}


def without_nulls(item: Mapping[str, Any]) -> dict[str, Any]:
    """Return an object without its null fields, which some writers write for absent ones; keep nested nulls."""
    return {name: value for name, value in item.items() if value is not None}
