"""DataFrames over a plan's files: planned in this process, read by `mapInArrow` on the executors.

Works alike on PySpark 3.5 and 4, classic and Connect.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.arrow_schema import NO_COLUMN
from delta_sharing_client.spark.code_distribution import distribute_code
from delta_sharing_client.spark.entry_points import partition_reader
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan
from delta_sharing_client.spark.session import core_count, session_for, spark_version, worker_python
from delta_sharing_client.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct


def to_dataframe(
    rest: RestClient, plan_files: Callable[[], ScanPlan], spark: SparkSession | None, options: ExecutorOptions
) -> DataFrame:
    """Return a DataFrame that reads a plan's files each time Spark runs it; see `SharedScan.to_spark`.

    `plan_files` is called once the session is there.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark cannot be started, is too old, or the plan is too large for it.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    session = session_for(spark)
    plan = plan_files()
    spec = plan.spec
    job, parts = encode_plan(rest, plan, options, core_count(session) if len(plan.tasks) > 1 else 1)
    return batches_frame(session, job, parts, spark_schema(spec.output, spec.variant, spark_version(session)))


def batches_frame(session: SparkSession, job: bytes, parts: Sequence[bytes], schema: SparkStruct) -> DataFrame:
    """Return a DataFrame of the batches that executors read; with one of nulls if they have none."""
    counting = not schema.fields
    if counting:
        from pyspark.sql import types

        schema = types.StructType([types.StructField(NO_COLUMN, types.BooleanType())])
    distribute_code(session)
    numbers = session.range(0, len(parts), 1, max(len(parts), 1))
    with worker_python(session), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySpark warns about releases of pandas and distutils, which are not used
        frame = numbers.mapInArrow(partition_reader(job, parts), schema)
    return frame.select() if counting else frame
