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

from delta_sharing_client.shown_text import MAX_MESSAGE, cut, printable

T = TypeVar("T")


def representation(method: Callable[[T], str]) -> Callable[[T], str]:
    """Decorate a `__repr__` or `_repr_html_`: it also works if the object lacks attributes, and its text is safe.

    Control characters are escaped, and a long `__repr__` is cut; `views` cuts the cells of HTML.
    """

    @wraps(method)
    def shown(self: Any) -> str:
        is_html = method.__name__ == "_repr_html_"
        try:
            text = method(self)
        except AttributeError:
            return f"&lt;{_text(self)}&gt;" if is_html else f"<{_text(self)}>"
        return printable(text, "\n") if is_html else cut(printable(text, "\n"), MAX_MESSAGE)

    return shown


def short_repr(kind: type[T]) -> type[T]:
    """Decorate a class whose `__repr__` is generated: a long one is cut."""
    kind.__repr__ = representation(kind.__repr__)  # type: ignore[method-assign]
    return kind


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
