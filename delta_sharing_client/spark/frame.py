"""A plan as a Spark DataFrame: planned here, read by `mapInArrow` on the executors.

Works alike on PySpark 3.5 and 4, classic and Connect, and needs nothing on the cluster but Python with the
libraries of this package.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.spark.code_distribution import distribute_code
from delta_sharing_client.spark.data_source import make_known
from delta_sharing_client.spark.entry_points import partition_reader
from delta_sharing_client.spark.executor import NO_COLUMN
from delta_sharing_client.spark.partition_plan import check_partition_size, divide, encode_plan
from delta_sharing_client.spark.session import core_count, session_for, spark_version, worker_python
from delta_sharing_client.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType as SparkStruct


def to_dataframe(
    rest: RestClient,
    plan_files: Callable[[], ScanPlan],
    *,
    spark: SparkSession | None = None,
    executor_credentials: bool = True,
    partition_size: int | None = None,
) -> DataFrame:
    """Return a DataFrame that reads a plan's files whenever Spark runs it.

    Args:
        rest: the server, for URLs that expire before Spark is done.
        plan_files: gives what to read; called once it is clear that there is a Spark to read it.
        spark: the session; without it the active one, or a new local one.
        executor_credentials: let executors renew URLs that expire; the profile's credential goes with the job.
        partition_size: bytes of files that make one partition.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark cannot be started, is too old, or the plan is too large for it.
        UnsupportedTypeError: a column has a type that this Spark lacks.
    """
    size = check_partition_size(partition_size)
    session = session_for(spark)
    plan = plan_files()
    spec = plan.spec
    job, parts = encode_plan(
        rest,
        plan,
        divide(plan, core_count(session) if len(plan.tasks) > 1 else 1, size),
        executor_credentials=executor_credentials,
        counting=not spec.output.fields,
    )
    frame = batches_frame(session, job, parts, spark_schema(spec.output, spec.variant, spark_version(session)))
    make_known(session)
    return frame


def batches_frame(session: SparkSession, job: bytes, parts: Sequence[bytes], schema: SparkStruct) -> DataFrame:
    """Return a DataFrame of the batches that the executors read.

    Args:
        session: the session.
        job: the encoded job; without columns it has to be one that counts.
        parts: the encoded partitions.
        schema: its columns.
    """
    counting = not schema.fields
    if counting:
        from pyspark.sql import types

        schema = types.StructType([types.StructField(NO_COLUMN, types.BooleanType())])
    distribute_code(session)
    numbers = session.range(0, len(parts), 1, max(len(parts), 1))
    with worker_python(session), warnings.catch_warnings():
        # PySpark warns of releases of pandas and of distutils; what is done here takes neither.
        warnings.simplefilter("ignore")
        frame = numbers.mapInArrow(partition_reader(job, parts), schema)
    return frame.select() if counting else frame
