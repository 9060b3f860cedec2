"""Parsers of options that are given as text; each raises `ValueError` with the values that are allowed."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final

_SECONDS: Final = {
    **dict.fromkeys(("", "s", "sec", "second", "seconds"), 1.0),
    "ms": 0.001,
    **dict.fromkeys(("m", "min", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def parse_number(text: str, least: int = 0) -> int:
    """Parse a whole number, `least` or more."""
    if not text.strip().isascii() or not text.strip().isdigit() or int(text) < least:
        raise ValueError(f"it takes a whole number, {least} or more")
    return int(text)


def parse_boolean(text: str) -> bool:
    """Parse ``true`` or ``false``, in any case."""
    word = text.strip().lower()
    if word not in ("true", "false"):
        raise ValueError("it takes true or false")
    return word == "true"


def parse_bytes(text: str) -> int:
    """Parse a number of bytes with or without a unit, as Delta does: ``10m`` is 10 * 1024 * 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower(), re.ASCII)
    if match is None or int(match[1]) < 1:
        raise ValueError("it takes a number of bytes such as 1000000 or 10m")
    return int(match[1]) << _SHIFTS[match[2]]


def parse_duration(text: str, unit: str = "s") -> timedelta:
    """Parse a duration of more than 0: ``90``, ``90s``, ``1.5 min``, ``2h``, ``500ms``; `unit` is the default."""
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", text.strip().lower(), re.ASCII)
    try:
        if match is not None:
            duration = timedelta(seconds=float(match[1]) * _SECONDS[match[2] or unit])
            if duration > timedelta(0):
                return duration
    except (KeyError, OverflowError):
        pass
    raise ValueError("it takes a duration of more than 0, such as 30, 500ms, 90s or 2min")
