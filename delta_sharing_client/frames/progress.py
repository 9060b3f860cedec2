"""Progress bars for long loads, shown in terminals and notebooks only."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager


def _is_interactive() -> bool:
    # In a notebook stderr is not a terminal. The kernel of a notebook has already imported ipykernel, so an import
    # here is not necessary.
    # Programs replace sys.stderr by None, or by objects without this method.
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


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
    with warnings.catch_warnings():
        # In a notebook without ipywidgets tqdm warns, and shows text instead.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    delay = 1.0 if show is None else 0.0
    with tqdm(total=total, desc=label, unit="B", unit_scale=True, delay=delay, leave=False) as bar:

        def advance(size: int) -> None:
            bar.update(size)

        yield advance
