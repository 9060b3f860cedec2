"""Files of a plan as Spark DataFrames: Spark's own Parquet reader prunes columns, partitions and row groups.

Columns are read under the names and types of each file's footer (`stored_columns`), then cast to those of the
table. An anti join on the row index removes deleted rows. Files that Spark would read differently from this
package, or not at all, are read by this package on the executors.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from msgspec.structs import replace

from delta_sharing_client.delta.table.local_names import NO_VALUE, encode_folder
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.column_mapping import physical_name
from delta_sharing_client.model.partition_values import MISSING, partition_text
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.cast import holds_variant
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.tasks import FileScanTask, VariantForm
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.frame import batches_frame
from delta_sharing_client.spark.session import core_count, spark_version
from delta_sharing_client.spark.spark_schema import quoted, spark_schema
from delta_sharing_client.spark.stored_columns import Footer, stored_columns

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
    from pyspark.sql.types import DataType as SparkType
    from pyspark.sql.types import StructType as SparkStruct

logger = module_logger(__name__)

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
#: The integers in a binary column, 8 bytes each. Spark has no function for them but by their digits.
_UNPACKED: Final = (
    f"transform(sequence(1, length({_ROW}), 8), i -> cast(conv(hex(substring({_ROW}, i, 8)), 16, 10) AS bigint))"
)


#: A file, and the folders of its partition values.
_File: TypeAlias = tuple[FileScanTask, str]


class FileSource(Protocol):
    """Files of a plan under paths that Spark's Parquet reader opens: a mirror's, or a gateway's."""

    def accepts(self, task: FileScanTask, folders: str) -> bool:
        """Whether Spark may read a file; `folders` are those of its partition values, each with a slash."""

    def footers(self, files: Sequence[tuple[FileScanTask, str]]) -> Sequence[Footer | None]:
        """Return the footers of files, each with its folders; None for a file that Spark must not read."""

    def file_name(self, task: FileScanTask) -> str:
        """Return the last part of a file's path, which is unique in the plan."""

    def deleted_rows(self, tasks: Sequence[FileScanTask]) -> Sequence[RowPositions | None]:
        """Return the rows that the deletion vectors of files mark."""

    def read(self, reader: DataFrameReader, files: Sequence[tuple[FileScanTask, str]]) -> DataFrame:
        """Return the rows of files, each with its folders, in the schema of the reader."""

    def encode(self, plan: ScanPlan, cores: int) -> tuple[bytes, list[bytes]]:
        """Return a plan as a job and its partitions, which this package reads on the executors."""


