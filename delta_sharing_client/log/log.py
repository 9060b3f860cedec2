"""`DeltaLog`: versions, timestamps, snapshots, changes and commits of a Delta table.

`OptimisticTransaction` reads a snapshot and writes the next version, unless another writer did.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, ClassVar, Final, Self, TypeAlias

from delta_sharing_client._version import __version__
from delta_sharing_client.errors import (
    CommitConflictError,
    CommitUnknownError,
    DeltaLogError,
    DeltaTableNotFoundError,
    VersionNotFoundError,
)
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.log.actions import Action, make_action, name_of
from delta_sharing_client.log.checkpoint_writer import write_checkpoint
from delta_sharing_client.log.commit_checks import check_commit, conflict
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.commit_timestamps import commit_times, first_in_commit_version
from delta_sharing_client.log.durable_files import (
    make_directories,
    put_if_absent,
    remove_abandoned,
    writing,
)
from delta_sharing_client.log.log_cache import LogCache
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, SIDECARS, LogListing, commit_name, list_log
from delta_sharing_client.log.metadata_cleanup import remove_expired_log_files
from delta_sharing_client.log.protocol_upgrade import checked_request, upgraded
from delta_sharing_client.log.replay import Replay
from delta_sharing_client.log.snapshot import Commit, LogState, Snapshot
from delta_sharing_client.log.store_path import LogPath, StorePath, digest_of, location_of, open_location
from delta_sharing_client.log.table_features import check_replay
from delta_sharing_client.log.table_properties import number_property
from delta_sharing_client.log.version_checksum import write_checksum
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.numbers import as_integer, required_integer
from delta_sharing_client.representation import representation
from delta_sharing_client.tracebacks import public_class

#: An action, or the object that a line of a commit holds: ``{"add": {...}}``.
ActionLike: TypeAlias = Action | Mapping[str, Any]
#: The default of `delta.checkpointInterval`.
CHECKPOINT_INTERVAL: Final = 10
#: Number of actions after which a checkpoint is written at once.
_LARGE_COMMIT: Final = 10_000
_STALE_AFTER: Final = timedelta(hours=1)
logger = module_logger(__name__)


@public_class
class DeltaLog:
    """The log of one Delta table; `table.delta_log.DeltaLog` adds the rows of its snapshots and describes it."""

    _snapshot_type: ClassVar[type[Snapshot]] = Snapshot
    _cache: ClassVar[LogCache] = LogCache()

    def __init__(
        self,
        table: str | os.PathLike[str] | StorePath,
        *,
        allow_absolute_paths: bool = False,
        any_features: bool = False,
    ) -> None:
        if not isinstance(table, StorePath):
            table = open_location(location_of(table, "table"), None)
        self.table_path: LogPath = table
        self.allow_absolute_paths = allow_absolute_paths
        self._any_features = any_features
        self._replay = Replay(
            self.table_path, allow_absolute_paths=allow_absolute_paths, snapshot_type=self._snapshot_type
        )
        self._lock = ForkSafeLock()
        self._refreshing = ForkSafeLock()
        self._seen: tuple[float, Snapshot] | None = None

    @classmethod
    def for_table(
        cls,
        path: str | os.PathLike[str],
        *,
        allow_absolute_paths: bool = False,
        any_features: bool = False,
        storage_options: Mapping[str, Any] | None = None,
    ) -> Self:
        """Open the log of a table, which need not exist yet: see `table_exists`.

        A log is cached until it has not been used for an hour.

        Args:
            path: the table's directory, which contains `_delta_log`; or its URL in an object store, such as
                ``s3://bucket/table``, which fsspec opens.
            allow_absolute_paths: accept a log that names files outside the table's directory, by absolute
                paths or URLs. Only for logs whose writer you trust.
            any_features: replay the log whatever reader features the table lists.
            storage_options: for a URL: options of fsspec's file system, such as credentials.

        Raises:
            MissingDependencyError: the URL needs fsspec, or a driver that is not installed.
            DeltaLogError, ValueError, TypeError: fsspec cannot open the URL, or an argument is wrong.
        """
        place = location_of(path)
        options = {"allow_absolute_paths": allow_absolute_paths, "any_features": any_features}
        key = (cls, *options.items(), digest_of(place, storage_options))
        found: Self = cls._cache.get(place, key, lambda: cls(open_location(place, storage_options), **options))
        return found

    @classmethod
    def invalidate_cache(cls, path: str | os.PathLike[str]) -> None:
        """Remove the cached logs of one directory; the next `for_table` reads it again."""
        cls._cache.remove(location_of(path))

    @classmethod
    def clear_cache(cls) -> None:
        """Remove all cached logs."""
        cls._cache.clear()

    @property
    def table_exists(self) -> bool:
        """Whether there is a table in the directory: a log with at least one version."""
        try:
            list_log(self.table_path)
        except DeltaTableNotFoundError:
            return False
        return True

    def latest_version(self) -> int:
        """Return the newest version; raise `DeltaTableNotFoundError` if there is no table."""
        return list_log(self.table_path).latest_version

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot; without a table, a snapshot of version -1 without files.

        Raises:
            UnsupportedFeatureError: the table lists unknown reader features.
            DeltaLogError: the log is damaged.
        """
        try:
            listing = list_log(self.table_path)
        except DeltaTableNotFoundError:
            return self._snapshot_type(
                version=-1,
                timestamp=-1,
                state=LogState(),
                table_path=self.table_path,
                allow_absolute_paths=self.allow_absolute_paths,
            )
        return self._load(listing.latest_version, listing)

    def update(self, staleness_acceptable: bool | timedelta = False) -> Snapshot:
        """Return the newest snapshot, or a recent one.

        Args:
            staleness_acceptable: the maximum age of the last listing of the directory; True for an hour, False for
                a new listing.
        """
        acceptable = _STALE_AFTER if staleness_acceptable is True else staleness_acceptable or timedelta()
        seen = self._seen
        if seen is not None and time.monotonic() - seen[0] < acceptable.total_seconds():
            return seen[1]
        started = time.monotonic()
        snapshot = self.snapshot()
        with self._lock:
            if self._seen is None or self._seen[0] <= started:
                self._seen = (started, snapshot)
        return snapshot

    def snapshot_at(self, version: int | None = None, timestamp: int | None = None) -> Snapshot:
        """Return the snapshot of a version, or the one that was current at a time.

        Args:
            version: a table version.
            timestamp: milliseconds since the epoch; selects the newest version committed then or before.

        Raises:
            ValueError: both are given, or neither.
            TypeError: it is not an integer.
            VersionNotFoundError: the table does not have that version, or no longer has it.
            DeltaTableNotFoundError: there is no table.
            DeltaLogError: the log is damaged.
        """
        if (version is None) == (timestamp is None):
            raise ValueError("give either a version or a timestamp")
        version, timestamp = as_integer(version, "version"), as_integer(timestamp, "timestamp")
        if version is None:
            version = self.version_at_or_before(timestamp or 0)
        listing = list_log(self.table_path)
        if not 0 <= version <= listing.latest_version:
            raise self._not_there(version, listing)
        return self._load(version, listing)

    def commit_timestamp(self, version: int) -> int:
        """Return when a version was committed, in milliseconds since the epoch.

        This is the in-commit timestamp, or without one the modification time of the commit file, adjusted so that
        a later version has a later time.

        Raises:
            VersionNotFoundError: the log does not have the commit of that version.
        """
        version, listing = required_integer(version, "version"), list_log(self.table_path)
        timestamps = self._timestamps(listing, up_to=version)
        if version not in timestamps:
            raise self._not_there(version, listing)
        return timestamps[version]

    def version_at_or_after(self, timestamp: int) -> int:
        """Return the earliest version committed at or after a time in milliseconds since the epoch.

        Raises:
            VersionNotFoundError: every version is older.
        """
        timestamp = required_integer(timestamp, "timestamp")
        for version, committed in self._timestamps(list_log(self.table_path)).items():
            if committed >= timestamp:
                return version
        raise VersionNotFoundError("every version is older than the timestamp", path=str(self.table_path))

    def version_at_or_before(self, timestamp: int) -> int:
        """Return the latest version committed at or before a time in milliseconds since the epoch.

        Raises:
            VersionNotFoundError: every version in the log is newer.
        """
        timestamp = required_integer(timestamp, "timestamp")
        for version, committed in reversed(self._timestamps(list_log(self.table_path)).items()):
            if committed <= timestamp:
                return version
        raise VersionNotFoundError("every version is newer than the timestamp", path=str(self.table_path))

    def changes(self, start_version: int, end_version: int | None = None) -> Iterator[Commit]:
        """Return the commits of a range of versions, oldest first; each is read when the iterator reaches it.

        Args:
            start_version: the first version.
            end_version: the last version, inclusive; None for the newest.

        Raises:
            VersionNotFoundError: a version is not in the log; raised before the first commit.
            DeltaLogError: a commit is damaged; raised when the iterator reaches it.
        """
        start, end = required_integer(start_version, "start_version"), as_integer(end_version, "end_version")
        listing = list_log(self.table_path)
        end = listing.latest_version if end is None else end
        timestamps = self._timestamps(listing, up_to=end)
        for version in range(start, end + 1):
            if version not in timestamps:
                raise self._not_there(version, listing)
        return (Commit.read(v, timestamps[v], listing) for v in range(start, end + 1))

    def history(self, limit: int | None = None) -> list[CommitInfo]:
        """Return the provenance of the commits in the log, newest first, of at most `limit` commits.

        Raises:
            DeltaTableNotFoundError: there is no table.
            DeltaLogError: a commit is damaged.
        """
        limit = as_integer(limit, "limit")
        if limit is not None and limit < 0:
            raise ValueError(f"limit is {limit}; it takes 0 or more commits")
        listing = list_log(self.table_path)
        timestamps = self._timestamps(listing)
        newest = sorted(timestamps, reverse=True)[:limit]
        return [CommitInfo.of(Commit.read(version, timestamps[version], listing)) for version in newest]

    def start_transaction(self) -> OptimisticTransaction:
        """Begin a commit on top of the newest version, or the first commit of a table."""
        return OptimisticTransaction(self, self.snapshot())

    def commit(
        self,
        actions: Iterable[ActionLike],
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        *,
        max_retries: int = 0,
    ) -> int:
        """Write the next version, in a transaction that starts now; see `OptimisticTransaction.commit`.

        Args:
            actions: the actions, or the objects of a commit's lines.
            operation: the operation, for the history.
            operation_parameters: its parameters, for the history.
            max_retries: how often a commit that conflicts with nothing is repeated on top of other writers'.
        """
        return self.start_transaction().commit(actions, operation, operation_parameters, max_retries=max_retries)

    def upgrade_protocol(
        self,
        min_reader_version: int | None = None,
        min_writer_version: int | None = None,
        *,
        features: str | Iterable[str] = (),
        max_retries: int = 10,
    ) -> int:
        """Raise the versions of the table's protocol, or add table features, in one commit.

        Whatever the protocol has is kept, and nothing is committed if the table has the versions and features.
        Features that need them raise the versions to 7 for writers and 3 for readers; the features that a legacy
        version implied are listed then. Features that a feature requires are added. A feature is only supported
        afterwards; a property such as `delta.enableDeletionVectors` makes writers use it.

        Args:
            min_reader_version: the least reader version.
            min_writer_version: the least writer version.
            features: names of table features, such as ``deletionVectors``, or one name.
            max_retries: how often the upgrade is repeated on top of the commits of other writers.

        Returns:
            The table version with the protocol: the new version, or the newest one if nothing was missing.

        Raises:
            UnsupportedFeatureError: the table would have features that this release cannot write.
            DeltaLogError: a version is newer than this release supports, or the commit cannot be written.
            CommitConflictError: other writers committed first, more than `max_retries` times.
            DeltaTableNotFoundError: there is no table.
            ValueError, TypeError: an argument is wrong.
        """
        request = checked_request(min_reader_version, min_writer_version, features)
        while True:
            transaction = self.start_transaction()
            protocol = upgraded(transaction.snapshot.protocol, *request)
            if protocol is None:
                return transaction.read_version
            try:
                return transaction.commit([{"protocol": protocol}], "UPGRADE PROTOCOL", {"newProtocol": protocol})
            except CommitConflictError:
                if max_retries <= 0:
                    raise
                max_retries -= 1

    def checkpoint(self, version: int | None = None) -> LogPath:
        """Write a checkpoint of a version, by default of the newest one; return its top-level file.

        Raises:
            VersionNotFoundError: the table does not have that version.
            DeltaTableNotFoundError: there is no table.
            DeltaLogError: it cannot be written.
        """
        return self._checkpoint(self.snapshot_at(self.latest_version() if version is None else version))

    def _checkpoint(self, snapshot: Snapshot) -> LogPath:
        check_replay(snapshot.protocol, str(self.table_path))
        with writing(f"the checkpoint of version {snapshot.version}", self.table_path):
            return write_checkpoint(snapshot)

    def checkpoint_if_due(self, before: Snapshot, actions: Sequence[Action], metadata: Metadata) -> None:
        """Write the checkpoint of a committed version if it is due, then clean up the log.

        It is due at every multiple of `delta.checkpointInterval`, and after a commit of many actions, which takes
        longer to read than a checkpoint.

        Args:
            before: the snapshot on top of which the version was committed.
            actions: the actions of the version.
            metadata: the metadata after it.
        """
        version = before.version + 1
        try:
            interval = number_property(metadata.configuration, "delta.checkpointInterval", CHECKPOINT_INTERVAL)
            if len(actions) < _LARGE_COMMIT and (version == 0 or version % interval):
                return
            state = before.state.copy()
            state.apply(actions)
            self._checkpoint(replace(before, version=version, state=state))
        except DeltaLogError as error:
            # A checkpoint only makes reading faster; the commit remains valid.
            logger.warning("no checkpoint of version %d was written: %s", version, error)
            return
        try:
            remove_expired_log_files(self.table_path, metadata)
        except (DeltaLogError, OSError) as error:
            logger.warning("the log of %s was not cleaned up: %s", self.table_path, error)

    def __reduce__(self) -> tuple[Any, ...]:
        if isinstance(self.table_path, StorePath):
            self.table_path.store.__reduce__()
        reopen = partial(
            type(self).for_table, allow_absolute_paths=self.allow_absolute_paths, any_features=self._any_features
        )
        return reopen, (str(self.table_path),)

    @representation
    def __repr__(self) -> str:
        return f"DeltaLog({str(self.table_path)!r})"

    def _load(self, version: int, listing: LogListing) -> Snapshot:
        snapshot = self._replay.load(version, listing)
        if not self._any_features:
            check_replay(snapshot.protocol, str(self.table_path))
        return snapshot

    def _timestamps(self, listing: LogListing, *, up_to: int | None = None) -> dict[int, int]:
        return commit_times(listing, self._load(listing.latest_version, listing).metadata, up_to=up_to)

    def _not_there(self, version: int, listing: LogListing) -> DeltaLogError:
        oldest = listing.oldest_version
        if oldest <= version <= listing.latest_version:
            return DeltaLogError(
                f"the log has a gap: the commit of version {version} is missing", path=str(self.table_path)
            )
        return VersionNotFoundError(
            f"there is no version {version}; the log has versions {oldest} to {listing.latest_version}",
            path=str(self.table_path),
        )


