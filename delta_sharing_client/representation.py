"""What objects and values show: `repr` of objects whose constructor failed, values as JSON."""

from __future__ import annotations

import json
import math
from base64 import b64encode
from collections.abc import Callable, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import wraps
from typing import Any, Final, TypeVar

T = TypeVar("T")


def representation(method: Callable[[T], str]) -> Callable[[T], str]:
    """Decorate a `__repr__` or `_repr_html_` so that it also works if the object lacks attributes."""

    @wraps(method)
    def shown(self: Any) -> str:
        try:
            return method(self)
        except AttributeError:
            return f"&lt;{_text(self)}&gt;" if method.__name__ == "_repr_html_" else f"<{_text(self)}>"

    return shown


def _text(self: object) -> str:
    return f"{type(self).__name__}, incomplete: its constructor failed"


def plain(value: Any) -> Any:
    """Return a value as JSON represents it without loss.

    Decimals, dates and times are texts, binaries base64, NaN and infinities their names, maps lists of pairs.
    """
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Decimal):
        return f"{value:f}"
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value


def to_json(value: Any) -> str:
    """Return a value as JSON text on one line."""
    try:
        return _ENCODER.encode(value)
    except ValueError:  # NaN or infinity
        return json.dumps(plain(value), ensure_ascii=False)


#: Calls `plain` only for the values that JSON does not have.
_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False, default=plain)
