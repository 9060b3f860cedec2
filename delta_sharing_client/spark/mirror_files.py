"""The files of a mirror's version as a DataFrame, by Spark's own Parquet reader and without delta-spark.

Deleted rows are left out by an anti join on the row index; columns are asked for under the names and types that
each file has (`mirror_footers`), and cast. Files that Spark would read otherwise than this package, or not at
all, go through this package's own reader, on the executors.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
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
from delta_sharing_client.spark.mirror_columns import as_text, as_wanted, has_text, quoted, variant_text
from delta_sharing_client.spark.mirror_footers import VARIANT_FILES_SINCE, read_footers, stored_columns
from delta_sharing_client.spark.partition_plan import divide
from delta_sharing_client.spark.session import core_count, listed_by_cores, spark_version
from delta_sharing_client.spark.spark_schema import spark_schema
from delta_sharing_client.storage.local import LocalStorage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct

#: Deleted rows that are handed to Spark at the most: its driver makes a table of them, by default within 1 GB.
_MOST_DELETED: Final = 1_000_000
#: Groups of files that Spark reads apart at the most; each makes its plans larger.
_MOST_GROUPS: Final = 32
_EPOCH: Final = datetime(1970, 1, 1)
#: Partition values that Spark takes from folders as Delta means them. Only those of strings are decoded there, and
#: decimals do not get the scale of their type.
_TOLD: Final = {
    "string": re.compile(".*", re.DOTALL),
    "boolean": re.compile("true|false"),
    "date": re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII),
    **dict.fromkeys(("long", "integer", "short", "byte"), re.compile(r"-?\d+", re.ASCII)),
}
#: How Spark calls what it knows of a row's file; a column of that name would stand in its place.
_FILE_METADATA: Final = "_metadata"
#: Begins the names of columns that are only needed on the way.
_HELPER: Final = "__delta_sharing_"


class MirrorFiles:
    """The files of a mirror's version, as Spark without delta-spark reads them.

    Args:
        session: the session.
        scan: what to read; its filters and its limit are not looked at.
        plan: the plan of that scan.
    """

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
        self._spelt = all(self._told_by_folders(task) for task in plan.tasks)

    def frame(self) -> DataFrame:
        """Return the columns of the scan, under their names.

        Raises:
            FileGoneError: a file is not there.
            DataError: a file is damaged.
            UnsupportedTypeError: a column has a type that this Spark lacks.
        """
        logical = spark_schema(self._output, self._scan.options.variant, self._version)
        groups, ours = self._groups()
        frames = []
        for stored, tasks in groups.items():
            plain = [task for task in tasks if task.deletion_vector is None]
            marked = [task for task in tasks if task.deletion_vector is not None]
            if plain:
                frames.append(self._read(plain, stored, logical, {}))
            if marked:
                frames.append(self._read(marked, stored, logical, self._deleted(marked)))
        if ours:
            frames.append(self._read_ourselves(ours, logical))
        if not frames:
            return self._session.createDataFrame([], logical)
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other)
        return frame

    def _groups(self) -> tuple[dict[StructType, list[FileScanTask]], list[FileScanTask]]:
        """Put files together that Spark reads alike, and those that it does not read."""
        groups: dict[StructType, list[FileScanTask]] = {}
        ours: list[FileScanTask] = []
        marked = sum(task.deletion_vector.cardinality for task in self._plan.tasks if task.deletion_vector)
        taken = {self._name(field).lower() for field in self._partitions}
        hidden = _FILE_METADATA in taken
        taken.add(_FILE_METADATA)
        for task, footer in zip(self._plan.tasks, read_footers(self._plan.tasks), strict=True):
            stored = stored_columns(footer, self._data, self._mode, task.file_id, self._version)
            if self._text is not None and not all(has_text(field.type) for field in self._data):
                stored = None
            too_many = task.deletion_vector is not None and marked > _MOST_DELETED
            if hidden or stored is None or too_many or any(field.name.lower() in taken for field in stored):
                ours.append(task)
            else:
                groups.setdefault(stored, []).append(task)
        if len(groups) > _MOST_GROUPS:
            smallest = sorted(groups, key=lambda key: sum(task.size for task in groups[key]))
            for key in smallest[: len(groups) - _MOST_GROUPS]:
                ours += groups.pop(key)
        return groups, ours

    def _read_ourselves(self, tasks: Sequence[FileScanTask], logical: SparkStruct) -> DataFrame:
        """Read files by this package's reader, on the executors; nothing is pruned there but columns by name."""
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

    def _read(
        self, tasks: Sequence[FileScanTask], stored: StructType, logical: SparkStruct, deleted: Mapping[str, Any]
    ) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        apart = [] if self._spelt else [field for field in self._partitions if field.name in self._output.names]
        fields = list(stored.fields)
        if self._spelt:
            fields += [StructField(self._name(field), field.type) for field in self._partitions]
        reader = self._session.read.schema(spark_schema(StructType(tuple(fields)), "struct", self._version))
        # What the session says of old times, of missing files or of characters in paths shall not matter. Files
        # that Spark wrote tell themselves in which calendar their times are; the others are in today's.
        reader = reader.option("datetimeRebaseMode", "CORRECTED").option("int96RebaseMode", "CORRECTED")
        reader = reader.option("__globPaths__", "false").option("mergeSchema", "false")
        reader = reader.option("ignoreMissingFiles", "false").option("ignoreCorruptFiles", "false")
        if self._partitions and self._spelt:
            reader = reader.option("basePath", str(self._scan.directory))
        with listed_by_cores(self._session):
            frame = reader.parquet(*[task.url.reveal() for task in tasks])
        if apart:  # as a column of its own: Spark 3.5 cannot join by the hidden one
            frame = frame.withColumn(f"{_HELPER}of_file", F.col(f"{_FILE_METADATA}.file_name"))
        if deleted:
            frame = self._without(frame, deleted)
        if apart:
            frame = self._with_values(frame, tasks, apart)
        of_file = {field.name: place for field, place in zip(self._data, stored, strict=True)}
        types = {field.name: field.dataType for field in self._variants(logical)}
        columns = []
        for field in self._output:
            place = of_file.get(field.name)
            if _is_void(field):
                column = F.lit(None).cast(types[field.name])
            elif place is None:
                column = F.col(quoted(self._name(field)))
            else:
                column = as_wanted(F.col(quoted(place.name)), place.type, field.type, types[field.name])
                if self._text is not None:
                    column = as_text(column, field.type, self._text)
            columns.append(column.alias(field.name))
        return frame.select(columns)

    def _variants(self, logical: SparkStruct) -> SparkStruct:
        """The columns with variants of Spark's own type, where it has one."""
        if self._version < VARIANT_FILES_SINCE:
            return logical  # then no file with variants is read by Spark
        return spark_schema(self._output, "struct", self._version)

    def _without(self, frame: DataFrame, deleted: Mapping[str, Any]) -> DataFrame:
        """Leave rows out by their files' names and their places in them."""
        from pyspark.sql import functions as F  # noqa: N812

        gone = F.broadcast(self._rows_of(deleted))
        frame = frame.withColumn(f"{_HELPER}in_file", F.col(f"{_FILE_METADATA}.file_name"))
        frame = frame.withColumn(f"{_HELPER}at_row", F.col(f"{_FILE_METADATA}.row_index"))
        same = (F.col(f"{_HELPER}in_file") == F.col(f"{_HELPER}file")) & (
            F.col(f"{_HELPER}at_row") == F.col(f"{_HELPER}row")
        )
        return frame.join(gone, same, "left_anti")

    def _rows_of(self, deleted: Mapping[str, Any]) -> DataFrame:
        """Names of files and places in them, as a DataFrame."""
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812

        file, row = f"{_HELPER}file", f"{_HELPER}row"
        if self._version >= (4, 0):
            names = pa.array(list(deleted), pa.string())
            counts = [len(positions) for positions in deleted.values()]
            each = pa.array([number for number, count in enumerate(counts) for _ in range(count)], pa.int32())
            places = pa.concat_arrays([pa.array(positions, pa.int64()) for positions in deleted.values()])
            return self._session.createDataFrame(pa.table({file: names.take(each), row: places}))
        # A row for each file: where each place is one, PySpark 3.5 takes 20 microseconds for it.
        rows = [(name, positions.tolist()) for name, positions in deleted.items()]
        given = self._session.createDataFrame(rows, f"{file} string, places array<bigint>")
        return given.select(file, F.explode("places").alias(row))

    def _with_values(
        self, frame: DataFrame, tasks: Sequence[FileScanTask], fields: Sequence[StructField]
    ) -> DataFrame:
        """Add the partition columns by the names of the files, where the folders do not spell them out."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = []
        for task in tasks:
            texts = [_text(task, self._name(field), field) for field in fields]
            rows.append((Path(task.url.reveal()).name, *texts))
        names = [f"{_HELPER}name", *(f"{_HELPER}value{number}" for number in range(len(fields)))]
        values = self._session.createDataFrame(rows, ", ".join(f"{name} string" for name in names))
        joined = frame.join(F.broadcast(values), F.col(f"{_HELPER}of_file") == F.col(names[0]))
        types = spark_schema(StructType(tuple(fields)), "struct", self._version)
        for field, name, kind in zip(fields, names[1:], types.fields, strict=True):
            value = F.col(name)
            if str(field.type) == "timestamp":
                value = F.timestamp_micros(value.cast("bigint"))
            joined = joined.withColumn(self._name(field), value.cast(kind.dataType))
        return joined

    def _name(self, field: StructField) -> str:
        return physical_name(field, self._mode)

    def _deleted(self, tasks: Sequence[FileScanTask]) -> dict[str, Any]:
        """The positions of the deleted rows by the name of their file, which is unique in a mirror."""
        storage = LocalStorage(self._scan._storage.options)
        found = {}
        for task in tasks:
            positions = fetch_vector(storage, task)
            if positions is not None and len(positions):
                found[Path(task.url.reveal()).name] = positions.positions
        return found

    def _told_by_folders(self, task: FileScanTask) -> bool:
        """Whether the folders of a file spell its partition values out."""
        wanted = []
        for field in self._partitions:
            name = self._name(field)
            value = task.partition_values.get(name)
            if not (name + (value or "")).isascii():
                return False  # Spark takes each encoded byte for a character
            told = _TOLD.get(str(field.type))
            if told is None or (value and value != NO_VALUE and not told.fullmatch(value)):
                return False
            wanted.append(f"{encode_folder(name)}={encode_folder(value) if value else NO_VALUE}")
        folders, _, _ = task.url.reveal().rpartition("/")
        return folders.endswith("/".join(["", *wanted]))


def _text(task: FileScanTask, name: str, field: StructField) -> str | None:
    """A partition value as text that Spark reads as Delta means it; an instant as its microseconds."""
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
