"""Decoding of the columns of a row group on several threads.

These are threads of this package. Arrow's own are destroyed with the process, which aborts it if they have just
started.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from delta_sharing_client.errors import no_thread


class DecodeThreads:
    """Threads that help a decoding thread, started on first use.

    Attributes:
        count: their number, with the thread that they help.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._pool = ThreadPoolExecutor(max(1, count - 1), "delta-sharing-decode-columns")

    def map(self, function: Callable[[Any], Any], items: Sequence[Any]) -> list[Any]:
        """Return the results of a function for the items; the first one is called in this thread.

        Raises:
            DeltaSharingError: no thread can be started; the interpreter is exiting, for example.
        """
        try:
            others = [self._pool.submit(function, item) for item in items[1:]]
        except RuntimeError as error:
            raise no_thread(error) from None
        try:
            results = [function(item) for item in items[:1]]
        finally:
            failures = [other.exception() for other in others]  # waits: they use what the caller may release
        for failure in failures:
            if failure is not None:
                raise failure
        return results + [other.result() for other in others]

    def close(self) -> None:
        """Stop the threads; does not wait for them."""
        self._pool.shutdown(wait=False)


def beside(threads: DecodeThreads, parts: Sequence[Iterator[pa.Table]]) -> Iterator[pa.Table]:
    """Yield tables with the columns of all parts, which have the same rows and are decoded at the same time."""
    held: list[pa.Table | None] = [None] * len(parts)
    while True:
        wanted = [number for number, table in enumerate(held) if table is None]
        decoded = threads.map(lambda number: next(parts[number], None), wanted)
        for number, table in zip(wanted, decoded, strict=True):
            held[number] = table
        tables = [table for table in held if table is not None]
        if not tables:
            return
        if len(tables) < len(parts):
            raise pa.ArrowInvalid("its columns have different numbers of rows")
        count = min(table.num_rows for table in tables)
        firsts = [table.slice(0, count) for table in tables]
        held = [table.slice(count) if table.num_rows > count else None for table in tables]
        del tables
        fields = itertools.chain.from_iterable(table.schema for table in firsts)
        columns = itertools.chain.from_iterable(table.columns for table in firsts)
        yield pa.Table.from_arrays(list(columns), schema=pa.schema(list(fields)))


def split_evenly(items: Sequence[Sequence[int]], sizes: Sequence[int], count: int) -> list[Sequence[int]]:
    """Join items, in their order, to at most `count` lists of about equal size."""
    total, before = sum(sizes), 0
    parts: dict[int, list[int]] = {}
    for item, size in zip(items, sizes, strict=True):
        middle = before + size / 2
        parts.setdefault(min(count - 1, int(count * middle / total)) if total > 0 else 0, []).extend(item)
        before += size
    return list(parts.values())
