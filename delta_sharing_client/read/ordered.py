"""Threads that serve the earliest rows first.

Rows are handed out in order, so that whatever is done for later ones before the next rows are there only makes
everybody wait, and holds memory meanwhile.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

#: Where the rows are that a job serves: the file's place, and the place in the file.
Order: TypeAlias = tuple[int, int]
#: Before all rows of a file: what it takes to know them.
OPENING: Final = -1


class OrderedPool:
    """A thread pool that runs, of the jobs that wait, the one of the earliest rows.

    A job is told its failures by itself: what it raises is dropped.

    Args:
        threads: how many jobs run at a time; threads are started as they are needed.
        name: what the threads' names begin with.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Order, int, Callable[..., object], tuple[Any, ...]]] = []
        self._tickets = itertools.count()
        self._closed = False

    def submit(self, order: Order, job: Callable[..., object], *arguments: Any) -> None:
        """Run `job` as soon as a thread is free and no earlier one waits.

        Raises:
            RuntimeError: the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            heapq.heappush(self._waiting, (order, next(self._tickets), job, arguments))
            self._threads.submit(self._run_next)

    def close(self) -> None:
        """Drop what has not begun; what has is not waited for."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run_next(self) -> None:
        with self._lock:
            if self._closed:
                return
            _, _, job, arguments = heapq.heappop(self._waiting)
        job(*arguments)
