"""`Syncer`: lists the shared table's files or their changes, fetches the new ones, and commits the difference."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from delta_sharing_client.delta.mirror.completeness import COMPARE_EVERY, Completeness, totals_after
from delta_sharing_client.delta.mirror.file_comparison import Comparison, compare, compare_replaced
from delta_sharing_client.delta.mirror.known_files import KnownFiles
from delta_sharing_client.delta.mirror.state import (
    APP_ID,
    FORMAT,
    SCOPE,
    SOURCE,
    check_source,
    response_format,
    scope_after,
    shared_version,
)
from delta_sharing_client.delta.mirror.vacuum import remove_crashed_sync_files
from delta_sharing_client.delta.mirror.verify import verify_files
from delta_sharing_client.delta.mirror.version_changes import ChangedFiles, VersionChanges
from delta_sharing_client.delta.table.file_download import RemoteFile, StoredFile
from delta_sharing_client.delta.table.local_actions import LocalLayout, now_in_ms
from delta_sharing_client.delta.table.local_metadata import local_metadata, local_protocol
from delta_sharing_client.delta.table.local_table import LocalTable, exclusive
from delta_sharing_client.errors import (
    BadRequestError,
    CommitConflictError,
    DeltaLogError,
    FileGoneError,
    ProtocolError,
    RestError,
)
from delta_sharing_client.log import DeltaLog, Snapshot
from delta_sharing_client.log.log import OptimisticTransaction
from delta_sharing_client.log.symbolic_links import LinkCheck
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import AddFile, Metadata
from delta_sharing_client.model.table_identity import is_same_table
from delta_sharing_client.representation import representation
from delta_sharing_client.transport.exception_mapping import with_message
from delta_sharing_client.views import html_view
from delta_sharing_client.wire.answers import Answer, TableInfo
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ANY_FORMAT, QueryRequest

logger = module_logger(__name__)

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
        collected: the number of removed files of a failed sync.
        corrected: the number of files that the mirror would lack, or have in excess, according to the changes that
            the server sent; a whole listing corrected them.
    """

    version: int
    shared_version: int | None
    commits: int = 0
    files_added: int = 0
    files_removed: int = 0
    bytes_fetched: int = 0
    collected: int = 0
    corrected: int = 0

    @property
    def changed(self) -> bool:
        """Whether the local table has a new version."""
        return self.commits > 0

    @representation
    def _repr_html_(self) -> str:
        facts = {
            "changed": "yes" if self.changed else "no",
            "shared version": self.shared_version,
            "local version": self.version,
            "files": f"{self.files_added:,} added, {self.files_removed:,} removed",
            "fetched": f"{self.bytes_fetched:,} bytes",
            "corrected": f"{self.corrected:,} files" if self.corrected else None,
        }
        return html_view(self, facts=facts)


@dataclass(frozen=True, kw_only=True)
class _Step:
    """The differences of a mirror to one shared version.

    Attributes:
        answer: the answer with the files.
        compared: the differences.
        reached: the shared version, if it is known.
        state: the state after it, without its local version.
        metadata: the metadata of the version, if it was requested.
        head: the protocol and the metadata, if they have changed.
        is_complete: whether no whole listing is needed.
        corrected: the number of files that the changes do not explain.
    """

    answer: Answer[Any, Any] = field(repr=False)
    compared: Comparison = field(repr=False)
    reached: int | None
    state: Completeness
    metadata: Metadata | None = None
    head: Sequence[dict[str, Any]] = ()
    is_complete: bool = True
    corrected: int = 0


