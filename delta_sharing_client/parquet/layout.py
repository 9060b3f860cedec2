"""What of a Parquet file has to be fetched: row groups that can hold a matching row, and their chunks.

A file's footer says where each column of each row group lies and between what bounds its values are. From
that comes a list of pieces, each a few row groups with the byte ranges of the columns that are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, is_float
from delta_sharing_client.model.partition_values import INTEGER_BITS, Value
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField

#: Bytes between two chunks that are rather fetched along than asked for apart.
GAP: Final = 64 * 1024
#: The most bytes to one request: larger spans go over several connections.
MAX_RANGE: Final = 8 * 1024 * 1024
#: Row groups are fetched and decoded together up to so many bytes of chunks.
PIECE: Final = 8 * 1024 * 1024
#: Fetched beyond each span: some old writers state chunks a little too short.
PADDING: Final = 128
_DAY: Final = 86_400_000_000

Span = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups that are fetched and decoded together.

    Attributes:
        groups: their numbers, ascending.
        spans: the byte ranges to fetch, half-open, ascending and apart from each other.
        decoded_size: about how many bytes they take when decoded.
    """

    groups: tuple[int, ...]
    spans: tuple[Span, ...]
    decoded_size: int

    @property
    def fetched_size(self) -> int:
        """Bytes to fetch."""
        return sum(stop - start for start, stop in self.spans)


@dataclass(frozen=True, slots=True)
class LocatedColumn:
    """Where a column of the table is in a file.

    Attributes:
        field: the column.
        leaves: its Parquet columns, ascending; none where the file does not hold it.
        value: its value throughout, where the file does not hold it; None for null.
    """

    field: StructField
    leaves: tuple[int, ...] = ()
    value: Value = None


def plan_pieces(
    metadata: pq.FileMetaData,
    columns: Sequence[LocatedColumn],
    predicate: Predicate | None,
    *,
    size: int,
    piece_size: int = PIECE,
    left_out: frozenset[int] = frozenset(),
    trust_times: bool = True,
) -> list[Piece]:
    """Say which row groups of a file to read, and which bytes that takes.

    Args:
        metadata: the file's footer.
        columns: the columns that are read, those of the row filter among them.
        predicate: the row filter; None where every row of the file is known to pass it.
        size: the file's size in bytes.
        piece_size: bytes of chunks up to which row groups are put together.
        left_out: row groups of which no row counts.
        trust_times: whether bounds of dates and times may be used; not for files in another calendar.

    Returns:
        The pieces in the file's order; row groups without rows or without a matching row are in none.
    """
    pieces: list[Piece] = []
    groups: list[int] = []
    chunks: list[Span] = []
    decoded = 0

    def finish() -> None:
        nonlocal decoded
        if groups:
            pieces.append(Piece(tuple(groups), coalesce(chunks, size), decoded))
        groups.clear()
        chunks.clear()
        decoded = 0

    leaves = sorted({leaf for column in columns for leaf in column.leaves})
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if not group.num_rows or number in left_out:
            continue
        # Statistics may leave a row group out, and vouch for none of its rows.
        if predicate is not None and not group_outcomes(group, columns, predicate, trust_times=trust_times) & TRUE:
            continue
        spans = [chunk_span(group.column(leaf)) for leaf in leaves]
        fetched = sum(stop - start for start, stop in chunks) + sum(stop - start for start, stop in spans)
        if groups and fetched > piece_size:
            finish()
        groups.append(number)
        chunks.extend(spans)
        decoded += sum(group.column(leaf).total_uncompressed_size for leaf in leaves) + group.num_rows
    finish()
    return pieces


def chunk_span(chunk: pq.ColumnChunkMetaData) -> Span:
    """The bytes of one column of one row group."""
    start = chunk.data_page_offset
    if chunk.dictionary_page_offset is not None and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return start, start + chunk.total_compressed_size


def coalesce(chunks: Sequence[Span], size: int, *, gap: int = GAP) -> tuple[Span, ...]:
    """Put spans together that lie side by side or nearly so; `size` is where the file ends."""
    merged: list[Span] = []
    for start, stop in sorted(chunks):
        stop = min(stop + PADDING, size)
        if start >= stop:
            continue
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        else:
            merged.append((start, stop))
    return tuple(merged)


