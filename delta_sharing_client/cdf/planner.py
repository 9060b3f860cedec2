"""Planner of the change data feed of a shared table ("Read Change Data Feed from a Table")."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from msgspec import Struct
from msgspec.structs import replace

from delta_sharing_client.cdf.change_tasks import ChangeTasks
from delta_sharing_client.cdf.options import CHANGE_COLUMNS, COMMIT_VERSION, ChangeOptions
from delta_sharing_client.cdf.table_history import TableHistory
from delta_sharing_client.errors import BadRequestError, UnsupportedTableError
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.model.table_identity import check_same_table
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.file_tasks import errors_naming, project, read_spec
from delta_sharing_client.scan.options import latest_before
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.wire.answers import Answer
from delta_sharing_client.wire.requests import QueryRequest, Timestamp


class ChangesPlan(ScanPlan, frozen=True, kw_only=True):
    """Which files of a change feed to read, and how.

    `version` is the first version of the range if the server reports it; `metadata` and `protocol` are those at
    the end of the range.

    Attributes:
        history: the table's metadata in the range, oldest first.
    """

    redacted_fields: ClassVar = ScanPlan.redacted_fields | {"history"}

    history: TableHistory


class ChangeFeedPlanner(Struct, frozen=True):
    """Plans the reading of a table's changes.

    Attributes:
        rest: the server.
        table: the table.
        views: accept the changes of a view, which have no versions.
        known_id: the id that the table had before, if known.
        replaced_advice: the remedy if another table has replaced it.
    """

    rest: RestClient
    table: Table
    views: bool = True
    known_id: str | None = None
    replaced_advice: str = "Read the changes from that version on"

    def plan(self, options: ChangeOptions) -> ChangesPlan:
        """Request the files of the changes, and plan what to read of them: one request.

        The rows have the table's columns at the end of the range. A column that was added in the range is null
        before that. The changes of a view have no `_commit_version`. With `on_future` ``latest`` it takes a few
        more requests if the server refuses the range.

        Raises:
            ViewChangesError: the changes are those of a view, and their versions were requested.
            SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
            UnsupportedTableError: the table needs something that this release cannot read.
            ColumnError: the projection does not fit the table.
            DeltaSharingError: the request failed, or its answer cannot be used.
        """
        try:
            return self._plan_range(options)
        except BadRequestError:
            if options.on_future != "latest":
                raise
            latest = self.rest.table_version(self.table)
            if self._is_later(latest, options.starting_version, options.starting_timestamp):
                none = {"starting_version": latest, "starting_timestamp": None}
            elif self._is_later(latest, options.ending_version, options.ending_timestamp):
                none = {}
            else:
                raise
        plan = self._plan_range(options.replace(**none, ending_version=latest, ending_timestamp=None))
        return replace(plan, tasks=()) if none else plan  # the columns of the latest version, and no rows

    def _is_later(self, latest: int, version: int | None, time: Timestamp | None) -> bool:
        """Return whether a version, or a time, is after the latest one."""
        if time is not None:
            return latest_before(self.rest, self.table, time) is not None
        return version is not None and version > latest

    def _plan_range(self, options: ChangeOptions) -> ChangesPlan:
        answer = self.rest.table_changes(self.table, options.request(views=self.views))
        history = TableHistory.of(answer, options.ending_version, self._subject)
        first = options.starting_version if answer.version is None else answer.version
        check_same_table(self.known_id, answer.metadata, self._subject, self.replaced_advice, version=first)
        history.check(options.columns, self._subject, self.replaced_advice)
        maker = ChangeTasks(self._subject, options, answer.version)
        if answer.of_view:
            return self._plan(answer, history, maker.of_view(answer.items), options, None)
        tasks = maker.of_changes(answer.items)
        request = answer.request
        versions = [int(task.constants[COMMIT_VERSION] or 0) for task in tasks]
        if versions and options.ending_version is None and options.ending_timestamp is None:
            # A renewal of URLs lists the files of the same versions.
            request = replace(request, ending_version=max(versions))
        return self._plan(replace(answer, request=request), history, tasks, options, answer.version)

    def plan_snapshot(self, version: int, options: ChangeOptions) -> ChangesPlan:
        """Plan to read the whole table as of a version, each row as one inserted by it; raises as `plan`.

        The range of the options is ignored. The table must be shared with its history.
        """
        answer = self.rest.query_table(self.table, QueryRequest(formats=options.formats, version=version))
        check_same_table(self.known_id, answer.metadata, self._subject, self.replaced_advice, version=version)
        answer.protocol.check_readable(self._subject)
        tasks = ChangeTasks(self._subject, options, version).of_snapshot(answer.items, version)
        history = TableHistory((answer.metadata,), (answer.protocol,))
        return self._plan(answer, history, tasks, options, version)

    def _plan(
        self,
        answer: Answer[Any, Any],
        history: TableHistory,
        tasks: Sequence[FileScanTask],
        options: ChangeOptions,
        version: int | None,
    ) -> ChangesPlan:
        spec = change_spec(options, history.protocol, history.last, self._subject, of_view=answer.of_view)
        return ChangesPlan(
            table=self.table,
            version=version,
            protocol=history.protocol,
            metadata=history.last,
            # The server has resolved the column mapping of a view.
            spec=replace(spec, mapping="none" if answer.of_view else history.mapping),
            tasks=tasks,
            skipped={},
            limit=None,
            request=answer.request,
            end=answer.end,
            source=answer.source,
            history=history,
        )

    @property
    def _subject(self) -> str:
        return f"table {self.table.full_name}"


def change_columns(
    schema: StructType, options: ChangeOptions, subject: str, *, of_view: bool = False
) -> StructType:
    """Return the columns of change rows: those of the table that the options name, and those of changes.

    The changes of a view have no `_commit_version`.

    Raises:
        ColumnError: the options name unknown columns.
        UnsupportedTableError: the table has a column with a name that its changes need.
    """
    with errors_naming(subject):
        columns = project(schema, options.columns)
    types = dict(zip(CHANGE_COLUMNS, ("string", "long", options.commit_timestamp), strict=True))
    if of_view:
        del types[COMMIT_VERSION]
    taken = [name for name in columns.names if name.lower() in types]
    if taken:
        raise UnsupportedTableError(
            f"{subject} has a column {taken[0]!r} of its own, a name that its changes need; "
            "choose the others with columns=[...]"
        )
    added = (StructField(name, PrimitiveType(kind)) for name, kind in types.items())
    return StructType((*columns.fields, *added))


def change_spec(
    options: ChangeOptions, protocol: Protocol, metadata: Metadata, subject: str, *, of_view: bool = False
) -> ReadSpec:
    """Return what to read of the files of changes; raises as `change_columns`."""
    output = change_columns(metadata.schema, options, subject, of_view=of_view)
    spec = read_spec(metadata, options.columns, None, options.variant, protocol)
    return replace(spec, output=output, unmapped=frozenset(CHANGE_COLUMNS))
