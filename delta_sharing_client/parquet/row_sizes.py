"""Upper bounds for the memory of decoded rows, and from them the number of rows to decode at a time.

A few bytes of a Parquet file can stand for gigabytes: a dictionary value in every row, runs of equal numbers,
lists of them. The bounds come from the schema and from page headers; the sizes in the footer are not trusted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.page_headers import (
    CHUNK_PADDING,
    DELTA_BYTE_ARRAY,
    DICTIONARY,
    ParquetPage,
    longest_row,
    read_pages,
)
from delta_sharing_client.parquet.read_units import LocatedColumn, chunk_range

_MIB: Final = 1024 * 1024
#: The smallest and the largest step in bytes.
_STEPS: Final = (_MIB, 64 * _MIB)
#: Bytes of a decoded value by its physical type. Strings and binaries have no fixed width.
_WIDTHS: Final = {"BOOLEAN": 1, "INT32": 4, "INT64": 8, "INT96": 16, "FLOAT": 4, "DOUBLE": 8}
#: Texts of so many rows are looked up in less time than a reader for dictionary indices is opened.
_INDEXED_ROWS: Final = 10_000
#: A row group of up to so many steps is decoded at once.
_STEPS_AT_ONCE: Final = 4
#: Logical types of columns that can be read as dictionary indices.
_TEXTS: Final = frozenset({"NONE", "STRING"})
#: Bytes of a string besides its text, and of a list element besides its value: offsets and levels.
_OFFSET: Final = 8
#: The greatest expansion of a page by its codec; other codecs have no such bound.
_EXPANSIONS: Final = {"UNCOMPRESSED": 1, "SNAPPY": 22, "LZ4": 255, "GZIP": 1032, "ZSTD": 32_768}
#: Stands for a size without a bound.
_UNBOUNDED: Final = 1 << 62
#: Lists that expand more than so many times have their longest row looked up; other lists are taken as even.
_COMMON_EXPANSION: Final = 16

#: Returns the length of the longest text in the dictionary of a column; None if unknown.
LongestText: TypeAlias = "Callable[[Leaf], int | None]"


class BeyondLimitError(ValueError):
    """Rows that must be decoded together exceed the limit."""


class DecodeLimits(Struct, frozen=True):
    """How much is decoded at a time.

    Attributes:
        step: bytes of rows to decode at a time, if rows are smaller.
        batch: maximum bytes of rows that are decoded together, or of one row.
        footer: maximum bytes of a footer.
    """

    step: int = _STEPS[1]
    batch: int = 1024 * _MIB
    footer: int = 64 * _MIB

    @classmethod
    def of(cls, memory_budget: int, decoders: int, options: TransportOptions) -> DecodeLimits:
        """Return the limits of a load with a memory budget in bytes and a number of parallel decoders."""
        step = min(max(memory_budget // (4 * decoders), _STEPS[0]), _STEPS[1], options.batch_memory_limit)
        return cls(step, options.batch_memory_limit, options.metadata_limit)


class Leaf(NamedTuple):
    """A Parquet column that is read.

    Attributes:
        number: its index.
        path: its dotted path.
        width: bytes of a decoded value; None for strings and binaries.
        max_level: its highest repetition level; 0 if a row has one value.
        extra: more bytes for each value in the table's types.
        is_text: whether it is a column of strings or binaries outside of nested types.
    """

    number: int
    path: str
    width: int | None
    max_level: int
    extra: int = 0
    is_text: bool = False

    @property
    def is_fixed(self) -> bool:
        """Whether all rows have the same size."""
        return self.width is not None and not self.max_level


class Widths(Struct, frozen=True):
    """Sizes of rows of files with equal Parquet schemas.

    Attributes:
        schema: the schema.
        leaves: the Parquet columns that are read.
        row: bytes of each row, without texts and list elements: as decoded, and in the table's types.
    """

    schema: pq.ParquetSchema
    leaves: tuple[Leaf, ...]
    row: int

    @classmethod
    def of(
        cls, schema: pq.ParquetSchema, columns: Sequence[LocatedColumn], types: Sequence[pa.DataType]
    ) -> Widths:
        """Return the sizes for columns that are located in the files, and their types in the table."""
        leaves: list[Leaf] = []
        row = 0
        for column, kind in zip(columns, types, strict=True):
            each, within = _target_width(kind)
            row += each
            for number in column.leaves:
                leaf = schema.column(number)
                width = _WIDTHS.get(leaf.physical_type)
                if leaf.physical_type == "FIXED_LEN_BYTE_ARRAY":
                    width = max(leaf.length, 0) + 16
                level = leaf.max_repetition_level
                is_text = width is None and leaf.logical_type.type in _TEXTS and not pa.types.is_nested(kind)
                # The elements in the table's types are counted with the first repeated column.
                extra, within = (within, 0) if level else (0, within)
                row += width if width is not None and not level else 0
                leaves.append(Leaf(number, leaf.path, width, level, extra, is_text))
        return cls(schema, tuple(leaves), row)


def _target_width(kind: pa.DataType) -> tuple[int, int]:
    """Return the bytes of a value of a type for each row, and those for each element of its lists."""
    if pa.types.is_struct(kind):
        each = [_target_width(kind.field(position).type) for position in range(kind.num_fields)]
        return 1 + sum(row for row, _ in each), sum(element for _, element in each)
    if pa.types.is_map(kind):
        return _OFFSET, _OFFSET + sum(_target_width(kind.key_type)) + sum(_target_width(kind.item_type))
    if pa.types.is_nested(kind):
        return _OFFSET, _OFFSET + sum(_target_width(kind.value_type))
    if pa.types.is_null(kind) or pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _OFFSET, 0
    return max(kind.bit_width // 8, 1), 0


class DecodePlan(NamedTuple):
    """How a row group is decoded.

    Attributes:
        rows: rows to decode at a time.
        indexed: paths of the columns to decode as dictionary indices. The lengths of their texts are known then,
            and `split_indexed` cuts the rows by them.
    """

    rows: int
    indexed: tuple[str, ...] = ()


def plan_steps(
    data: memoryview,
    group: pq.RowGroupMetaData,
    leaves: Sequence[Leaf],
    extra: int,
    limits: DecodeLimits,
    longest_text: LongestText,
) -> DecodePlan:
    """Return how to decode a row group within the limits.

    `extra` is the bytes of each row besides texts and list elements. The column chunks must be present.

    Raises:
        BeyondLimitError: a page or a row may exceed the limit.
        MalformedPageError: a page header is malformed.
    """
    rows: int = group.num_rows
    at_once = min(_STEPS_AT_ONCE * limits.step, limits.batch)
    most = rows * extra
    variable = []
    for leaf in leaves:
        metadata = group.column(leaf.number)
        # The pages cannot have more bytes, whatever their headers state.
        stored = metadata.total_compressed_size + CHUNK_PADDING
        size = stored * _EXPANSIONS.get(metadata.compression, _UNBOUNDED)
        if not leaf.is_fixed:
            size = _UNBOUNDED if leaf.max_level else (rows + 1) * (size + leaf.extra + _OFFSET)
            variable.append((size, leaf, metadata))
            most += size
        elif size > limits.batch:
            _Chunk(data, metadata, leaf, rows, limits)
    variable.sort(key=itemgetter(0))
    chunks = []
    while variable and (most > at_once or (rows >= _INDEXED_ROWS and variable[-1][1].is_text)):
        size, leaf, metadata = variable.pop()
        chunk = _Chunk(data, metadata, leaf, rows, limits)
        if rows >= _INDEXED_ROWS:
            chunk.index(limits)
        chunks.append(chunk)
        most += chunk.bound(rows) - size
    for chunk in sorted(chunks, key=lambda chunk: chunk.bound(rows), reverse=True):
        if most <= at_once:
            break
        most -= chunk.bound(rows)
        chunk.refine(limits, longest_text)
        most += chunk.bound(rows)
    indexed = tuple(chunk.leaf.path for chunk in chunks if chunk.indexed)
    count = rows
    if most > at_once:
        # Fewer rows do not shrink what one row needs: a page is decoded as a whole.
        while count > 1 and count * extra + sum(c.bound(count) - c.page_bound for c in chunks) > limits.step:
            count = -(-count // 2)
    if count == 1 and (size := extra + sum(chunk.bound(1) for chunk in chunks)) > limits.batch:
        raise _beyond(f"a row of it may take {size:,} bytes when decoded", limits)
    return DecodePlan(count, indexed)


def split_indexed(table: pa.Table, extra: int, limits: DecodeLimits) -> Iterator[pa.Table]:
    """Cut rows that hold dictionary indices, so that each part stays within the limits with its texts.

    `extra` is the bytes of each row besides its texts.

    Raises:
        BeyondLimitError: a row exceeds the limit.
    """
    indexed = [column for column in table.columns if _is_indexed(column.type)]
    rows, at_once = table.num_rows, min(_STEPS_AT_ONCE * limits.step, limits.batch)
    lengths = [[pc.binary_length(chunk.dictionary) for chunk in column.chunks] for column in indexed]
    longest = [max([pc.max(each).as_py() or 0 for each in chunks], default=0) for chunks in lengths]
    if not indexed or rows * (extra + sum(longest)) <= at_once:
        yield table
        return
    sizes = np.full(rows, extra, np.int64)
    for column, chunks in zip(indexed, lengths, strict=True):
        start = 0
        for chunk, each in zip(column.chunks, chunks, strict=True):
            taken = each.take(chunk.indices).fill_null(0)
            sizes[start : start + len(chunk)] += taken.to_numpy(zero_copy_only=False)
            start += len(chunk)
    ends = np.cumsum(sizes)
    if ends[-1] <= at_once:
        yield table
        return
    start = before = 0
    while start < rows:
        stop = max(int(np.searchsorted(ends, before + limits.step, side="right")), start + 1)
        size = int(ends[stop - 1]) - before
        if size > limits.batch:
            raise _beyond(f"a row of it takes {size:,} bytes when decoded", limits)
        yield table.slice(start, stop - start)
        start, before = stop, before + size


def _is_indexed(kind: pa.DataType) -> bool:
    texts = pa.string(), pa.binary(), pa.large_string(), pa.large_binary()
    return bool(pa.types.is_dictionary(kind) and kind.value_type in texts)


def _beyond(reason: str, limits: DecodeLimits) -> BeyondLimitError:
    return BeyondLimitError(f"{reason}; TransportOptions.batch_memory_limit allows {limits.batch:,}")


class _Chunk:
    """Upper bounds for the decoded size of one column chunk.

    Attributes:
        leaf: its Parquet column.
        indexed: whether to decode it as dictionary indices.
        page_bound: bytes of the texts in the pages of one row.
    """

    def __init__(
        self, data: memoryview, metadata: pq.ColumnChunkMetaData, leaf: Leaf, rows: int, limits: DecodeLimits
    ) -> None:
        self.leaf = leaf
        self.indexed = False
        self.page_bound = 0
        self._data = data
        self._codec = metadata.compression
        start, stop = chunk_range(metadata)
        self._stored = stop - start
        self._pages: list[ParquetPage] = []
        self._dictionary: ParquetPage | None = None
        self._rows = rows
        # Bytes of each value, of each dictionary index besides, and of the texts in each page.
        self._width = leaf.extra + (leaf.width or 0)
        self._values = self._dictionary_values = self._entry = repeated = 0
        self._texts: list[int] = []
        for page in read_pages(data, start, stop, metadata.num_values):
            is_dictionary = page.kind == DICTIONARY
            # The reader makes a list of the texts in a dictionary.
            size = page.size + is_dictionary * 16 * min(page.values, page.size // 4)
            if size > limits.batch:
                raise _beyond(f"a page of it takes {size:,} bytes", limits)
            if is_dictionary:
                self._dictionary = page
                self._entry = max(page.size - 4 * page.values, 0)
                continue
            self._pages.append(page)
            self._values += page.values
            texts = 0
            if leaf.width is None and page.uses_dictionary:
                self._dictionary_values += page.values
            elif leaf.width is None:
                texts = page.size
                if page.encoding == DELTA_BYTE_ARRAY:
                    # Each value of this encoding may repeat the values before it in its page.
                    repeated = max(repeated, texts)
            self._texts.append(texts)
        self._row_values: float = self._values / max(rows, 1) if leaf.max_level else 1
        self._width += repeated
        if leaf.width is None or leaf.max_level:
            self._width += _OFFSET

    def bound(self, rows: int) -> int:
        """Return the bytes of so many consecutive rows at most."""
        values = min(int(rows * self._row_values) + bool(self.leaf.max_level), self._values)
        return values * self._width + min(values, self._dictionary_values) * self._entry + self._text_bound(values)

    def _text_bound(self, values: int) -> int:
        """Return the bytes of the pages that hold so many consecutive values at most."""
        if values >= self._values:
            return sum(self._texts)
        counts = np.array([page.values for page in self._pages])
        first = np.cumsum(counts) - counts
        # Values that start with the last one of a page.
        stops = np.searchsorted(first, first + counts - 1 + values, side="left")
        sums = np.concatenate([[0], np.cumsum(self._texts, dtype=np.int64)])
        return int((sums[stops] - sums[:-1]).max(initial=0))

    def index(self, limits: DecodeLimits) -> None:
        """Decode the column as dictionary indices, if that is possible and its dictionary is not too large."""
        dictionary = self._dictionary
        # Not if only some pages use the dictionary: the reader would hash each text of the others.
        if dictionary is not None and self.leaf.is_text and self._dictionary_values == self._values:
            self.indexed = dictionary.size <= limits.step
        if self.indexed:
            self._dictionary_values = 0

    def refine(self, limits: DecodeLimits, longest_text: LongestText) -> None:
        """Look closer, where that may allow larger steps: at the dictionary and at the repetition levels."""
        self.index(limits)
        if self.indexed:
            return
        if self._dictionary_values * self._entry > limits.step // 8:
            found = longest_text(self.leaf) if self._pages and self._pages[0].uses_dictionary else None
            self._entry = self._entry if found is None else min(found, self._entry)
        level = self.leaf.max_level
        if level and self.bound(self._rows) > max(4 * limits.step, _COMMON_EXPANSION * self._stored):
            longest = longest_row(self._data, self._pages, self._codec, level)
            self._row_values = self._values if longest is None else longest
        self.page_bound = self._text_bound(int(self._row_values) or 1)
