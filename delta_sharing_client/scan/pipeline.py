"""Pipeline of a load: many connections, all cores, bounded memory, rows in the order of the tasks.

The consumer's thread makes all decisions: it opens files, starts their units in order within the memory budget,
and waits for the first unit. The threads of `FileReads` fetch and decode; each finished job wakes the consumer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.parquet.fetch_strategy import FetchEstimate
from delta_sharing_client.scan.file_reads import EXPANSION, FileReads, Load
from delta_sharing_client.scan.memory_budget import FileReadState, UnitReadState
from delta_sharing_client.transport.meanwhile import begin_to_wait

#: Called with the size of each file after it.
Progress: TypeAlias = Callable[[int], None]

#: Files that are opened ahead of the file whose rows are wanted.
_OPEN_AHEAD: Final = 64


def read_batches(load: Load, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
    """Read files concurrently and yield their rows in the order of the tasks, in batches that are not empty.

    `progress` is called with the size of each file after it.

    Raises:
        DeltaSharingError: a file cannot be fetched or decoded; the other files are abandoned.
    """
    if load.limit == 0 or not load.tasks:
        return
    with closing(FileReads(load)) as reads:
        yield from _Pipeline(load, reads).batches(progress)


def estimate_fetch(load: Load) -> FetchEstimate:
    """Return what `read_batches` would fetch; fetches the footers of the files that it reads in ranges.

    Raises:
        DeltaSharingError: a footer cannot be fetched or decoded.
    """
    size = sum(task.size for task in load.tasks)
    requests = len(load.tasks)
    groups = kept = 0
    with closing(FileReads(load)) as reads:
        files = [reads.open(task) for task in load.tasks if reads.strategy.uses_ranges(task)]
        for file in files:
            while not file.ready:
                reads.memory.sleep(file)
            if file.error is not None:
                raise file.error
            size -= file.task.size
            requests -= 1
            if file.sparse is None or file.source is None:
                continue
            units = [unit.unit for unit in file.units or [] if unit.unit is not None]
            ranges = [each for unit in units for each in file.sparse.requests(unit)]
            size += file.sparse.footer_size + sum(stop - start for start, stop in ranges)
            requests += 1 + len(ranges)
            groups += file.source.group_count
            kept += sum(len(unit.groups) for unit in units)
        reads.complete = True
    return FetchEstimate(size, requests, len(files), groups, groups - kept)


class _Pipeline:
    """The files of a load in order: opened ahead, their units started as the memory budget allows."""

    def __init__(self, load: Load, reads: FileReads) -> None:
        self._tasks = iter(load.tasks)
        self._reads = reads
        self._memory = reads.memory
        self._left = load.limit
        self._finished = 0
        self._settled = 0
        self._files: deque[FileReadState] = deque()

    def batches(self, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files in order."""
        while self._advance():
            begin_to_wait()
            file = self._files[0]
            self._wait(file)
            while file.error is None and file.units:
                yield from self._rows(file, file.units[0])
                if self._left == 0:
                    return
            if file.error is not None:
                self._reads.start_again(file, file.error)
                self._settled = 0
                continue
            self._files.popleft()
            self._settled = max(0, self._settled - 1)
            self._finished += 1
            if progress is not None:
                progress(file.task.size)
        self._reads.complete = True

    def _rows(self, file: FileReadState, unit: UnitReadState) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the first unit of the first file as they are decoded, and remove the unit."""
        while True:
            self._reads.resume(unit)
            self._wait(unit)
            taken = self._memory.take(unit)
            if taken is None:
                break
            batches, size = taken
            file.yielded = True
            while batches:
                batch = batches.pop(0)
                if self._left is not None:
                    batch = batch.slice(0, self._left)
                    self._left -= batch.num_rows
                yield batch
                del batch
                if self._left == 0:
                    return
            self._memory.release(unit, size)
            if self._memory.starved:
                self._advance()
        if unit.error is not None:
            file.error = unit.error
        elif file.units:
            file.units.pop(0)
            file.started -= 1

    def _wait(self, item: FileReadState | UnitReadState) -> None:
        """Wait until a file or unit is ready, and start more whenever there is room."""
        while not item.ready:
            self._advance()
            self._memory.sleep(item)

    def _advance(self) -> bool:
        """Open files and start units in order within the budget; return whether a file is left."""
        known = kept_free = 0
        # With a limit all open files count; otherwise files whose units have all started are skipped.
        position = self._settled if self._left is None else 0
        self._memory.starved = False
        while True:
            if position == len(self._files):
                task = next(self._tasks, None) if self._may_open(position, known) else None
                if task is None:
                    return bool(self._files)
                self._files.append(self._reads.open(task))
            file = self._files[position]
            position += 1
            if self._left is not None:
                known += (file.task.row_count or 0) if file.task.all_rows_match else 0
            units = file.units  # a fetching thread may set it at any moment
            while units is not None and file.started < len(units):
                unit = units[file.started]
                # The unit whose rows are wanted may always start, because nothing else can make room for it.
                awaited = file is self._files[0] and not file.started
                if not awaited and not self._memory.admits(unit.cost, kept_free):
                    return True
                self._memory.charge(unit)
                file.started += 1
                self._reads.start(file, unit)
            if units is None:
                # Its rows are wanted before those of later files, which must not use all the memory.
                kept_free += int(self._reads.strategy.fraction * file.task.size) * EXPANSION
            if position == self._settled + 1 and units is not None and file.started == len(units):
                self._settled = position

    def _may_open(self, opened: int, known: int) -> bool:
        """Return whether to open another file; with a limit, only if the open files may have too few rows."""
        if self._left is None or not opened:
            return opened < _OPEN_AHEAD
        return known < self._left and opened < min(_OPEN_AHEAD, 2 * self._finished + 1)
