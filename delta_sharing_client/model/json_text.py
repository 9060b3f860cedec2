"""JSON text to Python values: fast for what is well-formed, lenient where Python's own module is."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec

_decode: Final = msgspec.json.Decoder().decode


def _exact(text: str) -> Decimal:
    """A number as it is written, never expanded; NaN where its exponent is beyond even what `Decimal` has."""
    try:
        return Decimal(text)
    except InvalidOperation:
        return Decimal("NaN")


_EXACT: Final = json.JSONDecoder(parse_float=_exact)


def loads(text: bytes | str) -> Any:
    """Decode a JSON text.

    What msgspec refuses and some servers send nevertheless (NaN, lone surrogates) is left to Python's own
    module.

    Raises:
        ValueError: the text is no JSON.
        RecursionError: it is nested too deep.
    """
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError):
        return json.loads(text)


def loads_exact(text: str) -> Any:
    """Decode a JSON text, numbers with a point as `Decimal`, with all their digits.

    Raises:
        ValueError: the text is no JSON.
        RecursionError: it is nested too deep.
    """
    return _EXACT.decode(text)