class ParquetFrame:
    """The files of a plan as a DataFrame. This package reads them if the plan has a filter or a limit.

    Args:
        session: the session.
        plan: the files.
        source: where Spark finds them.
        variant: the form of variants: ``struct`` for Spark's own type, ``json`` for text.
    """

    def __init__(self, session: SparkSession, plan: ScanPlan, source: FileSource, variant: VariantForm) -> None:
        self._session = session
        self._plan = plan
        self._source = source
        self._variant = variant
        self._mode = plan.spec.mapping
        self._version = spark_version(session)
        self._output = plan.spec.output
        schema = plan.metadata.schema
        self._partitions = [f for f in (schema.find(n) for n in plan.metadata.partition_columns) if f is not None]
        named = {field.name for field in self._partitions}
        self._data = [field for field in self._output if field.name not in named and not _is_void(field)]

    def frame(self) -> DataFrame:
        """Return the columns of the plan."""
        logical = spark_schema(self._output, self._variant, self._version)
        groups, others = self._groups()
        logger.info(
            "table %s: Spark's Parquet reader reads %d files, and this package %d",
            self._plan.table.full_name,
            sum(map(len, groups.values())),
            len(others),
        )
        frames = [self._read(files, stored) for (stored, _), files in groups.items()]
        if others:
            frames.append(self._read_with_package(others, logical))
        if not frames:
            return self._session.createDataFrame([], logical)
        return reduce(lambda one, other: one.unionByName(other), frames)

    def _groups(self) -> tuple[dict[tuple[StructType, bool], list[_File]], list[FileScanTask]]:
        """Return the files that Spark reads, and the files that this package reads.

        A group has the same stored columns, and either deletion vectors or none.
        """
        groups: dict[tuple[StructType, bool], list[_File]] = {}
        reserved = {self._name(field).lower() for field in self._partitions}
        as_text = self._variant == "json" and any(holds_variant(field.type) for field in self._data)
        narrowed = self._plan.limit is not None or self._plan.spec.predicate is not None
        readable = not narrowed and _FILE_METADATA not in reserved and not as_text
        reserved.add(_FILE_METADATA)
        files, others = self._candidates() if readable else ([], list(self._plan.tasks))
        footers = self._source.footers(files)
        for (task, folders), footer in zip(files, footers, strict=True):
            stored = None
            if footer is not None:
                stored = stored_columns(footer, self._data, self._mode, task.file_id, self._version)
            if stored is None or any(field.name.lower() in reserved for field in stored):
                others.append(task)
            else:
                groups.setdefault((stored, task.deletion_vector is not None), []).append((task, folders))
        smallest = sorted(groups, key=lambda key: sum(task.size for task, _ in groups[key]))
        for key in smallest[: max(len(groups) - _MOST_GROUPS, 0)]:
            others += [task for task, _ in groups.pop(key)]
        return groups, others

    def _candidates(self) -> tuple[list[_File], list[FileScanTask]]:
        """Return the files that Spark may read if their footers allow it, and the other files."""
        files: list[_File] = []
        others = []
        # A server may send a negative number, which the vector contradicts when it is read.
        vectors = (task.deletion_vector for task in self._plan.tasks if task.deletion_vector is not None)
        deleted = sum(max(vector.cardinality, 0) for vector in vectors)
        for task in self._plan.tasks:
            folders = self._folders(task)
            marked = task.deletion_vector is not None
            if folders is None or (marked and deleted > _MOST_DELETED) or not self._source.accepts(task, folders):
                others.append(task)
            else:
                files.append((task, folders))
        return files, others

    def _read_with_package(self, tasks: Sequence[FileScanTask], logical: SparkStruct) -> DataFrame:
        plan = replace(self._plan, tasks=list(tasks))
        job, parts = self._source.encode(plan, core_count(self._session) if len(tasks) > 1 else 1)
        return batches_frame(self._session, job, parts, logical)

    def _read(self, files: Sequence[_File], stored: StructType) -> DataFrame:
        """Read files with Spark; `stored` has the names and types of `self._data` in them."""
        from pyspark.sql import functions as F  # noqa: N812

        folders = (StructField(self._name(field), field.type) for field in self._partitions)
        # The session's settings for old times, missing files and characters in paths must not apply. Files that
        # Spark wrote record the calendar of their times; the others use today's.
        reader = self._session.read.schema(self._spark_types((*stored, *folders))).options(
            **dict.fromkeys(("datetimeRebaseMode", "int96RebaseMode"), "CORRECTED"),
            **dict.fromkeys(("__globPaths__", "mergeSchema", "ignoreMissingFiles", "ignoreCorruptFiles"), "false"),
        )
        frame = self._source.read(reader, files)
        if files[0][0].deletion_vector is not None:
            frame = self._without_deleted(frame, [task for task, _ in files])
        places = dict(zip((field.name for field in self._data), self._spark_types(stored), strict=True))
        columns = []
        for field, wanted in zip(self._output, self._spark_types(self._output), strict=True):
            place = places.get(field.name)
            if _is_void(field):
                column = F.lit(None).cast(wanted.dataType)
            elif place is None:
                column = F.col(quoted(self._name(field)))
            else:
                column = _compared_by_spark(F.col(quoted(place.name)), place.dataType)
                if place.dataType != wanted.dataType:  # the cast matches nested fields by position
                    column = column.cast(wanted.dataType)
            columns.append(column.alias(field.name))
        return frame.select(columns)

    def _spark_types(self, fields: Iterable[StructField]) -> SparkStruct:
        """Return fields as Spark's Parquet reader returns them: variants are of Spark's own type."""
        return spark_schema(StructType(tuple(fields)), "struct", self._version)

    def _without_deleted(self, frame: DataFrame, tasks: Sequence[FileScanTask]) -> DataFrame:
        """Remove the rows that deletion vectors mark, by the names of the files."""
        from pyspark.sql import functions as F  # noqa: N812

        names = map(self._source.file_name, tasks)
        gone = _positions_frame(self._session, zip(names, self._source.deleted_rows(tasks), strict=True))
        frame = frame.withColumn(_FILE, F.col(f"{_FILE_METADATA}.file_name"))
        frame = frame.withColumn(_ROW, F.col(f"{_FILE_METADATA}.row_index"))
        return frame.join(F.broadcast(gone), [_FILE, _ROW], "left_anti")

    def _name(self, field: StructField) -> str:
        return physical_name(field, self._mode)

    def _folders(self, task: FileScanTask) -> str | None:
        """Return the folders of a file's partition values; None if Spark does not read these as Delta does."""
        folders = ""
        for field in self._partitions:
            name = self._name(field)
            value = partition_text(task.partition_values, name, field.name)
            if value is MISSING:
                return None  # this package looks for the column in the file
            if not (name + (value or "")).isascii():
                return None  # Spark decodes each encoded byte as a character
            pattern = _FOLDER_VALUES.get(str(field.type))
            if pattern is None or (value and value != NO_VALUE and not pattern.fullmatch(value)):
                return None
            folders += f"{encode_folder(name)}={encode_folder(value) if value else NO_VALUE}/"
        return folders


def _positions_frame(session: SparkSession, deleted: Iterable[tuple[str, RowPositions | None]]) -> DataFrame:
    """Return the names of files with the positions of their deleted rows, a row for each."""
    # One row per file, because PySpark needs 20 microseconds for each row; and 8 bytes for each position, because
    # numbers of Python take 40.
    rows = [(name, bytearray(each.positions.astype(">i8"))) for name, each in deleted if each is not None]
    given = session.createDataFrame([row for row in rows if row[1]], f"{_FILE} string, {_ROW} binary")
    return given.selectExpr(_FILE, f"explode({_UNPACKED}) AS {_ROW}")


def _compared_by_spark(column: Column, kind: SparkType) -> Column:
    """Return a column of which Spark compares floating-point numbers, in it or its structs, with values alone.

    The bounds and dictionaries of Parquet files, which its reader compares with a filter, have no NaN, and tell
    -0.0 from 0.0; in Spark NaN is the largest number, and both zeros are equal.
    """
    from pyspark.sql import functions as F  # noqa: N812
    from pyspark.sql.types import DoubleType, FloatType, StructType

    if isinstance(kind, DoubleType | FloatType):
        return F.nanvl(column, F.lit(math.nan).cast(kind))  # the same number: no filter is pushed below it
    if isinstance(kind, StructType):
        for field in kind.fields:
            inner = column.getField(field.name)
            if (changed := _compared_by_spark(inner, field.dataType)) is not inner:
                column = column.withField(quoted(field.name), changed)
    return column


def _is_void(field: StructField) -> bool:
    return field.type == PrimitiveType("void")
