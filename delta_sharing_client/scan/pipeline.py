"""Pipeline of a load: many connections, all cores, bounded memory, rows in the order of the tasks.

Threads perform jobs: they open a file, fetch bytes, or decode rows. A job contains all that it needs, and its
results go back as a message on one queue. Only the thread that consumes the rows changes the state of the load,
`LoadState`: it receives the messages, starts jobs within the memory budget, and takes rows in order.

A small file, or one of which nearly everything is read, is fetched with one GET and is one read unit. Of a large
file the footer is fetched first, then only the row groups and columns that are read, in ranges over several
connections.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

import pyarrow as pa
from msgspec import Struct, field

from delta_sharing_client.errors import StorageError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.column_lookup import ColumnLocatorCache
from delta_sharing_client.parquet.column_threads import DecodeThreads
from delta_sharing_client.parquet.decode import Decoded, ParquetSource
from delta_sharing_client.parquet.fetch import SparseFile, fetch_vector
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate, FetchStrategy
from delta_sharing_client.parquet.read_units import READ_UNIT_SIZE, ByteRange, ReadUnit
from delta_sharing_client.parquet.row_sizes import DecodeLimits
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.priority_pool import OPENING, Order, OrderedPool
from delta_sharing_client.storage.byte_source import (
    Buffer,
    BufferPool,
    ByteSource,
    Cancelled,
    FileChanged,
    StorageReader,
    Transfers,
    UrlRenewal,
)
from delta_sharing_client.tracebacks import without_frames
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.meanwhile import begin_to_wait
from delta_sharing_client.transport.retry import RetryBudget

if TYPE_CHECKING:
    from delta_sharing_client.parquet.deletion_vector import RowPositions

#: Called with the size of each file after it.
Progress: TypeAlias = Callable[[int], None]

#: Files that are opened ahead of the file whose rows are wanted.
_OPEN_AHEAD: Final = 64
#: The ratio of the size of rows to the size of the encoded bytes, roughly.
_EXPANSION: Final = 3
#: The ratio of the memory of a deletion vector, while it is decoded, to its size.
_VECTOR_SIZES: Final = 3
#: Columns of a single file from this size on are decoded on several threads.
_PARALLEL: Final = 4 * 1024 * 1024
_UNKNOWN_SIZE: Final = 16 * 1024 * 1024
#: Bytes of rows that a job decodes, unless the decoder has larger steps.
_LEAST_DECODED: Final = 1024 * 1024
_MOST_DECODED: Final = 32 * 1024 * 1024
#: So many units of at most so many bytes are decoded by one job, if more of them wait than there are decoders.
_MOST_TOGETHER: Final = 16
_SMALL_UNIT: Final = 512 * 1024
#: Seconds; on Windows a wait without a time-out cannot be interrupted, not even by Ctrl-C.
_WAIT_SECONDS: Final = 0.5 if os.name == "nt" else None


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
    renewal: UrlRenewal | None = None
    limit: int | None = None
    table_columns: StructType | None = None
    memory_budget: int | None = None

    @property
    def budget(self) -> int:
        """The memory in bytes that may be in use."""
        most = self.storage.options.memory_budget
        return min(self.memory_budget or most, most)


def read_batches(load: Load, progress: Progress | None = None) -> Iterator[pa.RecordBatch]:
    """Read files concurrently and yield their rows in the order of the tasks, in batches that are not empty.

    `progress` is called with the size of each file after it.

    Raises:
        DeltaSharingError: a file cannot be fetched or decoded; the other files are abandoned.
    """
    if load.limit == 0 or not load.tasks:
        return
    with closing(_Workers(load)) as workers:
        state = LoadState(load.tasks, workers.reader, budget=load.budget, limit=load.limit, decoders=_cores())
        while not state.is_complete:
            for message in workers.messages():
                state.receive(message)
                del message  # to free its memory
            taken = state.take()
            workers.submit(state.jobs())
            for size in state.completed_files():
                if progress is not None:
                    progress(size)
            if taken is not None:
                unit, rows = taken
                while rows.batches:
                    yield rows.batches.pop(0)
                state.release(unit, rows.size)
                del taken, unit, rows
            elif not state.is_complete:
                begin_to_wait()
                state.receive(workers.next_message())


def estimate_fetch(load: Load) -> FetchEstimate:
    """Return what `read_batches` would fetch; fetches the footers of the files that it reads in ranges.

    Raises:
        DeltaSharingError: a footer cannot be fetched or decoded.
    """
    size = sum(task.size for task in load.tasks)
    requests = len(load.tasks)
    groups = kept = opened = 0
    with closing(_Workers(load)) as workers:
        ranged = [task for task in load.tasks if workers.reader.expected_size(task) is not None]
        for number, task in enumerate(ranged):
            run = partial(workers.reader.open, task)
            workers.submit([Job("fetch", (number, OPENING), [(Key(number, 0, OPENING), run)])])
        while opened < len(ranged):
            for key, file in workers.next_message().results:
                if isinstance(file, BaseException):
                    raise file
                opened += 1
                size += file.fetched_size - ranged[key.file].size
                requests += file.requests - 1
                groups += file.group_count
                kept += file.read_groups
    return FetchEstimate(size, requests, len(ranged), groups, groups - kept)


class Key(NamedTuple):
    """What a job is for: the number of the file, the number of times that it was begun again, and its unit."""

    file: int
    attempt: int
    unit: int


class Job(Struct, frozen=True):
    """Work of a thread.

    Attributes:
        kind: whether it waits for the store, or decodes.
        order: the position of its rows; the earliest are read first.
        parts: functions to call, each with the key of its result. One that raises does not end the others.
    """

    kind: Literal["fetch", "decode"]
    order: Order
    parts: Sequence[tuple[Key, Callable[[], Any]]]

    def perform(self) -> Message:
        """Return the results."""
        return Message([(key, _result_of(run)) for key, run in self.parts])


def _result_of(run: Callable[[], Any]) -> Any:
    """Return the result of a function, or its error without the frames that would hold the message."""
    try:
        return run()
    except Cancelled:
        return Cancelled()
    except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
        return without_frames(error)


class Message(Struct, frozen=True):
    """The results of a job: `OpenedFile`, `Steps` of a whole file, None for a range, `Rows`, or an error."""

    results: Sequence[tuple[Key, Any]]


#: Yields the rows of a read unit as they are decoded.
Steps: TypeAlias = "Iterator[Decoded]"


class UnitPlan(Struct, frozen=True):
    """How to read a unit.

    Attributes:
        encoded: the size to fetch in bytes.
        decoded: the estimated size of its rows in bytes.
        fetches: what fetches its bytes; that of a whole file returns its rows as `Steps`.
        steps: yields its rows when the bytes are complete; None for a whole file.
    """

    encoded: int
    decoded: int
    fetches: Sequence[Callable[[], Steps | None]]
    steps: Steps | None = None


class OpenedFile(Struct, frozen=True):
    """The units of a file whose footer is fetched; none if all of its rows are deleted.

    The numbers are those of `FetchEstimate`.
    """

    units: Sequence[UnitPlan] = ()
    fetched_size: int = 0
    requests: int = 0
    group_count: int = 0
    read_groups: int = 0


class Rows(Struct, frozen=True):
    """Decoded rows.

    Attributes:
        batches: batches that are not empty; the consumer removes them.
        size: their size in bytes; shared memory counts once.
        steps: yields the following rows; None at the end of the unit.
    """

    batches: list[pa.RecordBatch]
    size: int
    steps: Steps | None = None


class FileReader(Protocol):
    """Opens and fetches the files of a load, in several threads."""

    def expected_size(self, task: FileScanTask) -> int | None:
        """Return the estimated bytes to fetch of a file that is read in ranges; None for a whole file."""

    def whole(self, task: FileScanTask) -> UnitPlan:
        """Return how to read a whole file."""

    def open(self, task: FileScanTask) -> OpenedFile:
        """Fetch the footer of a file that is read in ranges, and plan its units."""


class LoadReader:
    """The `FileReader` of a load."""

    def __init__(self, load: Load, cancelled: Cancellation) -> None:
        options = load.storage.options
        self._load = load
        self._strategy = FetchStrategy.of(
            load.spec,
            load.table_columns,
            limited=load.limit is not None,
            size=sum(task.size for task in load.tasks),
            connections=options.max_connections,
        )
        self._retries = RetryBudget(len(load.tasks), options.max_connections)
        self._transfers = Transfers(load.renewal, cancelled, self._retries)
        self._locators = ColumnLocatorCache()
        self._buffers = BufferPool()
        self._limits = DecodeLimits.of(load.budget, _cores(), options)
        # The units of several files, and of a file with enough row groups, occupy all cores.
        is_single = len(load.tasks) == 1 and load.tasks[0].size >= _PARALLEL and _cores() > 1
        self._column_threads = DecodeThreads(_cores()) if is_single else None

    def close(self) -> None:
        """Stop the threads that decode columns."""
        if self._column_threads is not None:
            self._column_threads.close()

    def expected_size(self, task: FileScanTask) -> int | None:
        """See `FileReader`."""
        return int(self._strategy.fraction * task.size) if self._strategy.uses_ranges(task) else None

    def whole(self, task: FileScanTask) -> UnitPlan:
        """See `FileReader`."""
        size = task.size or _UNKNOWN_SIZE
        return UnitPlan(size, size * (_EXPANSION - 1), (partial(self._fetch_whole, task),))

    def open(self, task: FileScanTask) -> OpenedFile:
        """See `FileReader`; raises what fetching and decoding raise."""
        deleted = fetch_vector(self._load.storage, task, self._transfers)
        if deleted is not None and deleted.selects_nothing:
            return OpenedFile()
        limit = self._load.limit
        sparse = SparseFile(self._source(task), task, self._limits.footer)
        source = self._parquet(task, sparse.buffer, deleted)
        units = source.read_units(unit_size=READ_UNIT_SIZE if limit is None else 1)
        if limit is not None and self._load.spec.predicate is None and deleted is None:
            units = source.first(units, limit)
        sparse.expect(sum(unit.fetched_size for unit in units))
        ranges = [sparse.requests(unit, self._strategy.range_size) for unit in units]
        self._retries.expect(sum(map(len, ranges)))
        threads = self._column_threads if len(units) < _cores() else None
        plans = [
            UnitPlan(
                unit.fetched_size,
                unit.decoded_size,
                [partial(self._fetch_range, sparse, each) for each in wanted],
                _steps_of_unit(source, sparse, unit, threads),
            )
            for unit, wanted in zip(units, ranges, strict=True)
        ]
        fetched = sum(stop - start for wanted in ranges for start, stop in wanted)
        requests = 1 + sum(map(len, ranges))
        read_groups = sum(len(unit.groups) for unit in units)
        return OpenedFile(plans, sparse.footer_size + fetched, requests, source.group_count, read_groups)

    def _fetch_whole(self, task: FileScanTask) -> Steps:
        deleted = fetch_vector(self._load.storage, task, self._transfers)
        if deleted is not None and deleted.selects_nothing:
            return iter(())
        source = self._source(task)
        return self._steps_of_whole(task, source.restarting(partial(source.whole, self._buffers)), deleted)

    def _fetch_range(self, sparse: SparseFile, byte_range: ByteRange) -> None:
        sparse.fetch(byte_range)
        self._retries.give_back()

    def _steps_of_whole(self, task: FileScanTask, data: Buffer, deleted: RowPositions | None) -> Steps:
        # Opened by the decoders: dozens of fetchers would contend for the interpreter, and keep a heap each.
        with self._parquet(task, data, deleted) as source:
            yield from source.decode_all(self._column_threads)
        if isinstance(data, memoryview):
            self._buffers.give_back(data)

    def _source(self, task: FileScanTask) -> ByteSource:
        return self._load.storage.source(task.url, task.file_id, task.size, self._transfers)

    def _parquet(self, task: FileScanTask, data: Buffer, deleted: RowPositions | None) -> ParquetSource:
        return ParquetSource(
            data, task, self._load.spec, deleted=deleted, locators=self._locators, limits=self._limits
        )


def decode_rows(steps: Steps, allowance: int, most_rows: int | None) -> Rows:
    """Decode until there are so many bytes or rows; at least one step. Rows before a failure are kept."""
    batches: list[pa.RecordBatch] = []
    size = rows = 0
    try:
        for decoded in steps:
            batches += decoded.batches
            size += _size_of(decoded.batches)
            rows += sum(batch.num_rows for batch in decoded.batches)
            if decoded.last:
                next(steps, None)  # it releases its buffers
            if decoded.last or (most_rows is not None and rows >= most_rows):
                break
            if size >= allowance:
                return Rows(batches, size, steps)
    except BaseException as error:
        if not batches:
            raise
        return Rows(batches, size, _failing(error))
    return Rows(batches, size)


def _failing(error: BaseException) -> Steps:
    raise error
    yield


def _steps_of_unit(
    source: ParquetSource, sparse: SparseFile, unit: ReadUnit, threads: DecodeThreads | None
) -> Steps:
    yield from source.decode(unit, threads)
    sparse.release(unit)


class _Unit(Struct, eq=False):
    """The state of a read unit.

    Attributes:
        key: its file and its number.
        plan: how to read it.
        missing: the number of fetches that are not complete.
        steps: yields its rows, when its bytes are complete; None while a job decodes it.
        allowance: the bytes that the job that decodes it may add; 0 without a job.
        rows: decoded rows that are not taken.
        row_count: the number of decoded rows that are not taken.
        held: the size in bytes of rows that are not released.
        charged: the part of the budget in bytes that it uses.
        is_done: whether it is decoded, or failed.
        error: the failure.
    """

    key: Key
    plan: UnitPlan
    missing: int = -1
    steps: Steps | None = None
    allowance: int = 0
    rows: deque[Rows] = field(default_factory=deque)
    row_count: int = 0
    held: int = 0
    charged: int = 0
    is_done: bool = False
    error: BaseException | None = None

    @property
    def order(self) -> Order:
        return self.key.file, self.key.unit

    @property
    def due(self) -> int:
        """The part of the budget that it needs: its bytes until it is decoded, and its rows."""
        if self.is_done:
            return self.held
        return self.plan.encoded + max(self.plan.decoded, self.held + self.allowance)


class _File(Struct, eq=False):
    """The state of a file; its units are None until its footer is fetched, and removed when they are read.

    `vectors` is the memory in bytes of its deletion vectors, which are kept from its opening to its end.
    """

    number: int
    task: FileScanTask
    expected: int | None
    vectors: int = 0
    attempt: int = 0
    units: list[_Unit] | None = None
    started: int = 0
    first: int = 0
    has_yielded: bool = False
    error: BaseException | None = None


class LoadState:
    """The state of a load, which the consumer's thread alone changes: files in order, units, memory.

    `jobs` returns the jobs to start, `receive` uses their results, `take` and `release` are for the rows. It has
    no thread and no clock, so jobs may be performed in any order.

    Args:
        tasks: the files.
        reader: what the jobs call.
        budget: the memory in bytes that may be in use; a unit whose rows are wanted is read in any case.
        limit: the number of rows after which the load is complete.
        decoders: the number of threads that decode.
    """

    def __init__(
        self,
        tasks: Sequence[FileScanTask],
        reader: FileReader,
        *,
        budget: int,
        limit: int | None = None,
        decoders: int = 1,
    ) -> None:
        self._tasks = tasks
        self._opened = 0
        self._reader = reader
        self._budget = budget
        self._left = limit
        self._decoders = decoders
        self._used = 0
        self._files: deque[_File] = deque()
        #: The number of the first open files whose units have all been started.
        self._settled = 0
        self._read = 0
        self._completed: list[int] = []
        #: Units whose next rows can be decoded.
        self._decodable: list[_Unit] = []
        self._jobs: list[Job] = []
        self.is_complete = False

    @property
    def used(self) -> int:
        """The memory in use in bytes, in part estimated."""
        return self._used

    def completed_files(self) -> list[int]:
        """Return the sizes of the files that were read to their end since the last call."""
        completed, self._completed = self._completed, []
        return completed

    def jobs(self) -> list[Job]:
        """Return the jobs to start now."""
        if not self.is_complete:
            self._open_and_fetch()
            self._decode()
        jobs, self._jobs = self._jobs, []
        return jobs

    def receive(self, message: Message) -> None:
        """Use the results of a job; those for a file that was begun again since are dropped."""
        first = self._files[0].number if self._files else 0
        for key, result in message.results:
            place = key.file - first
            if not 0 <= place < len(self._files) or self._files[place].attempt != key.attempt:
                continue
            file = self._files[place]
            if key.unit == OPENING:
                self._receive_units(file, result)
            elif file.units is not None and 0 <= key.unit - file.first < len(file.units):
                self._receive_for(file.units[key.unit - file.first], result)

    def take(self) -> tuple[_Unit, Rows] | None:
        """Return the next rows in order, with their unit; None if they are not decoded yet, or there are no more.

        Raises:
            DeltaSharingError: the next rows cannot be read.
        """
        while self._files and not self.is_complete:
            file = self._files[0]
            while file.units and not file.error:
                unit = file.units[0]
                if unit.rows:
                    file.has_yielded = True
                    rows = unit.rows.popleft()
                    unit.row_count -= sum(batch.num_rows for batch in rows.batches)
                    return unit, self._within_limit(rows)
                if not unit.is_done:
                    return None
                file.error, unit.error = unit.error, None
                if file.error is None:
                    del file.units[0]
                    file.first += 1
                    file.started -= 1
            if file.error is not None:
                if not self._begin_again(file):
                    raise self._failure(file)
            elif file.units is None:
                return None
            else:
                self._files.popleft()
                self._used -= file.vectors
                self._settled = max(0, self._settled - 1)
                self._read += 1
                self._completed.append(file.task.size)
        if not self._files and self._opened == len(self._tasks):
            self.is_complete = True
        return None

    def release(self, unit: _Unit, size: int) -> None:
        """Release the memory of rows that were taken."""
        unit.held -= size
        self._settle(unit)

    def _within_limit(self, rows: Rows) -> Rows:
        if self._left is None:
            return rows
        batches: list[pa.RecordBatch] = []
        for batch in rows.batches:
            if self._left:
                batches.append(batch.slice(0, self._left))
                self._left -= batches[-1].num_rows
        self.is_complete = not self._left
        return Rows(batches, rows.size)

    def _open_and_fetch(self) -> None:
        """Open files and start units in order within the budget."""
        known = kept_free = 0
        # With a limit all open files count; otherwise files whose units have all started are skipped.
        position = self._settled if self._left is None else 0
        while True:
            if position == len(self._files) and not self._open(position, known):
                return
            file = self._files[position]
            position += 1
            if self._left is not None:
                known += (file.task.row_count or 0) if file.task.all_rows_match else 0
            if file.units is None:
                # Its rows are wanted before those of later files, which must not use all the memory.
                kept_free += (file.expected or 0) * _EXPANSION
                continue
            while file.started < len(file.units):
                unit = file.units[file.started]
                # The unit whose rows are wanted may always start, because nothing else can make room for it.
                is_next = file is self._files[0] and not file.started
                if not is_next and self._used + unit.due > self._budget - min(kept_free, self._budget // 2):
                    return
                file.started += 1
                self._fetch(unit)
            if position == self._settled + 1:
                self._settled = position

    def _open(self, opened: int, known: int) -> bool:
        """Open another file; with a limit, only if the open files may have too few rows. Return whether it did."""
        most = _OPEN_AHEAD
        if self._left is not None and opened:
            most = min(most, 2 * self._read + 1) if known < self._left else 0
        number = self._opened
        if opened >= most or number == len(self._tasks):
            return False
        task = self._tasks[number]
        vectors = _VECTOR_SIZES * task.vector_size
        # The file whose rows are wanted may always be opened.
        if opened and vectors and self._used + vectors > self._budget:
            return False
        self._opened += 1
        self._used += vectors
        file = _File(number, task, self._reader.expected_size(task), vectors)
        self._files.append(file)
        if file.expected is None:
            file.units = [_Unit(Key(number, 0, 0), self._reader.whole(task))]
        else:
            run = partial(self._reader.open, task)
            self._jobs.append(Job("fetch", (number, OPENING), [(Key(number, 0, OPENING), run)]))
        return True

    def _fetch(self, unit: _Unit) -> None:
        fetches = unit.plan.fetches
        unit.missing = len(fetches)
        unit.steps = unit.plan.steps
        self._settle(unit)
        self._jobs += [Job("fetch", unit.order, [(unit.key, fetch)]) for fetch in fetches]
        if not fetches:
            self._decodable.append(unit)

    def _decode(self) -> None:
        """Decode, in order, the units whose bytes are complete, while there is memory."""
        if not self._decodable:
            return
        wanted = self._files[0].units[0] if self._files and self._files[0].units else None
        ready = sorted(self._decodable, key=lambda unit: unit.order)
        self._decodable = []
        small: list[tuple[Key, Callable[[], Rows]]] = []
        for unit in ready:
            if unit.is_done or unit.steps is None:
                continue
            # Nothing else can make room for the unit whose rows are wanted.
            if self._used > self._budget and (unit is not wanted or unit.rows):
                self._decodable.append(unit)
                continue
            unit.allowance = min(max(unit.plan.decoded - unit.held, _LEAST_DECODED), _MOST_DECODED)
            self._settle(unit)
            most = None if self._left is None else self._left - unit.row_count
            part = unit.key, partial(decode_rows, unit.steps, unit.allowance, most)
            unit.steps = None
            if unit.plan.encoded <= _SMALL_UNIT:
                small.append(part)
            else:
                self._jobs.append(Job("decode", unit.order, [part]))
        # Each message wakes the consumer, so that it competes with the decoders.
        size = max(1, min(len(small) // self._decoders, _MOST_TOGETHER))
        for start in range(0, len(small), size):
            key = small[start][0]
            self._jobs.append(Job("decode", (key.file, key.unit), small[start : start + size]))

    def _receive_units(self, file: _File, result: OpenedFile | BaseException) -> None:
        if isinstance(result, BaseException):
            file.error = result
            return
        keys = (Key(file.number, file.attempt, number) for number in itertools.count())
        file.units = [_Unit(key, plan) for key, plan in zip(keys, result.units, strict=False)]

    def _receive_for(self, unit: _Unit, result: Rows | Steps | BaseException | None) -> None:
        if unit.is_done:
            return
        if isinstance(result, BaseException):
            unit.error = result
            unit.is_done = True
        elif isinstance(result, Rows):
            unit.allowance = 0
            unit.steps = result.steps
            if result.batches:
                unit.rows.append(result)
                unit.held += result.size
                unit.row_count += sum(batch.num_rows for batch in result.batches)
            if unit.steps is None or (self._left is not None and unit.row_count >= self._left):
                unit.is_done = True
            else:
                self._decodable.append(unit)
        else:
            unit.missing -= 1
            unit.steps = unit.steps or result
            if not unit.missing:
                self._decodable.append(unit)
        self._settle(unit)

    def _begin_again(self, file: _File) -> bool:
        """Read a file that changed again, as a whole, if none of its rows was taken; return whether it is."""
        if not isinstance(file.error, FileChanged) or file.has_yielded or file.attempt:
            return False
        for unit in file.units or ():
            unit.is_done, unit.held = True, 0
            self._settle(unit)
        file.attempt += 1
        file.units = [_Unit(Key(file.number, file.attempt, 0), self._reader.whole(file.task))]
        file.started = file.first = self._settled = 0
        file.error = None
        return True

    def _failure(self, file: _File) -> BaseException:
        """Return the error of a file, and end the load; nothing refers to the error any more but its caller."""
        error = file.error
        for each in self._files:
            each.error, each.units = None, None
        self._files.clear()
        if error is None or isinstance(error, FileChanged):
            return StorageError(
                "the file changed while it was being read; load it again", file_id=file.task.file_id
            )
        return error

    def _settle(self, unit: _Unit) -> None:
        """Charge what a unit needs now."""
        if unit.is_done:
            unit.steps = None
        self._used += unit.due - unit.charged
        unit.charged = unit.due


class _Workers:
    """The threads of a load, and the queue of their messages."""

    def __init__(self, load: Load) -> None:
        self._cancelled = Cancellation()
        self.reader = LoadReader(load, self._cancelled)
        self._messages: SimpleQueue[Message] = SimpleQueue()
        self._pools = {
            "fetch": OrderedPool(load.storage.options.max_connections, "delta-sharing-fetch"),
            "decode": OrderedPool(_cores(), "delta-sharing-decode"),
        }
        self._running = 0
        self._process = os.getpid()

    def submit(self, jobs: Sequence[Job]) -> None:
        """Perform jobs, the earliest rows first."""
        for job in jobs:
            self._running += 1
            self._pools[job.kind].submit(job.order, self._perform, job)

    def next_message(self) -> Message:
        """Wait for a message."""
        if not self._running:
            raise RuntimeError("no job of the load is left, and it is not complete")  # it would wait for ever
        if self._process != os.getpid():
            raise StorageError(
                "a load that was begun before the process was forked cannot go on there; load again"
            )
        while True:
            try:
                message = self._messages.get(timeout=_WAIT_SECONDS)
            except Empty:
                continue
            self._running -= 1
            return message

    def messages(self) -> Iterator[Message]:
        """Yield the messages that are there."""
        while not self._messages.empty():
            yield self.next_message()

    def close(self) -> None:
        """Stop the threads; cancels transfers that are under way. Idle connections are kept."""
        if self._running:
            self._cancelled.set()
        for pool in self._pools.values():
            pool.close()
        self.reader.close()

    def _perform(self, job: Job) -> None:
        if self._cancelled.is_set():
            return
        try:
            message = job.perform()
        except BaseException as error:  # noqa: BLE001  # without a message the consumer would wait for ever
            message = Message([(key, without_frames(error)) for key, _ in job.parts])
        self._messages.put(message)


def _cores() -> int:
    return os.cpu_count() or 1


def _size_of(batches: list[pa.RecordBatch]) -> int:
    """Return the size of batches in bytes; shared memory counts once."""
    if not batches:
        return 0
    held = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches)
    # `nbytes` counts a slice, but a buffer that batches share several times.
    return int(min(held.nbytes, held.get_total_buffer_size()))
