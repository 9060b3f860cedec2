"""`DeltaLog`: versions, timestamps, snapshots and changes of a local Delta table."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Final, TypeAlias

from delta_sharing_client.delta_log.actions import Metadata, OtherAction
from delta_sharing_client.delta_log.checkpoints import read_checkpoint
from delta_sharing_client.delta_log.commits import parse_lines, read_commit
from delta_sharing_client.delta_log.listing import Checkpoint, LogListing, list_log
from delta_sharing_client.delta_log.snapshot import Commit, LogState, Snapshot
from delta_sharing_client.errors import DeltaLogError, VersionNotFoundError

_Fingerprint: TypeAlias = tuple[int, int, int]

_KEPT_SNAPSHOTS: Final = 4


class DeltaLog:
    """The transaction log of one local Delta table; safe to use from several threads.

    Nothing is kept open. Each call looks at the directory again, so that commits made in the meantime are
    seen; the last few snapshots are kept, and a newer one is replayed on top of them.
    """

    def __init__(self, table: Path) -> None:
        self._table = table
        self._snapshots: OrderedDict[int, tuple[_Fingerprint, Snapshot]] = OrderedDict()
        self._lock = threading.RLock()

    @classmethod
    def for_table(cls, path: str | os.PathLike[str]) -> DeltaLog:
        """Open the log of a table.

        Args:
            path: the table's directory, the one that holds `_delta_log`.

        Raises:
            DeltaTableNotFoundError: there is no Delta table at that path.
        """
        table = Path(path)
        list_log(table)
        return cls(table)

    @property
    def table_path(self) -> Path:
        """The table's directory."""
        return self._table

    def latest_version(self) -> int:
        """Return the newest version.

        Raises:
            DeltaTableNotFoundError: the table is gone.
        """
        return list_log(self._table).latest_version

    def snapshot(self) -> Snapshot:
        """Return the newest snapshot.

        Raises:
            DeltaLogError: the log is damaged.
        """
        listing = list_log(self._table)
        return self._load(listing.latest_version, listing)

    def snapshot_at(self, version: int | None = None, timestamp: int | None = None) -> Snapshot:
        """Return the snapshot of a version, or the one that was current at a time.

        Args:
            version: a table version.
            timestamp: milliseconds since the epoch; the newest version committed then or before is taken.

        Raises:
            ValueError: both are given, or neither.
            VersionNotFoundError: the table does not have that version, or cannot go back so far.
            DeltaLogError: the log is damaged.
        """
        if (version is None) == (timestamp is None):
            raise ValueError("give either a version or a timestamp")
        if version is None:
            version = self.version_at_or_before(timestamp or 0)
        listing = list_log(self._table)
        if not 0 <= version <= listing.latest_version:
            raise self._not_there(version, listing)
        return self._load(version, listing)

    def commit_timestamp(self, version: int) -> int:
        """Return when a version was committed, in milliseconds since the epoch.

        It is the in-commit timestamp where the table keeps them, else the modification time of the commit
        file, moved forward where needed so that a later version never has an earlier or equal time.

        Raises:
            VersionNotFoundError: the log has no commit of that version (any more).
        """
        listing = list_log(self._table)
        timestamps = self._timestamps(listing, up_to=version)
        if version not in timestamps:
            raise self._not_there(version, listing)
        return timestamps[version]

    def version_at_or_after(self, timestamp: int) -> int:
        """Return the earliest version committed at a time or after it.

        Args:
            timestamp: milliseconds since the epoch.

        Raises:
            VersionNotFoundError: every version is older.
        """
        timestamps = self._timestamps(list_log(self._table))
        found = next((version for version, at in timestamps.items() if at >= timestamp), None)
        if found is None:
            raise VersionNotFoundError("every version is older than the timestamp", path=str(self._table))
        return found

    def version_at_or_before(self, timestamp: int) -> int:
        """Return the latest version committed at a time or before it.

        Args:
            timestamp: milliseconds since the epoch.

        Raises:
            VersionNotFoundError: every version that is still in the log is newer.
        """
        timestamps = self._timestamps(list_log(self._table))
        found = next((version for version, at in reversed(timestamps.items()) if at <= timestamp), None)
        if found is None:
            raise VersionNotFoundError("every version is newer than the timestamp", path=str(self._table))
        return found

    def changes(self, start_version: int, end_version: int | None = None) -> Iterator[Commit]:
        """Return the commits of a range of versions, oldest first; each is read when it is asked for.

        Args:
            start_version: the first version.
            end_version: the last version, inclusive; None for the newest.

        Raises:
            VersionNotFoundError: a version is not in the log (any more); raised before the first commit.
            DeltaLogError: a commit is damaged; raised when its turn comes.
        """
        listing = list_log(self._table)
        end = listing.latest_version if end_version is None else end_version
        for version in range(start_version, end + 1):
            if version not in listing.commits:
                raise self._not_there(version, listing)
        timestamps = self._timestamps(listing, up_to=end)
        return (
            Commit(version=v, timestamp=timestamps[v], actions=tuple(read_commit(listing.commits[v])))
            for v in range(start_version, end + 1)
        )

    def __repr__(self) -> str:
        return f"DeltaLog({str(self._table)!r})"

    def _load(self, version: int, listing: LogListing) -> Snapshot:
        with self._lock:
            fingerprint = _fingerprint(version, listing)
            kept = self._snapshots.get(version)
            if kept is not None and kept[0] == fingerprint:
                self._snapshots.move_to_end(version)
                return kept[1]
            state = self._replay(version, listing)
            if state.protocol is None or state.metadata is None:
                raise DeltaLogError(
                    f"the log up to version {version} lacks the protocol or the metadata", path=str(self._table)
                )
            timestamp = self._timestamps(listing, up_to=version, metadata=state.metadata).get(version)
            if timestamp is None:
                newest = next(c for c in listing.checkpoints if c.version == version)
                timestamp = newest.files[0].stat().st_mtime_ns // 1_000_000
            snapshot = Snapshot(
                version=version, timestamp=timestamp, protocol=state.protocol, metadata=state.metadata, state=state
            )
            self._snapshots[version] = (fingerprint, snapshot)
            self._snapshots.move_to_end(version)
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
            return snapshot

    def _replay(self, version: int, listing: LogListing) -> LogState:
        base = self._kept_base(version, listing)
        if base is not None:
            return self._apply_commits(base.state.copy(), base.version + 1, version, listing)
        damaged: DeltaLogError | None = None
        for checkpoint in listing.checkpoints:
            if checkpoint.version > version or _gap(checkpoint.version + 1, version, listing) is not None:
                continue
            try:
                state = _read_state(checkpoint)
            except DeltaLogError as error:
                # An older checkpoint, or the commits alone, may say the same.
                damaged = damaged or error
                continue
            return self._apply_commits(state, checkpoint.version + 1, version, listing)
        if _gap(0, version, listing) is None:
            return self._apply_commits(LogState(), 0, version, listing)
        if damaged is not None:
            raise damaged
        raise self._gap_error(version, listing)

    def _kept_base(self, version: int, listing: LogListing) -> Snapshot | None:
        """Return the newest kept snapshot that leads to `version` and is still the log's own."""
        for kept_version in sorted((v for v in self._snapshots if v < version), reverse=True):
            fingerprint, snapshot = self._snapshots[kept_version]
            same = fingerprint == _fingerprint(kept_version, listing)
            if same and _gap(kept_version + 1, version, listing) is None:
                return snapshot
        return None

    def _apply_commits(self, state: LogState, first: int, last: int, listing: LogListing) -> LogState:
        for version in range(first, last + 1):
            state.apply(read_commit(listing.commits[version]))
        return state

    def _timestamps(
        self, listing: LogListing, *, up_to: int | None = None, metadata: Metadata | None = None
    ) -> dict[int, int]:
        """Return the commit times of every version in the log up to one.

        Args:
            listing: the log.
            up_to: the last version wanted; None for all.
            metadata: what says whether the table keeps in-commit timestamps; by default the newest.
        """
        if metadata is None:
            metadata = self._load(listing.latest_version, listing).metadata
        first_in_commit = _first_in_commit_version(metadata)
        timestamps: dict[int, int] = {}
        previous: int | None = None
        for version, file in listing.commits.items():
            if up_to is not None and version > up_to:
                break
            if first_in_commit is not None and version >= first_in_commit:
                timestamp = _in_commit_timestamp(file)
            else:
                timestamp = file.stat().st_mtime_ns // 1_000_000
                if previous is not None and timestamp <= previous:
                    timestamp = previous + 1
            timestamps[version] = previous = timestamp
        if first_in_commit is not None and first_in_commit in listing.commits:
            # A copy of a table has new file times; those before the in-commit ones still lie before them.
            following = _in_commit_timestamp(listing.commits[first_in_commit])
            for version in range(first_in_commit - 1, -1, -1):
                following -= 1
                if version in timestamps:
                    following = timestamps[version] = min(timestamps[version], following)
        return timestamps

    def _not_there(self, version: int, listing: LogListing) -> DeltaLogError:
        oldest = min([*listing.commits, *(c.version for c in listing.checkpoints)])
        if oldest <= version <= listing.latest_version:
            return DeltaLogError(
                f"the log has a gap: the commit of version {version} is missing", path=str(self._table)
            )
        return VersionNotFoundError(
            f"there is no version {version}; the log has versions {oldest} to {listing.latest_version}",
            path=str(self._table),
        )

    def _gap_error(self, version: int, listing: LogListing) -> DeltaLogError:
        usable = min((c.version for c in listing.checkpoints), default=None)
        oldest = min(listing.commits, default=version)
        if oldest > 0 and (usable is None or version < usable):
            return VersionNotFoundError(
                f"version {version} can no longer be rebuilt: the log has been cleaned up", path=str(self._table)
            )
        gap = _gap(oldest if usable is None else usable + 1, version, listing)
        return DeltaLogError(f"the log has a gap: the commit of version {gap} is missing", path=str(self._table))


