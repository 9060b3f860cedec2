"""Parsing of bounds in statistics, widened or dropped where writers change them.

Known behaviour of writers:

* decimals are written as doubles (the last digits differ) or as 64-bit integers that saturate at their limits;
* integers are converted to doubles, doubles to 32-bit floats; both saturate at the greatest value;
* times are truncated to milliseconds, downward or towards the epoch; times out of range become the first or the
  last time of a library;
* strings are truncated after about 32 UTF-16 units, even within a surrogate pair; an unpaired surrogate
  becomes `?` or U+FFFD.

A bound of a wrong JSON type, or out of the type's range, is unknown.
"""

from __future__ import annotations

import math
import re
from datetime import date
from decimal import Decimal
from functools import reduce
from operator import or_
from typing import Any, Final, TypeVar

from delta_sharing_client.expressions.literals import following_text
from delta_sharing_client.model.numbers import DOUBLE_ERROR, WIDE, is_saturated
from delta_sharing_client.model.partition_values import (
    INTEGER_BITS,
    Value,
    parse_date,
    parse_timestamp,
    to_float32,
)
from delta_sharing_client.model.schema import DataType, DecimalType, PrimitiveType

MILLISECOND: Final = 1000
_SECOND: Final = 1_000_000
#: Times that replace times out of range: the first and last of Python, of Java's formats, and of 64-bit
#: nanoseconds.
_TIME_LIMITS: Final = (-62_135_596_800_000_000, 253_402_300_799_999_999, 2**63 // 1000, -(2**63) // 1000)
#: Strings of at least so many bytes of UTF-8 may be truncated.
TRUNCATED: Final = 32
#: Characters that may replace an unpaired surrogate.
_HALVES: Final = "[\ud800-\U0010ffff]"
#: Decimal digits that a double keeps.
_DOUBLE_DIGITS: Final = 15
#: Smaller integers are exact in a double.
DOUBLE_EXACT: Final = 10**_DOUBLE_DIGITS
#: Smaller integers are within their type, and exact in a double.
EXACT: Final = {name: min(1 << (bits - 1), DOUBLE_EXACT) for name, bits in INTEGER_BITS.items()}
_NO_BOUND: Final = (dict, list, bool)
#: More digits before the point than any column has.
_FAR: Final = 40
#: The greatest 32-bit float, the greatest double, and the rounding errors of a 32-bit float.
FLOAT_MAX: Final = 3.4028234663852886e38
_DOUBLE_MOST: Final = 1.7976931348623157e308
_FLOAT_ERROR: Final = 2.0**-23
_FLOAT_LEAST: Final = 2.0**-149


def parse_bound(value: Any, data_type: DataType, *, upper: bool) -> Value:
    """Return a bound as a value of the type, widened for rounding; None if it is not reliable.

    Args:
        value: the JSON value, numbers with a point as `Decimal`.
        data_type: the column's type.
        upper: whether it is the upper bound.
    """
    try:
        if value is None or isinstance(value, _NO_BOUND):
            return None
        if isinstance(data_type, DecimalType):
            return _decimal(_number(value), data_type, upper=upper)
        if not isinstance(data_type, PrimitiveType):
            return None
        name = data_type.name
        if name in INTEGER_BITS:
            if type(value) is int and abs(value) < EXACT[name]:
                return value
            return _integer(_number(value), INTEGER_BITS[name], upper=upper)
        if name in ("float", "double"):
            return _real(float(value), name, upper=upper)
        if not isinstance(value, str):
            return None
        if name == "string":
            return _text(value, upper=upper)
        if name == "date":
            day = parse_date(value)
            return None if day in (date.min, date.max) else day
        if name in ("timestamp", "timestamp_ntz"):
            return _time(value, wall_clock=name == "timestamp_ntz", upper=upper)
    except (ValueError, ArithmeticError):
        pass
    return None


def _number(value: Any) -> Decimal:
    """Return a finite number within the range of some column; checks the exponent before expanding it.

    Raises:
        ValueError: the number is out of range or not finite.
        ArithmeticError: `value` is no number.
    """
    number = Decimal(value)
    if not number.is_finite() or (number and number.adjusted() > _FAR):
        raise ValueError
    return number


def _moved(number: Decimal, *, upper: bool) -> Decimal:
    """Return a number widened by the rounding error of a double."""
    slack = WIDE.multiply(number.copy_abs(), DOUBLE_ERROR)
    return WIDE.add(number, slack) if upper else WIDE.subtract(number, slack)


def _decimal(number: Decimal, data_type: DecimalType, *, upper: bool) -> Decimal | None:
    if number and number.adjusted() > data_type.precision - data_type.scale:
        return None
    if data_type.precision <= _DOUBLE_DIGITS:
        return number
    return None if is_saturated(number) else _moved(number, upper=upper)


def _integer(number: Decimal, bits: int, *, upper: bool) -> int | None:
    whole = int(number)
    limit = 1 << (bits - 1)
    if number != whole or not -limit <= whole < limit:
        return None
    return whole if abs(whole) < DOUBLE_EXACT else int(_moved(number, upper=upper))


def _real(real: float, name: str, *, upper: bool) -> float | None:
    """Return a bound widened by rounding to a 32-bit float."""
    single = to_float32(real)
    if abs(single) < FLOAT_MAX:
        return widened_float(single, upper=upper)
    is_wide = name == "double" and math.isinf(single) and abs(real) < _DOUBLE_MOST
    return real if is_wide else None


def _text(value: str, *, upper: bool) -> str | None:
    try:
        if len(value.encode()) < TRUNCATED:
            return value
    except UnicodeEncodeError:
        pass  # truncated within a character
    half = re.search(_HALVES, value)
    whole = value[: half.start()] if half else value
    return following_text(whole.rstrip("?")) if upper else whole


def _time(value: str, *, wall_clock: bool, upper: bool) -> int | None:
    # A date without time is a bound of a date column that was widened to timestamp_ntz.
    if ":" not in value and not wall_clock:
        return None
    micros = parse_timestamp(value, wall_clock=wall_clock)
    return None if is_time_limit(micros) else widened_time(micros, upper=upper)


Number = TypeVar("Number")


def widened_float(single: Number, *, upper: bool) -> Number:
    """Return bounds, a 32-bit float or an array of them, widened by the rounding to a 32-bit float."""
    bound: Any = single
    slack = abs(bound) * _FLOAT_ERROR + _FLOAT_LEAST
    widened: Number = bound + slack if upper else bound - slack
    return widened


def widened_time(micros: Number, *, upper: bool) -> Number:
    """Return bounds, microseconds or an array of them, widened by the truncation to milliseconds."""
    bound: Any = micros
    widened: Number = bound + MILLISECOND if upper else bound - (bound <= 0) * MILLISECOND
    return widened


def is_time_limit(micros: Any) -> Any:
    """Whether microseconds, or those of an array, replace a time out of range, or are before the year 1."""
    return reduce(or_, (abs(micros - limit) < _SECOND for limit in _TIME_LIMITS), micros < _TIME_LIMITS[0])
