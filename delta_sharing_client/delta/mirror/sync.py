"""`Syncer`: lists the shared table's files, fetches the new ones, and commits the difference."""

from __future__ import annotations

import logging
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.delta.log import DeltaLog, Snapshot
from delta_sharing_client.delta.log.symbolic_links import LinkCheck
from delta_sharing_client.delta.mirror.journal import Journal
from delta_sharing_client.delta.mirror.known_files import compare, has_any_of
from delta_sharing_client.delta.mirror.state import (
    APP_ID,
    FORMAT,
    SOURCE,
    check_source,
    data_of,
    response_format,
    shared_version,
    tags_of,
)
from delta_sharing_client.delta.mirror.sync_lock import exclusive
from delta_sharing_client.delta.mirror.verify import verify_files
from delta_sharing_client.delta.table.file_download import Fetched, Wanted, fetch_files
from delta_sharing_client.delta.table.local_actions import LOCATION, Copier, location_of, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.materialize_snapshot import check_place, table_id
from delta_sharing_client.delta.table.shared_listing import Listing, list_table
from delta_sharing_client.errors import (
    BadRequestError,
    CommitConflictError,
    DeltaLogError,
    NotFoundError,
    ResponseFormatError,
)
from delta_sharing_client.frames.progress import byte_progress
from delta_sharing_client.model.actions import AddFile, ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.storage.byte_source import StorageReader
from delta_sharing_client.wire.requests import ANY_FORMAT, QueryRequest, ask_again

logger = logging.getLogger(__name__)

#: The number of attempts of a commit that conflicts with a syncer on another machine.
_ATTEMPTS: Final = 5


@dataclass(frozen=True, kw_only=True)
class SyncResult:
    """The result of a sync.

    Attributes:
        version: the newest version of the local table.
        shared_version: the version of the shared table that it holds.
        commits: the number of versions added to the local table; 0 if nothing had changed.
        files_added, files_removed: the numbers of added and removed data files.
        bytes_fetched: the number of downloaded bytes.
        collected: the number of removed files of a crashed sync.
    """

    version: int
    shared_version: int | None
    commits: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_fetched: int = 0
    collected: int = 0

    @property
    def changed(self) -> bool:
        """Whether the local table has a new version."""
        return self.commits > 0


class Syncer:
    """Brings one mirror up to date.

    Args:
        rest: the server.
        storage: fetches the files.
        table: the shared table.
        directory: the mirror's directory.
        progress: show a progress bar; None for in a terminal or notebook only.
    """

    def __init__(
        self, rest: RestClient, storage: StorageReader, table: Table, directory: Path, progress: bool | None
    ) -> None:
        self._rest = rest
        self._storage = storage
        self._table = table
        self._directory = directory
        self._progress = progress

    def sync(self, *, at_version: int | None, every_version: bool, repair: bool) -> SyncResult:
        """Bring the mirror to a shared version; see `Mirror.sync`."""
        log = DeltaLog.for_table(self._directory)
        check_place(log)
        check_source(log.snapshot(), self._table, self._directory)
        with exclusive(self._directory) as locked:
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    return self._locked(log, at_version, every_version=every_version, repair=repair, alone=locked)
                except CommitConflictError:
                    # Only without a lock: another machine committed first, perhaps the same version.
                    if attempt == _ATTEMPTS:
                        raise
        raise AssertionError("unreachable")

    def _locked(
        self, log: DeltaLog, at_version: int | None, *, every_version: bool, repair: bool, alone: bool
    ) -> SyncResult:
        snapshot = log.snapshot()
        check_source(snapshot, self._table, self._directory)
        journal = Journal(self._directory)
        if journal.pending:
            # A process crashed after its commit; the files of that commit must not be removed.
            journal.pending -= set(self._paths(snapshot))
        current = shared_version(snapshot)
        unsound = self._unsound(snapshot) if repair and current is not None else False
        wanted = at_version
        if current is not None and wanted is None:
            wanted = self._rest.table_version(self._table)
        if current is not None and wanted == current and not unsound:
            collected = journal.end() if alone else 0
            return SyncResult(version=snapshot.version, shared_version=current, collected=collected)
        pinned = at_version is not None
        steps: list[int | None] = [wanted if pinned else None]
        if every_version and current is not None and wanted is not None and current < wanted:
            steps = list(range(current + 1, wanted + 1))
        result = SyncResult(version=snapshot.version, shared_version=current)
        for step in steps:
            result = self._step(log, journal, step, result, seen=wanted, alone=alone)
        return result

    def _unsound(self, snapshot: Snapshot) -> bool:
        """Remove damaged files, so that they are fetched again; return whether a file is damaged or missing."""
        problems = verify_files(snapshot, self._directory).problems
        for problem in problems:
            (self._directory / problem.path).unlink(missing_ok=True)
        return bool(problems)

    def _step(
        self,
        log: DeltaLog,
        journal: Journal,
        version: int | None,
        before: SyncResult,
        *,
        seen: int | None,
        alone: bool,
    ) -> SyncResult:
        """Bring the mirror to one shared version, with one commit."""
        transaction = log.start_transaction()
        snapshot = transaction.snapshot
        # By the ids that the mirror has, if possible.
        listing = ask_again(
            QueryRequest(formats=ANY_FORMAT, version=version),
            response_format(snapshot),
            lambda request: list_table(self._rest, self._table, request),
        )
        reached = next((v for v in (listing.version, version, seen) if v is not None), None)
        if reached is None:
            reached = self._rest.table_version(self._table)
        change = _Change(snapshot, listing, self._directory, self._locations(snapshot, listing))
        fetched = self._fetch(listing, change, journal)
        actions = change.actions(self._table, reached, fetched)
        local = snapshot.version
        committed = reached != shared_version(snapshot) or change.any
        if committed:
            parameters = {"table": self._table.full_name, "sharedVersion": reached}
            local = transaction.commit(actions, "SYNC", parameters)
        collected = journal.end(self._paths(log.snapshot()) if journal.pending else ()) if alone else 0
        return replace(
            before,
            version=local,
            shared_version=reached,
            commits=before.commits + committed,
            files_added=before.files_added + len(change.compared.new),
            files_removed=before.files_removed + len(change.compared.gone),
            bytes_fetched=before.bytes_fetched + sum(item.fetched for item in fetched.values()),
            collected=before.collected + collected,
        )

    def _locations(self, snapshot: Snapshot, listing: Listing) -> Mapping[str, str] | None:
        """Return the locations of a mirror's files by id, if its log lacks them.

        The log of an older release lacks them. If all files now have other ids, the mirror's version is listed
        once more, in the format of the known ids. None if the files are listed by the ids that the mirror has.
        """
        if listing.protocol.response_format == response_format(snapshot):
            return None
        known = all(LOCATION in tags_of(add) for add in snapshot.files)
        if known or not listing.files or has_any_of(snapshot, listing.files):
            return {}
        other: ResponseFormat = "parquet" if listing.protocol.response_format == "delta" else "delta"
        request = QueryRequest(formats=(other,), version=shared_version(snapshot))
        try:
            files = list_table(self._rest, self._table, request).files
        except (BadRequestError, NotFoundError, ResponseFormatError) as error:
            logger.info(
                "%s: the ids of the mirrored files are unknown in the new response format: %s",
                self._table.full_name,
                error,
            )
            return {}
        return {file.id: location_of(file) for file in files}

    def _fetch(self, listing: Listing, change: _Change, journal: Journal) -> dict[str, Fetched]:
        known = change.compared.fetched
        links = LinkCheck(self._directory)
        wanted: dict[str, Wanted] = {}
        for file in change.compared.files:
            for data in file.wanted():
                target = self._directory / data.path
                links.folder(target.parent)
                if data.path not in known or not _is_there(target, known[data.path].size):
                    wanted[data.path] = data
        fetched: dict[str, Fetched] = {}
        if wanted:
            journal.begin(wanted)
            items = list(wanted.values())
            with byte_progress(sum(item.size for item in items), self._progress, self._table.name) as advance:
                fetched = fetch_files(
                    self._storage, self._directory, items, refresh=listing.refresh, advance=advance
                )
            for path, item in fetched.items():
                if path in known and known[path].sha256 != item.sha256:
                    raise DeltaLogError(
                        f"file {wanted[path].file_id} is another one than when it was mirrored; files of a table "
                        "never change: the provider's table may have been created again",
                        path=str(self._directory),
                    )
        return known | fetched

    def _paths(self, snapshot: Snapshot) -> list[str]:
        return [data.path for file in snapshot.files for data in data_of(file, self._directory)]


