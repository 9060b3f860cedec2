"""A shared table and a scan of it: what to read is said first, and read when it is asked for.

A `TableScan` is frozen: `replace` makes another one, and the same scan may be read again and again. Each
reading asks the server anew, so that it sees the newest version unless a version was given.
"""

from __future__ import annotations

import html
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from delta_sharing_client.expressions.predicates import Filters
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.data_skipping import SkipReason
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.table.spark_scan import SparkScan
from delta_sharing_client.wire.requests import (
    RequestedFormat,
    Timestamp,
    check_version,
    format_timestamp,
    formats_for,
)

if TYPE_CHECKING:
    import os

    import pyarrow as pa

    from delta_sharing_client.cdf.clock import Clock
    from delta_sharing_client.cdf.options import CommitTimestamp
    from delta_sharing_client.cdf.poll_options import SchemaChanges, StartingVersion
    from delta_sharing_client.cdf.poller import ChangePoller
    from delta_sharing_client.delta.mirror.mirror import Mirror
    from delta_sharing_client.delta.mirror.mirror_scan import MirrorScan
    from delta_sharing_client.delta.table.materialize_snapshot import Materialized, MaterializedData
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.scan.planner import ScanPlan
    from delta_sharing_client.storage.presigned import StorageReader
    from delta_sharing_client.table.table_changes import TableChanges


