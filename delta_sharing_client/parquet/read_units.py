"""Read units of a Parquet file: row groups with the byte ranges of their columns.

Both come from the footer, which is checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import pyarrow.parquet as pq
from msgspec import Struct

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import StructField
from delta_sharing_client.parquet.tasks import FileScanTask

#: Maximum bytes between two chunks that are fetched with one request.
GAP: Final = 64 * 1024
#: Row groups are fetched and decoded together up to so many bytes of chunks.
READ_UNIT_SIZE: Final = 8 * 1024 * 1024
#: Bytes fetched after each range: some old writers state too short chunks.
PADDING: Final = 128

#: First offset, and the offset after the last byte.
ByteRange: TypeAlias = tuple[int, int]


class ReadUnit(Struct, frozen=True):
    """Row groups that are fetched and decoded together.

    Attributes:
        groups: their numbers, ascending.
        ranges: the byte ranges to fetch, ascending and disjoint.
        decoded_size: the expected number of bytes when decoded.
    """

    groups: tuple[int, ...]
    ranges: tuple[ByteRange, ...]
    decoded_size: int

    @property
    def fetched_size(self) -> int:
        """Bytes to fetch."""
        return sum(stop - start for start, stop in self.ranges)


class LocatedColumn(Struct, frozen=True):
    """A column of the table, located in a file.

    Attributes:
        field: the column.
        leaves: its Parquet columns, ascending; empty if the file does not have it.
        value: its constant value if the file does not have it; None for null.
    """

    field: StructField
    leaves: tuple[int, ...] = ()
    value: Value = None


def plan_read_units(
    metadata: pq.FileMetaData,
    numbers: Iterable[int],
    leaves: Sequence[int],
    *,
    size: int,
    unit_size: int = READ_UNIT_SIZE,
) -> list[ReadUnit]:
    """Return the read units for row groups of a file, with the byte ranges of its Parquet columns `leaves`.

    `size` is the file's size in bytes, `unit_size` the maximum bytes of chunks of several row groups in one unit.
    """
    units: list[ReadUnit] = []
    groups: list[int] = []
    chunks: list[ByteRange] = []
    fetched = decoded = 0
    for number in numbers:
        group = metadata.row_group(number)
        ranges = [chunk_range(group.column(leaf)) for leaf in leaves]
        length = sum(stop - start for start, stop in ranges)
        if groups and fetched + length > unit_size:
            units.append(ReadUnit(tuple(groups), coalesce(chunks, size), decoded))
            groups, chunks, fetched, decoded = [], [], 0, 0
        groups.append(number)
        chunks += ranges
        fetched += length
        decoded += sum(group.column(leaf).total_uncompressed_size for leaf in leaves) + group.num_rows
    if groups:
        units.append(ReadUnit(tuple(groups), coalesce(chunks, size), decoded))
    return units


def chunk_range(chunk: pq.ColumnChunkMetaData) -> ByteRange:
    """Return the byte range of a column chunk."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def row_counts(metadata: pq.FileMetaData, task: FileScanTask) -> Iterator[int]:
    """Yield the number of rows of each row group, by the footer."""
    for number in range(metadata.num_row_groups):
        rows = metadata.row_group(number).num_rows
        if rows < 0:
            raise DataError(f"row group {number} has {rows} rows in the footer", file_id=task.file_id)
        yield rows


def check_chunks(
    metadata: pq.FileMetaData, reader: Any, leaves: Sequence[int], task: FileScanTask, *, has_predicate: bool
) -> None:
    """Raise if the footer's descriptions of column chunks are malformed or contradict each other."""
    schema = metadata.schema
    # A column with one value for each row; the decoder does not compare the number of its values with the rows.
    flat = next((n for n in range(metadata.num_columns) if not schema.column(n).max_repetition_level), None)
    touched = leaves if flat is None or flat in leaves else sorted([*leaves, flat])
    if not touched:
        return
    # Statistics of another type than the column's would abort the process. The decoder does not use them.
    types = [schema.column(leaf).physical_type for leaf in touched] if has_predicate else None
    for number in range(metadata.num_row_groups):
        # The reader checks the chunks without reading data. If Python code accessed a malformed chunk first,
        # pyarrow would abort the process.
        for _ in reader.iter_batches(0, row_groups=[number], column_indices=touched, use_threads=False):
            pass
        group = metadata.row_group(number)
        if types is not None and [group.column(leaf).physical_type for leaf in touched] != types:
            raise DataError(f"the footer contradicts itself in row group {number}", file_id=task.file_id)
        if flat is not None and (values := group.column(flat).num_values) != group.num_rows:
            raise DataError(
                f"row group {number} has {group.num_rows} rows in the footer, and a column of it {values} values",
                file_id=task.file_id,
            )


def coalesce(chunks: Sequence[ByteRange], size: int, *, gap: int = GAP) -> tuple[ByteRange, ...]:
    """Merge ranges at most `gap` bytes apart; `size` is the size of the file."""
    merged: list[ByteRange] = []
    for start, stop in sorted(chunks):
        stop = min(stop + PADDING, size)
        if start >= stop:
            continue
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def split(ranges: Sequence[ByteRange], most: int) -> list[ByteRange]:
    """Split ranges into requests of about equal length, none longer than `most`."""
    requests: list[ByteRange] = []
    for start, stop in ranges:
        count = -(-(stop - start) // most)
        step = -(-(stop - start) // count)
        requests.extend((begin, min(begin + step, stop)) for begin in range(start, stop, step))
    return requests