def _is_there(file: Path, size: int) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


class _Change:
    """The differences between a mirror's version and a listing of the shared table.

    Attributes:
        compared: the comparison of the files.
        any: whether anything but the shared version differs.
    """

    def __init__(
        self, snapshot: Snapshot, listing: Listing, directory: Path, locations: Mapping[str, str] | None
    ) -> None:
        copier = Copier(listing.protocol, listing.metadata)
        self._snapshot = snapshot
        self._listing = listing
        self.compared = compare(snapshot, directory, map(copier.file, listing.files), locations)
        self.head = self._head()
        self.any = bool(self.compared.new or self.compared.renamed or self.compared.gone or self.head)

    def _head(self) -> list[dict[str, Any]]:
        """Return the protocol and the metadata, if they have changed."""
        listing, snapshot = self._listing, self._snapshot
        protocol = local_protocol(listing.protocol, listing.metadata)
        metadata = local_metadata(
            listing.protocol,
            listing.metadata,
            table_id(listing.table),
            extra={SOURCE: listing.table.full_name.lower(), FORMAT: listing.protocol.response_format},
        )
        changed: list[dict[str, Any]] = []
        if snapshot.version < 0 or _plain(snapshot.protocol.raw) != protocol:
            changed.append({"protocol": protocol})
        if snapshot.version < 0 or _plain(snapshot.metadata.raw) != _plain(metadata):
            changed.append({"metaData": metadata})
        return changed

    def actions(self, table: Table, version: int, fetched: dict[str, Fetched]) -> list[dict[str, Any]]:
        """Return the actions of the commit."""
        now = now_in_ms()
        txn = {"txn": {"appId": APP_ID, "version": version, "lastUpdated": now}}
        removes = [{"remove": _remove(add, now)} for add in self.compared.gone]
        adds = [file.add(fetched, now_ms=now) for file in self.compared.new]
        # The same rows under other ids.
        adds += [file.add(fetched, now_ms=now, data_change=False) for file in self.compared.renamed]
        return [*self.head, txn, *removes, *adds]


def _plain(raw: Any) -> dict[str, Any]:
    """Return an action without null fields and `createdTime`."""
    return {name: value for name, value in raw.items() if value is not None and name != "createdTime"}


def _remove(add: AddFile, now: int) -> dict[str, Any]:
    raw = {
        "path": add.path,
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": add.partition_values,
        "size": add.size,
        "deletionVector": add.raw.get("deletionVector"),
    }
    return {name: value for name, value in raw.items() if value is not None}
