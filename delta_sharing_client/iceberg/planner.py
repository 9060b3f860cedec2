"""Planner of scans of Iceberg tables: the snapshot, its schema, and the files that pyiceberg selects."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, ClassVar

from pyiceberg.table import FileScanTask as IcebergFile
from pyiceberg.table import Table as OpenTable
from pyiceberg.table.snapshots import Snapshot

from delta_sharing_client.errors import IcebergError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import columns_of
from delta_sharing_client.iceberg.partitions import metadata_for_planning, partition_filter
from delta_sharing_client.iceberg.pushdown import iceberg_expression
from delta_sharing_client.iceberg.schema import table_schema
from delta_sharing_client.iceberg.table import EPOCH
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import NO_COLUMNS
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan.file_tasks import errors_naming, project
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.secrets import SecretUrl


class IcebergPlan(ScanPlan, frozen=True, kw_only=True):
    """Which files of an Iceberg table to read, and how.

    `version` is the id of the snapshot, and the reader version of `protocol` that of Iceberg's format.

    Attributes:
        opened: the loaded table; the scan's schema is its current one.
        files: what pyiceberg reads for each task, by its `file_id`.
    """

    redacted_fields: ClassVar = ScanPlan.redacted_fields | {"opened", "files"}

    opened: OpenTable
    files: Mapping[str, IcebergFile]


def plan_scan(name: Table, opened: OpenTable, options: ScanOptions) -> IcebergPlan:
    """Select the files of a snapshot by the filter; reads the snapshot's manifests.

    Raises:
        ColumnError, FilterError: the projection or the filter does not fit the table.
        IcebergError: there is no such snapshot.
    """
    snapshot = at_snapshot(name, opened, options)
    schema = table_schema(opened.schema(), opened.spec())
    with errors_naming(f"table {name.full_name}"):
        predicate = None if options.filters is None else bind_filters(options.filters, schema)
        output = project(schema, options.columns)
    used = {} if predicate is None else {column.name: column for column in columns_of(predicate)}
    extra = tuple(column for column in used.values() if column not in output.fields)
    spec = ReadSpec(output, extra, predicate=predicate)
    found: list[Any] = []
    if snapshot is not None and options.limit != 0:
        scan = opened.scan(snapshot_id=snapshot.snapshot_id)
        if predicate is not None:
            metadata = metadata_for_planning(opened.metadata, snapshot.manifests(opened.io))
            scan = scan.update(table_metadata=metadata, row_filter=iceberg_expression(predicate))
        found = list(scan.plan_files())
    if predicate is not None and found:
        may_match = partition_filter(opened, schema, predicate)
        found = [each for each in found if may_match(each.file)]
    return IcebergPlan(
        table=name,
        version=None if snapshot is None else snapshot.snapshot_id,
        protocol=Protocol(opened.metadata.format_version),
        metadata=Metadata(
            str(opened.metadata.table_uuid),
            NO_COLUMNS,
            description=opened.properties.get("comment"),
            partition_columns=schema.partition_columns,
            configuration=opened.properties,
        ),
        spec=spec,
        tasks=[_task(each, predicate is None) for each in found],
        skipped={},
        limit=options.limit,
        opened=opened,
        files={each.file.file_path: each for each in found},
    )


def _task(file: IcebergFile, every_row: bool) -> FileScanTask:
    data = file.file
    return FileScanTask(
        url=SecretUrl(data.file_path),
        file_id=data.file_path,
        size=data.file_size_in_bytes,
        num_records=None if file.delete_files else data.record_count,
        all_rows_match=every_row,
    )


def at_snapshot(name: Table, opened: OpenTable, options: ScanOptions) -> Snapshot | None:
    """Return the snapshot that the options select, None for a table without one; make its schema current.

    Raises:
        IcebergError: there is no such snapshot.
    """
    if options.version is not None:
        snapshot = opened.metadata.snapshot_by_id(options.version)
        problem = f"has no snapshot {options.version}"
    elif options.timestamp is not None:
        elapsed = parse_iso8601(str(options.timestamp)) - EPOCH
        snapshot = opened.snapshot_as_of_timestamp(elapsed // timedelta(milliseconds=1))
        problem = f"has no snapshot of {options.timestamp} or before"
    else:
        return opened.current_snapshot()
    if snapshot is None:
        raise IcebergError(
            f"Iceberg table {name.full_name}: it {problem}; a version is the id of an Iceberg snapshot, not a "
            "version of the Delta table, and snapshots() of the table lists them"
        )
    if snapshot.schema_id is not None:
        changes = {"current_schema_id": snapshot.schema_id}
        opened.metadata = opened.metadata.model_copy(update=changes)
    return snapshot
