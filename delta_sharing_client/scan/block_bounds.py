"""Column bounds of a block of files, as arrays over which predicates are evaluated for all files at once.

`expressions.bound_values` has the rules for bounds. Values that need none of its corrections are converted as
arrays; the others one by one, each distinct value once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_sharing_client.expressions.bound_values import (
    EXACT,
    FLOAT_MAX,
    TRUNCATED,
    is_time_limit,
    parse_bound,
    widened_float,
    widened_time,
)
from delta_sharing_client.expressions.column_bounds import Bounds, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, is_float
from delta_sharing_client.expressions.statistics import BlockStats, Stats, has_bounds
from delta_sharing_client.model.schema import DataType, StructField
from delta_sharing_client.parquet.arrow_values import ascii_texts, microseconds

Mask: TypeAlias = npt.NDArray[np.bool_]
Values: TypeAlias = npt.NDArray[Any]
Positions: TypeAlias = npt.NDArray[np.intp]

_TIMES: Final = {"timestamp": pa.timestamp("us", "UTC"), "timestamp_ntz": pa.timestamp("us")}


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
