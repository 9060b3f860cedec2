"""The data source ``deltaSharing``: planned in Spark's driver, read by the same code as `load_as_spark`.

Spark calls `describe` in one process and `plan` in another; see `python_data_source`.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import weakref
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.cdf.planner import change_schema, plan_changes, project_changes
from delta_sharing_client.errors import BadRequestError, SparkError
from delta_sharing_client.expressions.predicates import columns_of
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import project
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan, plan_snapshot
from delta_sharing_client.spark.code_distribution import code_archive, distribute_code
from delta_sharing_client.spark.data_source_options import STREAM_OPTIONS, SourceOptions, parse_options
from delta_sharing_client.spark.partition_plan import divide, encode_plan
from delta_sharing_client.spark.session import (
    DATA_SOURCE_SINCE,
    core_count,
    is_connect,
    pyspark_version,
    session_for,
    spark_version,
    worker_python,
)
from delta_sharing_client.spark.spark_schema import asked_columns, spark_schema
from delta_sharing_client.spark.stream_options import StreamOptions, parse_stream_options
from delta_sharing_client.spark.stream_start import describe_stream

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType as SparkStruct

_known: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def register(spark: SparkSession | None = None) -> None:
    """Register the data source ``deltaSharing`` with a session.

    Args:
        spark: the session, classic or Connect; without it the active one, or a new local one.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark is older than 4.0, which has no Python data sources.
    """
    session = session_for(spark)
    version = spark_version(session)
    if version < DATA_SOURCE_SINCE:
        raise SparkError(
            f"format('deltaSharing') needs Spark 4.0 or later, and this is {version[0]}.{version[1]}: "
            "use load_as_spark, which needs 3.5"
        )
    from pyspark.errors import AnalysisException

    from delta_sharing_client.spark.python_data_source import source_for

    distribute_code(session)
    archive = code_archive().read_bytes() if is_connect(session) else b""
    try:
        with worker_python(session):
            session.dataSource.register(source_for(core_count(session), archive))
    except AnalysisException as error:
        # Spark 4.0 takes no other than the one that it has found by itself, which is the same.
        if "DATA_SOURCE_ALREADY_EXISTS" not in str(error):
            raise


def make_known(session: SparkSession) -> None:
    """Register the data source with a session that has none yet and would not find it by itself.

    For who loads a table and then goes on in SQL. A server that takes no data sources is left alone.
    """
    from pyspark.errors import PySparkException

    found = not is_connect(session) and importlib.util.find_spec("pyspark_delta_sharing") is not None
    if found or session in _known or spark_version(session) < DATA_SOURCE_SINCE:
        return
    _known.add(session)
    with contextlib.suppress(PySparkException):
        register(session)


def describe(given: Mapping[str, str]) -> tuple[dict[str, Any], int | None]:
    """Return the schema of what the options ask for, as JSON, and the version that it is of.

    Args:
        given: the options, by names in lower case.

    Raises:
        DeltaSharingError, ValueError: an option is wrong, or the table cannot be read.
    """
    # Spark does not say whether it asks for a batch or for a stream.
    try:
        options = parse_options(given)
    except ValueError:
        stream = _stream_options(given)
        if stream is None:
            raise
        return describe_stream(stream)
    with RestClient(options.profile, options.transport) as rest:
        if isinstance(options.query, ChangeOptions):
            if options.query.ending_version is None and options.query.ending_timestamp is None:
                return _describe_changes(rest, options, options.query)
            plan = plan_changes(rest, options.table, options.query)
            columns, version = plan.spec.output, None
        else:
            query = options.query
            info = rest.table_metadata(
                options.table, query.formats, version=query.version, timestamp=query.timestamp
            )
            info.protocol.check_readable(f"table {options.table.full_name}")
            columns, version = project(info.metadata.schema, query.columns), info.version
    schema = spark_schema(columns, options.variant, pyspark_version())
    return schema.jsonValue(), version


def _stream_options(given: Mapping[str, str]) -> StreamOptions | None:
    """What the options mean to a stream; None where they make no sense there either, and are no stream's."""
    try:
        return parse_stream_options(given)
    except ValueError:
        if any(name.lower() in given for name in STREAM_OPTIONS):
            raise
        return None


def _describe_changes(
    rest: RestClient, options: SourceOptions, query: ChangeOptions
) -> tuple[dict[str, Any], int | None]:
    """Changes up to the latest version have the columns that the table has now; no file is listed for that."""
    what = f"table {options.table.full_name}"
    info = rest.table_metadata(options.table, query.formats)
    info.protocol.check_readable(what)
    columns = change_schema(project_changes(info.metadata.schema, query.columns), query.commit_timestamp, what)
    return spark_schema(columns, options.variant, pyspark_version()).jsonValue(), info.version


def plan(
    given: Mapping[str, str], pinned: int | None, schema: SparkStruct, cores: int | None
) -> tuple[bytes, list[bytes]]:
    """Return the encoded job and partitions of what the options ask for.

    Args:
        given: the options, by names in lower case.
        pinned: the version that `describe` told; None where it was not asked or could not tell.
        schema: the columns that Spark wants: those of `describe`, or the user's.
        cores: tasks that can run at a time, where known.

    Raises:
        DeltaSharingError, ValueError: an option is wrong, or the table cannot be read.
    """
    options = parse_options(given)
    with RestClient(options.profile, options.transport) as rest:
        if isinstance(options.query, ChangeOptions):
            planned: ScanPlan = plan_changes(rest, options.table, options.query)
        else:
            planned = _plan_snapshot(rest, options, options.query, pinned)
        offered = planned.spec.output
        names = asked_columns(schema, offered, options.variant)
        planned = replace(planned, spec=_narrowed(planned.spec, project(offered, names)))
        parts = divide(planned, options.min_partitions or cores or os.cpu_count() or 1, options.partition_size)
        return encode_plan(rest, planned, parts, executor_credentials=options.executor_credentials, names=names)


def _plan_snapshot(rest: RestClient, options: SourceOptions, query: ScanOptions, pinned: int | None) -> ScanPlan:
    """Plan what `describe` saw: rows of another version may not have the schema that Spark was told."""
    if query.version is None and query.timestamp is None and pinned is not None:
        with contextlib.suppress(BadRequestError):  # no history is shared: there is only the latest version
            return plan_snapshot(rest, options.table, replace(query, version=pinned))
    return plan_snapshot(rest, options.table, query)


def _narrowed(spec: ReadSpec, output: StructType) -> ReadSpec:
    """What to read when fewer columns are wanted; the row filter keeps those that it looks at."""
    looked_at = columns_of(spec.predicate) if spec.predicate is not None else ()
    extra = dict.fromkeys(column for column in looked_at if column not in output.fields)
    return replace(spec, output=output, extra=tuple(extra))
