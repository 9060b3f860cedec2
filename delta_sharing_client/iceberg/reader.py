"""Reading the files of an Iceberg plan: pyiceberg decodes them, this module casts and filters the rows."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, cast

import pyarrow as pa
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.schema import Schema, prune_columns

from delta_sharing_client.errors import (
    DataError,
    DeltaSharingError,
    FileGoneError,
    IcebergError,
    StorageError,
)
from delta_sharing_client.iceberg.file_io import VendedFileIO
from delta_sharing_client.iceberg.planner import IcebergPlan
from delta_sharing_client.iceberg.pushdown import iceberg_expression
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.cast import FieldFinder, cast_to_schema, check_texts
from delta_sharing_client.parquet.residual_filter import filter_batch
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.pipeline import Progress
from delta_sharing_client.secrets import redact_text

#: The part of the memory budget that the files read together may have, encoded: decoded they are larger.
_SHARE: Final = 8


def read_plan(
    plan: IcebergPlan, memory_budget: int, progress: Progress | None
) -> Generator[pa.RecordBatch, None, None]:
    """Read the rows of a plan, filtered, at most `plan.limit`.

    Args:
        plan: what to read.
        memory_budget: bytes of memory. pyiceberg reads all files that it is given at once, and keeps them.
        progress: called with the size of files after they have been read.

    Raises:
        DeltaSharingError: a file cannot be read, or does not match the table.
    """
    rows_left = plan.limit
    for tasks in _groups(plan.tasks, memory_budget // _SHARE):
        for batch in _read(plan, tasks):
            if rows_left is not None:
                batch = batch.slice(0, rows_left)
                rows_left -= batch.num_rows
            if batch.num_rows:
                yield batch
            if rows_left == 0:
                return
        if progress is not None:
            progress(sum(task.size for task in tasks))


def _groups(tasks: Sequence[FileScanTask], limit: int) -> Iterator[list[FileScanTask]]:
    """Yield tasks in groups of at most `limit` bytes, and of at least one task."""
    group: list[FileScanTask] = []
    size = 0
    for task in tasks:
        if group and size + task.size > limit:
            yield group
            group, size = [], 0
        group.append(task)
        size += task.size
    if group:
        yield group


def _read(plan: IcebergPlan, tasks: Sequence[FileScanTask]) -> Iterator[pa.RecordBatch]:
    spec, opened = plan.spec, plan.opened
    fields = StructType(spec.fields)
    target = arrow_schema(fields)
    row_filter = iceberg_expression(spec.predicate)
    with reading(f"Iceberg table {plan.table.full_name}", plan.table.full_name):
        files = cast("VendedFileIO", opened.io).data_files()
        scan = ArrowScan(opened.metadata, files, _projection(opened.schema(), fields), row_filter)
        for batch in scan.to_record_batches([plan.files[task.file_id] for task in tasks]):
            rows = _cast(batch, fields, target)
            if spec.predicate is not None:
                rows = filter_batch(rows, spec.predicate)
            yield rows.select(spec.output.names) if spec.extra else rows


def _projection(schema: Schema, fields: StructType) -> Schema:
    """Return the columns of an Iceberg schema; the first one if there are none, because batches need one."""
    wanted = set(fields.names) or {schema.fields[0].name}
    return prune_columns(schema, {column.field_id for column in schema.fields if column.name in wanted})


def _cast(batch: pa.RecordBatch, fields: StructType, target: pa.Schema) -> pa.RecordBatch:
    """Return a batch of pyiceberg with the Arrow types of the table's columns, in their order."""
    if not fields.fields:
        return batch.select([])
    columns = []
    for field, kind in zip(fields, target.types, strict=True):
        finder = FieldFinder("none", "", field.name)
        try:
            column = cast_to_schema(batch.column(field.name), field.type, kind, finder)
            check_texts(column)
        except pa.ArrowException as error:
            problem = f"column {field.name!r} is {field.type}, and its values do not fit: {error}"
            raise DataError(problem) from None
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=target)


@contextmanager
def reading(subject: str, table: str | None = None) -> Iterator[None]:
    """Raise the errors of pyiceberg and pyarrow as those of this package; their texts are redacted."""
    try:
        yield
    except DeltaSharingError as error:
        if isinstance(error, DataError | StorageError):
            error.table = error.table or table
        raise
    except OSError as error:
        kind = FileGoneError if isinstance(error, FileNotFoundError) else StorageError
        raise kind(f"{subject}: a file cannot be read: {_text(error)}") from None
    except Exception as error:  # noqa: BLE001  # pyiceberg raises errors of pydantic, pyarrow and many of its own
        raise IcebergError(
            f"{subject}: pyiceberg cannot read it: {type(error).__name__}: {_text(error)}"
        ) from None


def _text(error: Exception) -> str:
    return redact_text(str(error))[:500]
