"""The files of a mirror's version as a DataFrame, by Spark's own Parquet reader without delta-spark.

Columns are read under the names and types of each file's footer (`mirror_footers`), then cast to those of the
table. An anti join on the row index removes deleted rows. Files that Spark would read differently from this
package, or not at all, are read by this package on the executors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.delta.mirror.mirror_scan import MirrorScan
from delta_sharing_client.delta.table.local_names import NO_VALUE, encode_folder
from delta_sharing_client.errors import DataError
from delta_sharing_client.model.column_mapping import physical_name
from delta_sharing_client.model.partition_values import parse_partition_value
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.fetch import fetch_vector
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.frame import batches_frame
from delta_sharing_client.spark.job import Job, encode
from delta_sharing_client.spark.mirror_footers import read_footers, stored_columns
from delta_sharing_client.spark.partition_plan import divide
from delta_sharing_client.spark.session import core_count, listed_by_cores, spark_version
from delta_sharing_client.spark.spark_schema import quoted, spark_schema
from delta_sharing_client.spark.variant_text import as_text, has_text, variant_text
from delta_sharing_client.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct

#: Maximum number of deleted rows for the anti join: Spark's driver builds a table of them, by default within 1 GB.
_MOST_DELETED: Final = 1_000_000
#: Maximum number of groups of files with equal columns; each makes Spark's plan larger.
_MOST_GROUPS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1)
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
#: Prefix of temporary columns.
_HELPER: Final = "__delta_sharing_"


class MirrorFiles:
    """The files of a mirror's version for a Spark without delta-spark, from a scan without filters and limit."""

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
        self._text = variant_text(session) if scan.options.variant == "json" else None
        self._values_in_folders = all(self._has_values_in_folders(task) for task in plan.tasks)

    def frame(self) -> DataFrame:
        """Return the columns of the scan.

        Raises:
            FileGoneError: a file is missing.
            DataError: a file is damaged.
            UnsupportedTypeError: a column has a type that this Spark lacks.
        """
        logical = spark_schema(self._output, self._scan.options.variant, self._version)
        groups, others = self._groups()
        frames = []
        for stored, tasks in groups.items():
            plain = [task for task in tasks if task.deletion_vector is None]
            marked = [task for task in tasks if task.deletion_vector is not None]
            if plain:
                frames.append(self._read(plain, stored, {}))
            if marked:
                frames.append(self._read(marked, stored, self._deleted(marked)))
        if others:
            frames.append(self._read_with_package(others, logical))
        if not frames:
            return self._session.createDataFrame([], logical)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _groups(self) -> tuple[dict[StructType, list[FileScanTask]], list[FileScanTask]]:
        """Return the files that Spark reads, by their columns, and the files that this package reads."""
        groups: dict[StructType, list[FileScanTask]] = {}
        others: list[FileScanTask] = []
        deleted = sum(task.deletion_vector.cardinality for task in self._plan.tasks if task.deletion_vector)
        reserved = {self._name(field).lower() for field in self._partitions}
        readable = _FILE_METADATA not in reserved
        if self._text is not None:
            readable &= all(has_text(field.type) for field in self._data)
        reserved.add(_FILE_METADATA)
        for task, footer in zip(self._plan.tasks, read_footers(self._plan.tasks), strict=True):
            stored = stored_columns(footer, self._data, self._mode, task.file_id, self._version)
            too_many = task.deletion_vector is not None and deleted > _MOST_DELETED
            if not readable or stored is None or too_many or any(f.name.lower() in reserved for f in stored):
                others.append(task)
            else:
                groups.setdefault(stored, []).append(task)
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
            counting=not self._output.fields,
            local=True,
        )
        parts = divide(plan, core_count(self._session) if len(tasks) > 1 else 1)
        return batches_frame(self._session, encode(job), [encode(part) for part in parts], logical)

    def _read(self, tasks: Sequence[FileScanTask], stored: StructType, deleted: Mapping[str, Any]) -> DataFrame:
        """Read files with Spark: `stored` has the names and types of `self._data`, `deleted` positions by file."""
        from pyspark.sql import functions as F  # noqa: N812

        schema = self._spark_types(stored)
        in_folders = self._partitions if self._values_in_folders else []
        joined = [] if in_folders else [field for field in self._partitions if field.name in self._output.names]
        reader = self._session.read.schema(
            self._spark_types((*stored, *(StructField(self._name(f), f.type) for f in in_folders)))
        )
        # The session's settings for old times, missing files and characters in paths must not apply. Files that
        # Spark wrote record the calendar of their times; the others use today's.
        reader = reader.options(
            **dict.fromkeys(("datetimeRebaseMode", "int96RebaseMode"), "CORRECTED"),
            **dict.fromkeys(("__globPaths__", "mergeSchema", "ignoreMissingFiles", "ignoreCorruptFiles"), "false"),
        )
        if in_folders:
            reader = reader.option("basePath", str(self._scan.directory))
        with listed_by_cores(self._session):
            frame = reader.parquet(*[task.url.reveal() for task in tasks])
        if joined:  # as a column of its own: Spark 3.5 cannot join by the hidden one
            frame = frame.withColumn(f"{_HELPER}of_file", F.col(f"{_FILE_METADATA}.file_name"))
        if deleted:
            frame = self._without(frame, deleted)
        if joined:
            frame = self._with_values(frame, tasks, joined)
        types = self._spark_types(self._output)
        places = dict(zip((field.name for field in self._data), schema, strict=True))
        columns = []
        for field, wanted in zip(self._output, types, strict=True):
            place = places.get(field.name)
            if _is_void(field):
                column = F.lit(None).cast(wanted.dataType)
            elif place is None:
                column = F.col(quoted(self._name(field)))
            else:
                column = F.col(quoted(place.name))
                if place.dataType != wanted.dataType:  # the cast matches nested fields by position
                    column = column.cast(wanted.dataType)
                if self._text is not None:
                    column = as_text(column, field.type, self._text)
            columns.append(column.alias(field.name))
        return frame.select(columns)

    def _spark_types(self, fields: Iterable[StructField]) -> SparkStruct:
        """Return fields as Spark's Parquet reader returns them: variants are of Spark's own type."""
        return spark_schema(StructType(tuple(fields)), "struct", self._version)

    def _without(self, frame: DataFrame, deleted: Mapping[str, Any]) -> DataFrame:
        """Remove rows by their files' names and their row indexes."""
        from pyspark.sql import functions as F  # noqa: N812

        gone = F.broadcast(self._rows_of(deleted))
        frame = frame.withColumn(f"{_HELPER}in_file", F.col(f"{_FILE_METADATA}.file_name"))
        frame = frame.withColumn(f"{_HELPER}at_row", F.col(f"{_FILE_METADATA}.row_index"))
        same = (F.col(f"{_HELPER}in_file") == F.col(f"{_HELPER}file")) & (
            F.col(f"{_HELPER}at_row") == F.col(f"{_HELPER}row")
        )
        return frame.join(gone, same, "left_anti")

    def _rows_of(self, deleted: Mapping[str, Any]) -> DataFrame:
        """Return names of files and row indexes as a DataFrame."""
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812

        file, row = f"{_HELPER}file", f"{_HELPER}row"
        if self._version >= (4, 0):
            names = pa.array(list(deleted), pa.string())
            counts = [len(positions) for positions in deleted.values()]
            each = pa.array([number for number, count in enumerate(counts) for _ in range(count)], pa.int32())
            places = pa.concat_arrays([pa.array(positions, pa.int64()) for positions in deleted.values()])
            return self._session.createDataFrame(pa.table({file: names.take(each), row: places}))
        # One row per file: PySpark 3.5 takes 20 microseconds for each row.
        rows = [(name, positions.tolist()) for name, positions in deleted.items()]
        given = self._session.createDataFrame(rows, f"{file} string, places array<bigint>")
        return given.select(file, F.explode("places").alias(row))

    def _with_values(
        self, frame: DataFrame, tasks: Sequence[FileScanTask], fields: Sequence[StructField]
    ) -> DataFrame:
        """Add partition columns by a join on the names of the files."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = []
        for task in tasks:
            texts = [_text(task, self._name(field), field) for field in fields]
            rows.append((Path(task.url.reveal()).name, *texts))
        names = [f"{_HELPER}name", *(f"{_HELPER}value{number}" for number in range(len(fields)))]
        values = self._session.createDataFrame(rows, ", ".join(f"{name} string" for name in names))
        joined = frame.join(F.broadcast(values), F.col(f"{_HELPER}of_file") == F.col(names[0]))
        for field, name, kind in zip(fields, names[1:], self._spark_types(fields), strict=True):
            value = F.col(name)
            if str(field.type) == "timestamp":
                value = F.timestamp_micros(value.cast("bigint"))
            joined = joined.withColumn(self._name(field), value.cast(kind.dataType))
        return joined

    def _name(self, field: StructField) -> str:
        return physical_name(field, self._mode)

    def _deleted(self, tasks: Sequence[FileScanTask]) -> dict[str, Any]:
        """Return the positions of deleted rows by the name of their file, which is unique in a mirror."""
        storage = LocalStorage(self._scan._storage.options)
        found = {}
        for task in tasks:
            positions = fetch_vector(storage, task)
            if positions is not None and len(positions):
                found[Path(task.url.reveal()).name] = positions.positions
        return found

    def _has_values_in_folders(self, task: FileScanTask) -> bool:
        """Whether Spark parses a file's partition values from its folders as Delta does."""
        wanted = []
        for field in self._partitions:
            name = self._name(field)
            value = task.partition_values.get(name)
            if not (name + (value or "")).isascii():
                return False  # Spark takes each encoded byte for a character
            pattern = _FOLDER_VALUES.get(str(field.type))
            if pattern is None or (value and value != NO_VALUE and not pattern.fullmatch(value)):
                return False
            wanted.append(f"{encode_folder(name)}={encode_folder(value) if value else NO_VALUE}")
        folders, _, _ = task.url.reveal().rpartition("/")
        return folders.endswith("/".join(["", *wanted]))


def _text(task: FileScanTask, name: str, field: StructField) -> str | None:
    """A partition value as text that Spark parses as Delta does; an instant as its microseconds."""
    text = task.partition_values.get(name)
    try:
        value = parse_partition_value(text, field.type)
    except ValueError as error:
        raise DataError(f"partition column {field.name!r}: {error}", file_id=task.file_id) from None
    if value is None or isinstance(value, str | bytes):
        return None if value is None else text
    if str(field.type) == "timestamp_ntz" and isinstance(value, int):
        return (_EPOCH + timedelta(microseconds=value)).isoformat()
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def _is_void(field: StructField) -> bool:
    return field.type == PrimitiveType("void")
