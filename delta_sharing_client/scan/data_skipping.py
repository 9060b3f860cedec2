"""Planning: which columns to read, which files are left after pruning, as compact tasks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from functools import cached_property
from itertools import repeat

from delta_sharing_client.errors import ColumnError, DataError
from delta_sharing_client.expressions.column_bounds import FALSE, NULL, TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import Predicate, columns_of
from delta_sharing_client.expressions.statistics import Stats, num_records, parse_stats
from delta_sharing_client.model.actions import FileAction, Metadata, Protocol
from delta_sharing_client.model.column_mapping import MappingMode, mapping_mode, physical_name
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.model.type_widening import check_type_changes
from delta_sharing_client.parquet.tasks import NO_VALUES, FileScanTask, ReadSpec, VariantForm
from delta_sharing_client.wire.answers import ActionTransformer
from delta_sharing_client.wire.typed_lines import FileBlock


def project(schema: StructType, columns: Iterable[str] | None) -> StructType:
    """Return the columns asked for, in the order asked for.

    Args:
        schema: the table's columns.
        columns: names, whatever their case; None for all, an empty list for none.

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
            f"the table has no column {', '.join(map(repr, unknown))}; it has {', '.join(schema.names)}",
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
    """Say what to read of each file of a table.

    Args:
        metadata: the table's.
        columns: names of the columns to return; None for all.
        predicate: the row filter, bound to the table's schema.
        variant: the form in which variant columns are returned.
        protocol: the table's; it says whether column mapping is in force. Without it the properties do.

    Raises:
        ColumnError: `columns` names an unknown column, or one twice.
        UnsupportedFeatureError: the type of a column was changed in a way that is not known here.
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
    """Why a file that the server named is not read."""

    PARTITION = "partition values"
    STATS = "statistics"


class TaskPlanner(ActionTransformer["FileScanTask | SkipReason"]):
    """Turns file actions into tasks, or says why no row of a file can match.

    Args:
        spec: what will be read, filter included.
    """

    def __init__(self, spec: ReadSpec) -> None:
        self._spec = spec
        # Files of one partition share one mapping: of 300,000 files there may be a hundred partitions.
        self._shared: dict[tuple[tuple[str, str | None], ...], Mapping[str, str | None]] = {}
        # And mostly their URLs expire at one time, which needs no number for each of them.
        self._expires: int | None = None

    def __call__(self, action: FileAction, /) -> FileScanTask | SkipReason:
        """Return the task of a file, or why it has none."""
        spec = self._spec
        predicate = spec.predicate
        all_rows_match = predicate is None
        if predicate is not None:
            domains = _FileBounds(action, spec)
            possible = outcomes(predicate, domains.partition)
            if not possible & TRUE:
                return SkipReason.PARTITION
            # Partition values are exact. Statistics may leave the file out, and vouch for none of its rows.
            all_rows_match = not possible & (FALSE | NULL)
            if not all_rows_match and not outcomes(predicate, domains.known) & TRUE:
                return SkipReason.STATS
        values = action.partition_values
        return FileScanTask(
            action.url,
            action.id,
            action.size,
            self._shared.setdefault(tuple(values.items()), values) if values else NO_VALUES,
            num_records(action.stats),
            self._same_time(action.expiration_timestamp),
            action.deletion_vector,
            action.deletion_vector_file_id,
            NO_VALUES,
            all_rows_match,
        )

    def of_all(self, files: FileBlock) -> list[FileScanTask | SkipReason]:
        """Return the tasks of many files, or why they have none."""
        if self._spec.predicate is not None:
            return list(map(self, files))
        times: Iterable[int | None] = files.expirations
        if len(set(times)) == 1:
            times = repeat(self._same_time(next(iter(times))))
        values = files.partition_values
        # In one go, field by field: each Python step of its own counts where there are 300,000 files.
        return list(
            map(
                FileScanTask,
                files.urls,
                files.ids,
                files.sizes,
                values if any(values) else repeat(NO_VALUES),
                files.record_counts,
                times,
                repeat(None),
                repeat(None),
                repeat(NO_VALUES),
            )
        )

    def _same_time(self, expires: int | None) -> int | None:
        if self._expires != expires:
            self._expires = expires
        return self._expires


def split_skipped(made: Sequence[FileScanTask | SkipReason]) -> tuple[list[FileScanTask], Counter[SkipReason]]:
    """Return the tasks among what was made of files, and how many files were left out, by why."""
    tasks = [item for item in made if isinstance(item, FileScanTask)]
    left_out = [] if len(tasks) == len(made) else [item for item in made if isinstance(item, SkipReason)]
    return tasks, Counter(left_out)


class _FileBounds:
    """What is known of the columns of one file."""

    def __init__(self, action: FileAction, spec: ReadSpec) -> None:
        self._action = action
        self._spec = spec
        self._values = {name.lower(): value for name, value in action.partition_values.items()}

    def partition(self, column: StructField) -> ColumnBounds | None:
        """What the partition values tell of a column."""
        if column.name not in self._spec.partition_columns:
            return None
        for name in _names(column, self._spec.mapping):
            if name.lower() in self._values:
                try:
                    return ColumnBounds.constant(parse_partition_value(self._values[name.lower()], column.type))
                except ValueError as error:
                    raise DataError(
                        f"partition column {column.name!r}: {error}", file_id=self._action.id
                    ) from None
        return None

    def known(self, column: StructField) -> ColumnBounds | None:
        """What the partition values and the statistics tell of a column."""
        domain = self.partition(column)
        if domain is None and (stats := self._stats) is not None:
            return stats.domain(physical_name(column, self._spec.mapping), column.type)
        return domain

    @cached_property
    def _stats(self) -> Stats | None:
        return parse_stats(self._action.stats)


def _names(column: StructField, mapping: MappingMode) -> tuple[str, str]:
    return physical_name(column, mapping), column.name
