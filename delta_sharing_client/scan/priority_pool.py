"""Priority thread pool ordered by row position.

Rows are returned in order, so work for later rows delays the next rows and holds memory.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import no_thread
from delta_sharing_client.fork_safe import ForkSafeRLock

#: The position of the rows of a job: the file's number, and the unit's number in the file.
Order: TypeAlias = tuple[int, int]
#: The unit's number of the job that opens a file.
OPENING: Final = -1


class OrderedPool:
    """A thread pool that runs the waiting job of the earliest rows first; threads are started on demand.

    A job must handle its own failures; what it raises is dropped.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._most = threads
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._lock = ForkSafeRLock()  # a collected load may be closed by the thread that has it
        self._waiting: list[tuple[Order, int, Callable[..., object], tuple[Any, ...]]] = []
        self._tickets = itertools.count()
        self._running = 0
        self._closed = False

    def submit(self, order: Order, job: Callable[..., object], *arguments: Any) -> None:
        """Run a job when a thread is free and no earlier job waits.

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
                return
            self._running += 1
            try:
                self._start(self._run)
            except BaseException as error:  # another thread may still run `_run`
                self._waiting.remove(entry)
                heapq.heapify(self._waiting)
                if isinstance(error, RuntimeError):
                    raise no_thread(error) from None
                raise

    def close(self) -> None:
        """Drop the waiting jobs; does not wait for running jobs."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _start(self, run: Callable[[], None]) -> None:
        self._threads.submit(run)

    def _run(self) -> None:
        """Run waiting jobs until none is left, which is faster than one submission to the threads for each job."""
        while True:
            with self._lock:
                if not self._waiting:
                    self._running -= 1
                    return
                _, _, job, arguments = heapq.heappop(self._waiting)
            try:  # noqa: SIM105  # `suppress` takes longer
                job(*arguments)
            except BaseException:  # noqa: BLE001, S110  # jobs report their own errors
                pass
            del job, arguments  # to free their memory


class DaemonPool(OrderedPool):
    """An ordered pool for work that must not delay the exit of the process."""

    def _start(self, run: Callable[[], None]) -> None:
        try:
            threading.Thread(target=run, name=self._name, daemon=True).start()
        except RuntimeError:
            self._running -= 1  # unlike the other threads, this one does not run later
            raise
