"""Fetching ahead of decoding: many connections, all cores, bounded memory, the server's order.

The consumer's thread is the only one that decides: it opens files, starts their pieces in order as far as
the byte budget goes, and waits for the first one. Two pools do the work, one that fetches and one that
decodes; each job that ends wakes the consumer.

A small file, or one of which nearly everything is read, is fetched with one GET and is one piece. Of a large
one the footer comes first, and then only the row groups and columns that are read, in ranges over several
connections, each piece decoded as soon as its bytes are there. Rows are handed out step by step, as they are
decoded.
"""

from __future__ import annotations

import itertools
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.errors import StorageError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.column_lookup import LayoutCache
from delta_sharing_client.parquet.decode import Decoded, ParquetSource
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.fetch import SparseFile, fetch_vector
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate, Strategy
from delta_sharing_client.parquet.layout import READ_UNIT_SIZE, ByteRange, ReadUnit
from delta_sharing_client.parquet.row_sizes import DecodeLimits
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.memory_budget import FileRead, MemoryBudget, PieceRead
from delta_sharing_client.scan.priority_pool import OPENING, OrderedPool
from delta_sharing_client.storage.buffer_pool import Slabs
from delta_sharing_client.storage.download import Buffer, Download, FileChanged, Refresh, RetryBudget
from delta_sharing_client.storage.presigned import StorageReader
from delta_sharing_client.transport.cancellation import Cancellation

#: Told after each file.
Progress: TypeAlias = Callable[[FileScanTask], None]

_UNKNOWN_SIZE: Final = 16 * 1024 * 1024
#: Files that are opened ahead of the one whose rows are wanted.
_OPEN_AHEAD: Final = 64
#: About how much larger rows are than the encoded bytes that they are decoded from.
_EXPANSION: Final = 3


def read_batches(
    tasks: Sequence[FileScanTask],
    spec: ReadSpec,
    storage: StorageReader,
    *,
    refresh: Refresh | None = None,
    limit: int | None = None,
    table_columns: StructType | None = None,
    memory_budget: int | None = None,
    progress: Progress | None = None,
) -> Iterator[pa.RecordBatch]:
    """Read files side by side and yield their rows in the order of the tasks.

    Args:
        tasks: the files.
        spec: what to read of each.
        storage: fetches; its options say how many connections and how much memory to use.
        refresh: gives a fresh URL for one that has expired.
        limit: rows after which to stop, fetching included.
        table_columns: all columns of the table, to guess what part of a file is read.
        memory_budget: bytes that may be on their way, if less than the options allow.
        progress: told after each file.

    Yields:
        Batches that are not empty.

    Raises:
        DeltaSharingError: a file cannot be fetched or decoded; the rest is given up.
    """
    if limit == 0 or not tasks:
        return
    pipeline = _Pipeline(tasks, spec, storage, refresh, limit, table_columns, memory_budget)
    try:
        yield from pipeline.batches(progress)
    finally:
        pipeline.close()


def estimate_fetch(
    tasks: Sequence[FileScanTask],
    spec: ReadSpec,
    storage: StorageReader,
    *,
    refresh: Refresh | None = None,
    table_columns: StructType | None = None,
) -> FetchEstimate:
    """Say what `read_batches` would fetch; the footers of files that it reads in pieces are fetched for it.

    Raises:
        DeltaSharingError: a footer cannot be fetched or decoded.
    """
    pipeline = _Pipeline(tasks, spec, storage, refresh, None, table_columns)
    try:
        return pipeline.estimate(tasks)
    finally:
        pipeline.close()


