"""Parsing of table properties: intervals, flags and numbers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from delta_sharing_client.errors import DeltaLogError

_DIGITS: Final = 18
_PART: Final = re.compile(r"([+-]?\d{1,9})\s+(week|day|hour|minute|second|millisecond|microsecond)s?(?:\s+|$)")


def parse_interval(text: str) -> timedelta:
    """Parse an interval of Delta's properties, such as ``interval 1 day 12 hours``.

    Raises:
        ValueError: the text is not an interval, or has months or years, whose length is not fixed.
    """
    rest = text.strip().lower().removeprefix("interval").strip()
    parts = _PART.findall(rest)
    if not parts or _PART.sub("", rest):
        raise ValueError(f"{text!r} is not an interval of weeks, days, hours, minutes or seconds")
    try:
        total = sum((timedelta(**{f"{unit}s": int(number)}) for number, unit in parts), timedelta())
    except OverflowError:
        raise ValueError(f"{text!r} is not an interval of fewer than 999,999,999 days") from None
    if total < timedelta():
        raise ValueError(f"{text!r} is not an interval, because it is negative")
    return total


def interval_property(configuration: Mapping[str, str], name: str, default: timedelta) -> timedelta:
    """Return a property that is an interval; raise `DeltaLogError` if it has another value."""
    text = configuration.get(name)
    if text is None:
        return default
    try:
        return parse_interval(text)
    except ValueError as error:
        raise DeltaLogError(f"the table property {name}: {error}") from None


def flag_property(configuration: Mapping[str, str], name: str, *, default: bool = False) -> bool:
    """Return a property that is ``true`` or ``false``."""
    text = configuration.get(name)
    return default if text is None else text.strip().lower() == "true"


def number_property(configuration: Mapping[str, str], name: str, default: int) -> int:
    """Return a property that is a number above zero; raise `DeltaLogError` if it has another value."""
    text = configuration.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise DeltaLogError(f"the table property {name} is {text[:40]!r}; it takes a number above zero")
    return int(text)