@dataclass(frozen=True, kw_only=True)
class CommitInfo:
    """The provenance of a commit ("Commit Provenance Information").

    Attributes:
        version: the table version.
        timestamp: when it was committed, in milliseconds since the epoch.
        operation: the operation, such as ``WRITE``; None if the commit has none.
        operation_parameters: the parameters of the operation.
        raw: the `commitInfo` action as written; empty if there is none.
    """

    version: int
    timestamp: int
    operation: str | None
    operation_parameters: Mapping[str, Any]
    raw: Mapping[str, Any]

    @classmethod
    def of(cls, commit: Commit) -> CommitInfo:
        """Return the provenance of a commit."""
        raw: Mapping[str, Any] = next((dict(action.raw) for action in commit.actions if _is_info(action)), {})
        operation = raw.get("operation")
        return cls(
            version=commit.version,
            timestamp=commit.timestamp,
            operation=None if operation is None else str(operation),
            operation_parameters=dict(raw.get("operationParameters") or {}),
            raw=raw,
        )


class OptimisticTransaction:
    """Reads a snapshot and commits on top of it; made by `DeltaLog.start_transaction`.

    Attributes:
        snapshot: the table at the start of the transaction; version -1 if there was none.
    """

    def __init__(self, log: DeltaLog, snapshot: Snapshot) -> None:
        self._log = log
        self.snapshot = snapshot

    @property
    def read_version(self) -> int:
        """The version that was read; -1 if there was no table."""
        return self.snapshot.version

    def txn_version(self, app_id: str) -> int:
        """Return the last version of an application ("Transaction Identifiers"); -1 if there is none."""
        transaction = self.snapshot.transactions.get(app_id)
        return -1 if transaction is None else transaction.version

    def commit(
        self,
        actions: Iterable[ActionLike],
        operation: str = "WRITE",
        operation_parameters: Mapping[str, Any] | None = None,
        *,
        private: bool = False,
        max_retries: int = 0,
    ) -> int:
        """Write the next version.

        The actions are checked by the protocol's rules first. The commit file is written atomically. Every 10
        commits (`delta.checkpointInterval`) a checkpoint follows.

        Args:
            actions: the actions, or the objects of a commit's lines.
            operation: the operation, for the history.
            operation_parameters: its parameters, for the history.
            private: only the owner may read the commit file, and no checkpoint and no checksum follow.
            max_retries: how often a commit that only adds files is repeated on top of the commits of other
                writers, if it conflicts with none of them.

        Returns:
            The version written.

        Raises:
            CommitConflictError: another writer committed that version first; start a new transaction. The error
                has the `commitInfo` of that commit.
            CommitUnknownError: an object store did not answer, and whether the version was written is unknown.
            ExclusiveCreateError: the object store cannot create a commit exclusively.
            DeltaLogError: a rule of the protocol is broken, or the file cannot be written.
            UnsupportedFeatureError: the table has features that this release cannot write.
        """
        typed = [_typed(action) for action in actions]
        while True:
            try:
                return self._commit(typed, operation, operation_parameters or {}, private=private)
            except CommitConflictError as error:
                if max_retries <= 0:
                    raise
                newest = self._log.snapshot()
                winners = self._log.changes(self.read_version + 1, newest.version)
                if (reason := conflict(typed, winners)) is not None:
                    raise CommitConflictError(
                        f"{error}; it is not repeated, because {reason}",
                        version=error.version,
                        commit_info=error.commit_info,
                    ) from None
                self.snapshot = newest
                max_retries -= 1

    def _commit(self, typed: list[Action], operation: str, parameters: Mapping[str, Any], *, private: bool) -> int:
        table = self._log.table_path
        metadata = check_commit(typed, self.snapshot)
        version = self.read_version + 1
        info = self._commit_info(typed, version, operation, parameters)
        lines = [{"commitInfo": info}]
        lines += [{name_of(action): dict(action.raw)} for action in typed if not _is_info(action)]
        text = "".join(_line(line, str(table)) for line in lines)
        file = table / LOG_DIRECTORY / commit_name(version)
        with writing(f"version {version}", table):
            make_directories(file.parent)
            for folder in (file.parent, file.parent / SIDECARS):
                remove_abandoned(folder)
            try:
                written = put_if_absent(file, text.encode("utf-8", "surrogatepass"), private=private)
            except CommitUnknownError as error:
                error.version, error.txn_id = version, info["txnId"]
                raise
        if not written:
            winner = _info_of(file)
            by = " by ".join(str(winner[name]) for name in ("operation", "engineInfo") if winner.get(name))
            raise CommitConflictError(
                f"version {version} was committed by another writer meanwhile ({by or 'unknown'}); "
                "nothing was written: read the table again, and commit to its newest version",
                path=str(table),
                version=version,
                commit_info=winner,
            )
        if not private:
            state = self.snapshot.state.copy()
            state.apply(typed)
            write_checksum(table, version, state, info.get("inCommitTimestamp"))
            self._log.checkpoint_if_due(self.snapshot, typed, metadata)
        return version

    def _commit_info(
        self, actions: list[Action], version: int, operation: str, parameters: Mapping[str, Any]
    ) -> dict[str, Any]:
        metadata = next((a for a in actions if isinstance(a, Metadata)), None) or self.snapshot.metadata
        now = int(time.time() * 1000)
        info: dict[str, Any] = {}
        first = first_in_commit_version(metadata)
        if first is not None and version >= first:
            if self.read_version >= 0 and first_in_commit_version(self.snapshot.metadata) is None:
                _check_enablement(metadata, version, str(self._log.table_path))
            # In-commit timestamps must be strictly increasing.
            info["inCommitTimestamp"] = now = max(now, self.snapshot.timestamp + 1)
        info |= {
            "timestamp": now,
            "operation": operation,
            "operationParameters": {
                key: value if isinstance(value, str) else json.dumps(value) for key, value in parameters.items()
            },
            "engineInfo": f"delta-sharing-client/{__version__}",
        }
        if self.read_version >= 0:
            info["readVersion"] = self.read_version
        given = next((dict(action.raw) for action in actions if _is_info(action)), {})
        if isinstance(self._log.table_path, StorePath):
            # No other commit has this content, by which a commit without an answer is recognised.
            given["txnId"] = str(uuid.uuid4())
        return info | given


