"""`TableChanges`: which changes of a table to read is said first, and they are read when they are asked for."""

from __future__ import annotations

import dataclasses
import html
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from delta_sharing_client.protocol.names import Table
from delta_sharing_client.protocol.request import (
    ChangesRequest,
    RequestedFormat,
    Timestamp,
    check_version,
    format_timestamp,
    formats_for,
)
from delta_sharing_client.scan.plan import column_names
from delta_sharing_client.scan.tasks import VariantForm, check_variant
from delta_sharing_client.table_rows import TableRows

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.changes.plan import ChangesPlan, CommitTimestamp
    from delta_sharing_client.materialize.snapshot import Materialized
    from delta_sharing_client.read.storage import StorageReader
    from delta_sharing_client.rest import RestClient


@dataclass(frozen=True, repr=False)
class TableChanges(TableRows):
    """Which changes of a table to read; see `SharedTable.changes` for the fields.

    Each `to_...` method asks the server for the files of the changes, fetches them side by side, and returns
    the change rows, version by version: the table's columns, then `_change_type` (``insert``, ``delete``,
    ``update_preimage`` or ``update_postimage``), `_commit_version` and `_commit_timestamp`.
    """

    name: Table
    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    columns: tuple[str, ...] | None = None
    commit_timestamp: CommitTimestamp = "long"
    response_format: RequestedFormat = "auto"
    variant: VariantForm = "struct"
    _rest: RestClient = field(repr=False, compare=False, kw_only=True)
    _storage: StorageReader = field(repr=False, compare=False, kw_only=True)

    @classmethod
    def of(
        cls,
        name: Table,
        rest: RestClient,
        storage: StorageReader,
        *,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: Timestamp | None = None,
        ending_timestamp: Timestamp | None = None,
        columns: Iterable[str] | None = None,
        commit_timestamp: CommitTimestamp = "long",
        response_format: RequestedFormat = "auto",
        variant: VariantForm = "struct",
    ) -> TableChanges:
        """Check what is asked for; see `SharedTable.changes`.

        Args:
            name: the table.
            rest: the server.
            storage: fetches the files.
            starting_version: the first version.
            ending_version: the last version.
            starting_timestamp: the time of the first version, or before it.
            ending_timestamp: the time of the last version, or after it.
            columns: the table's columns to return.
            commit_timestamp: ``long`` or ``timestamp``.
            response_format: ``auto``, ``delta`` or ``parquet``.
            variant: ``struct`` or ``json``.

        Raises:
            ValueError: an argument is out of range, or arguments do not go together.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.changes.plan import check_commit_timestamp

        if (starting_version is None) == (starting_timestamp is None):
            raise ValueError("give exactly one of starting_version and starting_timestamp")
        if ending_version is not None and ending_timestamp is not None:
            raise ValueError("give at most one of ending_version and ending_timestamp")
        first = check_version(starting_version, "starting_version")
        last = check_version(ending_version, "ending_version")
        if first is not None and last is not None and last < first:
            raise ValueError(f"ending_version is {last}, which is before starting_version, {first}")
        formats_for(response_format)
        return cls(
            name,
            first,
            last,
            None if starting_timestamp is None else format_timestamp(starting_timestamp),
            None if ending_timestamp is None else format_timestamp(ending_timestamp),
            column_names(columns),
            check_commit_timestamp(commit_timestamp),
            response_format,
            check_variant(variant),
            _rest=rest,
            _storage=storage,
        )

    def replace(self, **changes: Any) -> TableChanges:
        """Return these changes with some of their fields changed."""
        fields = {
            item.name: getattr(self, item.name)
            for item in dataclasses.fields(self)
            if item.name != "name" and not item.name.startswith("_")
        }
        unknown = changes.keys() - fields.keys()
        if unknown:
            raise TypeError(f"changes have no field {', '.join(sorted(unknown))}; they have {', '.join(fields)}")
        return TableChanges.of(self.name, self._rest, self._storage, **(fields | changes))

    def plan(self) -> ChangesPlan:
        """Ask the server for the files of the changes and say what to read of them; fetches none of them."""
        from delta_sharing_client.changes.plan import ChangesQuery, plan_changes

        query = ChangesQuery(
            starting_version=self.starting_version,
            starting_timestamp=self.starting_timestamp,
            ending_version=self.ending_version,
            ending_timestamp=self.ending_timestamp,
            columns=self.columns,
            commit_timestamp=self.commit_timestamp,
            formats=formats_for(self.response_format),
            variant=self.variant,
        )
        return plan_changes(self._rest, self.name, query)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; asks the server for the table's metadata at the end of the range."""
        from delta_sharing_client.changes.plan import change_schema, project_changes
        from delta_sharing_client.read.arrow_types import arrow_schema

        info = self._rest.table_metadata(
            self.name,
            formats_for(self.response_format),
            version=self.ending_version,
            timestamp=self.ending_timestamp,
        )
        columns = project_changes(info.metadata.schema, self.columns)
        return arrow_schema(change_schema(columns, self.commit_timestamp), self.variant)

    def materialize(self, directory: str | os.PathLike[str], *, progress: bool | None = None) -> Materialized:
        """Write the changes to disk as a Delta table from which any Delta engine reads the same change rows.

        The table has one commit for each version of the range, with its number and its time; before the first
        one there is nothing but the schema. It is for reading changes: its snapshot is not the shared table's.

        Args:
            directory: the local table's directory; there must be no table in it yet.
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            ValueError: the changes have columns; files are copied whole.
            DeltaLogError: there is a table in the directory already, or it cannot be written.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.materialize.changes import materialize_changes

        if self.columns is not None:
            raise ValueError(
                "materialize copies whole files, and the changes have columns: leave that out, "
                "or load the rows with to_arrow() and write those"
            )
        formats = formats_for(self.response_format)
        request = ChangesRequest(
            formats=formats,
            starting_version=self.starting_version,
            starting_timestamp=self.starting_timestamp,
            ending_version=self.ending_version,
            ending_timestamp=self.ending_timestamp,
            include_historical_metadata=True,
            include_historical_protocol="delta" in formats,
        )
        rest, storage = self._connections()
        return materialize_changes(rest, storage, self.name, request, directory, progress=progress)

    def explain(self) -> str:
        """Return in words what would be read: versions, files by kind of change, and the bytes to fetch.

        Asks the server, and fetches the footers of those files that would be read in pieces.
        """
        from delta_sharing_client.changes.plan import CHANGE_TYPE, COMMIT_VERSION
        from delta_sharing_client.query import estimate_plan

        plan = self.plan()
        fetch = estimate_plan(self._rest, self._storage, plan)
        versions = sorted({int(task.constants[COMMIT_VERSION] or 0) for task in plan.tasks})
        kinds = Counter(str(task.constants.get(CHANGE_TYPE, "change data")) for task in plan.tasks)
        told = ", ".join(f"{count} of {kind}" for kind, count in sorted(kinds.items())) or "none"
        changed = f"versions {versions[0]} to {versions[-1]}" if versions else "no version"
        total = sum(task.size for task in plan.tasks)
        requests = "request" if fetch.requests == 1 else "requests"
        return "\n".join(
            [
                f"table    {plan.table.full_name}, {plan.protocol.response_format} format",
                f"range    {self._range()}; {changed} changed rows",
                f"columns  {', '.join(plan.spec.output.names)}",
                f"files    {len(plan.tasks)} to read: {told}",
                f"bytes    {fetch.bytes:,} to fetch of {total:,}, in {fetch.requests} {requests}",
            ]
        )

    def _range(self) -> str:
        start = self.starting_timestamp if self.starting_version is None else f"version {self.starting_version}"
        end = self.ending_timestamp if self.ending_version is None else f"version {self.ending_version}"
        return f"from {start} to {end or 'the latest version'}"

    def _connections(self) -> tuple[RestClient, StorageReader]:
        return self._rest, self._storage

    def __repr__(self) -> str:
        told = [repr(self.name.full_name), self._range()]
        told += [] if self.columns is None else [f"columns={list(self.columns)}"]
        return f"TableChanges({', '.join(told)})"

    def _repr_html_(self) -> str:
        return f"<code>TableChanges</code> <b>{html.escape(self.name.full_name)}</b> {html.escape(self._range())}"
