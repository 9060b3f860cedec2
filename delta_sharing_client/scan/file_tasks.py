"""Tasks for files that may have matching rows; projection of columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from itertools import repeat
from typing import TYPE_CHECKING

from delta_sharing_client.errors import ColumnError, FilterError
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import mapping_mode
from delta_sharing_client.model.schema import StructField, StructType
from delta_sharing_client.model.type_widening import check_type_changes
from delta_sharing_client.parquet.tasks import NO_VALUES, FileScanTask, ReadSpec, VariantForm
from delta_sharing_client.shown_text import listed
from delta_sharing_client.wire.file_block import FileBlock

if TYPE_CHECKING:
    from delta_sharing_client.expressions.predicates import Predicate
    from delta_sharing_client.scan.file_filter import FileFilter
    from delta_sharing_client.scan.options import ScanOptions


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
    taken: set[str] = set()
    for name in columns:
        if not isinstance(name, str):
            raise TypeError(f"columns takes names, not {type(name).__name__}")
        found = schema.find(name)
        if found is None:
            unknown.append(name)
        elif found.name in taken:
            raise ColumnError(f"columns names {name!r} twice", columns=[name])
        else:
            chosen.append(found)
            taken.add(found.name)
    if unknown:
        raise ColumnError(
            f"the table has no column {listed(map(repr, unknown))}; {schema.suggestion(unknown)}",
            columns=unknown,
        )
    return StructType(tuple(chosen))


@contextmanager
def errors_naming(subject: str) -> Iterator[None]:
    """Name a table, as in ``table share.schema.name``, in the errors of columns and filters raised within."""
    try:
        yield
    except (ColumnError, FilterError) as error:
        error.subject = error.subject or subject
        raise


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
        from delta_sharing_client.expressions.predicates import columns_of

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


def scan_spec(options: ScanOptions, protocol: Protocol, metadata: Metadata, subject: str) -> ReadSpec:
    """Return what to read of each file for a scan.

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        ColumnError, FilterError: the projection or the filter does not fit the table.
    """
    protocol.check_readable(subject)
    predicate = None
    with errors_naming(subject):
        if options.filters:
            from delta_sharing_client.expressions.binding import bind_filters

            predicate = bind_filters(options.filters, metadata.schema)
        return read_spec(metadata, options.columns, predicate, options.variant, protocol)


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
        # Most files have the same expiration time; they share one number.
        self._expires: int | None = None
        self._filter: FileFilter | None = None
        if spec.predicate is not None:
            from delta_sharing_client.scan.file_filter import FileFilter  # which builds on this module

            self._filter = FileFilter(spec, spec.predicate)

    def __call__(self, files: FileBlock) -> list[FileScanTask | SkipReason]:
        """Return the tasks of files, or the reasons why they are skipped, in their order.

        Raises:
            DataError: a partition value that the row filter needs is malformed.
        """
        if self._filter is not None and len(files):
            return self._filter(files, self._tasks)
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

    def _same_time(self, expires: int | None) -> int | None:
        if self._expires != expires:
            self._expires = expires
        return self._expires


def split_skipped(made: Sequence[FileScanTask | SkipReason]) -> tuple[list[FileScanTask], Counter[SkipReason]]:
    """Return the planned tasks, and the number of skipped files by reason."""
    tasks = [item for item in made if isinstance(item, FileScanTask)]
    left_out = [] if len(tasks) == len(made) else [item for item in made if isinstance(item, SkipReason)]
    return tasks, Counter(left_out)
