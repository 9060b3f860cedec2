"""End of a Spark worker whose pipe Spark has closed, as it does once ``show`` or ``limit`` has enough rows.

PySpark's daemon prints a traceback when it cannot write the rest of the output, though nothing is wrong. A Unix
filter whose reader is gone ends by the signal SIGPIPE instead. Python ignores that signal by default; here a
handler ends the worker.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

import pyarrow as pa

#: More than the buffers of a socket keep while Spark does not read.
_LEAST_BYTES: Final = 4 * 1024 * 1024


def ended_by_closed_pipe(batches: Iterator[pa.RecordBatch]) -> Generator[pa.RecordBatch, None, None]:
    """Yield batches to PySpark; while PySpark writes them, a closed pipe ends this process without a message.

    The signal is blocked while a batch is read, and so in the threads that this starts: a store that closes a
    connection does not end the process.
    """
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None or not hasattr(signal, "SIGPIPE") or threading.current_thread() is not threading.main_thread():
        yield from batches
        return
    handler = _handler(task.taskAttemptId(), TaskContext.get)
    written = _written_at_once(batches)
    try:
        while True:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGPIPE})
            batch = next(written, None)
            if batch is None:
                return
            _end_at_signal(handler)
            yield batch
    finally:
        _end_at_signal(handler)


def _written_at_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Join small batches: the last batch is the only one, or does not fit into the buffers of the pipe.

    PySpark's worker then writes to the closed pipe before its daemon does. The first write to a connection that
    was reset fails without a signal, so the daemon must not make it.
    """
    joined: list[pa.RecordBatch] = []
    small: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        small.append(batch)
        size += batch.nbytes
        if size >= _LEAST_BYTES:
            yield from _joined(joined)
            joined, small, size = small, [], 0
    yield from _joined(joined + small)


def _joined(batches: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    if len(batches) < 2:
        yield from batches
    else:
        yield from pa.Table.from_batches(batches).combine_chunks().to_batches()


def _end_at_signal(handler: Any) -> None:
    """Unblock SIGPIPE for a handler, without signals that were pending: ignoring them discards them."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGPIPE})


def _handler(task: int, current: Callable[[], Any]) -> Callable[[int, Any], None]:
    """End the process, unless Spark has reused it for another task since."""

    def end(_number: int, _frame: Any) -> None:
        running = current()
        if running is None or running.taskAttemptId() == task:
            os._exit(0)

    return end
