"""Data skipping: the files of a listing in which a row filter can match no row.

The predicate is evaluated for all files of a block at once, over arrays of column bounds.
`expressions.bound_values` has the rules for bounds. Values that need none of its corrections are converted as
arrays; the others one by one, each distinct value once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.bound_values import (
    EXACT,
    FLOAT_MAX,
    TRUNCATED,
    is_time_limit,
    parse_bound,
    widened_float,
    widened_time,
)
from delta_sharing_client.expressions.column_bounds import FALSE, NULL, TRUE, Bounds, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import And, Predicate, columns_of, is_float
from delta_sharing_client.expressions.statistics import BlockStats, Stats, StatsDecoder, has_bounds
from delta_sharing_client.model.column_mapping import physical_name
from delta_sharing_client.model.partition_values import (
    MISSING,
    PartitionValues,
    parse_partition_value,
    partition_text,
)
from delta_sharing_client.model.schema import DataType, StructField
from delta_sharing_client.parquet.arrow_types import ascii_texts, microseconds
from delta_sharing_client.parquet.tasks import NO_VALUES, FileScanTask, ReadSpec
from delta_sharing_client.scan.file_tasks import SkipReason
from delta_sharing_client.wire.file_block import FileBlock

#: Makes the tasks of files; for each file it is given whether all of its rows match.
MakeTasks: TypeAlias = Callable[[FileBlock, Iterable[bool]], Iterator[FileScanTask]]

Mask: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[Any]
Positions: TypeAlias = npt.NDArray[np.intp]

_TIMES: Final = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}


class FileFilter:
    """Skips files by a row filter, in blocks.

    Args:
        spec: what will be read.
        predicate: its row filter.
    """

    def __init__(self, spec: ReadSpec, predicate: Predicate) -> None:
        self._predicate = predicate
        # Files with equal partition values share one object; 300,000 files may have only a hundred partitions.
        self._partitions: dict[tuple[tuple[str, str | None], ...], _Partition] = {}
        columns = tuple(dict.fromkeys(columns_of(predicate)))
        self._names = {column.name: physical_name(column, spec.mapping) for column in columns}
        self._partitioned = tuple(column for column in columns if column.name in spec.partition_columns)
        self._stats = StatsDecoder(
            {self._names[column.name]: column.type for column in columns if column not in self._partitioned}
        )

    def __call__(self, files: FileBlock, tasks: MakeTasks) -> list[FileScanTask | SkipReason]:
        """Return the tasks of files, or the reasons why they are skipped, in their order.

        Args:
            files: at least one.
            tasks: makes the tasks of files.

        Raises:
            DataError: a partition value that the row filter needs is malformed.
        """
        distinct, positions = self._distinct(files)
        possible = np.array([bool(partition.possible & TRUE) for partition in distinct])[positions]
        certain = np.array([partition.all_rows_match for partition in distinct])[positions]
        planned = np.array([SkipReason.PARTITION, SkipReason.STATS], object)[possible.astype(int)]
        if (undecided := np.flatnonzero(possible & ~certain)).size:
            possible[undecided] = self._may_match(files.take(undecided.tolist()), distinct, positions[undecided])
        kept = np.flatnonzero(possible)
        planned[kept] = list(tasks(files.take(kept.tolist()), certain[kept].tolist()))
        result: list[FileScanTask | SkipReason] = planned.tolist()
        return result

    def _distinct(self, files: FileBlock) -> tuple[list[_Partition], Positions]:
        """Return the distinct partitions of files, and the position of each file's partition among them."""
        # By identity: files of one partition share one mapping.
        identities = list(map(id, files.partition_values))
        if not self._partitioned or len(set(identities)) == 1:
            return [self._partition(files.partition_values[0], files.ids[0])], np.zeros(len(files), np.intp)
        first = dict(zip(reversed(identities), range(len(identities) - 1, -1, -1), strict=True))
        distinct = [
            self._partition(files.partition_values[number], files.ids[number]) for number in first.values()
        ]
        order = dict(zip(first, range(len(first)), strict=True))
        return distinct, np.fromiter(map(order.__getitem__, identities), np.intp, len(identities))

    def _may_match(self, files: FileBlock, distinct: Sequence[_Partition], positions: Positions) -> Mask:
        """Return which of some files may have matching rows.

        Statistics can exclude a file, but do not prove that its rows match. The parts of a conjunction are
        evaluated one by one, each for the files that the parts before it leave.
        """
        stats = self._stats(files.stats_texts())
        files.counts = stats.record_counts
        known = {
            column.name: [partition.bounds.get(column.name, ColumnBounds()) for partition in distinct]
            for column in self._partitioned
        }
        left = np.arange(len(files))
        for part in self._predicate.parts if isinstance(self._predicate, And) else (self._predicate,):
            partitions = {name: PartitionBounds(bounds, positions[left]) for name, bounds in known.items()}
            possible = np.flatnonzero(block_outcomes(part, stats, self._names, partitions) & TRUE)
            if len(possible) < len(left):
                left, stats = left[possible], stats.take(possible.tolist())
            if not left.size:
                break
        may_match = np.zeros(len(files), bool)
        may_match[left] = True
        return may_match

    def _partition(self, values: PartitionValues, file_id: str) -> _Partition:
        """Return what is known of all files with some partition values."""
        key = tuple(values.items())
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = self._new_partition(values, file_id)
        return known

    def _new_partition(self, values: PartitionValues, file_id: str) -> _Partition:
        bounds: dict[str, ColumnBounds] = {}
        for column in self._partitioned:
            text = partition_text(values, self._names[column.name], column.name)
            if text is MISSING:
                continue
            try:
                bounds[column.name] = ColumnBounds.constant(parse_partition_value(text, column.type))
            except ValueError as error:
                raise DataError(f"partition column {column.name!r}: {error}", file_id=file_id) from None
        possible = outcomes(self._predicate, lambda column: bounds.get(column.name))
        return _Partition(values or NO_VALUES, bounds, possible)


