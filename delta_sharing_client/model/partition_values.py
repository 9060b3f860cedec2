"""Partition values: look-up by column, and decoding of the text to a Python value of the column's type.

Serves "Partition Value Serialization" of both protocols. An empty string is null, for every type. Times
without a zone are UTC; writers use both the form with a blank and ISO 8601. `timestamps.py` parses the
times of profiles and time travel, which may have the basic forms and weeks of ISO 8601.
"""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Mapping, Set
from datetime import date, timedelta, timezone
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Final, Protocol, TypeAlias, cast

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.schema import DataType, DecimalType, PrimitiveType

#: A value of a column in Python's terms. Times are microseconds since the epoch: UTC for `timestamp`,
#: wall clock for `timestamp_ntz`.
Value: TypeAlias = bool | int | float | str | bytes | date | Decimal | None

INTEGER_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
_HIVE_NULL: Final = "__HIVE_DEFAULT_PARTITION__"
_EPOCH: Final = date(1970, 1, 1).toordinal()
#: Space around a value, as `\s` of ASCII.
_SPACE: Final = " \t\n\r\f\v"
_DATE = re.compile(r"([+-]?\d{4,})-(\d{1,2})-(\d{1,2})(?:[Tt ].*)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"([+-]?\d{4,})-(\d{1,2})-(\d{1,2})"
    r"(?:[Tt ]+(\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:[.,](\d+))?)?"
    r"\s*([Zz]|UTC|GMT|[+-]\d{1,2}(?::?\d{2}){0,2})?)?",
    re.ASCII,
)
#: What Python, Java and SQL agree to be a number; Python alone takes `1_000` and other scripts' digits too.
_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|inf(?:inity)?|nan)\s*", re.ASCII | re.IGNORECASE
)


class PartitionValues(Protocol):
    """The partition values of a file: texts by names, as the server or the log has them.

    It is a dictionary at run time. Its type has no access by name: servers and writers differ in the case of the
    names, and under column mapping some of them use logical names. `partition_text` looks up a column's value.
    """

    def __len__(self) -> int:
        """Return the number of values."""

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""

    def items(self) -> Set[tuple[str, str | None]]:
        """Return the names and values as they are."""


class Missing(Enum):
    """The type of `MISSING`."""

    MISSING = "missing"


#: A file has no value for a partition column; a null value is None.
MISSING: Final = Missing.MISSING


def partition_text(values: PartitionValues, physical: str, logical: str) -> str | Missing | None:
    """Return the text of a column's partition value; None for null, and `MISSING` if there is no value.

    Args:
        values: the partition values of a file.
        physical: the column's physical name; without column mapping its name in the schema.
        logical: its name in the schema, which is used if there is no value under the physical name.
    """
    texts = cast("Mapping[str, str | None]", values)
    if physical in texts:
        return texts[physical]
    folded = {name.lower(): text for name, text in texts.items()}
    for name in (physical.lower(), logical.lower()):
        if name in folded:
            return folded[name]
    return MISSING


def parse_partition_value(text: str | None, data_type: DataType) -> Value:
    """Decode the text of a partition value; None and the empty string are null.

    Raises:
        ValueError: the text is not a value of the type.
        UnsupportedTypeError: columns of the type cannot partition a table.
    """
    if text is None or text in ("", _HIVE_NULL):
        return None
    if isinstance(data_type, DecimalType):
        return _decimal(text, data_type)
    if not isinstance(data_type, PrimitiveType):
        raise UnsupportedTypeError(
            f"a column of type {data_type} cannot partition a table", type_name=str(data_type)
        )
    name = data_type.name
    if name == "string":
        return text if text.isascii() else text.encode().decode()
    if name in INTEGER_BITS:
        return _integer(text, name)
    if name in ("float", "double"):
        number = float(_number(text))
        return to_float32(number) if name == "float" else number
    if name == "boolean":
        folded = text.strip().lower()
        if folded not in ("true", "false"):
            raise ValueError(f"{text!r} is not a boolean")
        return folded == "true"
    if name == "date":
        return parse_date(text)
    if name == "timestamp":
        return parse_timestamp(text)
    if name == "timestamp_ntz":
        return parse_timestamp(text, wall_clock=True)
    if name == "binary":
        return text.encode()
    return None


