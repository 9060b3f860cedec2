"""Files of a gateway: which bytes a reader needs next, by the footer and by what was read before.

A request of WebHDFS names no end. Spark reads a column chunk from its beginning, and closes the connection at its
end. The chunk is therefore fetched whole; the chunks that follow are those that the same query read elsewhere.

`RangeCache` fetches byte ranges from stores, and keeps them within a memory budget. `ReadPattern` has the columns
and row groups that a query reads, and those that it will probably read next.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from array import array
from collections import OrderedDict
from collections.abc import Collection, Container, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.table.local_names import data_file
from delta_sharing_client.errors import DataError, StorageError
from delta_sharing_client.parquet.fetch import TAIL
from delta_sharing_client.parquet.read_units import ByteRange
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.priority_pool import DaemonPool
from delta_sharing_client.storage.byte_source import FileChanged, StorageReader, Transfers

#: Bytes of one request, and of one piece of a column chunk.
PIECE: Final = 4 * 1024 * 1024
#: Bytes of a column chunk that are requested ahead of a reader.
_WINDOW: Final = 64 * 1024 * 1024
#: Column chunks after the present one among which the next ones are looked for.
_NEXT_CHUNKS: Final = 64
#: Bytes after a footer.
_LENGTH_AND_MAGIC: Final = 8
#: Larger footers are not read by Spark.
MAX_FOOTER: Final = 64 * 1024 * 1024
#: Bytes of the footers that a plan keeps.
_FOOTERS: Final = 64 * 1024 * 1024

#: Seconds after which a request belongs to another query; fewer if a file is opened again. A file with several
#: splits is opened for each.
_IDLE: Final = 1.0
_IDLE_IF_OPENED_AGAIN: Final = 0.05
#: Maximum number of row groups that are requested ahead if the query skips some, and if it skips none.
_AHEAD_IF_SKIPPED: Final = 6
_AHEAD: Final = 64
#: Number of row groups, and bytes of them, that are requested ahead before the columns of the query are known; for
#: the first columns of a row group only.
_GUESSED: Final = 4
_GUESSED_BYTES: Final = 512 * 1024
_GUESSED_COLUMNS: Final = 2
#: Bytes of further row groups and files that are requested ahead.
_AHEAD_BYTES: Final = 128 * 1024 * 1024
#: Row groups of which the columns are compared.
_COMPARED: Final = 8

#: Number of a file, number of a row group in it.
RowGroup: TypeAlias = tuple[int, int]
#: The owner of a file, and an object that stands for its present content.
State: TypeAlias = tuple[object, object]
_Key: TypeAlias = tuple[State, int]


class _Piece:
    __slots__ = ("data", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.data: Future[memoryview] = Future()


class RangeCache:
    """Ranges of files, fetched by a thread pool; the least recently used ones are dropped first.

    Args:
        budget: maximum number of bytes, of ranges kept and requested ahead. A range that a reader waits for is
            fetched in any case.
        threads: maximum number of requests at a time.
    """

    def __init__(self, budget: int, threads: int) -> None:
        self.budget = budget
        self._pool = DaemonPool(threads, "delta-sharing-gateway")
        self._lock = threading.Lock()
        self._pieces: OrderedDict[_Key, _Piece] = OrderedDict()
        self._size = 0
        self._tickets = itertools.count()

    @property
    def size(self) -> int:
        """Bytes kept or under way."""
        return self._size

    def get(self, file: GatewayFile, piece: ByteRange) -> memoryview:
        """Return a range; waits until it is fetched.

        Raises:
            DeltaSharingError: it cannot be fetched.
        """
        start, stop = piece
        kept = self._pieces.get((file.state, start))
        if kept is None:
            self.request(file, [piece], ahead=False)
            kept = self._pieces.get((file.state, start))
        return file.fetch(start, stop) if kept is None else kept.data.result()

    def request(self, file: GatewayFile, pieces: Sequence[ByteRange], *, ahead: bool) -> None:
        """Fetch the ranges that are neither kept nor under way, neighbours in one request.

        Args:
            file: the file.
            pieces: its ranges, in order.
            ahead: whether no reader waits for them; then none is fetched that exceeds the budget.
        """
        runs: list[list[tuple[ByteRange, _Piece]]] = []
        with self._lock:
            for start, stop in pieces:
                key = file.state, start
                if key in self._pieces:
                    self._pieces.move_to_end(key)
                    continue
                if not self._make_room(stop - start) and ahead:
                    break
                piece = self._pieces[key] = _Piece(stop - start)
                self._size += piece.size
                if runs and runs[-1][-1][0][1] == start and stop - runs[-1][0][0][0] <= PIECE:
                    runs[-1].append(((start, stop), piece))
                else:
                    runs.append([((start, stop), piece)])
        for run in runs:
            try:
                self._pool.submit((int(ahead), next(self._tickets)), self._fetch, file, file.state, run)
            except BaseException as error:
                self._fail(file.state, run, error)
                raise

    def forget(self, owner: object) -> None:
        """Drop the ranges of an owner's files."""
        with self._lock:
            for key in [key for key in self._pieces if key[0][0] is owner]:
                self._size -= self._pieces.pop(key).size

    def close(self) -> None:
        """Drop everything; running requests are not waited for."""
        self._pool.close()
        with self._lock:
            pieces = list(self._pieces.values())
            self._pieces.clear()
            self._size = 0
        for piece in pieces:
            piece.data.cancel()  # wakes a reader of one that was never begun

    def _make_room(self, size: int) -> bool:
        """Drop the least recently used ranges that are complete; return whether `size` bytes fit."""
        if self._size + size > self.budget:
            for key, piece in list(self._pieces.items()):
                if piece.data.done():
                    del self._pieces[key]
                    self._size -= piece.size
                    if self._size + size <= self.budget:
                        break
        return self._size + size <= self.budget

    def _fetch(self, file: GatewayFile, state: State, run: list[tuple[ByteRange, _Piece]]) -> None:
        first, last = run[0][0][0], run[-1][0][1]
        try:
            data = file.fetch(first, last)
        except BaseException as error:  # noqa: BLE001  # raised again in the threads that wait
            self._fail(state, run, error)
            return
        for (start, stop), piece in run:
            if piece.data.set_running_or_notify_cancel():
                piece.data.set_result(data[start - first : stop - first])

    def _fail(self, state: State, run: list[tuple[ByteRange, _Piece]], error: BaseException) -> None:
        with self._lock:
            for (start, _), piece in run:
                if self._pieces.get((state, start)) is piece:
                    del self._pieces[state, start]
                    self._size -= piece.size
        for _, piece in run:
            if piece.data.set_running_or_notify_cancel():
                piece.data.set_exception(error)


