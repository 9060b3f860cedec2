"""Planner of the change data feed of a shared table ("Read Change Data Feed from a Table")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from delta_sharing_client.cdf.change_tasks import CHANGE_COLUMNS, COMMIT_VERSION, change_tasks, inserted_tasks
from delta_sharing_client.cdf.options import ChangeOptions, CommitTimestamp
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import ColumnError, UnsupportedTableError
from delta_sharing_client.model.column_mapping import MappingMode
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.parquet.tasks import ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import project, read_spec
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.wire.requests import QueryRequest


@dataclass(frozen=True, kw_only=True)
class ChangesPlan(ScanPlan):
    """Which files of a change feed to read, and how.

    `version` is the first version of the range if the server reports it; `metadata` and `protocol` are those at
    the end of the range.

    Attributes:
        history: the table's metadata in the range, oldest first.
    """

    history: TableHistory = field(repr=False)


@dataclass(frozen=True)
class ChangeFeedPlanner:
    """Plans the reading of a table's changes.

    Attributes:
        rest: the server.
        table: the table.
    """

    rest: RestClient = field(repr=False)
    table: Table

    def plan(self, options: ChangeOptions) -> ChangesPlan:
        """Ask the server for the files of the changes and plan what to read of them: one request.

        The rows have the table's columns at the end of the range. A column that was added in the range is null
        before that.

        Raises:
            SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError: the projection does not fit the table.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        columns = _table_columns(options.columns)
        answer = self.rest.table_changes(self.table, options.request())
        history = TableHistory.of(answer, options.ending_version, self._what)
        history.check(columns, self._what)
        metadata, protocol = history.last, history.protocol
        spec = read_spec(metadata, columns, None, options.variant, protocol)
        tasks = list(change_tasks(answer.items, options, self._what, answer.version))
        request = answer.request
        versions = [int(task.constants[COMMIT_VERSION] or 0) for task in tasks]
        if versions and options.ending_version is None and options.ending_timestamp is None:
            # A renewal of URLs lists the files of the same versions.
            request = replace(request, ending_version=max(versions))
        return ChangesPlan(
            table=self.table,
            version=answer.version,
            protocol=protocol,
            metadata=metadata,
            spec=change_spec(spec, options.commit_timestamp, mapping=history.mapping, what=self._what),
            tasks=tasks,
            skipped={},
            limit=None,
            request=request,
            end=answer.end,
            history=history,
        )

    def plan_snapshot(self, version: int, options: ChangeOptions) -> ChangesPlan:
        """Plan to read the whole table as of a version, each row as one inserted by it.

        Args:
            version: the version; the table must be shared with its history.
            options: the options of the changes; their range is ignored.

        Raises:
            As `plan`.
        """
        columns = _table_columns(options.columns)
        answer = self.rest.query_table(self.table, QueryRequest(formats=options.formats, version=version))
        answer.protocol.check_readable(self._what)
        spec = read_spec(answer.metadata, columns, None, options.variant, answer.protocol)
        return ChangesPlan(
            table=self.table,
            version=version,
            protocol=answer.protocol,
            metadata=answer.metadata,
            spec=change_spec(spec, options.commit_timestamp, what=self._what),
            tasks=list(inserted_tasks(answer.items, version, options, self._what)),
            skipped={},
            limit=None,
            request=answer.request,
            end=answer.end,
            history=TableHistory((answer.metadata,), (answer.protocol,)),
        )

    @property
    def _what(self) -> str:
        return f"table {self.table.full_name}"


def _table_columns(columns: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names of the table's columns; raise `ColumnError` if a column of changes is among them."""
    names = None if columns is None else tuple(columns)
    taken = [name for name in names or () if isinstance(name, str) and name.lower() in CHANGE_COLUMNS]
    if taken:
        raise ColumnError(
            f"columns names {', '.join(map(repr, taken))}, which every change has: leave it out of columns",
            columns=taken,
        )
    return names


def change_schema(columns: StructType, commit_timestamp: CommitTimestamp, what: str = "the table") -> StructType:
    """Return columns of a table, followed by the columns of changes.

    Raises:
        UnsupportedTableError: the table has a column of such a name itself.
    """
    taken = [name for name in columns.names if name.lower() in CHANGE_COLUMNS]
    if taken:
        raise UnsupportedTableError(
            f"{what} has a column {taken[0]!r} of its own, a name that its changes need; "
            "choose the others with columns=[...]"
        )
    types = ("string", "long", commit_timestamp)
    added = (StructField(name, PrimitiveType(kind)) for name, kind in zip(CHANGE_COLUMNS, types, strict=True))
    return StructType((*columns.fields, *added))


def change_spec(
    spec: ReadSpec,
    commit_timestamp: CommitTimestamp,
    *,
    mapping: MappingMode | None = None,
    what: str = "the table",
) -> ReadSpec:
    """Return what to read of the files of changes.

    Args:
        spec: what to read of the table's files.
        commit_timestamp: the type of `_commit_timestamp`.
        mapping: the column mapping, if not that of `spec`.
        what: the table, for messages.

    Raises:
        UnsupportedTableError: the table has a column of a name that its changes need.
    """
    return replace(
        spec,
        output=change_schema(spec.output, commit_timestamp, what),
        mapping=spec.mapping if mapping is None else mapping,
        unmapped=frozenset(CHANGE_COLUMNS),
    )


def project_changes(columns: StructType, names: Iterable[str] | None) -> StructType:
    """Return the table's columns that a query for changes asks for.

    Raises:
        ColumnError: a name is unknown, given twice, or one of those that every change has.
    """
    return project(columns, _table_columns(names))
