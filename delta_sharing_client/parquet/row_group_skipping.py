"""Row groups of a Parquet file that may have matching rows, by the statistics in the footer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, is_float
from delta_sharing_client.model.partition_values import INTEGER_BITS, Value
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField
from delta_sharing_client.parquet.read_units import LocatedColumn

_DAY: Final = 86_400_000_000
#: Factor and divisor to microseconds by the unit of timestamps.
_MICROS: Final = {"milliseconds": (1000, 1), "microseconds": (1, 1), "nanoseconds": (1, 1000)}


def matching_groups(
    numbers: Iterable[int],
    metadata: pq.FileMetaData,
    columns: Sequence[LocatedColumn],
    predicate: Predicate,
    *,
    use_time_statistics: bool = True,
) -> Iterator[int]:
    """Yield the row groups of a file with rows that may match.

    Args:
        numbers: the row groups to look at.
        metadata: the file's footer.
        columns: the columns that are read, those of the row filter included.
        predicate: the row filter.
        use_time_statistics: use statistics of dates and times; False for files in another calendar.
    """
    for number in numbers:
        group = metadata.row_group(number)
        if _group_outcomes(group, columns, predicate, use_time_statistics=use_time_statistics) & TRUE:
            yield number


def _group_outcomes(
    group: pq.RowGroupMetaData,
    columns: Sequence[LocatedColumn],
    predicate: Predicate,
    *,
    use_time_statistics: bool,
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