@dataclass(frozen=True, slots=True)
class Expectation:
    """What a reader that requested a column chunk will probably request next.

    Attributes:
        columns: columns of the same row group, and of the next ones.
        neighbours: number of chunks after the requested one in the same row group.
        row_groups: number of next row groups.
        size: maximum bytes of their columns to request.
        files: the files that the query has read.
    """

    columns: frozenset[int]
    neighbours: int
    row_groups: int
    size: int
    files: frozenset[int]


class ReadPattern:
    """The row groups that a query has read; not thread-safe.

    A row group is complete when its reader has gone on: its columns are then those of the query.

    Args:
        readers: number of row groups that are read at a time.
    """

    def __init__(self, readers: int) -> None:
        self._readers = max(readers, 1)
        #: The columns read of each row group, in order; the one that was read last is at the end.
        self._read: OrderedDict[RowGroup, dict[int, None]] = OrderedDict()
        self._opened: set[int] = set()
        self._skips = False
        self._last = 0.0

    def open(self, file: int) -> None:
        """Note that a footer is read: a row group of the file will be read unless the query skips all of them."""
        if file in self._opened and time.monotonic() - self._last > _IDLE_IF_OPENED_AGAIN:
            self._begin()
        self._opened.add(file)

    def has_read(self, row_group: RowGroup, column: int) -> bool:
        """Return whether the beginning of a column chunk was requested."""
        return column in self._read.get(row_group, ())

    def read(self, row_group: RowGroup, column: int, row_group_columns: Collection[int]) -> Expectation:
        """Note that the beginning of a column chunk is requested; return what follows.

        Args:
            row_group: the row group.
            column: the column.
            row_group_columns: the columns of the row group up to this one, in the order in which they are stored.
        """
        now = time.monotonic()
        if now - self._last > _IDLE or self.has_read(row_group, column):
            self._begin()
            self._opened.add(row_group[0])
        self._last = now
        begins = row_group not in self._read
        columns = self._read.setdefault(row_group, {})
        columns[column] = None
        self._read.move_to_end(row_group)
        complete = self._complete()
        if complete:
            known = {number for each in complete[-_COMPARED:] for number in self._read[each]}
            count = self._row_groups(row_group, len(complete)) if begins else 0
            return self._expect({column} | known, 0, count, _AHEAD_BYTES)
        similar = [each for key, each in self._read.items() if key != row_group and column in each]
        neighbours = _neighbours(columns, row_group_columns)
        guessed = 0 if self._skips_before(row_group) or len(columns) > _GUESSED_COLUMNS else _GUESSED
        return self._expect({column, *(similar[-1] if similar else ())}, neighbours, guessed, _GUESSED_BYTES)

    def _begin(self) -> None:
        """Forget what the query before has read."""
        self._read.clear()
        self._opened.clear()
        self._skips = False

    def _expect(self, columns: set[int], neighbours: int, row_groups: int, size: int) -> Expectation:
        files = frozenset(file for file, _ in self._read)
        return Expectation(frozenset(columns), neighbours, row_groups, size, files)

    def _complete(self) -> list[RowGroup]:
        """Return the row groups of which all columns have been read, the latest last."""
        latest: dict[int, int] = {}
        for file, group in self._read:
            latest[file] = max(latest.get(file, 0), group)
        running = [each for each in self._read if each[1] == latest[each[0]]][-self._readers :]
        return [each for each in self._read if each not in running]

    def _row_groups(self, row_group: RowGroup, complete: int) -> int:
        """Return how many row groups to request ahead: few if the query skips row groups by their statistics."""
        self._skips = self._skips or self._skips_before(row_group)
        return min(complete, _AHEAD_IF_SKIPPED) if self._skips else min(2 ** min(complete, 10), _AHEAD)

    def _skips_before(self, row_group: RowGroup) -> bool:
        """Return whether the query has skipped the row group before this one, or whole files."""
        file, group = row_group
        read = {number for number, _ in self._read}
        return (group > 0 and (file, group - 1) not in self._read) or len(self._opened - read) > self._readers


