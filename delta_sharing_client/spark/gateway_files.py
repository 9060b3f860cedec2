"""Files of a gateway: which bytes a reader needs next, by the footer and by what was read before.

A request of WebHDFS names no end. Spark reads a column chunk from its beginning, and closes the connection at its
end. The chunk is therefore fetched whole; the chunks that follow are those that the same query read elsewhere.
"""

from __future__ import annotations

import bisect
import threading
from array import array
from collections import OrderedDict
from collections.abc import Container, Iterator, Sequence
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.delta.table.local_names import data_file
from delta_sharing_client.errors import DataError, StorageError
from delta_sharing_client.parquet.fetch import TAIL
from delta_sharing_client.parquet.read_units import ByteRange
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.spark.gateway_cache import PIECE, RangeCache, State
from delta_sharing_client.spark.read_pattern import Expectation, ReadPattern
from delta_sharing_client.storage.byte_source import FileChanged, StorageReader, Transfers

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