def split(spans: Sequence[Span], *, most: int = MAX_RANGE) -> list[Span]:
    """Cut spans into requests of about equal length, none longer than `most`."""
    requests: list[Span] = []
    for start, stop in spans:
        count = -(-(stop - start) // most)
        step = -(-(stop - start) // count)
        requests.extend((begin, min(begin + step, stop)) for begin in range(start, stop, step))
    return requests


def group_outcomes(
    group: pq.RowGroupMetaData, columns: Sequence[LocatedColumn], predicate: Predicate, *, trust_times: bool = True
) -> int:
    """What a predicate can come out as over the rows of a row group; see `protocol.pruning`."""
    located = {column.field.name: column for column in columns}

    def bounds_of(field: StructField) -> ColumnBounds | None:
        column = located.get(field.name)
        if column is None:
            return None
        if not column.leaves:
            return ColumnBounds.constant(column.value)
        if len(column.leaves) != 1 or not isinstance(field.type, PrimitiveType | DecimalType):
            return None
        return _domain(group.column(column.leaves[0]), field, group.num_rows, trust_times=trust_times)

    return outcomes(predicate, bounds_of)


def _domain(
    chunk: pq.ColumnChunkMetaData, field: StructField, rows: int, *, trust_times: bool
) -> ColumnBounds | None:
    """What a chunk's statistics tell of a column; None for nothing."""
    statistics = chunk.statistics if chunk.is_stats_set else None
    if statistics is None or (chunk.num_values != rows):
        return None
    nulls = statistics.null_count if statistics.has_null_count else None
    if nulls is not None and nulls >= rows:
        return ColumnBounds(has_value=False)
    lower = upper = None
    if statistics.has_min_max:
        try:
            lower, upper = _bounds(statistics, chunk, field, trust_times=trust_times)
        except (ValueError, OverflowError, ArithmeticError, pa.ArrowException, TypeError):
            lower = upper = None
    return ColumnBounds(lower, upper, has_null=nulls != 0, may_be_nan=is_float(field.type))


def _bounds(
    statistics: Any, chunk: pq.ColumnChunkMetaData, field: StructField, *, trust_times: bool
) -> tuple[Value, Value]:
    kind = field.type
    logical = statistics.logical_type.type if statistics.logical_type is not None else "NONE"
    physical = chunk.physical_type
    if isinstance(kind, DecimalType):
        if logical == "DECIMAL":
            return statistics.min, statistics.max
        if physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
            return _integers(statistics)
        return None, None
    if not isinstance(kind, PrimitiveType):
        return None, None
    name = kind.name
    if name in INTEGER_BITS and physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
        return _integers(statistics)
    if name in ("float", "double"):
        if physical in ("INT32", "INT64") and logical in ("NONE", "INT"):
            return _integers(statistics)
        if physical in ("FLOAT", "DOUBLE"):
            low, high = float(statistics.min), float(statistics.max)
            # Where one of them is NaN, a NaN came between the others as they were compared.
            return (None, None) if low != low or high != high else (low, high)
    if name == "boolean" and physical == "BOOLEAN":
        return bool(statistics.min), bool(statistics.max)
    if name == "string" and physical == "BYTE_ARRAY" and logical in ("STRING", "NONE"):
        return _text(statistics.min), _text(statistics.max)
    if name == "date" and logical == "DATE" and trust_times:
        return statistics.min, statistics.max
    if name == "timestamp_ntz" and logical == "DATE" and trust_times:
        return int(statistics.min_raw) * _DAY, int(statistics.max_raw) * _DAY
    if name in ("timestamp", "timestamp_ntz") and logical == "TIMESTAMP" and physical == "INT64" and trust_times:
        return _micros(statistics)
    return None, None


def _integers(statistics: Any) -> tuple[Value, Value]:
    low, high = int(statistics.min), int(statistics.max)
    return low, high


def _text(value: Any) -> str | None:
    """A bound of a string column; None where it is cut inside a character."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return None


def _micros(statistics: Any) -> tuple[Value, Value]:
    text = statistics.logical_type.to_json()
    factor = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}
    for unit, (times, over) in factor.items():
        if unit in text:
            return int(statistics.min_raw) * times // over, int(statistics.max_raw) * times // over
    return None, None
