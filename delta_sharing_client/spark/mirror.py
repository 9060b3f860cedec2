"""Mirrors as Spark DataFrames: Spark's own Parquet reader prunes columns, partitions and row groups.

If the session has delta-spark, it reads the mirror as a Delta table. Otherwise, and if delta-spark lacks a feature
of the table or returns other values, Spark reads the files of the version, not the directory; see `mirror_files`.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from delta_sharing_client.delta.mirror.mirror_scan import MirrorScan
from delta_sharing_client.model.schema import StructField
from delta_sharing_client.parquet.cast import holds_variant
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.mirror_files import MirrorFiles
from delta_sharing_client.spark.session import session_for, spark_version
from delta_sharing_client.spark.spark_schema import quoted, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("delta_sharing_client.spark")

_DELTA: Final = "DeltaSparkSessionExtension"
#: The metadata in which Spark stores the type of a column with `char` or `varchar`.
_CHARS: Final = "__CHAR_VARCHAR_TYPE_STRING"


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
    plan = scan.plan()
    has_delta = _DELTA in (session.conf.get("spark.sql.extensions", "") or "")
    frame = None
    if has_delta and not any(map(_is_padded, plan.spec.output)):
        frame = _through_delta(session, scan, plan)
    return MirrorFiles(session, scan, plan).frame() if frame is None else frame


def _is_padded(field: StructField) -> bool:
    """Whether a column has `char(n)`: delta-spark pads such texts with blanks, no other loader does."""
    return re.search(r"\bchar\(", str(field.metadata.get(_CHARS, ""))) is not None


def _through_delta(session: SparkSession, scan: MirrorScan, plan: ScanPlan) -> DataFrame | None:
    """Read the mirror as a Delta table; None if the session's delta-spark cannot."""
    from pyspark.sql import functions as F  # noqa: N812

    output = plan.spec.output
    if scan.options.variant == "json" and any(holds_variant(field.type) for field in output):
        return None
    wanted = spark_schema(output, scan.options.variant, spark_version(session))
    reader = session.read.format("delta").option("versionAsOf", str(scan.snapshot.version))
    try:
        frame = reader.load(str(scan.directory))
        frame = frame.select([F.col(quoted(field.name)).alias(field.name) for field in output])
        found = frame.schema.fields
    except Exception as error:  # noqa: BLE001  # delta-spark's exceptions have no common class
        logger.info("delta-spark cannot read the mirror (%s): Spark reads its files", type(error).__name__)
        return None
    kinds = [(have.dataType, want.dataType) for have, want in zip(found, wanted.fields, strict=True)]
    if any(have.simpleString() != want.simpleString() for have, want in kinds):
        return None
    if all(have == want for have, want in kinds):
        return frame
    # delta-spark keeps NOT NULL of nested fields; with the cast they are nullable, as in every other loader.
    return frame.select(
        [F.col(quoted(f.name)).cast(want).alias(f.name) for f, (_, want) in zip(output, kinds, strict=True)]
    )
