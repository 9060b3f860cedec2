"""Progress bars for long loads, shown in terminals and notebooks only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any, Final

from delta_sharing_client.shown_text import shown

#: Seconds without a bar: shorter loads show none.
_DELAY: Final = 1.0
#: Characters of the text before a bar.
_MAX_LABEL: Final = 60


def _in_notebook() -> bool:
    # The kernel of a notebook has already imported ipykernel and IPython, so an import here is not necessary.
    ipython = sys.modules.get("IPython")
    return "ipykernel" in sys.modules and ipython is not None and ipython.get_ipython() is not None


def _is_interactive() -> bool:
    # In a notebook stderr is not a terminal.
    # Programs replace sys.stderr by None, or by objects without this method.
    return _in_notebook() or bool(getattr(sys.stderr, "isatty", bool)())


@contextmanager
def byte_progress(total: int, show: bool | None, label: str) -> Iterator[Callable[[int], None] | None]:
    """Show bytes and rate while bytes arrive.

    Args:
        total: the number of bytes expected.
        show: True or False to force it; None to show it in a terminal or notebook if it takes over a second.
        label: the text before the bar.

    Yields:
        A function to call with the number of bytes since the last call; None if nothing is shown.
    """
    if not total or show is False or (show is None and not _is_interactive()):
        yield None
        return
    delay = _DELAY if show is None else 0.0
    options: dict[str, Any] = {
        "total": total,
        "desc": shown(label, _MAX_LABEL),
        "unit": "B",
        "unit_scale": True,
        "leave": False,
    }
    if _in_notebook():
        with _notebook_bar(delay, options) as advance:
            yield advance
        return
    from tqdm.std import tqdm

    with tqdm(delay=delay, **options) as bar:

        def advance(size: int) -> None:
            bar.update(size)

        yield advance


@contextmanager
def _notebook_bar(delay: float, options: dict[str, Any]) -> Iterator[Callable[[int], None]]:
    """Show a bar in one output of the cell, and empty that output at the end.

    The bar is a widget if ipywidgets is installed, otherwise text. tqdm itself would write the text to stderr, for
    which notebooks have a coloured box, and a saved notebook would keep either.
    """
    from IPython import display

    bar, widget = _widget(options)
    handle: Any = None

    def show(content: object) -> None:
        nonlocal handle
        raw = isinstance(content, dict)
        if handle is None:
            handle = display.display(content, raw=raw, display_id=True)  # type: ignore[no-untyped-call]
        elif raw:
            handle.update(content, raw=True)

    def advance(size: int) -> None:
        if bar.update(size) and bar.format_dict["elapsed"] >= delay:
            show({"text/plain": str(bar)} if widget is None else widget)

    try:
        with bar:
            yield advance
    finally:
        if handle is not None:
            show({"text/plain": ""})


def _widget(options: dict[str, Any]) -> tuple[Any, object | None]:
    """Return a bar, and the widget that shows it if ipywidgets is installed."""
    try:
        import ipywidgets  # noqa: F401
    except ImportError:
        from tqdm.std import tqdm

        return tqdm(file=StringIO(), **options), None
    from tqdm.notebook import tqdm as notebook_tqdm

    bar = notebook_tqdm(display=False, **options)
    return bar, bar.container
