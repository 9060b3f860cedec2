"""Data skipping: the files of a listing in which a row filter can match no row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct

from delta_sharing_client.errors import DataError
from delta_sharing_client.expressions.column_bounds import FALSE, NULL, TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import And, Predicate, columns_of
from delta_sharing_client.expressions.statistics import StatsDecoder
from delta_sharing_client.model.column_mapping import physical_name
from delta_sharing_client.model.partition_values import (
    MISSING,
    PartitionValues,
    parse_partition_value,
    partition_text,
)
from delta_sharing_client.parquet.tasks import NO_VALUES, FileScanTask, ReadSpec
from delta_sharing_client.scan.block_bounds import Mask, PartitionBounds, Positions, block_outcomes
from delta_sharing_client.scan.data_skipping import SkipReason
from delta_sharing_client.wire.file_block import FileBlock

#: Makes the tasks of files; for each file it is given whether all of its rows match.
MakeTasks: TypeAlias = Callable[[FileBlock, Iterable[bool]], Iterator[FileScanTask]]


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
