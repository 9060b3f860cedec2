"""Literals of row filters: scalars of pandas, numpy and Arrow converted to Python values.

They are recognized by their attributes, because this package imports none of these libraries.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from delta_sharing_client.model.partition_values import parse_date, parse_timestamp, zone_of

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY: Final = 86_400_000_000
#: The count and the unit of a `datetime64`, and the lengths of units.
_UNIT = re.compile(r"datetime64\[([0-9]*)([a-zA-Z]+)\]")
_MONTHS: Final = {"Y": 12, "M": 1}
_ATTOSECONDS: Final = {
    **{"W": 604_800 * 10**18, "D": 86_400 * 10**18, "h": 3600 * 10**18, "m": 60 * 10**18, "s": 10**18},
    **{"ms": 10**15, "us": 10**12, "ns": 10**9, "ps": 10**6, "fs": 10**3, "as": 1},
}
_BEYOND_MICROS = re.compile(r"[.,]\d{6}\d*[1-9]")


def is_null(value: Any) -> bool:
    """Whether a literal is null: None, or a null of pandas, numpy or Arrow. NaN is a number, not null."""
    if value is None or getattr(value, "is_valid", True) is False:  # an Arrow scalar
        return True
    kind = type(value)
    if kind.__name__ in ("NAType", "NaTType"):
        return kind.__module__.partition(".")[0] == "pandas"
    is_time = kind.__module__ == "numpy" and kind.__name__ in ("datetime64", "timedelta64")
    return is_time and bool(value != value)


def plain_value(value: Any) -> Any:
    """Convert scalars of numpy, pandas and Arrow to Python values."""
    if isinstance(value, bool | datetime | date | bytes | Decimal):
        return value
    # Members of enumerations of texts and numbers have another `str`.
    for kind, plain in ((str, str.__str__), (int, int), (float, float)):
        if isinstance(value, kind):
            return plain(value)
    if type(value).__module__ == "numpy":
        if type(value).__name__ == "datetime64":
            return _text_of_time(value)
        if type(value).__name__ == "timedelta64":  # `item` would make a number of some
            return value
        if type(value).__name__ == "ndarray" and value.size == 1:
            return plain_value(value.reshape(-1)[0])
    if hasattr(value, "as_py"):
        return plain_value(value.as_py())
    return value.item() if hasattr(value, "item") else value


def _text_of_time(value: Any) -> str:
    """Return a `datetime64` of any unit as text; one more precise than microseconds has a seventh digit.

    NumPy's conversions between units overflow without an error.

    Raises:
        ValueError: the time is outside the years 1 to 9999, or has no unit.
    """
    kind = _UNIT.fullmatch(str(value.dtype))
    if kind is None:
        raise ValueError("a datetime64 without a unit is not a time")
    number, unit = int(value.astype("int64")) * int(kind[1] or 1), kind[2]
    try:
        if unit in _MONTHS:
            years, month = divmod(number * _MONTHS[unit], 12)
            return datetime(1970 + years, month + 1, 1).isoformat(timespec="microseconds")
        micros, rest = divmod(number * _ATTOSECONDS[unit], 10**12)
        moment = _EPOCH.replace(tzinfo=None) + timedelta(microseconds=micros)
    except (ValueError, OverflowError):
        raise ValueError(f"the {value.dtype} is outside the years 1 to 9999") from None
    return moment.isoformat(timespec="microseconds") + "1" * bool(rest)


def date_literal(value: Any) -> date:
    """Return a literal as a date.

    Raises:
        ValueError: the literal is of another type, its text is not a date, or it has a time of day or an offset.
    """
    if isinstance(value, str):
        text = value.strip()
        parsed = parse_date(text)
        if len(text) > 10:
            micros = parse_timestamp(text, wall_clock=True)
            if micros != parse_timestamp(text):
                raise _offset_of_date(value)
            if micros % _DAY or _BEYOND_MICROS.search(text):
                raise ValueError(f"{value!r} has a time of day")
        return parsed
    if isinstance(value, datetime) and value == value:
        if value.utcoffset():
            raise _offset_of_date(value)
        if value.time().isoformat() != "00:00:00" or bool(getattr(value, "nanosecond", 0)):
            raise ValueError(f"{value!r} has a time of day")
        return value.date()
    if isinstance(value, date) and value == value:
        return value
    raise ValueError(f"{value!r} ({type(value).__name__}) is not a date")


def _offset_of_date(value: Any) -> ValueError:
    return ValueError(f"{value!r} has an offset from UTC, and a date has none; write the date alone")


def time_literal(value: Any, *, wall_clock: bool) -> tuple[int, bool]:
    """Return microseconds since the epoch, rounded down, and whether the literal is more precise.

    Raises:
        ValueError: the literal is of another type, its text is no time, or it has a zone and the column has none.
    """
    if isinstance(value, str):
        if wall_clock and (zone := zone_of(value)):
            raise ValueError(
                f"{value!r} has the zone {zone}, and the column has none; write the time without the zone"
            )
        return parse_timestamp(value, wall_clock=wall_clock), bool(_BEYOND_MICROS.search(value))
    if isinstance(value, datetime) and value == value:
        if wall_clock and value.tzinfo is not None:
            raise ValueError(
                f"{value!r} has a zone, and the column has none; write the time without the zone, as "
                "value.replace(tzinfo=None) gives it"
            )
        beyond = bool(getattr(value, "nanosecond", 0))
        plain: datetime = value.to_pydatetime(warn=False) if hasattr(value, "to_pydatetime") else value
        moment = plain.replace(tzinfo=UTC) if plain.tzinfo is None else plain
        return (moment - _EPOCH) // timedelta(microseconds=1), beyond
    if isinstance(value, date) and value == value:
        return (value.toordinal() - _EPOCH.toordinal()) * _DAY, False
    raise ValueError(f"{value!r} ({type(value).__name__}) is not a time")


def following_text(prefix: str) -> str | None:
    """Return the least string after all strings with a prefix, by code points; None if there is none."""
    rest = prefix.rstrip("\U0010ffff")
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)
