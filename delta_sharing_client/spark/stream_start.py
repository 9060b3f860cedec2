"""Whose columns a streaming query has: those of one version, from its start to its end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from delta_sharing_client.errors import BadRequestError, UnsupportedTableError, VersionMismatchError
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.session import pyspark_version
from delta_sharing_client.spark.spark_schema import spark_schema
from delta_sharing_client.spark.stream_options import StreamOptions
from delta_sharing_client.spark.stream_reading import Reading
from delta_sharing_client.spark.stream_schemas import SchemaLog
from delta_sharing_client.wire.answers import TableInfo


def describe_stream(options: StreamOptions) -> tuple[dict[str, Any], int | None]:
    """Return the schema of what a stream's options ask for, as JSON, and the version that it is of.

    Raises:
        DeltaSharingError: the table cannot be read.
    """
    with RestClient(options.profile, options.transport) as rest:
        info, _ = _info(rest, options)
        reading = Reading.of(options, info)
    return spark_schema(reading.spec.output, options.variant, pyspark_version()).jsonValue(), reading.version


def open_stream(
    rest: RestClient, options: StreamOptions, pinned: int | None
) -> tuple[TableInfo, SchemaLog | None]:
    """Return the metadata whose columns a stream has, and the log of its schemas where they are tracked.

    Args:
        rest: the server.
        options: what the user asks for.
        pinned: the version whose columns Spark was told; None where it was not asked.

    Raises:
        UnsupportedTableError: the table is shared without its history.
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    if pinned is not None and options.schema_tracking is None:
        return _at(rest, options, pinned), None
    info, log = _info(rest, options)
    if log is None or not log.entries:
        # By version, so that a table without history is told of here and not at the first batch.
        info = _at(rest, options, (info.version or 0) if pinned is None else pinned)
    return info, log


def metadata_at(rest: RestClient, options: StreamOptions, version: int) -> TableInfo | None:
    """Return the metadata of a version; None where it can no longer be had."""
    try:
        info = rest.table_metadata(options.table, options.formats, version=version)
    except (BadRequestError, VersionMismatchError):
        return None
    return replace(info, version=version)


def _info(rest: RestClient, options: StreamOptions) -> tuple[TableInfo, SchemaLog | None]:
    """The latest metadata.

    Where schemas are tracked it is the last one that was written down, or at first that of the version that the
    query starts with.
    """
    table = options.table
    info = rest.table_metadata(table, options.formats)
    info = replace(info, version=rest.table_version(table) if info.version is None else info.version)
    if options.schema_tracking is None:
        return info, None
    log = SchemaLog.read(options.schema_tracking, info.metadata.id)
    if log.entries:
        return log.entries[-1], log
    start = options.starting_version if isinstance(options.starting_version, int) else None
    if options.starting_timestamp is not None:
        start = rest.table_version(table, options.starting_timestamp)
    if start is not None and start < (info.version or 0):
        info = _at(rest, options, start)
    return info, log


def _at(rest: RestClient, options: StreamOptions, version: int) -> TableInfo:
    try:
        info = rest.table_metadata(options.table, options.formats, version=version)
    except BadRequestError as error:
        raise UnsupportedTableError(
            f"a stream needs the history of {options.what}, and the provider does not share version {version} "
            f"of it: {error}. Ask for it to be shared WITH HISTORY, or load it now and then without a stream"
        ) from None
    except VersionMismatchError:
        # An older server, which describes no version but the latest.
        info = rest.table_metadata(options.table, options.formats)
    return replace(info, version=version if info.version is None else info.version)
