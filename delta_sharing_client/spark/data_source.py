"""Registration and planning of the data source ``deltaSharing``; the executors run the code of `load_as_spark`.

Spark calls `describe` in one process and `plan` in another; see `python_data_source`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

from msgspec.structs import replace

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.cdf.planner import ChangeFeedPlanner, change_columns
from delta_sharing_client.errors import BadRequestError, SparkError
from delta_sharing_client.expressions.predicates import columns_of
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.file_tasks import errors_naming, project
from delta_sharing_client.scan.options import ScanOptions, with_future_as_latest
from delta_sharing_client.scan.planner import ScanPlan, ServerPlanner
from delta_sharing_client.spark.code_distribution import code_archive, distribute_code
from delta_sharing_client.spark.configuration import SourceSettings, configuration_of
from delta_sharing_client.spark.data_source_options import (
    SourceOptions,
    StreamOptions,
    parse_options,
    parse_stream_options,
)
from delta_sharing_client.spark.option_parsers import START, STREAM_OPTIONS
from delta_sharing_client.spark.partition_plan import encode_plan
from delta_sharing_client.spark.session import (
    DATA_SOURCE_SINCE,
    core_count,
    is_connect,
    pyspark_version,
    session_for,
    spark_version,
    worker_python,
)
from delta_sharing_client.spark.spark_schema import requested_columns, spark_schema
from delta_sharing_client.spark.stream_table import describe_stream
from delta_sharing_client.transport.exception_mapping import with_message
from delta_sharing_client.wire.answers import TableInfo

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType as SparkStruct

T = TypeVar("T")

#: The class of Spark that keeps data sources, and the name of its log.
_MANAGER: Final = "org.apache.spark.sql.execution.datasources.DataSourceManager"


def register(
    spark: SparkSession | None, options: TransportOptions | None, credential_provider: CredentialProvider | None
) -> None:
    """Register the data source; see `delta_sharing_client.spark.register`."""
    session = session_for(spark)
    version = spark_version(session)
    if version < DATA_SOURCE_SINCE:
        raise SparkError(
            f"format('deltaSharing') needs Spark 4.0 or later, and this is {version[0]}.{version[1]}: "
            "use load_as_spark, which needs 3.5"
        )
    from delta_sharing_client.spark.python_data_source import source_for

    distribute_code(session)
    archive = code_archive().read_bytes() if is_connect(session) else b""
    settings = SourceSettings(
        configuration=configuration_of(session), options=options, credential_provider=credential_provider
    )
    with worker_python(session), _replacing(session):
        session.dataSource.register(source_for(core_count(session), archive, settings.encode()))


@contextlib.contextmanager
def _replacing(session: SparkSession) -> Iterator[None]:
    """Within this context Spark does not log that a data source replaces another, which `register` is for."""
    from py4j.protocol import Py4JError

    with contextlib.ExitStack() as restored:
        with contextlib.suppress(Py4JError, AttributeError, TypeError):  # Connect, or a platform without log4j
            jvm: Any = session._jvm
            log4j = jvm.org.apache.logging.log4j
            context = log4j.LogManager.getContext(False)
            configuration = context.getConfiguration()
            before = configuration.getLoggers().get(_MANAGER)  # None if it inherits all

            def configure(logger: Any) -> None:
                configuration.removeLogger(_MANAGER)
                if logger is not None:
                    configuration.addLogger(_MANAGER, logger)
                context.updateLoggers()

            configure(log4j.core.config.LoggerConfig(_MANAGER, log4j.Level.ERROR, True))
            restored.callback(configure, before)
        yield


def describe(given: Mapping[str, str], settings: bytes = b"") -> tuple[dict[str, Any], int | None]:
    """Return the schema of the rows as JSON, and the version that it belongs to; `settings` are encoded."""
    options = _batch_or_stream(given, SourceSettings.decode(settings))
    with options.connect() as rest:
        columns, version = _describe(rest, options)
    return spark_schema(columns, options.variant, pyspark_version()).jsonValue(), version


def _batch_or_stream(given: Mapping[str, str], settings: SourceSettings) -> SourceOptions:
    """Parse the options of a batch, else of a stream: Spark requests the schema of both in the same way."""
    if any(name.lower() in given for name in STREAM_OPTIONS):
        return parse_stream_options(given, settings)
    try:
        return parse_options(given, settings)
    except ValueError as of_batch:
        try:
            return parse_stream_options(given, settings)
        except ValueError as of_stream:
            started = "readchangefeed" not in given and any(name.lower() in given for name in START)
            if not started or str(of_stream) == str(of_batch):
                raise of_batch from None
            raise ValueError(f"as a stream: {of_stream}. As a batch: {of_batch}") from None


def _describe(rest: RestClient, options: SourceOptions) -> tuple[StructType, int | None]:
    """Return the columns of a query and their version; lists files only for an ended range, or one of times."""
    if isinstance(options, StreamOptions):
        return describe_stream(rest, options)
    table, query = options.table, options.query
    if not isinstance(query, ChangeOptions):

        def described(at: ScanOptions) -> TableInfo:
            return rest.table_metadata(table, at.formats, version=at.version, timestamp=at.timestamp)

        info = _in_time(rest, table, query, described)
        info.protocol.check_readable(options.subject)
        with errors_naming(options.subject):
            return project(info.metadata.schema, query.columns), info.version
    ended = query.ending_version is not None or query.ending_timestamp is not None
    if ended or query.starting_version is None:  # a range of times may be that of a view, which has no versions
        return ChangeFeedPlanner(rest, table).plan(query).spec.output, None
    info = rest.table_metadata(table, query.formats)
    info.protocol.check_readable(options.subject)
    return change_columns(info.metadata.schema, query, options.subject), info.version


def plan(
    given: Mapping[str, str], planned_version: int | None, schema: SparkStruct, cores: int | None, settings: bytes
) -> tuple[bytes, list[bytes]]:
    """Return the encoded job and partitions of a batch query.

    Args:
        given: the options, by names in lower case.
        planned_version: the version that `describe` returned; None if Spark did not call it.
        schema: the columns that Spark needs: those of `describe`, or the user's.
        cores: tasks that can run at a time, if known.
        settings: the encoded settings that the data source was registered with.
    """
    options = parse_options(given, SourceSettings.decode(settings))
    with options.connect() as rest:
        planned = _plan(rest, options, planned_version)
        spec = planned.spec
        with errors_naming(options.subject):
            names = requested_columns(schema, spec.output, options.variant)
        output = project(spec.output, names)
        filtered = columns_of(spec.predicate) if spec.predicate is not None else ()
        extra = dict.fromkeys(column for column in filtered if column not in output.fields)
        planned = replace(planned, spec=replace(spec, output=output, extra=tuple(extra)))
        return encode_plan(rest, planned, options.executors, cores, names)


def _plan(rest: RestClient, options: SourceOptions, planned_version: int | None) -> ScanPlan:
    """Plan the version whose schema Spark has: rows of another version may not fit it."""
    query = options.query
    if isinstance(query, ChangeOptions):
        return ChangeFeedPlanner(rest, options.table).plan(query)
    planner = ServerPlanner(rest, options.table)
    follows = query.timestamp is None or query.on_future == "latest"
    if query.version is None and follows and planned_version is not None:
        with contextlib.suppress(BadRequestError):  # a table without history has its latest version alone
            return planner.plan(query.replace(version=planned_version, timestamp=None))
    return _in_time(rest, options.table, query, planner.plan)


def _in_time(rest: RestClient, table: Table, query: ScanOptions, run: Callable[[ScanOptions], T]) -> T:
    """As `with_future_as_latest`, but errors name the option of the data source."""
    try:
        return with_future_as_latest(rest, table, query, run)
    except BadRequestError as error:
        text = str(error).replace("on_future='latest'", "the option onFuture 'latest'")
        raise with_message(error, text) from None
