"""How many rows of a row group may be decoded at a time, so that they take no more memory than they should.

Few bytes of a Parquet file can stand for very many: a value that is stored once and meant in every row, numbers
that are all the same, lists of them. The bounds here come from the schema and from the headers of the pages, not
from what the footer says about sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_sharing_client.parquet import page_headers as pages
from delta_sharing_client.parquet.layout import LocatedColumn, chunk_span

_MIB: Final = 1024 * 1024
#: The fewest and the most bytes of rows to decode at a time, where nothing else limits them.
_STEPS: Final = (_MIB, 64 * _MIB)
#: Bytes that a value takes when it is decoded, by its physical type. Texts are not among them.
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 16, "FLOAT": 4, "DOUBLE": 8}
#: Up to so many steps are decoded at once, if that is all of a row group.
_ONCE: Final = 4
#: Logical types of columns that can be read as positions in a dictionary.
_TEXTS: Final = frozenset({"NONE", "STRING"})
#: Bytes for each text, and for each value in a list, besides its own: offsets and levels.
_OFFSET: Final = 8
#: How many times as large as its bytes a page may become, by the codec; others have no such bound.
_RATIOS: Final = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 255, "GZIP": 1032}
#: How many times as large as its bytes in the file a column of lists may become before its rows are looked at.
_USUAL: Final = 16


class BeyondLimitError(ValueError):
    """What would be decoded at once is beyond the limit."""


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """How much may be decoded at a time.

    Attributes:
        step: bytes of rows to decode at a time, if rows are smaller.
        batch: bytes that rows decoded together may take at the most, or one row.
    """

    step: int = _STEPS[1]
    batch: int = 1024 * _MIB

    @classmethod
    def of(cls, memory_budget: int, batch: int, decoders: int) -> DecodeLimits:
        """Return the limits of a load.

        Args:
            memory_budget: bytes that may be on their way in the load.
            batch: bytes that rows decoded together may take at the most.
            decoders: how many row groups are decoded side by side.
        """
        fewest, most = _STEPS
        return cls(min(max(memory_budget // (4 * decoders), fewest), most, batch), batch)


class Leaf(NamedTuple):
    """What matters of a Parquet column.

    Attributes:
        number: its number.
        width: bytes that a value takes when it is decoded; None for texts and binaries.
        levels: its highest repetition level; 0 where a row has one value.
        more: bytes that a value takes besides, in the table's types.
        path: what `read_dictionary` calls it, if it is a column of texts or binaries at the top; else None.
    """

    number: int
    width: int | None
    levels: int
    more: int = 0
    path: str | None = None


@dataclass(frozen=True, slots=True)
class Widths:
    """What rows of files of one schema take when they are decoded.

    Attributes:
        schema: the files' schema.
        leaves: the Parquet columns that are read.
        row: bytes that each row takes in the table's types, texts and elements of lists aside.
    """

    schema: pq.ParquetSchema
    leaves: tuple[Leaf, ...]
    row: int

    @classmethod
    def of(
        cls, schema: pq.ParquetSchema, columns: Sequence[LocatedColumn], types: Sequence[pa.DataType]
    ) -> Widths:
        """Find them out.

        Args:
            schema: the files' schema.
            columns: the columns of the table in such a file.
            types: their types in the table.
        """
        leaves: list[Leaf] = []
        row = 0
        for column, kind in zip(columns, types, strict=True):
            each, within = _target(kind)
            row += each
            for number in column.leaves:
                leaf = schema.column(number)
                width = _WIDTHS.get(leaf.physical_type)
                if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
                    width = max(leaf.length, 0) + 16
                levels = leaf.max_repetition_level
                is_text = width is None and leaf.logical_type.type in _TEXTS and not pa.types.is_nested(kind)
                # The elements in the table's types are counted with the first column that holds any.
                more, within = (within, 0) if levels else (0, within)
                leaves.append(Leaf(number, width, levels, more, leaf.path if is_text else None))
        return cls(schema, tuple(leaves), row)


def _target(kind: pa.DataType) -> tuple[int, int]:
    """Bytes of a value of a type: those of a row, and those of each element of the lists in it."""
    if pa.types.is_struct(kind):
        each = [_target(kind.field(position).type) for position in range(kind.num_fields)]
        return 1 + sum(row for row, _ in each), sum(element for _, element in each)
    if pa.types.is_map(kind):
        parts = [_target(kind.key_type), _target(kind.item_type)]
        return _OFFSET, _OFFSET + sum(sum(part) for part in parts)
    if pa.types.is_nested(kind):
        return _OFFSET, _OFFSET + sum(_target(kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _OFFSET, 0
    return max(kind.bit_width // 8, 1), 0


class Plan(NamedTuple):
    """How to decode a row group.

    Attributes:
        rows: how many rows to decode at a time; at least as many as it has for all at once.
        indexed: the columns to decode as positions in a dictionary, as `read_dictionary` calls them; what their
            texts come to is known then, and `parts_of` cuts the rows by it.
    """

    rows: int
    indexed: tuple[str, ...] = ()


def plan_steps(
    data: memoryview,
    group: pq.RowGroupMetaData,
    leaves: Sequence[Leaf],
    extra: int,
    limits: DecodeLimits,
) -> Plan:
    """Say how to decode a row group, so that no more is decoded at a time than should be.

    Args:
        data: the file's bytes; those of the columns' chunks are there.
        group: the row group, whose chunks the reader has looked at.
        leaves: the Parquet columns that are read.
        extra: bytes that each row takes besides, once it is decoded.
        limits: how much may be decoded at a time.

    Raises:
        BeyondLimitError: a page, or a single row, may take more than the limit.
        MalformedPageError: a page's header makes no sense.
    """
    rows: int = group.num_rows
    once = min(_ONCE * limits.step, limits.batch)
    if _quick_bound(data, group, leaves, rows, extra, once) <= once:
        return Plan(rows)
    fixed = extra + sum(leaf.width for leaf in leaves if leaf.width is not None and not leaf.levels)
    chunks = [_Chunk(data, group.column(leaf.number), leaf, rows, limits) for leaf in leaves]
    chunks = [chunk for chunk in chunks if chunk.most]
    for chunk in chunks:
        chunk.look_closer(limits)
    indexed = tuple([chunk.path for chunk in chunks if chunk.path is not None])
    if rows * fixed + sum(chunk.most for chunk in chunks) <= once:
        return Plan(rows, indexed)
    count = rows
    while count > 1:
        count = -(-count // 2)
        if count * fixed + sum(chunk.avoidable(count) for chunk in chunks) <= limits.step:
            return Plan(count, indexed)
    least = fixed + sum(chunk.taken(1) for chunk in chunks)
    if least > limits.batch:
        raise _beyond(f"a row of it may take {least:,} bytes when decoded", limits)
    return Plan(1, indexed)


def parts_of(table: pa.Table, extra: int, limits: DecodeLimits) -> Iterator[pa.Table]:
    """Cut decoded rows where they would take too much memory once texts stand in place of positions.

    Args:
        table: decoded rows.
        extra: bytes that each row takes besides, once it is decoded.
        limits: how much may be decoded at a time.

    Raises:
        BeyondLimitError: a row takes more than the limit.
    """
    indexed = [column for column in table.columns if _is_indexed(column.type)]
    if not indexed:
        yield table
        return
    rows = table.num_rows
    lengths = [[pc.binary_length(chunk.dictionary) for chunk in column.chunks] for column in indexed]
    bound = rows * extra
    for column, texts in zip(indexed, lengths, strict=True):
        for chunk, each in zip(column.chunks, texts, strict=True):
            bound += len(chunk) * (pc.max(each).as_py() or 0)
    if bound <= min(_ONCE * limits.step, limits.batch):
        yield table
        return
    sizes = np.full(rows, extra, np.int64)
    for column, texts in zip(indexed, lengths, strict=True):
        start = 0
        for chunk, each in zip(column.chunks, texts, strict=True):
            taken = each.take(chunk.indices).fill_null(0)
            sizes[start : start + len(chunk)] += taken.to_numpy(zero_copy_only=False)
            start += len(chunk)
    ends = np.cumsum(sizes)
    start = before = 0
    while start < rows:
        stop = max(int(np.searchsorted(ends, before + limits.step, side="right")), start + 1)
        size = int(ends[stop - 1]) - before
        if size > limits.batch:
            raise _beyond(f"a row of it takes {size:,} bytes when decoded", limits)
        yield table.slice(start, stop - start)
        start, before = stop, before + size


def _is_indexed(kind: pa.DataType) -> bool:
    """Whether a decoded column holds positions of texts or binaries in a dictionary."""
    if not pa.types.is_dictionary(kind):
        return False
    checks = (pa.types.is_string, pa.types.is_binary, pa.types.is_large_string, pa.types.is_large_binary)
    return any(check(kind.value_type) for check in checks)


def _quick_bound(
    data: memoryview, group: pq.RowGroupMetaData, leaves: Sequence[Leaf], rows: int, extra: int, once: int
) -> int:
    """A bound for what a row group takes, if it is made as most small ones are; else more than `once`."""
    fixed = extra
    total = 0
    for number, width, levels, _, _ in leaves:
        if levels:
            return once + 1
        chunk = group.column(number)
        fixed += _OFFSET if width is None else width
        if width is None:
            texts = pages.quick_bound(data, chunk_span(chunk)[0], rows)
            if texts is None:
                return once + 1
            total += texts
        elif _RATIOS.get(chunk.compression, once) * len(data) > once:
            return once + 1
    return total + rows * fixed


def _beyond(reason: str, limits: DecodeLimits) -> BeyondLimitError:
    return BeyondLimitError(f"{reason}; TransportOptions.batch_memory_limit allows {limits.batch:,}")


class _Chunk:
    """A column chunk whose size, when decoded, is not seen from the number of its rows."""

    def __init__(
        self, data: memoryview, metadata: pq.ColumnChunkMetaData, leaf: Leaf, rows: int, limits: DecodeLimits
    ) -> None:
        self._data = data
        self._leaf = leaf
        self._codec = metadata.compression
        self._rows = rows
        start, stop = chunk_span(metadata)
        self._stored = stop - start
        plain = leaf.width is not None and not leaf.levels
        if plain and _RATIOS.get(self._codec, limits.batch) * self._stored <= limits.batch:
            found = []  # none can be too large
        else:
            found = pages.pages_of(data, start, stop, metadata.num_values)
        largest = max([_held(page) for page in found], default=0)
        if largest > limits.batch:
            raise _beyond(f"a page of it takes {largest:,} bytes", limits)
        self._pages = [page for page in found if page.kind != pages.DICTIONARY]
        self._dictionary = next((page for page in found if page.kind == pages.DICTIONARY), None)
        self._values = sum(page.values for page in self._pages)
        self._windows: _Windows | None = None
        self._longest_row = 0
        #: What `read_dictionary` calls it, if it is to be decoded as positions in its dictionary.
        self.path: str | None = None
        # Bytes for each value, for each that is a position in the dictionary, and for each that may repeat
        # what stands before it.
        self._width = leaf.more + (leaf.width or 0) + (_OFFSET if leaf.levels or leaf.width is None else 0)
        self._indexed = self._entry = self._repeating = 0
        self._texts = [0] * len(self._pages)
        if leaf.width is not None:
            return
        self._indexed = sum(page.values for page in self._pages if page.by_index)
        if self._dictionary is not None:
            self._entry = max(self._dictionary.size - 4 * self._dictionary.values, 0)
        delta = [page.size for page in self._pages if page.encoding == pages.DELTA_BYTE_ARRAY]
        self._repeating = max(delta, default=0)
        # Of other pages the texts are no larger than the page.
        self._texts = [0 if page.by_index else page.size for page in self._pages]

    @property
    def most(self) -> int:
        """A bound for what all rows take together."""
        if self._leaf.width is not None and not self._leaf.levels:
            return 0  # counted with the row
        return self._of_values(self._values) + sum(self._texts)

    def look_closer(self, limits: DecodeLimits) -> None:
        """Look at the longest text of the dictionary, and at where rows start, if that may matter."""
        if self._suits_positions(limits):
            self.path, self._indexed = self._leaf.path, 0
            return
        if self._leaf.width is None:
            if self._dictionary is not None and self._indexed * self._entry > limits.step // 8:
                self._entry = pages.longest_entry(self._data, self._dictionary, self._codec)
            if not self._leaf.levels:
                numbers = np.cumsum([page.values for page in self._pages])
                first = numbers - [page.values for page in self._pages]
                self._windows = _Windows(first, numbers - 1, self._texts)
        if self._leaf.levels and self.most > max(4 * limits.step, _USUAL * self._stored):
            found = pages.rows_of(self._data, self._pages, self._codec, self._leaf.levels)
            self._longest_row = self._values if found is None else found.longest
            if found is not None:
                self._windows = _Windows(np.array(found.first), np.array(found.last), self._texts)

    def _suits_positions(self, limits: DecodeLimits) -> bool:
        """Whether it takes no longer to decode positions, and to look their texts up then."""
        dictionary = self._dictionary
        return (
            dictionary is not None
            and self._leaf.path is not None
            and self._indexed == self._values
            and dictionary.size <= limits.step
        )

    def taken(self, rows: int) -> int:
        """A bound for what so many rows take, those of a list of usual lengths; a row where rows are 1."""
        if self._leaf.width is not None and not self._leaf.levels:
            return 0
        if not self._leaf.levels:
            return self._of_values(rows) + (self._windows.of(rows) if self._windows is not None else 0)
        if self._longest_row:
            texts = sum(self._texts) if self._windows is None else self._windows.of(rows)
            return self._of_values(min(rows * self._longest_row, self._values)) + texts
        return -(-self.most * rows // max(self._rows, 1))

    def avoidable(self, rows: int) -> int:
        """The same, less what fewer rows would not spare: a page is there as a whole."""
        return self.taken(rows) - (self._windows.of(1) if self._windows is not None else 0)

    def _of_values(self, values: int) -> int:
        each = self._width + self._repeating
        return values * each + min(values, self._indexed) * self._entry


def _held(page: pages.Page) -> int:
    """Bytes of memory that a page takes; of the texts in a dictionary the reader makes a list."""
    texts = min(page.values, page.size // 4) if page.kind == pages.DICTIONARY else 0
    return page.size + 16 * texts


class _Windows:
    """What the pages come to that hold so many rows one after the other.

    Args:
        first: the row that each page begins with or within.
        last: the row that it ends with or within.
        sizes: what it holds, in bytes.
    """

    def __init__(self, first: np.ndarray, last: np.ndarray, sizes: Sequence[int]) -> None:
        self._first = first
        self._last = last
        self._sums = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])

    def of(self, rows: int) -> int:
        """Return a bound for so many rows, wherever they start."""
        # Rows that start with the last one of a page reach into those that begin before they end.
        stops = np.searchsorted(self._first, self._last + rows, side="left")
        return int((self._sums[stops] - self._sums[:-1]).max(initial=0))
