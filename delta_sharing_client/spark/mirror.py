"""A mirror as a Spark DataFrame, read by Spark's own Parquet reader: it prunes columns, partitions and row groups.

Where delta-spark is in the session it reads the mirror as the Delta table that it is. Else, and where the
session's delta-spark does not know a feature of the table, or gives other values, Spark is given the files of the
version one by one, never the directory, and what it cannot know of Delta is done in its terms; see `mirror_files`.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Final

from delta_sharing_client.delta.mirror.mirror_scan import MirrorScan
from delta_sharing_client.model.schema import StructField
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.mirror_columns import as_text, has_text, quoted, variant_text
from delta_sharing_client.spark.mirror_files import MirrorFiles
from delta_sharing_client.spark.session import session_for, spark_version
from delta_sharing_client.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("delta_sharing_client.spark")

_DELTA: Final = "DeltaSparkSessionExtension"
#: Where Spark keeps a column's type if it has `char` or `varchar` in it.
_CHARS: Final = "__CHAR_VARCHAR_TYPE_STRING"


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
        FileGoneError: a file of the mirror is not there.
        DataError: a file of the mirror is damaged.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    if scan.options.filters is not None or scan.options.limit is not None:
        raise ValueError(
            "Spark filters what it reads of a mirror itself: leave filters and limit out, and use where() and "
            "limit() of the DataFrame"
        )
    session = session_for(spark)
    plan = scan.plan()
    if _DELTA in (session.conf.get("spark.sql.extensions", "") or "") and not any(
        map(_is_padded, plan.spec.output)
    ):
        frame = _through_delta(session, scan, plan)
        if frame is not None:
            return frame
    return MirrorFiles(session, scan, plan).frame()


def _is_padded(field: StructField) -> bool:
    """Whether a column holds `char(n)`: delta-spark fills such texts up with blanks, and no other loader does."""
    return re.search(r"\bchar\(", str(field.metadata.get(_CHARS, ""))) is not None


def _through_delta(session: SparkSession, scan: MirrorScan, plan: ScanPlan) -> DataFrame | None:
    """Read the mirror as a Delta table; None where the session's delta-spark cannot do that."""
    from pyspark.sql import functions as F  # noqa: N812

    output = plan.spec.output
    if scan.options.variant == "json" and not all(has_text(field.type) for field in output):
        return None
    wanted = spark_schema(output, scan.options.variant, spark_version(session))
    reader = session.read.format("delta").option("versionAsOf", str(scan.snapshot.version))
    try:
        frame = reader.load(str(scan.directory))
        columns = [F.col(quoted(field.name)) for field in output]
        if scan.options.variant == "json":
            text = variant_text(session)
            columns = [as_text(column, field.type, text) for column, field in zip(columns, output, strict=True)]
        frame = frame.select([column.alias(name) for column, name in zip(columns, output.names, strict=True)])
        found = frame.schema.fields
    except Exception as error:  # noqa: BLE001  # its exceptions have no class in common
        logger.info(
            "delta-spark does not read the mirror (%s): its files are read one by one", type(error).__name__
        )
        return None
    kinds = [(have.dataType, want.dataType) for have, want in zip(found, wanted.fields, strict=True)]
    if any(have.simpleString() != want.simpleString() for have, want in kinds):
        return None
    if all(have == want for have, want in kinds):
        return frame
    # It keeps the provider's promises that there are no nulls inside, where every other way says nothing.
    return frame.select(
        [F.col(quoted(f.name)).cast(want).alias(f.name) for f, (_, want) in zip(output, kinds, strict=True)]
    )
