"""Read units of a Parquet file: row groups that may have matching rows, with the byte ranges of their columns.

Both come from the footer, which is checked: the offsets of the column chunks, and the statistics by which row
groups are skipped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, is_float
from delta_sharing_client.model.partition_values import INTEGER_BITS, Value
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField
from delta_sharing_client.parquet.tasks import FileScanTask

#: Maximum bytes between two chunks that are fetched with one request.
GAP: Final = 64 * 1024
#: Maximum bytes of a request: larger ranges are split over several connections.
MAX_RANGE: Final = 8 * 1024 * 1024
#: Row groups are fetched and decoded together up to so many bytes of chunks.
READ_UNIT_SIZE: Final = 8 * 1024 * 1024
#: Bytes fetched after each range: some old writers state too short chunks.
PADDING: Final = 128
_DAY: Final = 86_400_000_000
#: Factor and divisor to microseconds by the unit of timestamps.
_MICROS: Final = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}

#: First offset, and the offset after the last byte.
ByteRange: TypeAlias = tuple[int, int]


@dataclass(frozen=True, slots=True)
class ReadUnit:
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


@dataclass(frozen=True, slots=True)
class LocatedColumn:
    """A column of the table, located in a file.

    Attributes:
        field: the column.
        leaves: its Parquet columns, ascending; empty if the file does not have it.
        value: its constant value if the file does not have it; None for null.
    """

    field: StructField
    leaves: tuple[int, ...] = ()
    value: Value = None


def matching_groups(
    metadata: pq.FileMetaData,
    columns: Sequence[LocatedColumn],
    predicate: Predicate | None,
    *,
    skipped: frozenset[int] = frozenset(),
    use_time_statistics: bool = True,
) -> Iterator[int]:
    """Yield the row groups of a file to read: those with rows that may match.

    Args:
        metadata: the file's footer.
        columns: the columns that are read, those of the row filter included.
        predicate: the row filter; None if every row of the file passes it.
        skipped: row groups without any row to return.
        use_time_statistics: use statistics of dates and times; False for files in another calendar.
    """
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows or number in skipped:
            continue
        if (
            predicate is None
            or group_outcomes(group, columns, predicate, use_time_statistics=use_time_statistics) & TRUE
        ):
            yield number


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


def split(ranges: Sequence[ByteRange], *, most: int = MAX_RANGE) -> list[ByteRange]:
    """Split ranges into requests of about equal length, none longer than `most`."""
    requests: list[ByteRange] = []
    for start, stop in ranges:
        count = -(-(stop - start) // most)
        step = -(-(stop - start) // count)
        requests.extend((begin, min(begin + step, stop)) for begin in range(start, stop, step))
    return requests


def group_outcomes(
    group: pq.RowGroupMetaData,
    columns: Sequence[LocatedColumn],
    predicate: Predicate,
    *,
    use_time_statistics: bool = True,
) -> int:
    """Return the possible outcomes of a predicate over a row group; see `column_bounds.outcomes`."""
    located = {column.field.name: column for column in columns}

    def bounds_of(field: StructField) -> ColumnBounds | None:
        column = located.get(field.name)
        if column is None:
            return None
        if not column.leaves:
            return ColumnBounds.constant(column.value)
        if len(column.leaves) != 1 or not isinstance(field.type, PrimitiveType | DecimalType):
            return None
        return _column_bounds(
            group.column(column.leaves[0]), field, group.num_rows, use_time_statistics=use_time_statistics
        )

    possible: int = outcomes(predicate, bounds_of)
    return possible


def _column_bounds(
    chunk: pq.ColumnChunkMetaData, field: StructField, rows: int, *, use_time_statistics: bool
) -> ColumnBounds | None:
    """Return the bounds in a chunk's statistics; None if there are none."""
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or (chunk.num_values != rows):
        return None
    nulls = statistics.null_count if statistics.has_null_count else None
    if nulls is not None and nulls >= rows:
        return ColumnBounds(has_value=False)
    lower = upper = None
    if statistics.has_min_max:
        try:
            lower, upper = _bounds(statistics, chunk, field, use_time_statistics=use_time_statistics)
        except (ValueError, OverflowError, ArithmeticError, pa.ArrowException, TypeError):
            lower = upper = None
    return ColumnBounds(lower, upper, has_null=nulls != 0, may_be_nan=is_float(field.type))


def _bounds(
    statistics: Any, chunk: pq.ColumnChunkMetaData, field: StructField, *, use_time_statistics: bool
) -> tuple[Value, Value]:
    logical = statistics.logical_type.type if statistics.logical_type is not None else "NONE"
    physical = chunk.physical_type
    name = field.type.name if isinstance(field.type, PrimitiveType) else "decimal"
    bounds: tuple[Value, Value] = (None, None)
    if physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
        if name in INTEGER_BITS or name in ("decimal", "float", "double"):
            bounds = int(statistics.min), int(statistics.max)
    elif name in ("float", "double") and physical in ("FLOAT", "DOUBLE"):
        low, high = float(statistics.min), float(statistics.max)
        # A NaN among the bounds means that the writer compared values with NaN.
        bounds = (None, None) if low != low or high != high else (low, high)
    elif name == "string" and physical == "BYTE_ARRAY" and logical in ("STRING", "NONE"):
        bounds = _text(statistics.min), _text(statistics.max)
    elif (name == "decimal" and logical == "DECIMAL") or (name == "boolean" and physical == "BOOLEAN"):
        bounds = statistics.min, statistics.max
    elif use_time_statistics and logical == "DATE":
        if name == "date":
            bounds = statistics.min, statistics.max
        elif name == "timestamp_ntz":
            bounds = int(statistics.min_raw) * _DAY, int(statistics.max_raw) * _DAY
    elif (
        use_time_statistics
        and logical == "TIMESTAMP"
        and physical == "INT64"
        and name in ("timestamp", "timestamp_ntz")
    ):
        unit = statistics.logical_type.to_json()
        for name, (times, over) in _MICROS.items():
            if name in unit:
                bounds = int(statistics.min_raw) * times // over, int(statistics.max_raw) * times // over
    return bounds


def _text(value: Any) -> str | None:
    """Return a bound of a string column; None if it is truncated within a character."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None
