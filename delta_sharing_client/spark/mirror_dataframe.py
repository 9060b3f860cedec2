"""Mirrors as Spark DataFrames: Spark's own Parquet reader prunes columns, partitions and row groups.

Columns are read under the names and types of each file's footer (`mirror_footers`), then cast to those of the
table. An anti join on the row index removes deleted rows. Files that Spark would read differently from this
package, or not at all, are read by this package on the executors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delta_sharing_client.delta.mirror.mirror import MirrorScan
from delta_sharing_client.delta.table.local_names import NO_VALUE, encode_folder
from delta_sharing_client.model.column_mapping import physical_name
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.cast import holds_variant
from delta_sharing_client.parquet.fetch import fetch_vector
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.frame import batches_frame
from delta_sharing_client.spark.job import Job, encode
from delta_sharing_client.spark.mirror_footers import read_footers, stored_columns
from delta_sharing_client.spark.partition_plan import divide
from delta_sharing_client.spark.session import core_count, listed_by_cores, session_for, spark_version
from delta_sharing_client.spark.spark_schema import quoted, spark_schema
from delta_sharing_client.storage.local import LocalReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct

#: Maximum number of deleted rows for the anti join: Spark's driver builds a table of them, by default within 1 GB.
_MOST_DELETED: Final = 1_000_000
#: Maximum number of groups of files that Spark reads together; each makes Spark's plan larger.
_MOST_GROUPS: Final = 32
#: Partition values that Spark parses from folder names as Delta does. It decodes escapes in strings alone, and
#: does not give decimals the scale of their type.
_FOLDER_VALUES: Final = {
    "string": re.compile(".*", re.DOTALL),
    "boolean": re.compile("true|false"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    **dict.fromkeys(("long", "integer", "short", "byte"), re.compile(r"-?\d+", re.ASCII)),
}
#: Spark's column of file metadata; a column of that name hides it.
_FILE_METADATA: Final = "_metadata"
#: Temporary columns: a file's name, a row's index in it.
_FILE: Final = "__delta_sharing_file"
_ROW: Final = "__delta_sharing_row"


def mirror_dataframe(scan: MirrorScan, spark: SparkSession | None = None) -> DataFrame:
    """Return a DataFrame over the local files of a mirror.

    Sends no request and downloads nothing. The executors must see the files under the same paths. Spark prunes
    columns and pushes filters down.

    Args:
        scan: the scan, with columns but without filters and limit: use `where` and `limit` of the DataFrame.
        spark: the session; if None the active one, or a new local one.

    Raises:
        ValueError: the scan has filters or a limit.
        MissingDependencyError: PySpark is not installed.
        FileGoneError: a file of the mirror is missing.
        DataError: a file of the mirror is damaged.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    if scan.options.filters is not None or scan.options.limit is not None:
        raise ValueError(
            "Spark itself filters the rows of a mirror: leave filters and limit out, and use where() and limit() "
            "of the DataFrame"
        )
    session = session_for(spark)
    return _MirrorFiles(session, scan, scan.plan()).frame()


