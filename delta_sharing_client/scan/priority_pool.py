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

from delta_sharing_client.errors import no_thread

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
        self._most = threads
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = threading.Lock()
        self._waiting: list[tuple[Order, int, Callable[..., object], tuple[Any, ...]]] = []
        self._tickets = itertools.count()
        self._running = 0
        self._closed = False

    def submit(self, order: Order, job: Callable[..., object], *arguments: Any) -> None:
        """Run `job` as soon as a thread is free and no earlier one waits.

        Raises:
            DeltaSharingError: no thread can be started; the interpreter is exiting, for example.
            RuntimeError: the pool is closed.
        """
        with self._lock:
            if self._closed:
                raise RuntimeError("the pool is closed")
            entry = order, next(self._tickets), job, arguments
            heapq.heappush(self._waiting, entry)
            if self._running == self._most:
                return  # whoever is ready first takes it
            self._running += 1
            try:
                self._threads.submit(self._run)
            except BaseException as error:  # another thread may still run `_run`
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
                if isinstance(error, RuntimeError):
                    raise no_thread(error) from None
                raise

    def close(self) -> None:
        """Drop what has not begun; what has is not waited for."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        """Run what waits until nothing does: a job handed to the threads one by one takes longer to hand over."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                _, _, job, arguments = heapq.heappop(self._waiting)
            try:  # noqa: SIM105  # `suppress` takes longer
                job(*arguments)
            except BaseException:  # noqa: BLE001, S110  # as said above
                pass
            del job, arguments  # and what they hold