class _Partition(Struct):
    """Bounds and possible filter outcomes that all files with the same partition values share.

    Attributes:
        values: the raw partition values.
        bounds: the values of the row filter's columns, by column name.
        possible: the possible outcomes of the row filter, from the partition values alone.
    """

    values: PartitionValues
    bounds: Mapping[str, ColumnBounds]
    possible: int

    @property
    def all_rows_match(self) -> bool:
        """Whether every row passes the filter; partition values are exact."""
        return not self.possible & (FALSE | NULL)


class _Side(Struct, frozen=True):
    """The lower or the upper bounds of a column, one per file; those that are not `known` have any value."""

    values: Values
    known: Mask

    def compare(self, operator: np.ufunc, value: Any) -> Mask:
        """Compare bounds with a value; an unknown bound allows everything."""
        # Of the bounds' own type: NumPy makes a str a text of fixed width, without the U+0000 at its end.
        operand = np.empty((), self.values.dtype)
        operand[()] = value
        result = np.ones(len(self.known), bool)
        operator(self.values, operand, out=result, where=self.known, casting="unsafe")
        return result


class BlockBounds(Struct, frozen=True):
    """The bounds of a column in the files of a block, as arrays; see `Bounds`."""

    has_null: Mask
    has_value: Mask
    may_be_nan: bool
    lower: _Side | None = None
    upper: _Side | None = None

    @classmethod
    def of(cls, stats: BlockStats, name: str, data_type: DataType) -> BlockBounds:
        """Return the bounds of a column in the statistics of a block, as `Stats.bounds` does for one file."""
        has_null, has_value = _null_masks(stats.null_counts(name), stats.record_counts)
        if not has_bounds(data_type):
            return cls(has_null, has_value, is_float(data_type))
        lower = _side(stats.lower(name), data_type, upper=False)
        upper = _side(stats.upper(name), data_type, upper=True)
        contradictory = np.zeros(len(stats), bool)
        np.greater(
            lower.values, upper.values, out=contradictory, where=lower.known & upper.known, casting="unsafe"
        )
        if contradictory.any():
            lower, upper = (_Side(side.values, side.known & ~contradictory) for side in (lower, upper))
        return cls(has_null, has_value, is_float(data_type), lower, upper)

    def reach(self, value: Any) -> tuple[Any, Any, Any]:
        """See `Bounds`."""
        if self.lower is None or self.upper is None:
            return True, True, True
        return (
            self.lower.compare(np.less, value),
            self.lower.compare(np.less_equal, value) & self.upper.compare(np.greater_equal, value),
            self.upper.compare(np.greater, value),
        )


