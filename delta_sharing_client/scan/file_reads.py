"""Fetching and decoding of the files of a load, on two thread pools.

A small file, or one of which nearly everything is read, is fetched with one GET and is one unit. Of a large file
the footer is fetched first, then only the row groups and columns that are read, in ranges over several
connections. Each unit is decoded when its bytes are complete, in steps.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from msgspec import Struct

from delta_sharing_client.errors import StorageError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.column_lookup import ColumnLocatorCache
from delta_sharing_client.parquet.column_threads import DecodeThreads
from delta_sharing_client.parquet.decode import Decoded, ParquetSource
from delta_sharing_client.parquet.fetch import SparseFile, fetch_vector
from delta_sharing_client.parquet.fetch_strategy import FetchStrategy
from delta_sharing_client.parquet.read_units import READ_UNIT_SIZE, ByteRange, ReadUnit
from delta_sharing_client.parquet.row_sizes import DecodeLimits
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.memory_budget import FileReadState, MemoryBudget, UnitReadState
from delta_sharing_client.scan.priority_pool import OPENING, OrderedPool
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.byte_source import (
    Buffer,
    ByteSource,
    FileChanged,
    RenewUrl,
    StorageReader,
    Transfers,
)
from delta_sharing_client.tracebacks import without_frames
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import RetryBudget

if TYPE_CHECKING:
    from delta_sharing_client.parquet.deletion_vector import RowPositions

#: The ratio of the size of rows to the size of the encoded bytes, roughly.
EXPANSION: Final = 3
#: Columns of a single file from this size on are decoded on several threads.
_PARALLEL: Final = 4 * 1024 * 1024
_UNKNOWN_SIZE: Final = 16 * 1024 * 1024


class Load(Struct, frozen=True, kw_only=True):
    """Which files to read, and how.

    Attributes:
        tasks: the files.
        spec: what to read of each.
        storage: fetches; its options have the number of connections and the memory budget.
        renewal: renews a URL that has expired.
        limit: the number of rows after which to stop, fetching included.
        table_columns: all columns of the table, to estimate the part of a file that is read.
        memory_budget: the memory in bytes that may be in use, if less than in the options.
    """

    tasks: Sequence[FileScanTask]
    spec: ReadSpec
    storage: StorageReader
    renewal: RenewUrl | None = None
    limit: int | None = None
    table_columns: StructType | None = None
    memory_budget: int | None = None


class FileReads:
    """Opens the files of a load, and fetches and decodes their units.

    Attributes:
        memory: the memory budget.
        strategy: decides which files are read in ranges.
        complete: whether all that is needed has been read.
    """

    def __init__(self, load: Load) -> None:
        options = load.storage.options
        self._load = load
        budget = min(load.memory_budget or options.memory_budget, options.memory_budget)
        self.memory = MemoryBudget(budget)
        self.strategy = FetchStrategy.of(load.spec, load.table_columns, limited=load.limit is not None)
        self.complete = False
        self._cores = os.cpu_count() or 1
        # The units of several files, and of a file with enough row groups, occupy all cores.
        is_single = len(load.tasks) == 1 and load.tasks[0].size >= _PARALLEL and self._cores > 1
        self._column_threads = DecodeThreads(self._cores) if is_single else None
        self._cancelled = Cancellation()
        retries = RetryBudget(len(load.tasks), options.max_connections)
        self._transfers = Transfers(load.renewal, self._cancelled, retries)
        self._locators = ColumnLocatorCache()
        self._buffers = BufferPool()
        self._limits = DecodeLimits.of(budget, self._cores, options)
        self._places = itertools.count()
        self._fetchers = OrderedPool(options.max_connections, "delta-sharing-fetch")
        self._decoders = OrderedPool(self._cores, "delta-sharing-decode")

    def close(self) -> None:
        """Stop the threads; cancels transfers unless the load is complete. Idle connections are kept."""
        if not self.complete:
            self._cancelled.set()
        self._fetchers.close()
        self._decoders.close()
        if self._column_threads is not None:
            self._column_threads.close()
        self.memory.close()

    def open(self, task: FileScanTask) -> FileReadState:
        """Return a file; the units of a file that is read in ranges follow when its footer is fetched."""
        file = FileReadState(next(self._places), task, self._download(task))
        if self.strategy.uses_ranges(task):
            self._fetchers.submit((file.place, OPENING), self._open_ranges, file)
        else:
            file.units = [_whole_file(file)]
        return file

    def start(self, file: FileReadState, unit: UnitReadState) -> None:
        """Fetch a unit; it is decoded when its bytes are complete."""
        if unit.unit is None or file.sparse is None or file.source is None:
            self._fetchers.submit(unit.order, self._fetch_whole, file, unit)
            return
        ranges = file.sparse.requests(unit.unit)
        unit.left = len(ranges)
        unit.steps = self._steps_of_unit(file.source, file.sparse, unit.unit, self._threads_for(file))
        if not ranges:
            self._decoders.submit(unit.order, self._decode, unit)
        for each in ranges:
            self._fetchers.submit(unit.order, self._fetch_range, file.sparse, unit, each)

    def resume(self, front: UnitReadState | None) -> None:
        """Continue to decode units that waited for memory, `front` first."""
        for unit in self.memory.resumable(front, self._cores):
            self._decoders.submit(unit.order, self._decode, unit)

    def start_again(self, file: FileReadState, error: BaseException) -> None:
        """Read a file that changed again, as a whole, if none of its rows was returned; raise any other error."""
        if not isinstance(error, FileChanged):
            raise error
        if file.yielded or file.sparse is None:
            raise StorageError(
                "the file changed while it was being read; load it again", file_id=file.task.file_id
            )
        for unit in (file.units or [])[: file.started]:
            self.memory.drop(unit)
        file.download = self._download(file.task)
        file.sparse = file.source = file.error = None
        file.started = 0
        file.units = [_whole_file(file)]

    def _download(self, task: FileScanTask) -> ByteSource:
        return self._load.storage.source(task.url, task.file_id, task.size, self._transfers)

    def _open_ranges(self, file: FileReadState) -> None:
        """Fetch the footer and plan the units."""
        try:
            deleted = fetch_vector(self._load.storage, file.task, self._transfers)
            if deleted is not None and deleted.selects_nothing:
                file.units = []
                return
            file.sparse = SparseFile(file.download, file.task, self._limits.footer)
            file.source = self._source(file.task, file.sparse.buffer, deleted)
            units = file.source.read_units(unit_size=READ_UNIT_SIZE if self._load.limit is None else 1)
            if self._load.limit is not None and self._load.spec.predicate is None and deleted is None:
                units = file.source.first(units, self._load.limit)
            file.sparse.expect(sum(unit.fetched_size for unit in units))
            file.units = [
                UnitReadState((file.place, number), unit.fetched_size + unit.decoded_size, unit.fetched_size, unit)
                for number, unit in enumerate(units)
            ]
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            if not self._cancelled.is_set():  # otherwise nobody waits for it
                file.error = without_frames(error)
        finally:
            self.memory.notify_opened()

    def _fetch_whole(self, file: FileReadState, unit: UnitReadState) -> None:
        try:
            deleted = fetch_vector(self._load.storage, file.task, self._transfers)
            if deleted is not None and deleted.selects_nothing:
                self.memory.put(unit, [], last=True)
                return
            data = file.download.restarting(partial(file.download.whole, self._buffers))
            unit.steps = self._steps_of_whole(file.task, data, deleted)
            self._decoders.submit(unit.order, self._decode, unit)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._fail(unit, error)

    def _fetch_range(self, sparse: SparseFile, unit: UnitReadState, byte_range: ByteRange) -> None:
        try:
            if unit.error is None:
                sparse.fetch(byte_range)
            with self.memory.lock:
                unit.left -= 1
                complete = unit.left == 0
            if complete:
                self._decoders.submit(unit.order, self._decode, unit)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._fail(unit, error)

    def _steps_of_whole(self, task: FileScanTask, data: Buffer, deleted: RowPositions | None) -> Iterator[Decoded]:
        # Opened here: dozens of fetchers would contend for the interpreter, and keep a heap each.
        with self._source(task, data, deleted) as source:
            yield from source.decode_all(self._column_threads)
        if isinstance(data, memoryview):
            self._buffers.give_back(data)

    def _threads_for(self, file: FileReadState) -> DecodeThreads | None:
        """Return the threads for the columns of a file; None if its units occupy all cores."""
        return self._column_threads if len(file.units or []) < self._cores else None

    def _steps_of_unit(
        self, source: ParquetSource, sparse: SparseFile, unit: ReadUnit, threads: DecodeThreads | None
    ) -> Iterator[Decoded]:
        yield from source.decode(unit, threads)
        sparse.release(unit)

    def _source(self, task: FileScanTask, data: Buffer, deleted: RowPositions | None) -> ParquetSource:
        return ParquetSource(
            data, task, self._load.spec, deleted=deleted, locators=self._locators, limits=self._limits
        )

    def _fail(self, unit: UnitReadState, error: BaseException) -> None:
        """Report an error of a unit to the consumer, unless it waits for none any more."""
        if not self._cancelled.is_set():
            self.memory.fail(unit, error)

    def _decode(self, unit: UnitReadState) -> None:
        """Decode a unit step by step while the budget has room for its rows."""
        try:
            steps = unit.steps
            while steps is not None and not self._cancelled.is_set() and self.memory.may_decode(unit):
                decoded = next(steps, None)
                if decoded is None:
                    self.memory.put(unit, [], last=True)
                    return
                unit.rows += sum(batch.num_rows for batch in decoded.batches)
                if decoded.last:
                    next(steps, None)  # it releases its buffers
                last = decoded.last or (self._load.limit is not None and unit.rows >= self._load.limit)
                self.memory.put(unit, decoded.batches, last=last)
                del decoded
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._fail(unit, error)


def _whole_file(file: FileReadState) -> UnitReadState:
    size = file.task.size or _UNKNOWN_SIZE
    return UnitReadState((file.place, 0), size * EXPANSION, size)