def _neighbours(read: Collection[int], stored: Collection[int]) -> int:
    """Return how many chunks to request after one, if those before it were read one after the other."""
    run = 0
    for column in reversed(list(stored)[:-1]):
        if column not in read:
            break
        run += 1
    return 1 << run if run else 0


class FooterTooLarge(Exception):  # noqa: N818  # not an error: the package reads such a file
    """A footer is too large to be kept."""


class Layout:
    """Where the column chunks of a file are: in order, without overlap, before the footer at `stop`."""

    def __init__(self, footer: memoryview, stop: int) -> None:
        self.stop = stop
        self.starts, self.stops = array("q"), array("q")
        self.groups, self.columns = array("l"), array("l")
        position = 0
        for start, end, group, column in sorted(_chunks(footer)):
            if position <= start < end <= stop:  # a footer may be wrong
                self.starts.append(start)
                self.stops.append(end)
                self.groups.append(group)
                self.columns.append(column)
                position = end

    def chunk_at(self, position: int) -> int | None:
        """Return the index of the column chunk at a position; None if there is none."""
        index = bisect.bisect_right(self.starts, position) - 1
        return index if index >= 0 and position < self.stops[index] else None

    def pieces(self, position: int, stop: int) -> Iterator[ByteRange]:
        """Yield the pieces from that at `position` up to `stop`; each chunk, and each gap, has its own."""
        while position < stop:
            index = bisect.bisect_right(self.starts, position) - 1
            if index >= 0 and position < self.stops[index]:
                first, last = self.starts[index], self.stops[index]
            else:
                first = self.stops[index] if index >= 0 else 0
                last = self.starts[index + 1] if index + 1 < len(self.starts) else self.stop
            first += (position - first) // PIECE * PIECE
            yield first, min(first + PIECE, last)
            position = min(first + PIECE, last)

    def group_chunks(self, group: int, columns: Container[int]) -> list[int]:
        """Return the indices of the chunks of some columns in a row group."""
        return [i for i, g in enumerate(self.groups) if g == group and self.columns[i] in columns]


