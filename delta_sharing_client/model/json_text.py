"""Decoding of JSON text: msgspec first, Python's lenient module for text that msgspec refuses."""

from __future__ import annotations

import json
import re
from collections.abc import Set
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

_decode: Final = msgspec.json.Decoder().decode
_HALF: Final = re.compile("[\ud800-\udfff]")
_NAN: Final = Decimal("NaN")


def _exact(text: str) -> Decimal:
    """Return a number without expanding its exponent; NaN if `Decimal` cannot hold it."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return _NAN


def _whole(text: str) -> int | Decimal:
    """Return an integer; NaN if it has more digits than Python converts."""
    try:
        return int(text)
    except ValueError:
        return _NAN


_EXACT: Final = json.JSONDecoder(parse_float=_exact, parse_int=_whole)


def loads(text: bytes | str, *, lenient: Set[str] = frozenset()) -> Any:
    """Decode a JSON text, with NaN, byte-order marks and the like by Python's module.

    Args:
        text: the text.
        lenient: fields in which a lone surrogate is replaced by U+FFFD.

    Raises:
        ValueError: the text is not JSON, or has a lone surrogate in another field.
        RecursionError: it is nested too deep.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return of_whole_characters(json.loads(text), lenient)


def is_second_value(error: ValueError) -> bool:
    """Return whether `loads` refused a text because another object follows the first value."""
    return (
        isinstance(error, json.JSONDecodeError)
        and error.msg == "Extra data"
        and error.doc[error.pos :].lstrip().startswith("{")
    )


def has_repeated_keys(text: bytes) -> bool:
    """Return whether the object that is a JSON text has a key twice; of those in it, no matter."""
    pairs: list[tuple[str, Any]] = []

    def keep(found: list[tuple[str, Any]]) -> None:
        pairs[:] = found  # the outermost object comes last

    json.loads(text, object_pairs_hook=keep)
    return len(pairs) > len({key for key, _ in pairs})


def of_whole_characters(value: Any, lenient: Set[str] = frozenset()) -> Any:
    """Return a JSON value that Python's module decoded, without lone surrogates.

    Those in `lenient` fields are replaced by U+FFFD; others raise `ValueError`.
    """
    if isinstance(value, str):
        if not value.isascii() and _HALF.search(value):
            raise ValueError("a string in it contains an unpaired surrogate")
        return value
    if isinstance(value, list):
        return [of_whole_characters(item, lenient) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        of_whole_characters(key): _HALF.sub("\ufffd", item)
        if key in lenient and isinstance(item, str)
        else of_whole_characters(item, lenient)
        for key, item in value.items()
    }


def loads_exact(text: str) -> Any:
    """Decode a JSON text, numbers with a point as `Decimal`; raises `ValueError` or `RecursionError`."""
    return _EXACT.decode(text)