def _check_enablement(metadata: Metadata, version: int, table: str) -> None:
    names = ("delta.inCommitTimestampEnablementVersion", "delta.inCommitTimestampEnablementTimestamp")
    missing = [name for name in names if name not in metadata.configuration]
    if missing or metadata.configuration[names[0]] != str(version):
        raise DeltaLogError(
            f"in-commit timestamps begin with version {version}: set {' and '.join(names)} to it",
            path=table,
        )


def _line(action: Mapping[str, Any], table: str) -> str:
    try:
        return json.dumps(action, separators=(",", ":"), ensure_ascii=False, allow_nan=False) + "\n"
    except (TypeError, ValueError) as error:
        reason = f"the action {next(iter(action))!r}: a field is no JSON value: {error}"
        raise DeltaLogError(f"the commit is refused: {reason}", path=table) from None


def _typed(action: ActionLike) -> Action:
    if isinstance(action, Action):
        return action
    if not isinstance(action, Mapping) or len(action) != 1:
        raise DeltaLogError(
            f"the commit is refused: among its actions is a {type(action).__name__}; it takes a list of actions, "
            'each an object with one key: [{"add": {...}}]'
        )
    ((name, raw),) = action.items()
    return make_action(name, raw, where="the commit is refused", strict=True)


def _info_of(file: LogPath) -> Mapping[str, Any]:
    """Return the `commitInfo` of a commit file; empty if it has none, or cannot be read."""
    with contextlib.suppress(DeltaLogError):
        return next((dict(action.raw) for action in read_commit(file) if _is_info(action)), {})
    return {}


def _is_info(action: Action) -> bool:
    return name_of(action) == "commitInfo"