@dataclass(frozen=True)
class SharedTable:
    """A table of a share.

    Made by `SharingClient.table`; nothing is asked of the server until a method is called.

    Attributes:
        name: the table's three names.
    """

    name: Table
    _rest: RestClient = field(repr=False, compare=False)
    _storage: StorageReader = field(repr=False, compare=False)

    @representation
    def __repr__(self) -> str:
        return f"SharedTable({self.name.full_name!r})"

    def version(self, starting_timestamp: Timestamp | None = None) -> int:
        """Return the table's version.

        Args:
            starting_timestamp: for the first version at or after that time (ISO 8601 text, or a datetime;
                UTC where it has no zone) instead of the latest.

        Serves "Query Table Version".
        """
        text = None if starting_timestamp is None else format_timestamp(starting_timestamp)
        return self._rest.table_version(self.name, text)

    def metadata(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
    ) -> Metadata:
        """Return the table's metadata, of the latest version unless another is asked for.

        Serves "Query Table Metadata".
        """
        return self._info(version, timestamp, response_format)[1]

    def protocol(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
    ) -> Protocol:
        """Return what a reader must support to read the table."""
        return self._info(version, timestamp, response_format)[0]

    def schema(self, version: int | None = None, timestamp: Timestamp | None = None) -> StructType:
        """Return the table's columns; `scan().schema` gives them in Arrow's terms."""
        return self.metadata(version, timestamp).schema

    def _info(
        self, version: int | None, timestamp: Timestamp | None, response_format: str
    ) -> tuple[Protocol, Metadata]:
        if version is not None and timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")
        info = self._rest.table_metadata(
            self.name,
            formats_for(response_format),
            version=check_version(version, "version"),
            timestamp=None if timestamp is None else format_timestamp(timestamp),
        )
        return info.protocol, info.metadata

    def scan(
        self,
        columns: Iterable[str] | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        response_format: RequestedFormat = "auto",
        *,
        json_predicate_hints: str | None = None,
        variant: VariantForm = "struct",
    ) -> TableScan:
        """Say what to read of the table; nothing is read yet.

        Args:
            columns: names of the columns to return, in that order, whatever their case; all without, none
                for an empty list.
            filters: rows to return: ``[(column, operator, value), ...]`` AND-ed, or a list of such lists,
                OR-ed, as `pandas.read_parquet` takes it; or SQL text: ``"date >= '2024-01-01' AND amount > 5"``
                (needs the extra ``sql``). The answer is exactly filtered.
            limit: rows to return at the most.
            version: the version to read (needs a table shared with its history).
            timestamp: read the version that was current then; ISO 8601 text or a datetime.
            response_format: ``auto`` takes what the server prefers; ``delta`` or ``parquet`` force one.
            json_predicate_hints: a JSON predicate for the server alone: it prunes files and filters no rows.
            variant: ``struct`` reads a variant as a struct of its binaries `metadata` and `value`, ``json``
                as the text of its JSON (times in UTC).

        Raises:
            ValueError: an argument is out of range, or version and timestamp are both given.
            TypeError: an argument is of the wrong type.
        """
        options = ScanOptions(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            response_format=response_format,
            json_predicate_hints=json_predicate_hints,
            variant=variant,
        )
        return TableScan(self, options)

    def changes(
        self,
        starting_version: int | None = None,
        ending_version: int | None = None,
        starting_timestamp: Timestamp | None = None,
        ending_timestamp: Timestamp | None = None,
        columns: Iterable[str] | None = None,
        response_format: RequestedFormat = "auto",
        *,
        commit_timestamp: CommitTimestamp = "long",
        variant: VariantForm = "struct",
    ) -> TableChanges:
        """Say which changes of the table to read; nothing is read yet.

        The range includes both its ends. The table needs its change data feed on, and to be shared with its
        history. Its columns are those at the end of the range: one that was added within it is null before that.

        Serves "Read Change Data Feed from a Table".

        Args:
            starting_version: the first version; either this or `starting_timestamp` is needed.
            ending_version: the last version; the latest without.
            starting_timestamp: start with the first version at or after this time: ISO 8601 text, or a
                datetime (UTC without a zone).
            ending_timestamp: end with the last version at or before this time.
            columns: names of the table's columns to return, in that order; all without. `_change_type`,
                `_commit_version` and `_commit_timestamp` come after them.
            response_format: ``auto`` takes what the server prefers; ``delta`` or ``parquet`` force one.
            commit_timestamp: ``long`` gives `_commit_timestamp` as milliseconds since the epoch (int64), as the
                protocol has it; ``timestamp`` as a time (microseconds, UTC).
            variant: ``struct`` or ``json``, as for `scan`.

        Raises:
            ValueError: an argument is out of range, or arguments do not go together.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.cdf.options import ChangeOptions
        from delta_sharing_client.table.table_changes import TableChanges

        options = ChangeOptions(
            starting_version=starting_version,
            starting_timestamp=starting_timestamp,
            ending_version=ending_version,
            ending_timestamp=ending_timestamp,
            columns=columns,
            commit_timestamp=commit_timestamp,
            response_format=response_format,
            variant=variant,
        )
        return TableChanges(self, options)

    def poll_changes(
        self,
        checkpoint: str | os.PathLike[str] | None = None,
        *,
        starting_version: StartingVersion | None = None,
        starting_timestamp: Timestamp | None = None,
        poll_interval: timedelta = timedelta(seconds=30),
        max_versions: int = 100,
        schema_changes: SchemaChanges = "raise",
        columns: Iterable[str] | None = None,
        response_format: RequestedFormat = "auto",
        commit_timestamp: CommitTimestamp = "long",
        variant: VariantForm = "struct",
        clock: Clock | None = None,
    ) -> ChangePoller:
        """Follow the table's changes, batch by batch, at least once; nothing is asked of the server yet.

        Args:
            checkpoint: a local file that keeps how far the changes were taken, so that the next poller goes on
                from there; one poller at a time may use it. Without one nothing is kept.
            starting_version: where to begin if the checkpoint does not say: a version; ``latest`` for what comes
                after the current one; ``snapshot`` for the whole table as inserts first, then what comes after.
            starting_timestamp: begin with the first version at or after this time.
            poll_interval: the time between two questions for the table's version; at least 10 s, unless the
                server is on this machine.
            max_versions: versions to a batch at the most.
            schema_changes: ``raise`` when a column is renamed or dropped or changes its type, once the rows before
                that are delivered; ``follow`` to go on with the new columns. A new column is followed either way.
            columns: as for `changes`.
            response_format: as for `changes`.
            commit_timestamp: as for `changes`.
            variant: as for `changes`.
            clock: tells the time and waits; the system's clock without.

        Raises:
            ValueError: an argument is out of range, or arguments do not go together.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.cdf.options import ChangeOptions
        from delta_sharing_client.cdf.poll_options import PollOptions
        from delta_sharing_client.cdf.poller import ChangePoller

        query = ChangeOptions(
            columns=columns, commit_timestamp=commit_timestamp, response_format=response_format, variant=variant
        )
        options = PollOptions(
            starting_version=starting_version,
            starting_timestamp=starting_timestamp,
            poll_interval=poll_interval,
            max_versions=max_versions,
            schema_changes=schema_changes,
        )
        return ChangePoller(
            self.name, self._rest, self._storage, query=query, options=options, checkpoint=checkpoint, clock=clock
        )

    def mirror(self, directory: str | os.PathLike[str]) -> Mirror:
        """Return the mirror of the table in a directory: a local Delta table that follows it.

        Nothing is made or asked until `Mirror.sync` is called.

        Args:
            directory: the local table's directory; made by the first sync.
        """
        from delta_sharing_client.delta.mirror.mirror import Mirror

        return Mirror.of(self.name, directory, self._rest, self._storage)

    @representation
    def _repr_html_(self) -> str:
        return f"<code>SharedTable</code> <b>{html.escape(self.name.full_name)}</b>"


