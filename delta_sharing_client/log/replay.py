"""Replay of log segments into snapshots, with a cache of the last snapshots as bases for newer ones."""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, TypeAlias

from delta_sharing_client.errors import DeltaLogError, VersionNotFoundError
from delta_sharing_client.fork_safe import ForkSafeRLock
from delta_sharing_client.log.checkpoint_files import CheckpointFiles
from delta_sharing_client.log.checkpoint_reader import read_checkpoint
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.commit_timestamps import commit_times
from delta_sharing_client.log.log_schema import check_encoding
from delta_sharing_client.log.log_segment import Checkpoint, LogListing
from delta_sharing_client.log.snapshot import LogState, Snapshot
from delta_sharing_client.log.store_path import LogPath, prefetch
from delta_sharing_client.log.version_checksum import check_state

_Fingerprint: TypeAlias = tuple[int, int, int, int]

_KEPT_SNAPSHOTS: Final = 4


class Replay:
    """Builds the snapshots of one log. May be used by several threads.

    Args:
        table: the table's directory.
        allow_absolute_paths: whether files may be outside the table's directory.
        snapshot_type: the class of the snapshots.
    """

    def __init__(
        self, table: LogPath, *, allow_absolute_paths: bool, snapshot_type: type[Snapshot] = Snapshot
    ) -> None:
        self._table = table
        self._type = snapshot_type
        self._allow_absolute_paths = allow_absolute_paths
        self._snapshots: OrderedDict[int, tuple[_Fingerprint, Snapshot]] = OrderedDict()
        self._lock = ForkSafeRLock()

    def load(self, version: int, listing: LogListing) -> Snapshot:
        """Return the snapshot of a version.

        Raises:
            VersionNotFoundError: the log has been cleaned up.
            DeltaLogError: the log is damaged.
        """
        with self._lock:
            fingerprint = _fingerprint(version, listing)
            kept = self._snapshots.get(version)
            if kept is not None and fingerprint is not None and kept[0] == fingerprint:
                self._snapshots.move_to_end(version)
                return kept[1]
            state = self._replay(version, listing)
            if state.protocol is None or state.metadata is None:
                raise DeltaLogError(
                    f"the log up to version {version} lacks the protocol or the metadata", path=str(self._table)
                )
            self._check_state(version, state, listing)
            timestamp = commit_times(listing, state.metadata, up_to=version).get(version)
            if timestamp is None:
                timestamp = self._time_without_commit(version, listing)
            snapshot = self._type(
                version=version,
                timestamp=timestamp,
                state=state,
                table_path=self._table,
                allow_absolute_paths=self._allow_absolute_paths,
            )
            if fingerprint is not None:
                self._snapshots[version] = (fingerprint, snapshot)
                self._snapshots.move_to_end(version)
            while len(self._snapshots) > _KEPT_SNAPSHOTS:
                self._snapshots.popitem(last=False)
            return snapshot

    def _check_state(self, version: int, state: LogState, listing: LogListing) -> None:
        try:
            if state.metadata is not None:
                check_encoding(state.metadata)
            if (checksum := listing.checksums.get(version)) is not None:
                check_state(checksum, state)
        except DeltaLogError as error:
            raise DeltaLogError(f"version {version}: {error}", path=str(self._table)) from None

    def _replay(self, version: int, listing: LogListing) -> LogState:
        damaged: DeltaLogError | None = None
        for base in self._bases(version, listing):
            first = 0 if base is None else base.version + 1
            files, gap = _files(first, version, listing)
            if gap is not None:
                continue
            state = base.state.copy() if isinstance(base, Snapshot) else LogState()
            if isinstance(base, Checkpoint):
                try:
                    added = CheckpointFiles.open(base)
                    state.apply(read_checkpoint(base, added_files=added is None))
                    if added is not None:
                        state.begin_with(added)
                except DeltaLogError as error:
                    # An older checkpoint, or the commits alone, may yield the same state.
                    damaged = damaged or error
                    continue
                self._check_complete(base, state)
            prefetch(files)
            for file in files:
                state.apply(read_commit(file))
            return state
        raise damaged or self._gap_error(version, listing)

    def _bases(self, version: int, listing: LogListing) -> Iterator[Snapshot | Checkpoint | None]:
        """Yield the states from which a version may be rebuilt, the best first; None for the empty table."""
        for kept in sorted((v for v in self._snapshots if v < version), reverse=True):
            fingerprint, snapshot = self._snapshots[kept]
            if fingerprint == _fingerprint(kept, listing):
                yield snapshot
        yield from (checkpoint for checkpoint in listing.checkpoints if checkpoint.version <= version)
        yield None

    def _time_without_commit(self, version: int, listing: LogListing) -> int:
        """Return the time of a version without a commit file: that of its checkpoint or compacted file."""
        holders = [c.files[0] for c in listing.checkpoints if c.version == version]
        holders += [file for (_, end), file in listing.compacted.items() if end == version]
        for file in holders:
            with contextlib.suppress(FileNotFoundError):
                return file.stat().st_mtime_ns // 1_000_000
        raise self._cleaned_up(version)

    def _check_complete(self, checkpoint: Checkpoint, state: LogState) -> None:
        """Raise if a readable checkpoint lacks protocol or metadata; its writer may have omitted files too."""
        needed = {"protocol": state.protocol, "metadata": state.metadata}
        missing = [name for name, action in needed.items() if action is None]
        if missing:
            raise DeltaLogError(
                f"the checkpoint {checkpoint.files[0].name} lacks the {' and the '.join(missing)}, which every "
                "checkpoint must have; if the log still has the commits before it, delete the checkpoint",
                path=str(self._table),
            )

    def _gap_error(self, version: int, listing: LogListing) -> DeltaLogError:
        usable = min((c.version for c in listing.checkpoints), default=None)
        oldest = min(listing.commits, default=None)
        if oldest != 0 and (usable is None or version < usable):
            return self._cleaned_up(version)
        _, gap = _files((oldest or 0) if usable is None else usable + 1, version, listing)
        return DeltaLogError(f"the log has a gap: the commit of version {gap} is missing", path=str(self._table))

    def _cleaned_up(self, version: int) -> VersionNotFoundError:
        return VersionNotFoundError(
            f"version {version} can no longer be rebuilt: the log has been cleaned up", path=str(self._table)
        )


def _files(first: int, last: int, listing: LogListing) -> tuple[list[LogPath], int | None]:
    """Return the files that hold a range of versions, and the first version that no file holds.

    Serves "Log Compaction Files": compacted files replace commit files that were removed.
    """
    files: list[LogPath] = []
    version = first
    while version <= last:
        if version in listing.commits:
            files.append(listing.commits[version])
            version += 1
            continue
        ends = [end for start, end in listing.compacted if start == version and end <= last]
        if not ends:
            return files, version
        files.append(listing.compacted[version, max(ends)])
        version = max(ends) + 1
    return files, None


def _fingerprint(version: int, listing: LogListing) -> _Fingerprint | None:
    """Return the identity of a version's file, which changes if the table is deleted and created again.

    None if the file was removed after the log was listed.
    """
    file = listing.commits.get(version)
    if file is None:
        file = next((c.files[0] for c in listing.checkpoints if c.version == version), None)
    if file is None:
        return (0, 0, 0, 0)
    try:
        stat = file.stat()
    except FileNotFoundError:
        return None
    # A new file may have the inode of a deleted one, and tools set modification times; object stores have no more.
    changed: int = getattr(stat, "st_ctime_ns", 0)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, changed)
