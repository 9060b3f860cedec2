"""Integers of arguments, and limits of 64-bit numbers in answers and statistics."""

from __future__ import annotations

from decimal import Context, Decimal
from typing import Any, Final, overload

#: The largest integer of an answer.
MAX_INTEGER: Final = 2**63 - 1
#: The last time in milliseconds since the epoch that is a time in microseconds too.
MAX_MILLISECONDS: Final = MAX_INTEGER // 1000
#: The last time of a datetime in milliseconds since the epoch: the end of the year 9999.
LAST_TIME: Final = 253_402_300_799_999
#: Arithmetic on decimals of up to 38 digits, with room for their slack.
WIDE: Final = Context(prec=80)
#: How much of a number a double may change: a few units of its last place.
DOUBLE_ERROR: Final = Decimal("1e-14")
#: How the limits of 64-bit integers begin, whether written as doubles or not.
_LIMITS: Final = ("92233720368547", "18446744073709")


@overload
def as_integer(value: None, name: str) -> None: ...
@overload
def as_integer(value: int, name: str) -> int: ...
@overload
def as_integer(value: int | None, name: str) -> int | None: ...
def as_integer(value: Any, name: str) -> int | None:
    """Return an integer argument as an int, None as None; raise `TypeError` with the argument's name."""
    if value is None:
        return None
    try:
        if isinstance(value, bool) or type(value).__name__ == "bool_":  # of an older numpy
            raise TypeError
        return int(value.__index__())
    except (AttributeError, TypeError):
        raise TypeError(f"{name} is an int, not {type(value).__name__}") from None


def required_integer(value: Any, name: str) -> int:
    """Return an integer argument as an int; raise `TypeError` with the argument's name, for None too."""
    number = as_integer(value, name)
    if number is None:
        raise TypeError(f"{name} is an int, not NoneType")
    return int(number)


def as_time(milliseconds: int) -> int:
    """Return a time in milliseconds since the epoch as the nearest one from the epoch to the year 9999."""
    return min(max(milliseconds, 0), LAST_TIME)


def is_saturated(number: Decimal) -> bool:
    """Return whether a decimal has the digits of a limit of 64 bits, at any scale.

    Some writers convert the bounds of decimals to 64-bit integers, which stop at these.
    """
    return str(number).replace(".", "").lstrip("-0").startswith(_LIMITS)
