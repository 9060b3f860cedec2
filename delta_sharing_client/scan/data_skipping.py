"""Data skipping: tasks for files that may have matching rows; projection of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import repeat

import numpy as np

from delta_sharing_client.errors import ColumnError, DataError
from delta_sharing_client.expressions.column_bounds import FALSE, NULL, TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, columns_of
from delta_sharing_client.expressions.statistics import StatsDecoder
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import mapping_mode, physical_name
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.model.type_widening import check_type_changes
from delta_sharing_client.parquet.tasks import NO_VALUES, FileScanTask, ReadSpec, VariantForm
from delta_sharing_client.scan.block_bounds import Mask, PartitionBounds, Positions, block_outcomes
from delta_sharing_client.wire.file_block import FileBlock


def project(schema: StructType, columns: Iterable[str] | None) -> StructType:
    """Return columns in the order of their names, whose case is ignored; all columns if `columns` is None.

    Raises:
        ColumnError: a name is unknown or given twice.
        TypeError: `columns` is no sequence of names.
    """
    if columns is None:
        return schema
    if isinstance(columns, str | bytes):
        raise TypeError(f"columns takes a list of names; for one column write [{columns!r}]")
    chosen: list[StructField] = []
    unknown: list[str] = []
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"columns takes names, not {type(name).__name__}")
        found = schema.find(name)
        if found is None:
            unknown.append(name)
        elif found in chosen:
            raise ColumnError(f"columns names {name!r} twice", columns=[name])
        else:
            chosen.append(found)
    if unknown:
        raise ColumnError(
            f"the table has no column {', '.join(map(repr, unknown))}; {schema.suggestion(unknown)}",
            columns=unknown,
        )
    return StructType(tuple(chosen))


def read_spec(
    metadata: Metadata,
    columns: Iterable[str] | None,
    predicate: Predicate | None,
    variant: VariantForm = "struct",
    protocol: Protocol | None = None,
) -> ReadSpec:
    """Return what to read of each file of a table.

    Args:
        metadata: the table's.
        columns: names of the columns to return; None for all.
        predicate: the row filter, bound to the table's schema.
        variant: the form in which variant columns are returned.
        protocol: the table's, which determines whether column mapping is in force; None to use the properties.

    Raises:
        ColumnError: `columns` has an unknown column, or a duplicate.
        UnsupportedFeatureError: the type of a column was changed in an unknown way.
    """
    schema = metadata.schema
    output = project(schema, columns)
    extra: list[StructField] = []
    if predicate is not None:
        for column in columns_of(predicate):
            if column not in output.fields and column not in extra:
                extra.append(column)
    check_type_changes([*output.fields, *extra])
    partitions = (schema.find(name) for name in metadata.partition_columns)
    return ReadSpec(
        output=output,
        extra=tuple(extra),
        partition_columns=frozenset(column.name for column in partitions if column is not None),
        mapping=mapping_mode(metadata.configuration) if protocol is None or protocol.maps_columns else "none",
        predicate=predicate,
        variant=variant,
    )


class SkipReason(Enum):
    """The reason why a listed file is skipped."""

    PARTITION = "partition values"
    STATS = "statistics"


class TaskPlanner:
    """Turns blocks of files into tasks, or the reasons why no row of a file can match.

    Args:
        spec: what will be read, filter included.
    """

    def __init__(self, spec: ReadSpec) -> None:
        self._spec = spec
        # Files with equal partition values share one object; 300,000 files may have only a hundred partitions.
        self._partitions: dict[tuple[tuple[str, str | None], ...], _Partition] = {}
        # Most files have the same expiration time; they share one number.
        self._expires: int | None = None
        predicate = spec.predicate
        columns = () if predicate is None else tuple(dict.fromkeys(columns_of(predicate)))
        self._names = {column.name: physical_name(column, spec.mapping) for column in columns}
        self._partitioned = tuple(column for column in columns if column.name in spec.partition_columns)
        self._stats = StatsDecoder(
            {self._names[column.name]: column.type for column in columns if column not in self._partitioned}
        )

    def __call__(self, files: FileBlock) -> list[FileScanTask | SkipReason]:
        """Return the tasks of files, or the reasons why they are skipped, in their order.

        Raises:
            DataError: a partition value that the row filter needs is malformed.
        """
        predicate = self._spec.predicate
        if predicate is not None and len(files):
            return self._filtered(predicate, files)
        return list(self._tasks(files, repeat(True)))

    def _tasks(self, files: FileBlock, all_rows_match: Iterable[bool]) -> Iterator[FileScanTask]:
        times: Iterable[int | None] = files.expirations
        if len(set(times)) == 1:
            times = repeat(self._same_time(next(iter(times))))
        values = files.partition_values
        # Column by column: each Python step for a file counts where there are 300,000 of them.
        return map(
            FileScanTask,
            files.urls,
            files.ids,
            files.sizes,
            values if any(values) else repeat(NO_VALUES),
            files.record_counts,
            times,
            files.vectors,
            files.vector_ids,
            repeat(NO_VALUES),
            all_rows_match,
        )

    def _filtered(self, predicate: Predicate, files: FileBlock) -> list[FileScanTask | SkipReason]:
        distinct, positions = self._distinct(files)
        possible = np.array([bool(partition.possible & TRUE) for partition in distinct])[positions]
        certain = np.array([partition.all_rows_match for partition in distinct])[positions]
        planned = np.array([SkipReason.PARTITION, SkipReason.STATS], object)[possible.astype(int)]
        if (undecided := np.flatnonzero(possible & ~certain)).size:
            possible[undecided] = self._may_match(
                predicate, files.take(undecided.tolist()), distinct, positions[undecided]
            )
        kept = np.flatnonzero(possible)
        planned[kept] = list(self._tasks(files.take(kept.tolist()), certain[kept].tolist()))
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

    def _may_match(
        self, predicate: Predicate, files: FileBlock, distinct: Sequence[_Partition], positions: Positions
    ) -> Mask:
        """Return which of some files may have matching rows.

        Statistics can exclude a file, but do not prove that its rows match.
        """
        partitions = {
            column.name: PartitionBounds(
                [partition.bounds.get(column.name, ColumnBounds()) for partition in distinct], positions
            )
            for column in self._partitioned
        }
        stats = self._stats(files.stats_texts())
        files.counts = stats.record_counts
        possible = block_outcomes(predicate, stats, self._names, partitions)
        may_match: Mask = possible & TRUE != 0
        return may_match

    def _partition(self, values: Mapping[str, str | None], file_id: str) -> _Partition:
        """Return what is known of all files with some partition values."""
        key = tuple(values.items())
        known = self._partitions.get(key)
        if known is None:
            known = self._partitions[key] = self._new_partition(values, file_id)
        return known

    def _new_partition(self, values: Mapping[str, str | None], file_id: str) -> _Partition:
        folded = {name.lower(): value for name, value in values.items()}
        bounds: dict[str, ColumnBounds] = {}
        for column in self._partitioned:
            named = (self._names[column.name].lower(), column.name.lower())
            name = next((name for name in named if name in folded), None)
            if name is None:
                continue
            try:
                bounds[column.name] = ColumnBounds.constant(parse_partition_value(folded[name], column.type))
            except ValueError as error:
                raise DataError(f"partition column {column.name!r}: {error}", file_id=file_id) from None
        predicate = self._spec.predicate
        possible = TRUE if predicate is None else outcomes(predicate, lambda column: bounds.get(column.name))
        return _Partition(values or NO_VALUES, bounds, possible)

    def _same_time(self, expires: int | None) -> int | None:
        if self._expires != expires:
            self._expires = expires
        return self._expires


def split_skipped(made: Sequence[FileScanTask | SkipReason]) -> tuple[list[FileScanTask], Counter[SkipReason]]:
    """Return the planned tasks, and the number of skipped files by reason."""
    tasks = [item for item in made if isinstance(item, FileScanTask)]
    left_out = [] if len(tasks) == len(made) else [item for item in made if isinstance(item, SkipReason)]
    return tasks, Counter(left_out)


@dataclass(slots=True)
class _Partition:
    """Bounds and possible filter outcomes that all files with the same partition values share.

    Attributes:
        values: the raw partition values.
        bounds: the values of the row filter's columns, by column name.
        possible: the possible outcomes of the row filter, from the partition values alone.
    """

    values: Mapping[str, str | None]
    bounds: Mapping[str, ColumnBounds]
    possible: int

    @property
    def all_rows_match(self) -> bool:
        """Whether every row passes the filter; partition values are exact."""
        return not self.possible & (FALSE | NULL)
