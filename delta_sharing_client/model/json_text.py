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
    """A number as it is written, never expanded; NaN where its exponent is beyond even what `Decimal` has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return _NAN


def _whole(text: str) -> int | Decimal:
    """An integer; NaN where it has more digits than Python reads."""
    try:
        return int(text)
    except ValueError:
        return _NAN


_EXACT: Final = json.JSONDecoder(parse_float=_exact, parse_int=_whole)


def loads(text: bytes | str, *, lenient: Set[str] = frozenset()) -> Any:
    """Decode a JSON text.

    What msgspec refuses and some servers send nevertheless (NaN, a byte-order mark) is left to Python's own
    module. That takes half a surrogate pair for a character, which no file, column or request can hold: it is
    refused here.

    Args:
        text: the text.
        lenient: fields in which such a half is replaced by U+FFFD instead.

    Raises:
        ValueError: the text is no JSON, or holds half a character.
        RecursionError: it is nested too deep.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return of_whole_characters(json.loads(text), lenient)


def of_whole_characters(value: Any, lenient: Set[str] = frozenset()) -> Any:
    """Return a decoded JSON value in which no text holds half a surrogate pair.

    Args:
        value: what Python's own module decoded.
        lenient: fields in which it is replaced by U+FFFD.

    Raises:
        ValueError: another text holds one.
    """
    if isinstance(value, str):
        if not value.isascii() and _HALF.search(value):
            raise ValueError("a text in it holds half a character")
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
    """Decode a JSON text, numbers with a point as `Decimal`, with all their digits; NaN for what is beyond that.

    Raises:
        ValueError: the text is no JSON.
        RecursionError: it is nested too deep.
    """
    return _EXACT.decode(text)
