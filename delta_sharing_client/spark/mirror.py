"""A mirror as a Spark DataFrame, read by Spark's own Parquet reader: it prunes columns, partitions and row groups.

Where delta-spark is in the session it reads the mirror as the Delta table that it is. Else Spark is given the
files of the version one by one, never the directory, and what it cannot know of Delta is done in its terms:
deleted rows by an anti join on the row index, mapped columns by a projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import SparkError
from delta_sharing_client.materialize.names import NO_VALUE, encode_folder
from delta_sharing_client.mirror.scan import MirrorScan
from delta_sharing_client.protocol.column_mapping import physical_name
from delta_sharing_client.protocol.partition_values import parse_partition_value
from delta_sharing_client.protocol.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.query import ScanPlan
from delta_sharing_client.read.fetch import fetch_vector
from delta_sharing_client.read.local import LocalStorage
from delta_sharing_client.scan.tasks import FileScanTask
from delta_sharing_client.spark.columns import holds_variant, spark_schema
from delta_sharing_client.spark.session import session_for, spark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct

_DELTA: Final = "DeltaSparkSessionExtension"
#: Deleted rows that are handed to Spark at the most.
_MOST_DELETED: Final = 20_000_000
_EPOCH: Final = datetime(1970, 1, 1)
#: Types of partition columns whose text Spark reads as Delta means it.
_PLAIN: Final = frozenset(
    {"string", "long", "integer", "short", "byte", "boolean", "date", "float", "double", "binary"}
)


def mirror_dataframe(scan: MirrorScan, spark: SparkSession | None = None) -> DataFrame:
    """Return a DataFrame over the local files of a mirror.

    Nothing is asked of the server, now or later, and nothing is downloaded. The files have to lie where the
    executors see them too. Spark prunes columns and pushes filters down by itself.

    Args:
        scan: what to read; its columns are chosen here, rows with Spark's own `where` and `limit`.
        spark: the session; without it the active one, or a new local one.

    Raises:
        ValueError: the scan has filters or a limit.
        MissingDependencyError: PySpark is not installed.
        SparkError: the mirror needs something that Spark cannot do without delta-spark.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    if scan.filters is not None or scan.limit is not None:
        raise ValueError(
            "Spark filters what it reads of a mirror itself: leave filters and limit out, and use where() and "
            "limit() of the DataFrame"
        )
    session = session_for(spark)
    plan = scan.plan()
    names = plan.spec.output.names
    if _DELTA in (session.conf.get("spark.sql.extensions", "") or ""):
        reader = session.read.format("delta").option("versionAsOf", str(scan.snapshot.version))
        return reader.load(str(scan.directory)).select([_quoted(name) for name in names])
    frame = _Files(session, scan, plan).frame()
    return frame.select([_quoted(name) for name in names])


