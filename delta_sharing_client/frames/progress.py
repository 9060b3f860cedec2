"""A progress bar for long loads, in a terminal or a notebook and nowhere else."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from delta_sharing_client.parquet.tasks import FileScanTask


def _interactive() -> bool:
    """Whether somebody is watching: a terminal, or a notebook's kernel."""
    return "ipykernel" in sys.modules or bool(getattr(sys.stderr, "isatty", bool)())


@contextmanager
def file_progress(
    tasks: Sequence[FileScanTask], show: bool | None, label: str
) -> Iterator[Callable[[FileScanTask], None] | None]:
    """Show bytes and rate while files are read.

    Args:
        tasks: the files.
        show: True or False to force it; None to show it where somebody is watching and it takes over a second.
        label: what is being read.

    Yields:
        What to call after each file; None where nothing is shown.
    """
    if not tasks:
        yield None
        return
    with byte_progress(sum(task.size for task in tasks), show, label) as shown:
        if shown is None:
            yield None
            return

        def advance(task: FileScanTask) -> None:
            shown(task.size)

        yield advance


@contextmanager
def byte_progress(total: int, show: bool | None, label: str) -> Iterator[Callable[[int], None] | None]:
    """Show bytes and rate while bytes come.

    Args:
        total: how many will come.
        show: as for `file_progress`.
        label: what is being fetched.

    Yields:
        What to call with the number of bytes that have come since the last call; None where nothing is shown.
    """
    if show is False or (show is None and not _interactive()):
        yield None
        return
    with warnings.catch_warnings():
        # In a notebook without ipywidgets tqdm says so and falls back to text, which is fine.
        warnings.simplefilter("ignore")
        from tqdm.auto import tqdm

    delay = 1.0 if show is None else 0.0
    with tqdm(total=total, desc=label, unit="B", unit_scale=True, delay=delay, leave=False) as bar:

        def advance(size: int) -> None:
            bar.update(size)

        yield advance