def _gap(first: int, last: int, listing: LogListing) -> int | None:
    """Return the first version of a range that has no commit file."""
    return next((version for version in range(first, last + 1) if version not in listing.commits), None)


def _read_state(checkpoint: Checkpoint) -> LogState:
    state = LogState()
    state.apply(read_checkpoint(checkpoint))
    if state.protocol is None or state.metadata is None:
        raise DeltaLogError(f"the checkpoint of version {checkpoint.version} lacks the protocol or the metadata")
    return state


def _fingerprint(version: int, listing: LogListing) -> _Fingerprint:
    """Tell whether a version is still the one that was read: a table may be deleted and made again."""
    file = listing.commits.get(version)
    if file is None:
        file = next((c.files[0] for c in listing.checkpoints if c.version == version), None)
    if file is None:
        return (0, 0, 0)
    stat = file.stat()
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def _first_in_commit_version(metadata: Metadata) -> int | None:
    """Return the first version whose time stands in its commit, where the table keeps such times."""
    configuration = metadata.configuration
    if configuration.get("delta.enableInCommitTimestamps", "false").lower() != "true":
        return None
    return int(configuration.get("delta.inCommitTimestampEnablementVersion", 0))


def _in_commit_timestamp(file: Path) -> int:
    """Return the time that stands in a commit; the protocol has it in the first line."""
    with file.open("rb") as lines:
        for action in parse_lines(lines, where=file.name):
            if isinstance(action, OtherAction) and action.name == "commitInfo":
                timestamp = action.raw.get("inCommitTimestamp")
                if isinstance(timestamp, int):
                    return timestamp
    table = str(file.parent.parent)
    raise DeltaLogError(f"{file.name} has no in-commit timestamp, though the table keeps them", path=table)
