"""`SharedTable`: metadata of a shared table; its scans, changes, poller and mirror."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING

from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.representation import representation
from delta_sharing_client.scan.options import OnFuture, ScanOptions, with_future_as_latest
from delta_sharing_client.table.shared_rows import SharedRows
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view
from delta_sharing_client.wire.answers import TableInfo
from delta_sharing_client.wire.requests import RequestedFormat, Timestamp, checked_flag, formats_for

if TYPE_CHECKING:
    from delta_sharing_client.cdf.clock import Clock
    from delta_sharing_client.cdf.options import CommitTimestamp, SchemaChanges, StartingVersion
    from delta_sharing_client.cdf.poller import ChangePoller
    from delta_sharing_client.delta.mirror.mirror import Mirror
    from delta_sharing_client.rest.client import RestClient
    from delta_sharing_client.storage.byte_source import StorageReader
    from delta_sharing_client.table.history import VersionChanges
    from delta_sharing_client.table.table_changes import TableChanges
    from delta_sharing_client.table.table_scan import TableScan


@public_class
@dataclass(frozen=True)
class SharedTable(SharedRows):
    """A table of a share, made by `SharingClient.table`.

    The methods that load rows (`to_pandas`, `to_arrow`, `to_csv`, `to_spark`, `head`, `count` and the others) take
    the arguments of `scan`, such as ``columns=["id"]``, ``filters="id > 5"``, ``limit=100``, ``version=3``.

    Attributes:
        name: the table's three names.
    """

    name: Table
    _rest: RestClient = field(repr=False, compare=False)
    _storage: StorageReader = field(repr=False, compare=False)

    def __str__(self) -> str:
        return self.name.full_name

    @representation
    def __repr__(self) -> str:
        return f"SharedTable({self.name.full_name!r})"

    def version(self, starting_timestamp: Timestamp | None = None, *, on_future: OnFuture = "raise") -> int:
        """Return the table's version ("Query Table Version").

        Args:
            starting_timestamp: selects the first version at or after this time (ISO 8601 text, or a datetime; UTC
                without a zone) instead of the latest one.
            on_future: as for `scan`.
        """
        client = self._client()

        def version(options: ScanOptions) -> int:
            if options.version is not None:
                return options.version
            return client.table_version(self.name, options.timestamp)

        options = ScanOptions(timestamp=starting_timestamp, on_future=on_future)
        return with_future_as_latest(client, self.name, options, version)

    def _client(self) -> RestClient:
        """Return the client for what can also be read from the table's directory."""
        from delta_sharing_client.cdf.table_client import TableClient

        return TableClient(self._rest)

    def metadata(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
        use_delta_format: bool = True,
        on_future: OnFuture = "raise",
    ) -> Metadata:
        """Return the table's metadata, of the latest version by default ("Query Table Metadata").

        Args:
            version: the version to describe.
            timestamp: the time to describe, instead of `version`.
            response_format: ``auto`` for the server's choice, or ``delta`` or ``parquet``.
            use_delta_format: False for parquet format, as in the official client.
            on_future: as for `scan`.
        """
        return self._info(version, timestamp, response_format, use_delta_format, on_future).metadata

    def protocol(
        self,
        version: int | None = None,
        timestamp: Timestamp | None = None,
        *,
        response_format: RequestedFormat = "auto",
        use_delta_format: bool = True,
        on_future: OnFuture = "raise",
    ) -> Protocol:
        """Return the table's protocol: reader version and features; arguments as for `metadata`."""
        return self._info(version, timestamp, response_format, use_delta_format, on_future).protocol

    def schema(
        self, version: int | None = None, timestamp: Timestamp | None = None, *, on_future: OnFuture = "raise"
    ) -> StructType:
        """Return the table's Delta schema; ``schema["name"]`` is a field. `scan().schema` is the Arrow schema."""
        metadata = self.scan(version=version, timestamp=timestamp, on_future=on_future).metadata()
        return replace(metadata.schema, partition_columns=metadata.partition_columns)

    @property
    def columns(self) -> list[str]:
        """The names of the columns; requests the table's metadata."""
        return self.schema().names

    def _info(
        self,
        version: int | None,
        timestamp: Timestamp | None,
        response_format: RequestedFormat,
        use_delta_format: bool,
        on_future: OnFuture,
    ) -> TableInfo:
        formats = formats_for(response_format if checked_flag(use_delta_format) else "parquet")
        client = self._client()

        def info(options: ScanOptions) -> TableInfo:
            return client.table_metadata(self.name, formats, version=options.version, timestamp=options.timestamp)

        given = ScanOptions(version=version, timestamp=timestamp, on_future=on_future)
        return with_future_as_latest(client, self.name, given, info)

    def history(self, limit: int = 20) -> list[VersionChanges]:
        """Return how many rows the latest `limit` versions changed, newest first.

        The protocol has no history of a table; this method counts the rows of the change data feed. The table must
        be shared with its history and have a change data feed. Versions that changed no row are not returned.

        Raises:
            ValueError: `limit` is not a positive integer.
        """
        from delta_sharing_client.table.history import history_of

        return history_of(self, limit)

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
        on_future: OnFuture = "raise",
    ) -> TableScan:
        """Return a scan of the table; sends no request.

        Args:
            columns: names of the columns, in the order of the result and in any case; all by default. An empty
                list selects rows without columns.
            filters: row filter: ``[(column, operator, value), ...]`` joined by AND, or a list of such lists joined
                by OR, as for `pandas.read_parquet`; or SQL text such as ``"date >= '2024-01-01' AND amount > 5"``
                (extra ``sql``).
            limit: maximum number of rows.
            version: the version to read; requires a table shared with its history.
            timestamp: time of the version to read, instead of `version`: ISO 8601 text or a datetime.
            response_format: ``auto`` for the server's choice, or ``delta`` or ``parquet``.
            json_predicate_hints: a JSON predicate by which the server skips files; it filters no rows.
            variant: ``struct`` for variants as structs of their binaries `metadata` and `value`, ``json`` for
                JSON text (times in UTC).
            on_future: ``raise`` an error for a `timestamp` after the last commit, as servers do; ``latest`` reads
                the latest version then, which takes three more requests.

        Raises:
            ValueError: an argument is out of range, or version and timestamp are both given.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.table.table_scan import TableScan

        options = ScanOptions(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            response_format=response_format,
            json_predicate_hints=json_predicate_hints,
            variant=variant,
            on_future=on_future,
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
        on_future: OnFuture = "raise",
    ) -> TableChanges:
        """Return the changes of a range of versions ("Read Change Data Feed from a Table"); sends no request.

        The range includes both ends. The table must be shared with its history and have a change data feed. The
        columns are those at the end of the range; rows of versions before a column was added have null there.

        Args:
            starting_version: the first version; either this or `starting_timestamp` is required.
            ending_version: the last version; the latest by default.
            starting_timestamp: selects the first version at or after this time: ISO 8601 text, or a datetime (UTC
                without a zone).
            ending_timestamp: selects the last version at or before this time.
            columns: names of the table's columns, in the order of the result; all by default. `_change_type`,
                `_commit_version` and `_commit_timestamp` follow them.
            response_format: as for `scan`.
            commit_timestamp: ``long`` for `_commit_timestamp` in milliseconds since the epoch (int64),
                ``timestamp`` for a time (microseconds, UTC).
            variant: as for `scan`.
            on_future: ``raise`` an error for a range that starts after the last commit; ``latest`` returns no
                changes then, and ends a range at the latest version that would end later.

        Raises:
            ValueError: an argument is out of range, or arguments exclude each other.
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
            on_future=on_future,
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
        check_table_every: int = 20,
        columns: Iterable[str] | None = None,
        response_format: RequestedFormat = "auto",
        commit_timestamp: CommitTimestamp = "long",
        variant: VariantForm = "struct",
        target: str | None = None,
        rebind: bool = False,
        clock: Clock | None = None,
    ) -> ChangePoller:
        """Return a poller, which yields the table's changes in batches, at least once; sends no request.

        The changes are those that the server sends. If it left out removed files, against the protocol, the rows
        would be missing, and nothing in its answers would show that; a `mirror` checks its files.

        Args:
            checkpoint: a local file that stores the position, so that a later poller continues from there; one
                poller at a time may use it. By default the position is not stored.
            starting_version: start if the checkpoint has no position: a version; ``latest`` for the changes after
                the current one; ``snapshot`` for the whole table as inserts, and then its changes.
            starting_timestamp: start at the first version at or after this time.
            poll_interval: time between two requests for the table's version; at least 10 s, unless the server is
                on this machine.
            max_versions: maximum number of versions per batch.
            schema_changes: ``raise`` if a column is renamed or dropped or its type changes, after the rows before
                that; ``follow`` to continue with the new columns. New columns are followed in both cases.
            check_table_every: number of polls without a new version after which the table's id is requested too,
                because a table that was created again may have the same version; the checkpoint counts them.
            columns: as for `changes`, like the following arguments.
            response_format: as for `changes`.
            commit_timestamp: as for `changes`.
            variant: as for `changes`.
            target: name of what stores the batches, such as a path. The checkpoint is bound to it: a poller with
                another target raises `CheckpointError`, instead of continuing there without the rows before.
            rebind: bind a checkpoint of another target to this one, and let a sink begin without the rows before.
            clock: source of time and waits; by default the system's clock.

        Raises:
            ValueError: an argument is out of range, or arguments exclude each other.
            TypeError: an argument is of the wrong type.
        """
        from delta_sharing_client.cdf.options import ChangeOptions, PollOptions
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
            check_table_every=check_table_every,
            target=target,
            rebind=rebind,
        )
        return ChangePoller(
            self.name,
            self._client(),
            self._storage,
            query=query,
            options=options,
            checkpoint=checkpoint,
            clock=clock,
        )

    def mirror(self, directory: str | os.PathLike[str]) -> Mirror:
        """Return the mirror of the table in a directory: a local Delta table that follows it.

        Sends no request; `Mirror.sync` creates the directory and fetches the files.
        """
        from delta_sharing_client.delta.mirror.mirror import Mirror

        return Mirror.of(self.name, directory, self._client(), self._storage)

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.name.full_name)