class GatewayFile:
    """One file of a plan. Several threads may use it.

    Args:
        plan: the plan.
        number: its place in the order in which Spark reads files.
        task: the file.
        folders: the folders of its partition values, each with a slash.
    """

    def __init__(self, plan: PlanFiles, number: int, task: FileScanTask, folders: str) -> None:
        self.number = number
        self.task = task
        self.folders = folders
        self._plan = plan
        self._lock = threading.Lock()
        self._footer: memoryview | None
        self._layout: Layout | None
        self._restart()

    def _restart(self) -> None:
        """Read the present content of the file."""
        self._changed = False
        self._footer = self._layout = None
        self.state: State = (self._plan, object())
        plan = self._plan
        self._source = plan.storage.source(self.task.url, self.task.file_id, self.task.size, plan.transfers)

    def fetch(self, start: int, stop: int) -> memoryview:
        """Return the bytes from `start` up to `stop`, from the store.

        Raises:
            StorageError: they cannot be read, or the file has changed.
            DataError: the file has another size.
        """
        data = memoryview(bytearray(stop - start))
        source = self._source
        try:
            if self._changed:
                raise FileChanged
            source.range(start, stop, data)
        except FileChanged:
            with self._lock:
                self._changed = self._changed or self._source is source
            raise self._change() from None
        if self._plan.transfers.budget is not None:
            self._plan.transfers.budget.give_back()
        return data.toreadonly()

    def _change(self) -> StorageError:
        text = "the file changed while Spark was reading it; run the query again"
        return StorageError(text, file_id=self.task.file_id)

    def _check(self, state: State) -> None:
        """Raise if a reader has begun again since `state`: what was read before does not fit the rest."""
        if self.state is not state:
            raise self._change()

    def footer(self) -> memoryview:
        """Return the end of the file with the whole footer; fetched once, unless the plan has dropped it.

        Raises:
            StorageError: it cannot be read, or the file has changed.
            DataError: the file does not end as Parquet does.
            FooterTooLarge: its footer has more than 64 MB.
        """
        self._plan.touch(self)
        with self._lock:
            footer, state = self._footer, self.state
        if footer is not None:
            return footer
        size, file_id = self.task.size, self.task.file_id
        tail = self.fetch(max(size - TAIL, 0), size)
        needed = int.from_bytes(tail[-_LENGTH_AND_MAGIC:-4], "little") + _LENGTH_AND_MAGIC
        if bytes(tail[-4:]) != b"PAR1" or needed > size:
            raise DataError("not a readable Parquet file: it does not end as one does", file_id=file_id)
        if needed > MAX_FOOTER:
            raise FooterTooLarge
        if needed > len(tail):
            tail = self.fetch(size - needed, size)
        with self._lock:
            self._check(state)
            self._footer = tail
        self._plan.keep(self, len(tail))
        return tail

    def drop_footer(self) -> None:
        """Free the memory of the footer."""
        with self._lock:
            self._footer = self._layout = None

    def layout(self) -> Layout:
        """Return where the column chunks are."""
        state = self.state
        footer = self.footer()
        with self._lock:
            self._check(state)
            if self._layout is None:
                self._layout = Layout(footer, self.task.size - len(footer))
            return self._layout

    def read(self, position: int) -> Iterator[memoryview]:
        """Yield the bytes from a position up to the end of its column chunk, or of the file from the footer on.

        Raises:
            DeltaSharingError: the store fails, or the file is damaged.
        """
        size = self.task.size
        with self._lock:
            if self._changed and position >= size - _LENGTH_AND_MAGIC:  # a reader begins
                self._restart()
            state = self.state
        footer = self.footer()
        if position >= size - len(footer):
            self._plan.opens(self)
            yield footer[position - size :]
            return
        layout = self.layout()
        cache = self._plan.cache
        index = layout.chunk_at(position)
        stop, window = position + 1, 0
        if index is not None and self._plan.reads_chunk(self, layout, index, position):
            stop, window = layout.stops[index], _WINDOW
        for piece in layout.pieces(position, stop):
            cache.request(self, list(layout.pieces(piece[0], min(piece[1] + window, stop))), ahead=False)
            data = cache.get(self, piece)
            self._check(state)
            yield data[position - piece[0] :]
            position = piece[1]


