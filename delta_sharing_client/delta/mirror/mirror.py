"""`Mirror`, a shared table as a local Delta table, and `MirrorScan`, which reads it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import pyarrow as pa

from delta_sharing_client.delta.mirror.completeness import COMPARE_EVERY
from delta_sharing_client.delta.mirror.state import (
    check_source,
    file_id_of,
    local_version_of,
    shared_version,
    stored_files,
    tags_of,
)
from delta_sharing_client.delta.mirror.sync import Syncer, SyncResult
from delta_sharing_client.delta.mirror.vacuum import VacuumResult, vacuum_files
from delta_sharing_client.delta.mirror.verify import Verification, verify_files
from delta_sharing_client.delta.table.file_download import PRIVATE_FOLDER
from delta_sharing_client.delta.table.local_actions import VECTOR_ID
from delta_sharing_client.delta.table.local_table import exclusive
from delta_sharing_client.errors import DeltaTableNotFoundError, VersionNotFoundError
from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.log import DeltaLog, Snapshot, resolve_path
from delta_sharing_client.log.log_segment import LOG_DIRECTORY
from delta_sharing_client.log.paths import check_is_directory
from delta_sharing_client.log.symbolic_links import LinkCheck, refuse_links
from delta_sharing_client.model.actions import AddFile
from delta_sharing_client.model.names import Table
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import representation
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.file_tasks import errors_naming, project
from delta_sharing_client.scan.log_planner import LogPlanner, located
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.scan import Scan
from delta_sharing_client.scan.table_rows import TableRows
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.storage.local import LogFileReader
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view
from delta_sharing_client.wire.requests import check_version


@public_class
@dataclass(frozen=True)
class MirrorScan(Scan):
    """A scan of a mirror; it sends no request to the server."""

    table: Table
    directory: Path
    snapshot: Snapshot = field(repr=False)
    options: ScanOptions = field(default_factory=ScanOptions)
    _storage: LogFileReader = field(repr=False, compare=False, kw_only=True)

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of the rows."""
        with errors_naming(self._subject):
            return arrow_schema(project(self.snapshot.metadata.schema, self.options.columns), self.options.variant)

    def plan(self) -> ScanPlan:
        """Return the files of the mirror that must be read; opens none of them.

        Raises:
            ColumnError, FilterError: the projection or the filter does not fit the table.
            UnsupportedTableError: the mirror needs something that this release cannot read.
            DeltaLogError: a file of the mirror, or its folder, is a link.
        """
        planner = LogPlanner(
            table=self.table,
            subject=self._subject,
            snapshot=self.snapshot,
            files=self._files,
            source=(self._storage, None),
            remedy=f"the file is in {self._subject}: sync(repair=True) fetches damaged files again",
        )
        return planner.plan(self.options)

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.table.full_name, {"directory": self.directory, **self.options.facts()})

    @property
    def _subject(self) -> str:
        return f"the mirror in {self.directory}"

    def _files(self) -> Iterator[AddFile]:
        """Yield the files of the mirror; their URLs are local paths."""
        links = LinkCheck(self.directory)
        for file in self.snapshot.files:
            for stored in stored_files(file):
                links.file(self.directory / stored.path)
            vector_id = tags_of(file).get(VECTOR_ID)
            yield located(file, self._url, file_id=file_id_of(file), vector_file_id=vector_id)

    def _url(self, uri: str) -> SecretUrl:
        return SecretUrl(str(resolve_path(self.directory, uri)))

    def _connections(self) -> tuple[None, LogFileReader]:
        return None, self._storage


