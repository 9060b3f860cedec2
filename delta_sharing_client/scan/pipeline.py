"""Fetching ahead of decoding: many connections, all cores, bounded memory, the server's order.

The consumer's thread is the only one that decides: it opens files, starts their pieces in order as far as
the byte budget goes, and waits for the first one. Two pools do the work, one that fetches and one that
decodes; each job that ends wakes the consumer.

A small file, or one of which nearly everything is read, is fetched with one GET and is one piece. Of a large
one the footer comes first, and then only the row groups and columns that are read, in ranges over several
connections, each piece decoded as soon as its bytes are there.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias

import pyarrow as pa

from delta_sharing_client.errors import StorageError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.column_lookup import Layouts
from delta_sharing_client.parquet.decode import ParquetSource
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.fetch import SparseFile, fetch_vector
from delta_sharing_client.parquet.fetch_strategy import FetchEstimate, Strategy
from delta_sharing_client.parquet.layout import PIECE, Piece, Span
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.priority_pool import OPENING, Order, OrderedPool
from delta_sharing_client.storage.buffer_pool import Slabs
from delta_sharing_client.storage.download import Buffer, Download, FileChanged, Refresh, RetryBudget
from delta_sharing_client.storage.presigned import StorageReader
from delta_sharing_client.transport.connections import Cancellation

#: Told after each file.
Progress: TypeAlias = Callable[[FileScanTask], None]

_UNKNOWN_SIZE: Final = 16 * 1024 * 1024
#: Files that are opened ahead of the one whose rows are wanted.
_OPEN_AHEAD: Final = 64
#: Seconds; on Windows nobody gets through to a thread that waits without end, not even with Ctrl-C.
_PATIENCE: Final = 0.5 if os.name == "nt" else None
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


@dataclass(eq=False)
class _PieceRead:
    """One piece on its way: its place, how many bytes it holds, and its rows once they are there."""

    order: Order
    cost: int
    piece: Piece | None = None
    left: int = 0
    done: bool = False
    batches: list[pa.RecordBatch] = field(default_factory=list)
    error: BaseException | None = None

    @property
    def ready(self) -> bool:
        """Whether its rows are there, or cannot be had."""
        return self.done


@dataclass(eq=False)
class _FileRead:
    """One file on its way, with its place; its pieces are known once its footer is there."""

    place: int
    task: FileScanTask
    download: Download
    pieces: list[_PieceRead] | None = None
    started: int = 0
    sparse: SparseFile | None = None
    source: ParquetSource | None = None
    error: BaseException | None = None
    yielded: bool = False

    @property
    def ready(self) -> bool:
        """Whether its pieces are known, or cannot be had."""
        return self.pieces is not None or self.error is not None


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
        self._budget = min(memory_budget or options.memory_budget, options.memory_budget)
        self._retries = RetryBudget(len(tasks), options.max_connections)
        self._strategy = Strategy.of(spec, table_columns, limited=limit is not None)
        self._single = len(tasks) == 1
        self._cancelled = Cancellation()
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._finished = 0
        self._settled = 0
        self._awaited: _FileRead | _PieceRead | None = None
        self._news = self._starved = False
        self._files: deque[_FileRead] = deque()
        self._used = 0
        self._complete = False
        self._layouts = Layouts()
        self._slabs = Slabs()
        cores = os.cpu_count() or 1
        self._places = itertools.count()
        self._fetchers = OrderedPool(options.max_connections, "delta-sharing-fetch")
        self._decoders = OrderedPool(cores, "delta-sharing-decode")

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
                piece = file.pieces[0]
                self._wait(piece)
                if piece.error is not None:
                    file.error = piece.error
                    break
                file.pieces.pop(0)
                file.started -= 1
                batches, piece.batches = piece.batches, []
                file.yielded = file.yielded or bool(batches)
                while batches:
                    batch = batches.pop(0)
                    if self._left is not None:
                        batch = batch.slice(0, self._left)
                        self._left -= batch.num_rows
                    yield batch
                    if self._left == 0:
                        return
                self._charge(-piece.cost)
                if self._starved:
                    self._advance()
            if file.error is not None:
                self._start_again(file, file.error)
                continue
            self._files.popleft()
            self._settled = max(0, self._settled - 1)
            self._finished += 1
            if progress is not None:
                progress(file.task)
        self._complete = True

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
                self._sleep(file)
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

    def _wait(self, item: _FileRead | _PieceRead) -> None:
        """Wait until an item is there; whatever comes meanwhile makes room for more to be started."""
        while not item.ready:
            self._advance()
            self._sleep(item)

    def _sleep(self, item: _FileRead | _PieceRead) -> None:
        """Wait until an item is there, or something else has come."""
        with self._lock:
            self._awaited = item
            while not item.ready and not self._news:
                self._wake.wait(_PATIENCE)
            self._news = False
            self._awaited = None

    def _charge(self, cost: int) -> None:
        with self._lock:
            self._used += cost

    def _admits(self, cost: int, kept_free: int) -> bool:
        """Whether the budget has room for a piece; else the consumer is woken as soon as there may be."""
        with self._lock:
            self._starved = self._used + cost > self._budget - min(kept_free, self._budget // 2)
            return not self._starved

    def _advance(self) -> bool:
        """Open files and start pieces, in order, as far as the budget goes; tell whether a file is left."""
        known = kept_free = 0
        # Under a limit all open files count; else those whose pieces have all been started need no second look.
        position = self._settled if self._left is None else 0
        self._starved = False
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
                if not awaited and not self._admits(piece.cost, kept_free):
                    return True
                self._charge(piece.cost)
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

    def _open(self, task: FileScanTask) -> _FileRead:
        file = self._new_file(task)
        if self._strategy.in_pieces(task):
            self._fetchers.submit((file.place, OPENING), self._open_sparse, file)
        else:
            file.pieces = [_whole_piece(file)]
        return file

    def _new_file(self, task: FileScanTask) -> _FileRead:
        return _FileRead(next(self._places), task, self._new_download(task))

    def _new_download(self, task: FileScanTask) -> Download:
        return self._storage.download(
            task.url,
            file_id=task.file_id,
            size=task.size,
            refresh=self._refresh,
            cancelled=self._cancelled,
            budget=self._retries,
        )

    def _open_sparse(self, file: _FileRead) -> None:
        """Fetch the footer and plan the pieces (in a fetcher)."""
        try:
            deleted = self._vector(file.task)
            if deleted is not None and deleted.leaves_nothing:
                file.pieces = []
                return
            file.sparse = SparseFile(file.download, file.task)
            file.source = ParquetSource(
                file.sparse.buffer, file.task, self._spec, deleted=deleted, layouts=self._layouts
            )
            pieces = file.source.pieces(piece_size=PIECE if self._limit is None else 1)
            if self._limit is not None and self._spec.predicate is None and deleted is None:
                pieces = file.source.first(pieces, self._limit)
            file.sparse.expect(sum(piece.fetched_size for piece in pieces))
            file.pieces = [
                _PieceRead((file.place, number), piece.fetched_size + piece.decoded_size, piece)
                for number, piece in enumerate(pieces)
            ]
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            file.error = error
        finally:
            with self._lock:
                self._news = True  # its pieces can be started
                self._wake.notify_all()

    def _start(self, file: _FileRead, piece: _PieceRead) -> None:
        if piece.piece is None or file.sparse is None:
            self._fetchers.submit(piece.order, self._fetch_whole, file, piece)
            return
        requests = file.sparse.requests(piece.piece)
        piece.left = len(requests)
        if not requests:
            self._decoders.submit(piece.order, self._decode_piece, file, piece)
        for span in requests:
            self._fetchers.submit(piece.order, self._fetch_range, file, piece, span)

    def _fetch_whole(self, file: _FileRead, piece: _PieceRead) -> None:
        try:
            deleted = self._vector(file.task)
            if deleted is not None and deleted.leaves_nothing:
                self._finish(piece)
                return
            data = file.download.restarting(partial(file.download.whole, self._slabs))
            self._decoders.submit(piece.order, self._decode_whole, file, piece, data, deleted)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._finish(piece, error)

    def _fetch_range(self, file: _FileRead, piece: _PieceRead, span: Span) -> None:
        try:
            if piece.error is None and file.sparse is not None:
                file.sparse.fetch(span)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._finish(piece, error)
            return
        with self._lock:
            piece.left -= 1
            complete = piece.left == 0
        if complete:
            try:
                self._decoders.submit(piece.order, self._decode_piece, file, piece)
            except RuntimeError as error:  # the pool is shut down: nobody waits
                self._finish(piece, error)

    def _decode_whole(
        self, file: _FileRead, piece: _PieceRead, data: Buffer, deleted: RowPositions | None
    ) -> None:
        try:
            # Opened here: dozens of fetchers would contend for the interpreter, and keep a heap each.
            source = ParquetSource(data, file.task, self._spec, deleted=deleted, layouts=self._layouts)
            with source:
                rows = 0
                for batch in source.decode_all(use_threads=self._single):
                    piece.batches.append(batch)
                    rows += batch.num_rows
                    if self._cancelled.is_set() or (self._limit is not None and rows >= self._limit):
                        break
            if isinstance(data, memoryview):
                self._slabs.give_back(data)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._finish(piece, error)
        else:
            self._finish(piece)

    def _decode_piece(self, file: _FileRead, piece: _PieceRead) -> None:
        try:
            if file.source is not None and file.sparse is not None and piece.piece is not None:
                if not self._cancelled.is_set():
                    piece.batches.extend(file.source.decode(piece.piece, use_threads=self._single))
                file.sparse.release(piece.piece)
        except BaseException as error:  # noqa: BLE001  # raised again in the consumer's thread
            self._finish(piece, error)
        else:
            self._finish(piece)

    def _finish(self, piece: _PieceRead, error: BaseException | None = None) -> None:
        """Note that a piece is there, or cannot be had; its cost becomes what its rows take."""
        # Memory that several batches share counts once.
        batches = piece.batches
        held = batches[0] if len(batches) == 1 else pa.Table.from_batches(batches) if batches else None
        decoded = held.get_total_buffer_size() if held is not None else 0
        with self._lock:
            if piece.done:
                return
            piece.error = error
            piece.done = True
            self._used += decoded - piece.cost
            piece.cost = decoded
            # Woken for nothing, the consumer would only be in the way of those who work.
            self._news = self._news or self._starved
            if self._news or self._awaited is piece:
                self._wake.notify_all()

    def _vector(self, task: FileScanTask) -> RowPositions | None:
        return fetch_vector(
            self._storage, task, refresh=self._refresh, cancelled=self._cancelled, budget=self._retries
        )

    def _start_again(self, file: _FileRead, error: BaseException) -> None:
        """Raise what befell a file; one that merely changed is read again, whole, if no row of it is out yet."""
        if not isinstance(error, FileChanged):
            raise error
        if file.yielded or file.sparse is None:
            raise StorageError(
                "the file changed while it was being read; load it again", file_id=file.task.file_id
            )
        for piece in (file.pieces or [])[: file.started]:
            with self._lock:
                piece.done = True  # whatever still comes of it is dropped
                self._used -= piece.cost
        self._settled = 0
        file.download = self._new_download(file.task)
        file.sparse = file.source = file.error = None
        file.started = 0
        file.pieces = [_whole_piece(file)]


def _whole_piece(file: _FileRead) -> _PieceRead:
    return _PieceRead((file.place, 0), (file.task.size or _UNKNOWN_SIZE) * _EXPANSION)