@dataclass(frozen=True)
class TableScan(SparkScan):
    """A scan of a table; see `SharedTable.scan` for the options.

    Each `to_...` method asks the server for the table's files, fetches those that can hold a matching row
    side by side, and returns the rows in the server's order.
    """

    table: SharedTable
    options: ScanOptions

    def replace(self, **changes: Any) -> TableScan:
        """Return this scan with some of its options changed."""
        return TableScan(self.table, self.options.replace(**changes))

    def plan(self) -> ScanPlan:
        """Ask the server for the files and say which are left to read; fetches none of them."""
        from delta_sharing_client.scan.directory_planner import plan_table

        return plan_table(self.table._rest, self.table.name, self.options)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows; asks the server for the table's metadata."""
        from delta_sharing_client.parquet.arrow_types import arrow_schema
        from delta_sharing_client.scan.data_skipping import project

        options = self.options
        metadata = self.table.metadata(options.version, options.timestamp, response_format=options.response_format)
        return arrow_schema(project(metadata.schema, options.columns), options.variant)

    def materialize(
        self, directory: str | os.PathLike[str], data: MaterializedData = "files", *, progress: bool | None = None
    ) -> Materialized:
        """Write the snapshot to disk as a Delta table that any Delta engine opens: data files and `_delta_log`.

        Files are copied whole, so that the scan must have no `columns`, `filters` or `limit`;
        `json_predicate_hints` may leave files out. The copy has one version. A table that follows the shared
        one is a mirror.

        Args:
            directory: the local table's directory; there must be no table in it yet.
            data: ``files`` downloads the files. ``urls`` writes a log that names their signed URLs, for
                `DeltaLog.for_table(directory, allow_absolute_paths=True)` of this package; it is good until the
                URLs expire, readable for its owner only, and a warning says so.
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            ValueError: the scan has columns, filters or a limit.
            DeltaLogError: there is a table in the directory already, or it cannot be written.
            DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        """
        from delta_sharing_client.delta.table.materialize_snapshot import check_data, materialize_snapshot

        said = [name for name in ("columns", "filters", "limit") if getattr(self.options, name) is not None]
        if said:
            raise ValueError(
                f"materialize copies whole files, and the scan has {' and '.join(said)}: "
                "leave that out, or load the rows with to_arrow() and write those"
            )
        rest, storage = self._connections()
        name, kind = self.table.name, check_data(data)
        return materialize_snapshot(
            rest, storage, name, self.options.request(), directory, data=kind, progress=progress
        )

    def mirrored(self, directory: str | os.PathLike[str], *, progress: bool | None = None) -> MirrorScan:
        """Sync the mirror in a directory, and return the same scan over its local files.

        Hints for the server and the response format do not matter to it. A `version` that an earlier sync stopped
        at is read without asking the server.

        Args:
            directory: the mirror's directory, made where it is missing.
            progress: show a progress bar for the download; by default in a terminal or notebook only.

        Raises:
            ValueError: the scan has a timestamp; a mirror goes by versions.
            DeltaSharingError: as for `Mirror.sync`.
        """
        options = self.options
        if options.timestamp is not None:
            raise ValueError("a mirror is read by version, and the scan has a timestamp: give a version instead")
        mirror = self.table.mirror(directory)
        if options.version is None or not mirror.holds(options.version):
            mirror.sync(at_version=options.version, progress=progress)
        return mirror.scan_with(options)

    def explain(self) -> str:
        """Return in words what the scan would read: files named, pruned and left, and the bytes to fetch.

        Asks the server, and fetches the footers of those files that would be read in pieces.
        """
        from delta_sharing_client.scan.planner import estimate_plan

        plan = self.plan()
        fetch = estimate_plan(self.table._rest, self.table._storage, plan)
        pruned = sum(plan.pruned.values())
        requests = "request" if fetch.requests == 1 else "requests"
        version = "version not told" if plan.version is None else f"version {plan.version}"
        total = sum(task.size for task in plan.tasks)
        lines = [
            f"table    {plan.table.full_name}, {version}, {plan.protocol.response_format} format",
            f"columns  {', '.join(plan.spec.output.names) or '(none)'}",
            f"files    {len(plan.tasks) + pruned} named by the server, {pruned} pruned "
            f"({plan.pruned.get(SkipReason.PARTITION, 0)} by partition values, "
            f"{plan.pruned.get(SkipReason.STATS, 0)} by statistics), {len(plan.tasks)} to read",
            f"bytes    {fetch.bytes:,} to fetch of {total:,}, in {fetch.requests} {requests}",
        ]
        if fetch.in_pieces:
            lines.append(
                f"pieces   {fetch.in_pieces} files are read in pieces: {fetch.row_groups_pruned} of their "
                f"{fetch.row_groups} row groups pruned"
            )
        return "\n".join(lines)

    def _connections(self) -> tuple[RestClient, StorageReader]:
        return self.table._rest, self.table._storage