@dataclass(frozen=True)
class Syncer(LocalTable):
    """Brings a mirror up to date.

    Attributes:
        compare_every: a whole listing is due at least once in so many syncs that no number of the server confirms.
    """

    compare_every: int = COMPARE_EVERY

    def sync(self, *, at_version: int | None, every_version: bool, repair: bool) -> SyncResult:
        """Bring the mirror to a shared version; see `Mirror.sync`."""
        log = DeltaLog.for_table(self.directory)
        self.check_directory(log)
        check_source(log.snapshot(), self.shared, self.directory)
        with exclusive(self.directory) as locked:
            failed_before = self.is_unfinished
            # Without a lock another machine may commit first, perhaps the same version.
            conflict = retry_if_exception_type(CommitConflictError)
            retrying = Retrying(stop=stop_after_attempt(_ATTEMPTS), retry=conflict, reraise=True)
            result: SyncResult = retrying(self._sync, log, at_version, every_version=every_version, repair=repair)
            if locked:
                if failed_before:
                    result = replace(result, collected=remove_crashed_sync_files(log))
                self.finish()
            return result

    def _sync(self, log: DeltaLog, at_version: int | None, *, every_version: bool, repair: bool) -> SyncResult:
        snapshot = log.snapshot()
        check_source(snapshot, self.shared, self.directory)
        current = shared_version(snapshot)
        if repair and current is not None:
            self._remove_damaged(snapshot)
        wanted, described = at_version, None
        if current is not None and wanted in (None, current):
            described = self._describe(snapshot, at_version)
            if wanted is None:
                wanted = None if described is None else described.version
            if wanted is None:
                wanted = self.rest.table_version(self.shared)
        is_replaced = described is not None and not is_same_table(snapshot.metadata.id, described.metadata)
        result = SyncResult(version=snapshot.version, shared_version=current)
        is_current = current is not None and wanted == current and not repair and not is_replaced
        if is_current and self._keeps(snapshot, described):
            return result
        steps: list[int | None] = [at_version]
        if every_version and current is not None and wanted is not None and current < wanted:
            steps = list(range(current + 1, wanted + 1))
        changes = VersionChanges(
            rest=self.rest, table=self.shared, is_changed=self._is_changed, described=described
        )
        for step in steps:
            try:
                result = self._step(log, step, result, seen=wanted, changes=None if repair else changes)
            except (BadRequestError, FileGoneError) as error:
                if step == wanted:
                    raise
                raise with_message(
                    error,
                    f"{error}. Version {step} of {self.shared.full_name} cannot be read, so it gets no commit: "
                    f"sync() brings the mirror from version {result.shared_version} to the latest in one "
                    "commit; after that every_version=True works again, if the table is shared with its history",
                ) from None
        return result

    def _describe(self, snapshot: Snapshot, version: int | None) -> TableInfo | None:
        """Return the metadata of a version, or the latest; None if the server does not answer the request."""
        known = response_format(snapshot)
        try:
            return self.rest.table_metadata(
                self.shared, ANY_FORMAT if known is None else (known,), version=version
            )
        except (RestError, ProtocolError):
            return None

    def _remove_damaged(self, snapshot: Snapshot) -> None:
        """Remove damaged files, so that they are fetched again."""
        for problem in verify_files(snapshot, self.directory).problems:
            (self.directory / problem.path).unlink(missing_ok=True)

    def _step(
        self,
        log: DeltaLog,
        version: int | None,
        before: SyncResult,
        *,
        seen: int | None,
        changes: VersionChanges | None,
    ) -> SyncResult:
        """Bring the mirror to one shared version, with one commit.

        Args:
            log: the mirror's log.
            version: the shared version; None for the latest.
            before: the result of the steps before.
            seen: the version that is reached if the server does not report it.
            changes: requests the changes since the last sync; None to list the whole table and compare every file.
        """
        transaction = log.start_transaction()
        snapshot = transaction.snapshot
        reached = seen if version is None else version
        state = Completeness.load(self.directory, snapshot.version)
        changed = None if changes is None or reached is None else changes.since(snapshot, reached)
        step = None if changed is None else self._by_changes(snapshot, changed, state)
        if step is None or not step.is_complete:
            step = self._by_listing(snapshot, version, state, step, seen=reached, every_file=changes is None)
        reached = step.reached
        if reached is None:
            reached = self.rest.table_version(self.shared)
        answer, compared = step.answer, step.compared
        stored = self._fetch(answer, compared)
        local = self._commit(transaction, step, reached, stored)
        if step.corrected:
            logger.warning(
                "%s: the changes that the server sent up to version %d do not explain %d files of its listing of "
                "the whole table; the mirror has the files of the listing",
                self.shared.full_name,
                reached,
                step.corrected,
            )
        return replace(
            before,
            version=local,
            shared_version=reached,
            commits=before.commits + (local > snapshot.version),
            files_added=before.files_added + len(compared.new),
            files_removed=before.files_removed + len(compared.gone),
            bytes_fetched=before.bytes_fetched + sum(file.fetched for file in stored.values()),
            corrected=before.corrected + step.corrected,
        )

    def _commit(
        self, transaction: OptimisticTransaction, step: _Step, reached: int, stored: dict[str, StoredFile]
    ) -> int:
        """Commit a step, if it differs from the mirror, and record its state; return the local version."""
        snapshot, compared = transaction.snapshot, step.compared
        differs = bool(step.head or compared.new or compared.renamed or compared.gone)
        is_new = differs or reached != shared_version(snapshot)
        local = snapshot.version
        state = replace(step.state, version=local + is_new)
        if not state.is_initial:
            state.save(self.directory)
        if is_new:
            self.record_unfinished(step.answer.protocol.response_format)
            actions = [*step.head, *_actions(compared, reached, stored)]
            parameters = {"table": self.shared.full_name, "sharedVersion": reached}
            local = transaction.commit(actions, "SYNC", parameters)
        if state.is_initial:
            state.save(self.directory)
        return local

    def _keeps(self, snapshot: Snapshot, described: TableInfo | None) -> bool:
        """Return whether a sync that found no new version keeps the mirror's files without a whole listing."""
        state = Completeness.load(self.directory, snapshot.version)
        if state.is_confirmed:
            return True
        metadata = None if described is None or described.version is None else described.metadata
        confirmed = state.confirmed_by(metadata, snapshot.state.totals())
        if confirmed is False or (confirmed is None and state.is_due(self.compare_every)):
            return False
        state.after_changes(confirmed=bool(confirmed)).save(self.directory)
        return True

    def _by_changes(self, snapshot: Snapshot, changed: ChangedFiles, state: Completeness) -> _Step:
        """Return the step to a version by its changes; it is not complete if a whole listing must replace it."""
        compared = self._compare(snapshot, changed.answer, changed.known, changed.listed, changed.rows)
        confirmed = state.confirmed_by(changed.metadata, totals_after(snapshot.state.totals(), compared))
        return _Step(
            answer=changed.answer,
            compared=compared,
            reached=changed.version,
            state=state.after_changes(confirmed=bool(confirmed)),
            metadata=changed.metadata,
            is_complete=confirmed or (confirmed is None and not state.is_due(self.compare_every)),
        )

    def _by_listing(
        self,
        snapshot: Snapshot,
        version: int | None,
        state: Completeness,
        by_changes: _Step | None,
        *,
        seen: int | None,
        every_file: bool,
    ) -> _Step:
        """Return the step to a version by a listing of the whole table; see `_step` for the arguments."""
        # In the response format of the ids in the mirror's log, if possible.
        answer = self.list_files(QueryRequest(formats=ANY_FORMAT, version=version), response_format(snapshot))
        known = KnownFiles(snapshot.state)
        rows = known.all_rows() if every_file else None
        compared = self._compare(snapshot, answer, known, answer.items, rows)
        reached = seen if answer.version is None else answer.version
        expected: AbstractSet[Any] | None = None
        if self._has_same_ids(snapshot, answer):
            if by_changes is not None and by_changes.reached == reached:
                expected = by_changes.compared.difference
            elif reached is not None and reached == shared_version(snapshot):
                expected = frozenset()
        corrected = 0 if expected is None else len(expected ^ compared.difference)
        metadata = by_changes.metadata if by_changes is not None and by_changes.reached == reached else None
        state = state.after_listing(
            metadata or answer.metadata,
            totals_after(snapshot.state.totals() if snapshot.version >= 0 else (0, 0), compared),
            agrees=None if expected is None else not corrected,
            compare_every=self.compare_every,
        )
        head = self._changed_head(snapshot, answer)
        return _Step(
            answer=answer, compared=compared, reached=reached, state=state, head=head, corrected=corrected
        )

    @staticmethod
    def _has_same_ids(snapshot: Snapshot, answer: Answer[Any, Any]) -> bool:
        """Return whether an answer has the file ids of a mirror's log."""
        if snapshot.version < 0 or answer.protocol.response_format != response_format(snapshot):
            return False
        return is_same_table(snapshot.metadata.id, answer.metadata)

    @staticmethod
    def _compare(
        snapshot: Snapshot,
        answer: Answer[Any, Any],
        known: KnownFiles,
        listed: Sequence[FileBlock],
        rows: Sequence[int] | None,
    ) -> Comparison:
        layout = LocalLayout(answer.protocol, answer.metadata, scope_after(snapshot, answer.metadata))
        if snapshot.version >= 0 and not is_same_table(snapshot.metadata.id, answer.metadata):
            return compare_replaced(known, listed, layout)
        by_location = answer.protocol.response_format != response_format(snapshot)
        return compare(known, listed, layout, by_location=by_location, rows=rows)

    def _is_changed(self, snapshot: Snapshot, info: TableInfo) -> bool:
        return bool(self._changed_head(snapshot, info))

    def _changed_head(self, snapshot: Snapshot, info: TableInfo) -> list[dict[str, Any]]:
        """Return the protocol and the metadata, if they have changed."""
        properties = {SOURCE: self.shared.full_name.lower(), FORMAT: info.protocol.response_format}
        scope = scope_after(snapshot, info.metadata)
        if scope is not None:
            properties[SCOPE] = scope
        protocol = local_protocol(info.protocol, info.metadata)
        metadata = local_metadata(info.protocol, info.metadata, self.shared, properties)
        changed: list[dict[str, Any]] = []
        if snapshot.version < 0 or _comparable(snapshot.protocol.raw) != protocol:
            changed.append({"protocol": protocol})
        if snapshot.version < 0 or _comparable(snapshot.metadata.raw) != _comparable(metadata):
            changed.append({"metaData": metadata})
        return changed

    def _fetch(self, answer: Answer[Any, Any], compared: Comparison) -> dict[str, StoredFile]:
        """Fetch the compared files that are missing; return them by their paths."""
        known = {path: file for path, file in compared.stored.items() if file.is_known}
        links = LinkCheck(self.directory)
        missing: list[RemoteFile] = []
        for remote in (part for file in compared.files for part in file.remote_files()):
            target = self.directory / remote.path
            if remote.path not in known:
                missing.append(remote)
                continue
            links.folder(target.parent)
            if not _exists(target, known[remote.path].size):
                missing.append(remote)
        if not missing:
            return known
        fetched = self.download(answer, missing)
        for path, file in fetched.items():
            if path in known and known[path].sha256 != file.sha256:
                raise DeltaLogError(
                    f"file {file.file_id} is another one than when it was mirrored; files of a table "
                    "never change: the provider's table may have been created again",
                    path=str(self.directory),
                )
        return known | fetched


def _exists(file: Path, size: int) -> bool:
    try:
        status = file.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_size == size


def _actions(compared: Comparison, version: int, stored: dict[str, StoredFile]) -> list[dict[str, Any]]:
    """Return the actions of a sync's commit, except protocol and metadata."""
    now = now_in_ms()
    txn = {"txn": {"appId": APP_ID, "version": version, "lastUpdated": now}}
    removes = [_remove(add, now) for add in compared.gone]
    adds = [file.add(stored, now_ms=now) for file in compared.new]
    # The same rows under other ids.
    adds += [file.add(stored, now_ms=now, data_change=False) for file in compared.renamed]
    return [txn, *removes, *adds]


def _comparable(raw: Any) -> dict[str, Any]:
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
    return {"remove": {name: value for name, value in raw.items() if value is not None}}