class PartitionBounds(Struct, frozen=True):
    """The values of a partition column in the files of a block; see `Bounds`.

    Attributes:
        distinct: the bounds in each partition.
        positions: the position of each file's partition.
    """

    distinct: Sequence[ColumnBounds]
    positions: Positions

    @property
    def has_null(self) -> Mask:
        """See `Bounds`."""
        return self._of_files([bounds.has_null for bounds in self.distinct])

    @property
    def has_value(self) -> Mask:
        """See `Bounds`."""
        return self._of_files([bounds.has_value for bounds in self.distinct])

    @property
    def may_be_nan(self) -> Mask:
        """See `Bounds`."""
        return self._of_files([bounds.may_be_nan for bounds in self.distinct])

    def reach(self, value: Any) -> tuple[Any, Any, Any]:
        """See `Bounds`."""
        less, equal, greater = zip(*(bounds.reach(value) for bounds in self.distinct), strict=True)
        return self._of_files(less), self._of_files(equal), self._of_files(greater)

    def _of_files(self, of_partitions: Sequence[bool]) -> Mask:
        mask: Mask = np.array(of_partitions, bool)[self.positions]
        return mask


def block_outcomes(
    predicate: Predicate,
    stats: BlockStats,
    names: Mapping[str, str],
    partitions: Mapping[str, PartitionBounds],
) -> npt.NDArray[np.int_]:
    """Return the possible outcomes of a predicate for each file of a block; see `column_bounds.outcomes`.

    Args:
        predicate: the row filter.
        stats: the statistics of the files.
        names: the names of the filter's columns in the statistics.
        partitions: the values of partition columns, which precede statistics.
    """
    known: dict[str, Bounds] = dict(partitions)

    def bounds_of(column: StructField) -> Bounds:
        if column.name not in known:
            known[column.name] = BlockBounds.of(stats, names[column.name], column.type)
        return known[column.name]

    result: npt.NDArray[np.int_] = np.zeros(len(stats), int) | outcomes(predicate, bounds_of)
    for position, item in stats.irregular.items():

        def bounds_in_file(column: StructField, position: int = position, item: Stats = item) -> Bounds | None:
            partition = partitions.get(column.name)
            if partition is not None:
                return partition.distinct[int(partition.positions[position])]
            return item.bounds(names[column.name], column.type)

        result[position] = outcomes(predicate, bounds_in_file)
    return result


def _null_masks(nulls: Sequence[Any], rows: Sequence[int | None]) -> tuple[Mask, Mask]:
    """Return whether each file may have nulls, and values that are not null.

    With loose bounds, only null counts of 0 and of all rows are reliable.
    """
    try:
        counts = np.fromiter(nulls, np.int64, len(nulls))
        has_value = counts != np.fromiter(rows, np.int64, len(nulls))
        return (counts != 0) | ~has_value, has_value
    except (TypeError, OverflowError):  # some are unknown
        known = [count if isinstance(count, int) else None for count in nulls]
        pairs = zip(known, rows, strict=True)
        has_value = np.fromiter((count is None or count != number for count, number in pairs), bool, len(known))
        return np.fromiter((count != 0 for count in known), bool, len(known)) | ~has_value, has_value


def _side(values: list[Any], data_type: DataType, *, upper: bool) -> _Side:
    known = np.ones(len(values), bool)
    given = values
    if None in values:
        known = np.fromiter((value is not None for value in values), bool, len(values))
        given = [value for value in values if value is not None]
    array = _converted(given, str(data_type), upper=upper) if given else None
    if array is None:
        texts = {value for value in given if isinstance(value, str)}
        parsed = {text: parse_bound(text, data_type, upper=upper) for text in texts}
        bounds = [
            parsed[value] if isinstance(value, str) else parse_bound(value, data_type, upper=upper)
            for value in values
        ]
        array = np.empty(len(bounds), object)
        array[:] = bounds
        return _Side(array, np.fromiter((bound is not None for bound in bounds), bool, len(bounds)))
    if len(array) == len(values):
        return _Side(array, known)
    spread = np.empty(len(values), array.dtype)
    spread[known] = array
    return _Side(spread, known)


def _converted(values: list[Any], name: str, *, upper: bool) -> Values | None:
    """Return bounds as an array; None if one of them has to be parsed by itself."""
    try:
        if name in EXACT:
            whole = np.fromiter(values, np.int64, len(values))
            return whole if -EXACT[name] < whole.min() and whole.max() < EXACT[name] else None
        if name in ("float", "double"):
            with np.errstate(over="ignore"):
                single = np.array(values, np.float64).astype(np.float32).astype(np.float64)
            return widened_float(single, upper=upper) if np.abs(single).max() < FLOAT_MAX else None
        if name in _TIMES:
            micros = microseconds(ascii_texts(values).cast(_TIMES[name]))
            return None if is_time_limit(micros).any() else widened_time(micros, upper=upper)
        if name == "string" and max(map(len, values)) < TRUNCATED and "".join(values).isascii():
            text = np.empty(len(values), object)
            text[:] = values
            return text
    except (OverflowError, ValueError, pa.ArrowException):
        pass
    return None
