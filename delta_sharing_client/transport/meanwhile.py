"""Work that a thread does while it would only wait for an answer or a file."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class _Jobs(threading.local):
    """The jobs of this thread; each wait takes the first one that is left."""

    def __init__(self) -> None:
        self.left: list[Callable[[], object]] = []


_jobs = _Jobs()


@contextmanager
def while_waiting(*jobs: Callable[[], object]) -> Iterator[None]:
    """Do jobs within the block, in this thread, each at a wait of its own."""
    before, _jobs.left = _jobs.left, list(jobs)
    try:
        yield
    finally:
        _jobs.left = before


def begin_to_wait() -> None:
    """Do the next job of this thread, if there is one; called when a request has been sent."""
    if _jobs.left:
        _jobs.left.pop(0)()