def parse_date(text: str) -> date:
    """Decode ``YYYY-MM-DD``, and ignore a time after it; raise `ValueError` outside the years 1 to 9999."""
    match = _DATE.fullmatch(text.strip(_SPACE))
    if not match:
        raise ValueError(f"{text!r} is not a date (YYYY-MM-DD)")
    return _day(text, *match.groups())


def parse_timestamp(text: str, *, wall_clock: bool = False) -> int:
    """Decode a time to microseconds since the epoch; fractions beyond microseconds are cut.

    Args:
        text: ``YYYY-MM-DD HH:MM:SS[.ffffff]`` or ISO 8601, with or without zone; UTC without one.
        wall_clock: ignore the zone.

    Raises:
        ValueError: the text is not a time.
    """
    match = _TIMESTAMP.fullmatch(text.strip(_SPACE))
    if not match:
        raise ValueError(f"{text!r} is not a timestamp (YYYY-MM-DD HH:MM:SS)")
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    days = _day(text, year, month, day).toordinal() - _EPOCH
    hours, minutes, seconds = int(hour or 0), int(minute or 0), int(second or 0)
    if hours > 23 or minutes > 59 or seconds > 59:
        raise ValueError(f"{text!r} is not a timestamp: no such time of day")
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    total = ((days * 24 + hours) * 3600 + minutes * 60 + seconds) * 1_000_000 + micros
    offset = _offset(zone) * 1_000_000
    return total if wall_clock else total - offset


def zone_of(text: str) -> str | None:
    """Return the zone or offset in the text of a time, as in ``Z`` or ``+05:30``; None without one."""
    match = _TIMESTAMP.fullmatch(text)
    return match[8] if match else None


def _day(text: str, year: str, month: str, day: str) -> date:
    if len(year) > 9 or not 1 <= int(year) <= 9999:
        raise ValueError(f"{text!r} is outside the years 1 to 9999")
    try:
        return date(int(year), int(month), int(day))
    except ValueError as error:
        raise ValueError(f"{text!r} is not a date (YYYY-MM-DD): {error}") from None


def _offset(zone: str | None) -> int:
    """Seconds east of UTC of a zone's text."""
    if zone is None or zone[0] not in "+-":
        return 0
    digits = zone[1:].replace(":", "")
    if len(digits) % 2:
        digits = "0" + digits
    # Local mean time, which zones kept before 1900, has seconds.
    hours, minutes, seconds = int(digits[:2]), int(digits[2:4] or 0), int(digits[4:] or 0)
    delta = timezone(timedelta(hours=hours, minutes=minutes, seconds=seconds)).utcoffset(None)
    return int(delta.total_seconds()) * (-1 if zone[0] == "-" else 1)


def to_float32(value: float) -> float:
    """Return the nearest number that a column of type `float` can hold."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _number(text: str) -> str:
    """Return the text of a number unchanged; raise `ValueError` for other text."""
    if not _NUMBER.fullmatch(text):
        raise ValueError(f"{text!r} is not a number")
    return text


def _integer(text: str, name: str) -> int:
    value = int(_number(text))
    limit = 1 << (INTEGER_BITS[name] - 1)
    if not -limit <= value < limit:
        raise ValueError(f"{text!r} is out of range for the type {name}")
    return value


def _decimal(text: str, data_type: DecimalType) -> Decimal:
    try:
        value = Decimal(_number(text).strip())
    except InvalidOperation:
        raise ValueError(f"{text!r} is not a decimal") from None
    return fit_decimal(value, data_type)


def fit_decimal(value: Decimal, data_type: DecimalType) -> Decimal:
    """Return `value` with the scale of `data_type`; raise `ValueError` if it does not fit without loss."""
    if value.is_finite():
        sign, digits, exponent = value.as_tuple()
        shift = int(exponent) + data_type.scale
        unscaled = int("".join(map(str, digits)) or "0")
        if shift <= 0:
            unscaled, lost = divmod(unscaled, 10 ** min(-shift, len(digits)))
        else:
            unscaled, lost = unscaled * 10 ** min(shift, data_type.precision), 0
        if not lost and unscaled < 10**data_type.precision:
            return Decimal((sign, tuple(map(int, str(unscaled))), -data_type.scale))
    raise ValueError(f"{value} does not fit {data_type}")
