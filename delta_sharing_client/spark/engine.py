"""Choice of the Parquet reader of a DataFrame: Spark's own through a gateway, or Arrow in Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from delta_sharing_client.errors import SparkError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.frame import to_dataframe
from delta_sharing_client.spark.native_dataframe import is_large, native_dataframe, why_not_native
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.spark.session import session_for
from delta_sharing_client.storage.byte_source import StorageReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = module_logger(__name__)

#: What reads the files for Spark: Python on the executors, Spark's own Parquet reader, or the one that suits them.
Engine: TypeAlias = Literal["auto", "arrow", "native"]

#: Maximum number of files whose footers ``auto`` fetches before Spark runs anything.
MOST_FOOTERS: Final = 1_000


def scan_dataframe(
    connections: tuple[RestClient, StorageReader],
    plan_files: Callable[[], ScanPlan],
    spark: SparkSession | None,
    scan: ScanOptions,
    options: ExecutorOptions,
    engine: Engine,
) -> DataFrame:
    """Return a DataFrame over the files of a scan; see `TableScan.to_spark`.

    Raises:
        ValueError: `engine` is unknown, or ``native`` for a scan with filters.
        MissingDependencyError: PySpark is not installed.
        SparkError: `engine` is ``native``, and the session cannot use a gateway.
    """
    if engine not in ("auto", "arrow", "native"):
        raise ValueError(f"engine is {engine!r}; it must be 'auto', 'arrow' or 'native'")
    if engine == "native" and scan.filters is not None:
        raise ValueError(
            "Spark itself filters the rows with engine='native': leave filters out, and use where() of the "
            "DataFrame"
        )
    session = session_for(spark)
    reason = why_not_native(session)
    if engine == "native" and reason is not None:
        raise SparkError(f"engine='native' {reason}; use engine='arrow'")
    plan = plan_files()
    if engine == "auto":
        reason = reason or _unsuitable(scan, options, plan)
        engine = "native" if reason is None else "arrow"
        why = f", because engine='native' {reason}" if reason else ""
        logger.info("table %s: Spark reads it by engine=%r%s", plan.table.full_name, engine, why)
    if engine == "native":
        return native_dataframe(connections, plan, session, options, scan.variant)
    return to_dataframe(connections[0], lambda: plan, session, options)


def _unsuitable(scan: ScanOptions, options: ExecutorOptions, plan: ScanPlan) -> str | None:
    """Return why Arrow in Python is the better reader of a plan; None if Spark's own is."""
    if scan.columns is not None or scan.filters is not None or scan.limit is not None:
        return "leaves columns, filters and limit to Spark"
    if options.partition_size is not None:
        return "has no partition size"
    large = [task.size for task in plan.tasks if is_large(task)]
    if 2 * sum(large) <= sum(task.size for task in plan.tasks):
        return "is for tables of which most bytes are in files of more than 1 MB"
    if len(large) > MOST_FOOTERS:
        return f"fetches the footers of all {len(large):,} files first"
    return None
