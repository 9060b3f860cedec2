"""`repr` of objects whose constructor failed, for debuggers and traceback recorders."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

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