class _Files:
    """The files of a mirror's version, as Spark without delta-spark reads them."""

    def __init__(self, session: SparkSession, scan: MirrorScan, plan: ScanPlan) -> None:
        self._session = session
        self._scan = scan
        self._plan = plan
        self._mode = plan.spec.mapping
        self._what = f"the mirror in {scan.directory}"
        schema = plan.metadata.schema
        self._partitions = [f for f in (schema.find(n) for n in plan.metadata.partition_columns) if f is not None]
        self._fields = list(schema.fields)
        self._check()
        self._spelt = all(
            str(field.type) in _PLAIN or isinstance(field.type, DecimalType) for field in self._partitions
        )
        self._spelt = self._spelt and all(self._told_by_folders(task) for task in plan.tasks)

    def frame(self) -> DataFrame:
        """Return all columns under their names."""
        plain = [task for task in self._plan.tasks if task.deletion_vector is None]
        marked = [task for task in self._plan.tasks if task.deletion_vector is not None]
        frames = [self._read(plain, {})] if plain or not marked else []
        if marked:
            frames.append(self._read(marked, self._deleted(marked)))
        frame = frames[0]
        for other in frames[1:]:
            frame = frame.unionByName(other)
        return frame

    def _read(self, tasks: Sequence[FileScanTask], deleted: Mapping[str, Any]) -> DataFrame:
        from pyspark.sql import functions as F  # noqa: N812

        version = spark_version(self._session)
        logical = spark_schema(StructType(tuple(self._fields)), self._scan.variant, version)
        if not tasks:
            return self._session.createDataFrame([], logical)
        apart = [] if self._spelt else self._partitions
        stored = [self._stored(field) for field in self._fields if not _is_void(field) and field not in apart]
        reader = self._session.read.schema(spark_schema(StructType(tuple(stored)), self._scan.variant, version))
        if self._partitions and not apart:
            reader = reader.option("basePath", str(self._scan.directory))
        frame = reader.parquet(*[task.url for task in tasks])
        if apart:  # as a column of its own: Spark 3.5 cannot join by the hidden one
            frame = frame.withColumn("__of_file", F.col("_metadata.file_name"))
        if deleted:
            frame = self._without(frame, deleted)
        if apart:
            frame = self._with_values(frame, tasks, logical)
        columns = []
        for field, wanted in zip(self._fields, logical.fields, strict=True):
            if _is_void(field):
                columns.append(F.lit(None).cast(wanted.dataType).alias(field.name))
                continue
            column = F.col(_quoted(physical_name(field, self._mode)))
            if self._mode != "none" and isinstance(field.type, StructType | ArrayType | MapType):
                column = column.cast(wanted.dataType)  # by position: the names inside are other ones
            columns.append(column.alias(field.name))
        return frame.select(columns)

    def _without(self, frame: DataFrame, deleted: Mapping[str, Any]) -> DataFrame:
        import pyarrow as pa
        from pyspark.sql import functions as F  # noqa: N812

        rows = sum(len(positions) for positions in deleted.values())
        if rows > _MOST_DELETED:
            raise SparkError(
                f"{self._what} has {rows:,} deleted rows, more than {_MOST_DELETED:,}: put delta-spark into the "
                "session"
            )
        names = [name for name, positions in deleted.items() for _ in range(len(positions))]
        table = pa.table(
            {
                "__file": pa.array(names, pa.string()),
                "__row": pa.concat_arrays([pa.array(positions, pa.int64()) for positions in deleted.values()]),
            }
        )
        given: Any = table if spark_version(self._session) >= (4, 0) else table.to_pandas()
        gone = F.broadcast(self._session.createDataFrame(given))
        frame = frame.withColumn("__in_file", F.col("_metadata.file_name"))
        frame = frame.withColumn("__at_row", F.col("_metadata.row_index"))
        same = (F.col("__in_file") == F.col("__file")) & (F.col("__at_row") == F.col("__row"))
        return frame.join(gone, same, "left_anti")

    def _with_values(self, frame: DataFrame, tasks: Sequence[FileScanTask], logical: SparkStruct) -> DataFrame:
        """Add the partition columns by the names of the files, where the folders do not spell them out."""
        from pyspark.sql import functions as F  # noqa: N812

        rows = []
        for task in tasks:
            texts = [_text(task.partition_values.get(self._name(field)), field) for field in self._partitions]
            rows.append((task.url.rpartition("/")[2], *texts))
        names = ["__name", *(f"__value{number}" for number in range(len(self._partitions)))]
        values = self._session.createDataFrame(rows, ", ".join(f"{name} string" for name in names))
        joined = frame.join(F.broadcast(values), F.col("__of_file") == F.col("__name"))
        types = {field.name: field.dataType for field in logical.fields}
        for field, name in zip(self._partitions, names[1:], strict=True):
            joined = joined.withColumn(self._name(field), F.col(name).cast(types[field.name]))
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
                found[task.url.rpartition("/")[2]] = positions.positions
        return found

    def _stored(self, field: StructField) -> StructField:
        return StructField(physical_name(field, self._mode), self._stored_type(field.type))

    def _stored_type(self, data_type: DataType) -> DataType:
        """A type with the names that its parts have in the files."""
        if isinstance(data_type, StructType):
            return StructType(tuple(self._stored(field) for field in data_type))
        if isinstance(data_type, ArrayType):
            return ArrayType(self._stored_type(data_type.element))
        if isinstance(data_type, MapType):
            return MapType(self._stored_type(data_type.key), self._stored_type(data_type.value))
        return data_type

    def _check(self) -> None:
        """Raise where Spark would need delta-spark.

        Raises:
            SparkError: columns are mapped by id, types were widened, or variants are wanted as text.
        """
        reasons = []
        if self._mode == "id":
            reasons.append("its columns are mapped by id")
        if any("typewidening" in feature.lower() for feature in self._plan.protocol.required_features):
            reasons.append("types of its columns were widened")
        if self._scan.variant == "json" and any(holds_variant(field.type) for field in self._fields):
            reasons.append("variants cannot be read as text (use to_json on the column)")
        if reasons:
            raise SparkError(
                f"{self._what} cannot be read by Spark alone: {'; '.join(reasons)}. Put delta-spark into the "
                "session, or load the shared table without mirror="
            )

    def _told_by_folders(self, task: FileScanTask) -> bool:
        """Whether the folders of a file spell its partition values out."""
        wanted = []
        for field in self._partitions:
            name = physical_name(field, self._mode)
            value = task.partition_values.get(name)
            if not (name + (value or "")).isascii():
                return False  # Spark takes each encoded byte for a character
            wanted.append(f"{encode_folder(name)}={encode_folder(value) if value else NO_VALUE}")
        return task.url.endswith("/".join(["", *wanted, task.url.rpartition("/")[2]]))


def _text(value: str | None, field: StructField) -> str | None:
    """A partition value as text that Spark reads as Delta means it, whatever the session's time zone is."""
    if not value:
        return None
    kind = str(field.type)
    if kind not in ("timestamp", "timestamp_ntz"):
        return value
    micros = parse_partition_value(value, field.type)
    if not isinstance(micros, int):
        return None
    moment = _EPOCH + timedelta(microseconds=micros)
    return moment.isoformat() + ("Z" if kind == "timestamp" else "")


def _is_void(field: StructField) -> bool:
    return field.type == PrimitiveType("void")


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