class PlanFiles:
    """The files of a plan that a gateway serves, and what was read of them.

    Args:
        files: the files, each with the folders of its partition values.
        storage: opens them.
        transfers: what their transfers share.
        cache: keeps what was fetched.
        readers: number of tasks that read files at a time.
    """

    def __init__(
        self,
        files: Sequence[tuple[FileScanTask, str]],
        storage: StorageReader,
        transfers: Transfers,
        cache: RangeCache,
        readers: int,
    ) -> None:
        self.storage = storage
        self.transfers = transfers
        self.cache = cache
        ordered = sorted(files, key=lambda file: -file[0].size)  # Spark reads the largest first
        self.files = [GatewayFile(self, number, *file) for number, file in enumerate(ordered)]
        self._names = {self.name_of(file): file for file in self.files}
        #: The folders that Spark lists.
        self.groups: list[list[GatewayFile]] = []
        self._lock = threading.Lock()
        self._footers: OrderedDict[int, int] = OrderedDict()
        self._footer_bytes = 0
        self._pattern = ReadPattern(readers)

    @staticmethod
    def name_of(file: GatewayFile) -> str:
        """Return the last part of a file's path."""
        return data_file(file.task.file_id)

    def named(self, name: str) -> GatewayFile | None:
        """Return the file whose path has this last part; None if there is none."""
        return self._names.get(name)

    def add_group(self, files: list[GatewayFile]) -> int:
        """Return the number of a new folder with these files."""
        with self._lock:
            self.groups.append(files)
            return len(self.groups) - 1

    def touch(self, file: GatewayFile) -> None:
        """Note the use of a footer."""
        with self._lock:
            if file.number in self._footers:
                self._footers.move_to_end(file.number)

    def keep(self, file: GatewayFile, size: int) -> None:
        """Note a footer that was fetched; the least recently used ones are dropped."""
        dropped = []
        with self._lock:
            self._footer_bytes += size - self._footers.pop(file.number, 0)
            self._footers[file.number] = size
            while self._footer_bytes > _FOOTERS and len(self._footers) > 1:
                number, size = self._footers.popitem(last=False)
                self._footer_bytes -= size
                dropped.append(self.files[number])
        for each in dropped:
            each.drop_footer()

    def reads_chunk(self, file: GatewayFile, layout: Layout, index: int, position: int) -> bool:
        """Return whether a request at `position` is for a whole column chunk; fetches what follows ahead then.

        A request within a chunk whose beginning was not requested is for single pages.
        """
        group, column = layout.groups[index], layout.columns[index]
        row_group = file.number, group
        first = bisect.bisect_left(layout.groups, group, hi=index)
        with self._lock:
            if position > layout.starts[index]:
                return self._pattern.has_read(row_group, column)
            expected = self._pattern.read(row_group, column, layout.columns[first : index + 1])
        for other in range(index + 1, min(index + 1 + _NEXT_CHUNKS, len(layout.starts))):
            if layout.groups[other] == group and (
                other - index <= expected.neighbours or layout.columns[other] in expected.columns
            ):
                self._ahead(file, layout, [other])
        if expected.row_groups:
            self._next_groups(file, group, expected)
        return True

    def opens(self, file: GatewayFile) -> None:
        """Note that Spark reads the footer of a file."""
        with self._lock:
            self._pattern.open(file.number)

    def _next_groups(self, file: GatewayFile, group: int, expected: Expectation) -> None:
        """Request the expected columns of the next row groups, of this file and those after it."""
        left, count = expected.size, expected.row_groups
        folders = {self.files[number].folders for number in expected.files}
        for each in self.files[file.number : file.number + 1 + count]:
            if len(folders) == 1 and each.folders not in folders:
                return
            layout = each.layout()
            groups = sorted(set(layout.groups))
            for number in groups[groups.index(group) + 1 if each is file else 0 :]:
                chunks = layout.group_chunks(number, expected.columns)
                left -= sum(layout.stops[i] - layout.starts[i] for i in chunks)
                count -= 1
                if count < 0 or left < 0:
                    return
                self._ahead(each, layout, chunks)

    def _ahead(self, file: GatewayFile, layout: Layout, chunks: Sequence[int]) -> None:
        pieces: list[ByteRange] = []
        for index in chunks:
            start = layout.starts[index]
            pieces += layout.pieces(start, min(layout.stops[index], start + _WINDOW))
        self.cache.request(file, pieces, ahead=True)


def _chunks(footer: memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield start, end, row group and column of each column chunk, as the footer has them."""
    try:
        metadata = pq.read_metadata(pa.BufferReader(pa.py_buffer(footer)))
    except (pa.ArrowException, OSError, ValueError):
        return
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column in range(metadata.num_columns):
            chunk = row_group.column(column)
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < (chunk.dictionary_page_offset or 0) < start:
                start = chunk.dictionary_page_offset
            yield start, start + chunk.total_compressed_size, group, column
