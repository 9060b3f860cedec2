"""The table of a streaming query: the columns of one version, from the query's start to its end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from msgspec import structs

from delta_sharing_client.cdf.options import CHANGE_COLUMNS, ChangeOptions
from delta_sharing_client.cdf.planner import change_spec
from delta_sharing_client.errors import (
    BadRequestError,
    UnsupportedTableError,
    VersionMismatchError,
)
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.model.table_identity import check_same_table
from delta_sharing_client.parquet.tasks import ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.file_tasks import errors_naming, project, read_spec
from delta_sharing_client.spark.data_source_options import StreamOptions
from delta_sharing_client.spark.schema_log import SchemaLog, changes_between
from delta_sharing_client.wire.answers import TableInfo

_REPLACED: Final = "Start the query with a new checkpoint location (its present one may be that of another query)"


@dataclass(frozen=True)
class StreamTable:
    """A table as a streaming query reads it.

    Attributes:
        options: the query.
        info: the table's metadata, as of the version whose columns Spark has.
        spec: columns and types to read of each file.
        chosen: lower-case names of the table's columns that are read; None for all.
    """

    options: StreamOptions
    info: TableInfo
    spec: ReadSpec = field(repr=False)
    chosen: frozenset[str] | None

    @classmethod
    def of(cls, options: StreamOptions, info: TableInfo) -> StreamTable:
        """Return the table with the columns that the options select; raises if it lacks them or cannot be read."""
        info.protocol.check_readable(options.subject)
        query = options.query
        if isinstance(query, ChangeOptions):
            spec = change_spec(query, info.protocol, info.metadata, options.subject)
        else:
            with errors_naming(options.subject):
                spec = read_spec(info.metadata, query.columns, None, query.variant, info.protocol)
        return cls(options, info, spec, None if query.columns is None else _table_columns(spec.output.names))

    def narrowed(self, names: Sequence[str]) -> StreamTable:
        """Return the table with fewer columns."""
        output = project(self.spec.output, names)
        all_of_them = len(output.fields) == len(self.spec.output.fields)
        chosen = self.chosen if all_of_them else _table_columns(output.names)
        return replace(self, spec=structs.replace(self.spec, output=output), chosen=chosen)

    @property
    def version(self) -> int:
        """The version whose columns Spark has."""
        return self.info.version or 0

    def is_read(self, change: ColumnChange) -> bool:
        """Whether the query reads a column that changed."""
        return self.chosen is None or change.top.lower() in self.chosen

    def misfit(self, info: TableInfo) -> tuple[ColumnChange, ...]:
        """Return the column changes that keep the files of another version from being read with these columns.

        Added columns count only if that version is later: a restart reads them.
        """
        if (info.version or 0) <= self.version:
            return tuple(c for c in changes_between(info, self.info) if not c.additive and self.is_read(c))
        return tuple(c for c in changes_between(self.info, info) if self.is_read(c))

    def check_offset(self, table_id: str) -> None:
        """Raise `TableReplacedError` if the id in an offset of the query is not that of the table."""
        check_same_table(table_id, self.info.metadata, self.options.subject, _REPLACED)

    def check_identity(self, metadata: Metadata, version: int | None = None) -> None:
        """Raise `TableReplacedError` if metadata of a later answer are not those of the table."""
        check_same_table(self.info.metadata.id, metadata, self.options.subject, _REPLACED, version=version)


def describe_stream(rest: RestClient, options: StreamOptions) -> tuple[StructType, int]:
    """Return the columns of a stream's rows, and the version that they belong to."""
    table = StreamTable.of(options, _latest(rest, options)[0])
    return table.spec.output, table.version


def open_stream(
    rest: RestClient, options: StreamOptions, planned_version: int | None
) -> tuple[TableInfo, SchemaLog | None]:
    """Return the metadata with a stream's columns, and its schema log if schemas are tracked.

    `planned_version` is the version that `describe_stream` returned; None if Spark did not call it.

    Raises:
        UnsupportedTableError: the table is shared without its history.
    """
    if planned_version is not None and options.schema_tracking is None:
        return _at(rest, options, planned_version), None
    info, log = _latest(rest, options)
    if log is None or not log.entries:
        # By version, so that a table without history is refused here and not at the first batch.
        info = _at(rest, options, (info.version or 0) if planned_version is None else planned_version)
    return info, log


def metadata_at(rest: RestClient, options: StreamOptions, version: int) -> TableInfo | None:
    """Return the metadata of a version; None if the server no longer has it."""
    try:
        info = rest.table_metadata(options.table, options.query.formats, version=version)
    except (BadRequestError, VersionMismatchError):
        return None
    return structs.replace(info, version=version)


def _latest(rest: RestClient, options: StreamOptions) -> tuple[TableInfo, SchemaLog | None]:
    """Return the latest metadata.

    With schema tracking: the last entry of the schema log, or that of the query's first version if it is empty.
    """
    table = options.table
    info = rest.table_metadata(table, options.query.formats)
    info = structs.replace(info, version=rest.table_version(table) if info.version is None else info.version)
    if options.schema_tracking is None:
        return info, None
    log = SchemaLog.read(options.schema_tracking, info.metadata.id, options.tracking_id)
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
        info = rest.table_metadata(options.table, options.query.formats, version=version)
    except BadRequestError as error:
        raise UnsupportedTableError(
            f"a stream needs the history of {options.subject}, and the provider does not share version {version} "
            f"of it: {error}. Request that it is shared WITH HISTORY, or load it at intervals without a stream"
        ) from None
    except VersionMismatchError:
        # An older server, which describes no version but the latest.
        info = rest.table_metadata(options.table, options.query.formats)
    return structs.replace(info, version=version if info.version is None else info.version)


def _table_columns(names: Sequence[str]) -> frozenset[str]:
    return frozenset(name.lower() for name in names if name not in CHANGE_COLUMNS)