@public_class
@dataclass(frozen=True)
class Mirror(TableRows):
    """A local Delta table that follows a shared one. Made by `SharedTable.mirror`.

    The directory is a Delta table that any Delta engine opens. Files are written before the commit, so that the
    newest version is always complete. Several processes may sync at a time. The methods that load rows
    (`to_pandas`, `to_arrow`, `to_csv`, `head`, `count` and the others) take the arguments of `scan`.

    Attributes:
        table: the shared table's three names.
        directory: the local table's directory.
    """

    table: Table
    directory: Path
    _rest: RestClient = field(repr=False, compare=False)
    _storage: StorageReader = field(repr=False, compare=False)

    @classmethod
    def of(
        cls, table: Table, directory: str | os.PathLike[str], rest: RestClient, storage: StorageReader
    ) -> Mirror:
        """Return the mirror of a table in a directory, which need not exist yet.

        Raises:
            DeltaLogError: there is a file, not a directory.
            TypeError, ValueError: the directory is no path of this machine; see `local_path`.
        """
        path = Path(os.path.realpath(local_path(directory, "directory")))
        check_is_directory(path)
        return cls(table, path, rest, storage)

    @property
    def log(self) -> DeltaLog:
        """The local table's log.

        Raises:
            DeltaLogError: there is a link among the mirror's own files.
        """
        refuse_links(self.directory, LOG_DIRECTORY, PRIVATE_FOLDER)
        return DeltaLog.for_table(self.directory)

    @property
    def shared_version(self) -> int | None:
        """The version of the shared table that the newest local version holds; None before the first sync.

        Raises:
            DeltaLogError: the directory contains another table.
        """
        return shared_version(self._snapshot())

    def holds(self, version: int) -> bool:
        """Return whether a local version has a version of the shared table.

        Raises:
            DeltaLogError: the directory contains another table.
        """
        return shared_version(self._snapshot()) == version or local_version_of(self.log, version) is not None

    def sync(
        self,
        at_version: int | None = None,
        *,
        every_version: bool = False,
        repair: bool = False,
        compare_every: int = COMPARE_EVERY,
        progress: bool | None = None,
    ) -> SyncResult:
        """Bring the local table up to date with the shared one.

        The first sync downloads the table. A later sync requests the table's version and stops if it has not
        changed; otherwise it requests the changes since the last sync, or the whole table if they are not
        available, fetches the new files and appends one commit. It waits for another sync of the directory.

        Args:
            at_version: the shared version, newer or older than the local one; requires a table shared with its
                history. By default the latest.
            every_version: append one commit for each shared version since the last sync instead of one for all
                of them; requires the history too.
            repair: verify all files first, fetch missing and damaged ones again, and compare the files with those
                of the server even if the version is the same.
            compare_every: list the whole table at least once in so many syncs, if the server gives no number that
                confirms the files after a sync by changes; see the documentation of mirrors.
            progress: show a progress bar; by default in a terminal or notebook only.

        Raises:
            DeltaLogError: the directory contains another table, or cannot be written.
            DiskFullError: the disk is full; the local table is unchanged.
            DeltaSharingError: a request failed, or a file could not be fetched; the local table is unchanged, and
                the next sync keeps the files that were fetched.
        """
        version = check_version(at_version, "at_version")
        if (check_version(compare_every, "compare_every") or 0) < 1:
            raise ValueError(f"compare_every is {compare_every}; it takes 1 or more")
        syncer = Syncer(self._rest, self._storage, self.table, self.directory, progress, compare_every)
        return syncer.sync(at_version=version, every_version=every_version, repair=repair)

    def verify(self) -> Verification:
        """Read all files of the newest local version, and compare their sizes and checksums with the log.

        Raises:
            DeltaTableNotFoundError: there was no sync yet.
            DeltaLogError: the log is damaged.
        """
        return verify_files(self._synced(), self.directory)

    def vacuum(self, retain: timedelta = timedelta(days=7), *, dry_run: bool = False) -> VacuumResult:
        """Remove files that only old local versions need; these versions can then no longer be read.

        Files of versions that have expired in the log (`delta.logRetentionDuration`, 30 days by default) are
        removed whatever `retain` is.

        Args:
            retain: the files of versions that were current within this time are kept; 7 days by default.
            dry_run: count the files without removing them.

        Raises:
            ValueError: `retain` is negative.
            DeltaTableNotFoundError: there was no sync yet.
            DeltaLogError: the log is damaged, or a file cannot be removed.
        """
        if not isinstance(retain, timedelta):
            raise TypeError(f"retain is a timedelta, not {type(retain).__name__}")
        if retain < timedelta(0):
            raise ValueError(f"retain is {retain}; it must not be negative")
        self._synced()
        with exclusive(self.directory):
            return vacuum_files(self.log, retain, dry_run=dry_run)

    def scan(
        self,
        columns: Iterable[str] | None = None,
        filters: Filters | None = None,
        limit: int | None = None,
        version: int | None = None,
        *,
        variant: VariantForm = "struct",
    ) -> MirrorScan:
        """Return a scan of the local table, which sends no request to the server.

        Args:
            columns: names of the columns to return, in that order; by default all.
            filters: rows to return, as for `SharedTable.scan`.
            limit: maximum number of rows to return.
            version: a version of the shared table at which a sync stopped; by default the newest.
            variant: ``struct`` or ``json``, as for `SharedTable.scan`.

        Raises:
            DeltaTableNotFoundError: there was no sync yet.
            VersionNotFoundError: no sync stopped at that version, or it has expired in the log.
            DeltaLogError: the directory contains another table, or its log is damaged.
        """
        return self.scan_with(
            ScanOptions(columns=columns, filters=filters, limit=limit, version=version, variant=variant)
        )

    def scan_with(self, options: ScanOptions) -> MirrorScan:
        """Return a scan of the local table like `scan`; hints and response format of the options are ignored."""
        snapshot, wanted = self._synced(), options.version
        if wanted is not None and wanted != shared_version(snapshot):
            local = local_version_of(self.log, wanted)
            if local is None:
                raise VersionNotFoundError(
                    f"no sync stopped at version {wanted} of {self.table.full_name}, or the log no longer has it "
                    "(delta.logRetentionDuration); use sync(at_version=...)",
                    path=str(self.directory),
                )
            snapshot = self.log.snapshot_at(local)
        return MirrorScan(
            self.table,
            self.directory,
            snapshot,
            options,
            _storage=LogFileReader(self._storage.options),
        )

    def _snapshot(self) -> Snapshot:
        snapshot = self.log.snapshot()
        check_source(snapshot, self.table, self.directory)
        return snapshot

    def _synced(self) -> Snapshot:
        snapshot = self._snapshot()
        if snapshot.version < 0:
            raise DeltaTableNotFoundError(
                "there was no sync of the mirror yet; call sync()", path=str(self.directory)
            )
        return snapshot

    @representation
    def __repr__(self) -> str:
        return f"Mirror({self.table.full_name!r}, {str(self.directory)!r})"

    @representation
    def _repr_html_(self) -> str:
        return html_view(self, self.table.full_name, {"directory": self.directory})
