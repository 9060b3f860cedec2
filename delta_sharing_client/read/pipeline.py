"""Fetching ahead of decoding: many connections, all cores, bounded memory, the server's order.

A pool of fetchers runs ahead of a pool of decoders. What is on its way, encoded or decoded, is counted
against a byte budget; the consumer takes the files in the server's order and thereby gives memory back.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.http.connections import Cancellation
from delta_sharing_client.read.fetch import FetchedFile
from delta_sharing_client.read.parquet import decode_file
from delta_sharing_client.scan.tasks import FileScanTask, ReadSpec


#: Fetches a file; the event is set when nobody wants it any more.
Fetch: TypeAlias = Callable[[FileScanTask, threading.Event], FetchedFile]
#: Told after each file: how many bytes it had.
Progress: TypeAlias = Callable[[FileScanTask], None]

_UNKNOWN_SIZE: Final = 16 * 1024 * 1024
_AHEAD_PER_CONNECTION: Final = 4


@dataclass(slots=True)
class _Cost:
    """Bytes of one file that count against the budget at the moment."""

    size: int


def read_batches(
    tasks: Sequence[FileScanTask],
    spec: ReadSpec,
    fetch: Fetch,
    *,
    connections: int,
    memory_budget: int,
    limit: int | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read files side by side and yield their rows in the order of the tasks.

    Args:
        tasks: the files.
        spec: what to read of each.
        fetch: fetches a file's bytes.
        connections: how many files are fetched at a time.
        memory_budget: bytes, encoded or decoded, that may be on their way; one file may always be.
        limit: rows after which to stop, fetching included.
        progress: told after each file.

    Yields:
        Batches that are not empty.

    Raises:
        DeltaSharingError: a file cannot be fetched or decoded; the rest is given up.
    """
    if limit == 0 or not tasks:
        return
    cores = os.cpu_count() or 1
    cancelled = Cancellation()
    waiting: deque[tuple[FileScanTask, _Cost, Future[Future[list[pa.RecordBatch]]]]] = deque()
    upcoming = iter(tasks)
    following = next(upcoming, None)
    single = len(tasks) == 1
    fetchers = ThreadPoolExecutor(min(connections, len(tasks)), thread_name_prefix="delta-sharing-fetch")
    decoders = ThreadPoolExecutor(min(cores, len(tasks)), thread_name_prefix="delta-sharing-decode")

    def decode(file: FetchedFile, task: FileScanTask, cost: _Cost) -> list[pa.RecordBatch]:
        if cancelled.is_set():
            return []
        batches = []
        rows = 0
        for batch in decode_file(file.data, task, spec, deleted=file.deleted, use_threads=single):
            batches.append(batch)
            rows += batch.num_rows
            if limit is not None and rows >= limit:
                break
        cost.size = sum(batch.nbytes for batch in batches)
        return batches

    def run(task: FileScanTask, cost: _Cost) -> Future[list[pa.RecordBatch]]:
        return decoders.submit(decode, fetch(task, cancelled), task, cost)

    try:
        left = limit
        while True:
            while following is not None and len(waiting) < connections * _AHEAD_PER_CONNECTION:
                size = following.size or _UNKNOWN_SIZE
                if waiting and size + sum(cost.size for _, cost, _ in waiting) > memory_budget:
                    break
                cost = _Cost(size)
                waiting.append((following, cost, fetchers.submit(run, following, cost)))
                following = next(upcoming, None)
            if not waiting:
                return
            task, _, fetched = waiting.popleft()
            batches = fetched.result().result()
            del fetched
            if progress is not None:
                progress(task)
            for batch in batches:
                if left is None:
                    yield batch
                    continue
                yield batch.slice(0, left)
                left -= min(batch.num_rows, left)
                if not left:
                    return
    finally:
        cancelled.set()
        fetchers.shutdown(wait=False, cancel_futures=True)
        decoders.shutdown(wait=False, cancel_futures=True)
