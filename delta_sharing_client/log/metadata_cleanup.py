"""Removal of expired commits and checkpoints ("Metadata Cleanup").

The remaining log begins with a readable checkpoint and has every commit from its version on, so that each version
since then can be rebuilt, and concurrent readers are not disturbed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.checkpoint_reader import read_checkpoint, sidecars
from delta_sharing_client.log.commit_timestamps import commit_times, first_in_commit_version
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, SIDECARS, Checkpoint, LogListing, list_log
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.log.table_properties import flag_property, interval_property
from delta_sharing_client.model.actions import Metadata, Protocol

LOG_RETENTION: Final = timedelta(days=30)

_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1) // _MILLISECOND
#: Commits, their checksums, checkpoints of all kinds, and compacted commits.
_OF_A_VERSION: Final = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\..+|(\d{20})\.compacted\.json)")


def remove_expired_log_files(table: LogPath, metadata: Metadata, *, now_ms: int | None = None) -> int:
    """Remove the commits and checkpoints that are older than `delta.logRetentionDuration`, 30 days by default.

    Nothing is removed if `delta.enableExpiredLogCleanup` is false, or if no checkpoint replaces the expired
    commits. Versions before that checkpoint can no longer be read. Several processes may clean up at a time, and a
    crash leaves a readable log.

    Returns:
        The number of removed files.

    Raises:
        OSError: a file cannot be removed.
        DeltaLogError: the log is damaged, or a table property is malformed.
    """
    configuration = metadata.configuration
    if not flag_property(configuration, "delta.enableExpiredLogCleanup", default=True):
        return 0
    retention = interval_property(configuration, "delta.logRetentionDuration", LOG_RETENTION)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    before = now - retention // _MILLISECOND
    base = _oldest_to_keep(list_log(table), metadata, before - before % _DAY)
    if base is None:
        return 0
    # The oldest first: after a crash the log begins later, and has no gap.
    expired = sorted(_files_before(table / LOG_DIRECTORY, base.version), key=lambda file: file.name)
    for file in expired:
        file.unlink(missing_ok=True)
    unused = _unused_sidecars(table, now - now % _DAY - _DAY)
    for file in unused:
        file.unlink(missing_ok=True)
    return len(expired) + len(unused)


def _oldest_to_keep(listing: LogListing, metadata: Metadata, midnight: int) -> Checkpoint | None:
    """Return the checkpoint with which the log will begin; None if there is nothing to remove."""
    times = commit_times(listing, metadata)
    expired = [version for version, at in times.items() if at <= midnight]
    if not expired:
        return None
    first_in_commit = first_in_commit_version(metadata)
    for checkpoint in listing.checkpoints:
        version = checkpoint.version
        if version > expired[-1]:
            continue
        if version <= listing.oldest_version:
            return None
        # Without the commits before it the version has the time of its file, which must be its time now.
        moved = (first_in_commit is None or version < first_in_commit) and (
            version in listing.commits
            and times.get(version) != listing.commits[version].stat().st_mtime_ns // 1_000_000
        )
        whole = all(number in listing.commits for number in range(version, listing.latest_version + 1))
        if whole and not moved and _is_readable(checkpoint):
            return checkpoint
    return None


def _is_readable(checkpoint: Checkpoint) -> bool:
    try:
        kinds = {type(action) for action in read_checkpoint(checkpoint)}
    except DeltaLogError:
        return False
    return {Protocol, Metadata} <= kinds


def _files_before(log: LogPath, version: int) -> Iterator[LogPath]:
    for file in log.iterdir():
        match = _OF_A_VERSION.fullmatch(file.name)
        # A compacted file that begins with the checkpoint's version is not needed either.
        if match is not None and int(match[1]) < version + (match[2] is not None):
            yield file


def _unused_sidecars(table: LogPath, before: int) -> list[LogPath]:
    """Return the sidecars that no checkpoint names, except new ones, whose checkpoint may still be written."""
    try:
        files = [file for file in (table / LOG_DIRECTORY / SIDECARS).iterdir() if file.suffix == ".parquet"]
    except (FileNotFoundError, NotADirectoryError):
        return []
    old = [file for file in files if file.stat().st_mtime_ns // 1_000_000 < before]
    if not old:
        return []
    used = {file for checkpoint in list_log(table).checkpoints for file in sidecars(checkpoint)}
    return [file for file in old if file not in used]
