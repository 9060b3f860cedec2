"""`TableChanges`: the change data feed of a shared table, read when a `to_...` method is called."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.errors import BadRequestError
from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.status_errors import names_missing_feed
from delta_sharing_client.table.shared_scan import SharedScan
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.transport.exception_mapping import with_message
from delta_sharing_client.views import Explanation, html_view

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cdf.planner import ChangesPlan
    from delta_sharing_client.delta.table.materialize_snapshot import Materialized
    from delta_sharing_client.table.shared_table import SharedTable

_HINT: Final = "A range after the last commit has no changes with on_future='latest'"


@public_class
@dataclass(frozen=True, repr=False)
class TableChanges(SharedScan):
    """The changes of a table in a range of versions; see `SharedTable.changes` for the options.

    Each `to_...` method requests the files of the changes, fetches them, and returns the change rows ordered by
    version: the table's columns, then `_change_type` (``insert``, ``delete``, ``update_preimage`` or
    ``update_postimage``), `_commit_version` and `_commit_timestamp`.

    Raises:
        ValueError: the options have no start of the range.
    """

    table: SharedTable
    options: ChangeOptions

    def __post_init__(self) -> None:
        if self.options.starting_version is None and self.options.starting_timestamp is None:
            raise ValueError("give exactly one of starting_version and starting_timestamp")

    def replace(self, **changes: Any) -> TableChanges:
        """Return these changes with changed options."""
        return TableChanges(self.table, self.options.replace(**changes))

    def plan(self) -> ChangesPlan:
        """Request and plan the files of the changes; fetches none of them."""
        from delta_sharing_client.cdf.planner import ChangeFeedPlanner

        try:
            return ChangeFeedPlanner(self.table._client(), self.name).plan(self.options)
        except BadRequestError as error:
            if self.options.on_future != "raise" or names_missing_feed(str(error)):
                raise
            raise with_message(error, f"{error}. {_HINT}") from None

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; requests the table's metadata at the end of the range.

        For a range of times, and with ``on_future="latest"``, it lists the files: only their answer shows whether
        this is a view, which has no versions, or where the range ends.
        """
        from delta_sharing_client.cdf.planner import change_columns
        from delta_sharing_client.parquet.arrow_types import arrow_schema

        options = self.options
        of_times = options.starting_version is None and options.ending_version is None
        if of_times or options.on_future == "latest":
            return arrow_schema(self.plan().spec.output, options.variant)
        metadata = self.table.metadata(
            options.ending_version, options.ending_timestamp, response_format=options.response_format
        )
        return arrow_schema(
            change_columns(metadata.schema, options, f"table {self.name.full_name}"), options.variant
        )

    def materialize(self, directory: str | os.PathLike[str], *, progress: bool | None = None) -> Materialized:
        """Write the changes to disk as a Delta table, from which any Delta engine reads the same change rows.

        The table has a commit for each version of the range, with its number and its time, after one with the
        schema alone. It serves to read changes: its snapshot is not that of the shared table.

        Args:
            directory: directory of the local table; it must not contain a table.
            progress: show a progress bar; by default only in a terminal or notebook.

        Raises:
            ValueError: the changes have columns; files are copied whole. Or they have ``on_future="latest"``.
            DeltaLogError: the directory contains a table, or cannot be written.
        """
        from delta_sharing_client.delta.table.local_table import LocalTable
        from delta_sharing_client.delta.table.materialize_changes import materialize_changes

        path = local_path(directory, "directory").resolve()
        if self.options.columns is not None:
            raise ValueError(
                "materialize copies whole files, and the changes have columns: leave that out, "
                "or load the rows with to_arrow() and write those"
            )
        if self.options.on_future != "raise":
            raise ValueError("materialize copies existing versions: leave out on_future")
        _, storage = self._connections()
        local = LocalTable(self.table._client(), storage, self.name, path, progress)
        return materialize_changes(local, self.options.request())

    def explain(self) -> Explanation:
        """Return a description of what is read: versions, files by change type, and the bytes to fetch.

        Requests the files, and fetches the footers of those of which it reads ranges.
        """
        from delta_sharing_client.cdf.options import CHANGE_TYPE, COMMIT_VERSION

        plan = self.plan()
        fetch = plan.estimate_fetch(*self._connections())
        versions = sorted({int(task.constants.get(COMMIT_VERSION) or 0) for task in plan.tasks})
        kinds = Counter(str(task.constants.get(CHANGE_TYPE, "change data")) for task in plan.tasks)
        listed = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items())) or "none"
        changed = (
            f"; versions {versions[0]} to {versions[-1]} changed rows" if versions else "; no version changed rows"
        )
        if COMMIT_VERSION not in plan.spec.output.names:
            changed = " of a view"
        requests = "request" if fetch.requests == 1 else "requests"
        return Explanation.of(
            [
                ("table", f"{plan.table.full_name}, {plan.protocol.response_format} format"),
                ("range", f"{self._range()}{changed}"),
                ("columns", ", ".join(plan.spec.output.names)),
                ("files", f"{len(plan.tasks)} to read: {listed}"),
                ("bytes", f"{fetch.bytes:,} to fetch of {plan.size:,}, in {fetch.requests} {requests}"),
            ],
            sorted(kinds.items()),
        )

    def _range(self) -> str:
        options = self.options
        first, last = options.starting_version, options.ending_version
        start = options.starting_timestamp if first is None else f"version {first}"
        end = options.ending_timestamp if last is None else f"version {last}"
        return f"from {start} to {end or 'the latest version'}"

    @representation
    def __repr__(self) -> str:
        shown = [repr(self.name.full_name), self._range()]
        shown += [] if self.options.columns is None else [f"columns={list(self.options.columns)}"]
        return f"TableChanges({', '.join(shown)})"

    @representation
    def _repr_html_(self) -> str:
        columns = None if self.options.columns is None else ", ".join(self.options.columns)
        return html_view(self, self.name.full_name, {"range": self._range(), "columns": columns})