class _Pipeline:
    def __init__(
        self,
        tasks: Sequence[FileScanTask],
        spec: ReadSpec,
        storage: StorageReader,
        refresh: Refresh | None,
        limit: int | None,
        table_columns: StructType | None,
        memory_budget: int | None = None,
    ) -> None:
        options = storage.options
        self._tasks = iter(tasks)
        self._spec = spec
        self._storage = storage
        self._refresh = refresh
        self._limit = self._left = limit
        budget = min(memory_budget or options.memory_budget, options.memory_budget)
        self._memory = MemoryBudget(budget)
        self._retries = RetryBudget(len(tasks), options.max_connections)
        self._strategy = Strategy.of(spec, table_columns, limited=limit is not None)
        self._single = len(tasks) == 1
        self._cancelled = Cancellation()
        self._finished = 0
        self._settled = 0
        self._files: deque[FileRead] = deque()
        self._complete = False
        self._layouts = LayoutCache()
        self._slabs = Slabs()
        self._cores = os.cpu_count() or 1
        self._limits = DecodeLimits.of(budget, options.batch_memory_limit, self._cores)
        self._places = itertools.count()
        self._fetchers = OrderedPool(options.max_connections, "delta-sharing-fetch")
        self._decoders = OrderedPool(self._cores, "delta-sharing-decode")

    def close(self) -> None:
        """Give up what is under way; transfers are broken off, idle connections are kept for the next load."""
        if not self._complete:
            self._cancelled.set()
        self._fetchers.close()
        self._decoders.close()

    def batches(self, progress: Progress | None) -> Iterator[pa.RecordBatch]:
        """Yield the rows of all files in order."""
        while self._advance():
            file = self._files[0]
            self._wait(file)
            while file.error is None and file.pieces:
                yield from self._rows(file, file.pieces[0])
                if self._left == 0:
                    return
            if file.error is not None:
                self._start_again(file, file.error)
                continue
            self._files.popleft()
            self._settled = max(0, self._settled - 1)
            self._finished += 1
            if progress is not None:
                progress(file.task)
        self._complete = True

    def _rows(self, file: FileRead, piece: PieceRead) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the first piece of the first file as they are decoded, and take it off the file."""
        while True:
            self._decode_on(piece)
            self._wait(piece)
            taken = self._memory.take(piece)
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
            self._memory.release(piece, size)
            if self._memory.starved:
                self._advance()
        if piece.error is not None:
            file.error = piece.error
        elif file.pieces:
            file.pieces.pop(0)
            file.started -= 1

    def _decode_on(self, front: PieceRead | None) -> None:
        """Take up pieces again whose decoding had to wait for room."""
        for piece in self._memory.resumable(front, self._cores):
            self._decoders.submit(piece.order, self._decode, piece)

    def estimate(self, tasks: Sequence[FileScanTask]) -> FetchEstimate:
        """Open the files that are read in pieces, and add up what all of them take."""
        files = [self._new_file(task) for task in tasks if self._strategy.in_pieces(task)]
        size = sum(task.size for task in tasks) - sum(file.task.size for file in files)
        requests = len(tasks) - len(files)
        groups = kept = 0
        for file in files:
            self._fetchers.submit((file.place, OPENING), self._open_sparse, file)
        for file in files:
            while not file.ready:
                self._memory.sleep(file)
            if file.error is not None:
                raise file.error
            if file.sparse is not None and file.source is not None:
                size += file.sparse.footer_size
                requests += 1
                groups += file.source.group_count
                for piece in file.pieces or []:
                    if piece.piece is not None:
                        spans = file.sparse.requests(piece.piece)
                        size += sum(stop - start for start, stop in spans)
                        requests += len(spans)
                        kept += len(piece.piece.groups)
        self._complete = True
        return FetchEstimate(size, requests, len(files), groups, groups - kept)

    def _wait(self, item: FileRead | PieceRead) -> None:
        """Wait until an item is there; whatever comes meanwhile makes room for more to be started."""
        while not item.ready:
            self._advance()
            self._memory.sleep(item)

    def _advance(self) -> bool:
        """Open files and start pieces, in order, as far as the budget goes; tell whether a file is left."""
        known = kept_free = 0
        # Under a limit all open files count; else those whose pieces have all been started need no second look.
        position = self._settled if self._left is None else 0
        self._memory.starved = False
        while True:
            if position == len(self._files):
                task = next(self._tasks, None) if self._may_open(position, known) else None
                if task is None:
                    return bool(self._files)
                self._files.append(self._open(task))
            file = self._files[position]
            position += 1
            if self._left is not None:
                known += (file.task.row_count or 0) if file.task.all_rows_match else 0
            pieces = file.pieces  # may become known at any moment
            while pieces is not None and file.started < len(pieces):
                piece = pieces[file.started]
                # The piece that is waited for may always start, or nothing would ever make room for it.
                awaited = file is self._files[0] and not file.started
                if not awaited and not self._memory.admits(piece.cost, kept_free):
                    return True
                self._memory.charge(piece)
                file.started += 1
                self._start(file, piece)
            if pieces is None:
                # Its rows are wanted before those of the files behind it, which must not take all the room.
                kept_free += int(self._strategy.fraction * file.task.size) * _EXPANSION
            if position == self._settled + 1 and pieces is not None and file.started == len(pieces):
                self._settled = position

    def _may_open(self, opened: int, known: int) -> bool:
        """Whether to open another file; under a limit, none before those that are open fall short."""
        if self._left is None or not opened:
            return opened < _OPEN_AHEAD
        return known < self._left and opened < min(_OPEN_AHEAD, 2 * self._finished + 1)

    def _open(self, task: FileScanTask) -> FileRead:
        file = self._new_file(task)
        if self._strategy.in_pieces(task):
            self._fetchers.submit((file.place, OPENING), self._open_sparse, file)
        else:
            file.pieces = [_whole_piece(file)]
        return file

    def _new_file(self, task: FileScanTask) -> FileRead:
        return FileRead(next(self._places), task, self._new_download(task))

    def _new_download(self, task: FileScanTask) -> Download:
        return self._storage.download(
            task.url,
            file_id=task.file_id,
            size=task.size,
            refresh=self._refresh,
            cancelled=self._cancelled,
            budget=self._retries,
        )

    def _open_sparse(self, file: FileRead) -> None:
        """Fetch the footer and plan the pieces (in a fetcher)."""
        try:
            deleted = self._vector(file.task)
            if deleted is not None and deleted.leaves_nothing:
                file.pieces = []
                return
            file.sparse = SparseFile(file.download, file.task)
            file.source = self._source(file, file.sparse.buffer, deleted)
            pieces = file.source.read_units(unit_size=READ_UNIT_SIZE if self._limit is None else 1)
            if self._limit is not None and self._spec.predicate is None and deleted is None:
                pieces = file.source.first(pieces, self._limit)
            file.sparse.expect(sum(piece.fetched_size for piece in pieces))
            file.pieces = [
                PieceRead((file.place, number), piece.fetched_size + piece.decoded_size, piece.fetched_size, piece)
                for number, piece in enumerate(pieces)
            ]
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            file.error = error
        finally:
            self._memory.tell_opened()

    def _start(self, file: FileRead, piece: PieceRead) -> None:
        if piece.piece is None or file.sparse is None:
            self._fetchers.submit(piece.order, self._fetch_whole, file, piece)
            return
        requests = file.sparse.requests(piece.piece)
        piece.left = len(requests)
        if not requests:
            self._decode_piece(file, piece)
        for span in requests:
            self._fetchers.submit(piece.order, self._fetch_range, file, piece, span)

    def _fetch_whole(self, file: FileRead, piece: PieceRead) -> None:
        try:
            deleted = self._vector(file.task)
            if deleted is not None and deleted.leaves_nothing:
                self._memory.put(piece, [], last=True)
                return
            data = file.download.restarting(partial(file.download.whole, self._slabs))
            piece.steps = self._steps_of_whole(file, data, deleted)
            self._decoders.submit(piece.order, self._decode, piece)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._memory.fail(piece, error)

    def _fetch_range(self, file: FileRead, piece: PieceRead, span: ByteRange) -> None:
        try:
            if piece.error is None and file.sparse is not None:
                file.sparse.fetch(span)
            with self._memory.lock:
                piece.left -= 1
                complete = piece.left == 0
            if complete:
                self._decode_piece(file, piece)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._memory.fail(piece, error)

    def _decode_piece(self, file: FileRead, piece: PieceRead) -> None:
        """Have a piece decoded whose bytes are there."""
        if file.source is not None and file.sparse is not None and piece.piece is not None:
            piece.steps = self._steps_of_piece(file.source, file.sparse, piece.piece)
            self._decoders.submit(piece.order, self._decode, piece)

    def _steps_of_whole(self, file: FileRead, data: Buffer, deleted: RowPositions | None) -> Iterator[Decoded]:
        # Opened here: dozens of fetchers would contend for the interpreter, and keep a heap each.
        with self._source(file, data, deleted) as source:
            yield from source.decode_all(use_threads=self._single)
        if isinstance(data, memoryview):
            self._slabs.give_back(data)

    def _steps_of_piece(self, source: ParquetSource, sparse: SparseFile, piece: ReadUnit) -> Iterator[Decoded]:
        yield from source.decode(piece, use_threads=self._single)
        sparse.release(piece)

    def _source(self, file: FileRead, data: Buffer, deleted: RowPositions | None) -> ParquetSource:
        return ParquetSource(
            data, file.task, self._spec, deleted=deleted, layouts=self._layouts, limits=self._limits
        )

    def _decode(self, piece: PieceRead) -> None:
        """Decode a piece step by step (in a decoder), for as long as there is room for its rows."""
        try:
            steps = piece.steps
            while steps is not None and not self._cancelled.is_set() and self._memory.may_decode(piece):
                decoded = next(steps, None)
                if decoded is None:
                    self._memory.put(piece, [], last=True)
                    return
                piece.rows += sum(batch.num_rows for batch in decoded.batches)
                if decoded.last:
                    next(steps, None)  # it gives back what it had
                last = decoded.last or (self._limit is not None and piece.rows >= self._limit)
                self._memory.put(piece, decoded.batches, last=last)
                del decoded
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._memory.fail(piece, error)

    def _vector(self, task: FileScanTask) -> RowPositions | None:
        return fetch_vector(
            self._storage, task, refresh=self._refresh, cancelled=self._cancelled, budget=self._retries
        )

    def _start_again(self, file: FileRead, error: BaseException) -> None:
        """Raise what befell a file; one that merely changed is read again, whole, if no row of it is out yet."""
        if not isinstance(error, FileChanged):
            raise error
        if file.yielded or file.sparse is None:
            raise StorageError(
                "the file changed while it was being read; load it again", file_id=file.task.file_id
            )
        for piece in (file.pieces or [])[: file.started]:
            self._memory.drop(piece)
        self._settled = 0
        file.download = self._new_download(file.task)
        file.sparse = file.source = file.error = None
        file.started = 0
        file.pieces = [_whole_piece(file)]


def _whole_piece(file: FileRead) -> PieceRead:
    size = file.task.size or _UNKNOWN_SIZE
    return PieceRead((file.place, 0), size * _EXPANSION, size)