class _MirrorFiles:
    """The files of a mirror's version, from a scan without filters and limit."""

    def __init__(self, session: SparkSession, scan: MirrorScan, plan: ScanPlan) -> None:
        self._session = session
        self._scan = scan
        self._plan = plan
        self._mode = plan.spec.mapping
        self._version = spark_version(session)
        self._output = plan.spec.output
        schema = plan.metadata.schema
        self._partitions = [f for f in (schema.find(n) for n in plan.metadata.partition_columns) if f is not None]
        named = {field.name for field in self._partitions}
        self._data = [field for field in self._output if field.name not in named and not _is_void(field)]

    def frame(self) -> DataFrame:
        """Return the columns of the scan."""
        logical = spark_schema(self._output, self._scan.options.variant, self._version)
        groups, others = self._groups()
        frames = [self._read(tasks, stored) for (stored, _), tasks in groups.items()]
        if others:
            frames.append(self._read_with_package(others, logical))
        if not frames:
            return self._session.createDataFrame([], logical)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _groups(self) -> tuple[dict[tuple[StructType, bool], list[FileScanTask]], list[FileScanTask]]:
        """Return the files that Spark reads, and the files that this package reads.

        A group has the same stored columns, and either deletion vectors or none.
        """
        groups: dict[tuple[StructType, bool], list[FileScanTask]] = {}
        others: list[FileScanTask] = []
        deleted = sum(task.deletion_vector.cardinality for task in self._plan.tasks if task.deletion_vector)
        reserved = {self._name(field).lower() for field in self._partitions}
        as_text = self._scan.options.variant == "json" and any(holds_variant(field.type) for field in self._data)
        readable = _FILE_METADATA not in reserved and not as_text
        reserved.add(_FILE_METADATA)
        for task, footer in zip(self._plan.tasks, read_footers(self._plan.tasks), strict=True):
            stored = stored_columns(footer, self._data, self._mode, task.file_id, self._version)
            marked = task.deletion_vector is not None
            if (
                stored is not None
                and readable
                and not (marked and deleted > _MOST_DELETED)
                and not any(field.name.lower() in reserved for field in stored)
                and self._has_values_in_folders(task)
            ):
                groups.setdefault((stored, marked), []).append(task)
            else:
                others.append(task)
        smallest = sorted(groups, key=lambda key: sum(task.size for task in groups[key]))
        for key in smallest[: max(len(groups) - _MOST_GROUPS, 0)]:
            others += groups.pop(key)
        return groups, others

    def _read_with_package(self, tasks: Sequence[FileScanTask], logical: SparkStruct) -> DataFrame:
        plan = replace(self._plan, tasks=list(tasks), limit=None)
        job = Job(
            table=plan.table.full_name,
            spec=plan.spec,
            table_columns=plan.metadata.schema,
            options=self._scan._storage.options,
            endpoint_is_loopback=False,
            local=True,
        )
        parts = divide(plan, core_count(self._session) if len(tasks) > 1 else 1)
        return batches_frame(self._session, encode(job), [encode(part) for part in parts], logical)

    def _read(self, tasks: Sequence[FileScanTask], stored: StructType) -> DataFrame:
        """Read files with Spark; `stored` has the names and types of `self._data` in them."""
        from pyspark.sql import functions as F  # noqa: N812

        folders = (StructField(self._name(field), field.type) for field in self._partitions)
        # The session's settings for old times, missing files and characters in paths must not apply. Files that
        # Spark wrote record the calendar of their times; the others use today's.
        reader = self._session.read.schema(self._spark_types((*stored, *folders))).options(
            **dict.fromkeys(("datetimeRebaseMode", "int96RebaseMode"), "CORRECTED"),
            **dict.fromkeys(("__globPaths__", "mergeSchema", "ignoreMissingFiles", "ignoreCorruptFiles"), "false"),
            basePath=str(self._scan.directory),
        )
        with listed_by_cores(self._session):
            frame = reader.parquet(*[task.url.reveal() for task in tasks])
        if tasks[0].deletion_vector is not None:
            frame = self._without_deleted(frame, tasks)
        places = dict(zip((field.name for field in self._data), self._spark_types(stored), strict=True))
        columns = []
        for field, wanted in zip(self._output, self._spark_types(self._output), strict=True):
            place = places.get(field.name)
            if _is_void(field):
                column = F.lit(None).cast(wanted.dataType)
            elif place is None:
                column = F.col(quoted(self._name(field)))
            else:
                column = F.col(quoted(place.name))
                if place.dataType != wanted.dataType:  # the cast matches nested fields by position
                    column = column.cast(wanted.dataType)
            columns.append(column.alias(field.name))
        return frame.select(columns)

    def _spark_types(self, fields: Iterable[StructField]) -> SparkStruct:
        """Return fields as Spark's Parquet reader returns them: variants are of Spark's own type."""
        return spark_schema(StructType(tuple(fields)), "struct", self._version)

    def _without_deleted(self, frame: DataFrame, tasks: Sequence[FileScanTask]) -> DataFrame:
        """Remove the rows that deletion vectors mark, by the names of the files, which are unique in a mirror."""
        from pyspark.sql import functions as F  # noqa: N812

        storage = LocalReader(self._scan._storage.options)
        rows = []
        for task in tasks:
            deleted = fetch_vector(storage, task)
            if deleted is not None and len(deleted):
                rows.append((Path(task.url.reveal()).name, deleted.positions.tolist()))
        # One row per file: PySpark needs 20 microseconds for each row.
        given = self._session.createDataFrame(rows, f"{_FILE} string, rows array<bigint>")
        gone = given.select(_FILE, F.explode("rows").alias(_ROW))
        frame = frame.withColumn(_FILE, F.col(f"{_FILE_METADATA}.file_name"))
        frame = frame.withColumn(_ROW, F.col(f"{_FILE_METADATA}.row_index"))
        return frame.join(F.broadcast(gone), [_FILE, _ROW], "left_anti")

    def _name(self, field: StructField) -> str:
        return physical_name(field, self._mode)

    def _has_values_in_folders(self, task: FileScanTask) -> bool:
        """Whether Spark parses a file's partition values from its folders as Delta does."""
        wanted = []
        for field in self._partitions:
            name = self._name(field)
            value = task.partition_values.get(name)
            if not (name + (value or "")).isascii():
                return False  # Spark decodes each encoded byte as a character
            pattern = _FOLDER_VALUES.get(str(field.type))
            if pattern is None or (value and value != NO_VALUE and not pattern.fullmatch(value)):
                return False
            wanted.append(f"{encode_folder(name)}={encode_folder(value) if value else NO_VALUE}")
        folders, _, _ = task.url.reveal().rpartition("/")
        return folders.endswith("/".join(["", *wanted]))


def _is_void(field: StructField) -> bool:
    return field.type == PrimitiveType("void")
