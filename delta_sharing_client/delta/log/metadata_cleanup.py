"""Removal of expired commits and checkpoints ("Metadata Cleanup").

What stays is a checkpoint that can be read, and every commit from its version on. So each version since then can
still be rebuilt, and readers that begin with the newest checkpoint never notice.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Final

from delta_sharing_client.delta.log.checkpoints import read_checkpoint, sidecars
from delta_sharing_client.delta.log.commit_timestamps import commit_times, first_in_commit_version
from delta_sharing_client.delta.log.log_segment import LOG_DIRECTORY, SIDECARS, Checkpoint, LogListing, list_log
from delta_sharing_client.delta.log.table_properties import flag_property, interval_property
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.actions import Metadata, Protocol

LOG_RETENTION: Final = timedelta(days=30)

_MILLISECOND: Final = timedelta(milliseconds=1)
_DAY: Final = timedelta(days=1) // _MILLISECOND
#: Commits, their checksums, checkpoints of all kinds, and compacted commits.
_OF_A_VERSION: Final = re.compile(r"(\d{20})\.(?:json|crc|checkpoint\..+|(\d{20})\.compacted\.json)")


def clean_up(table: Path, metadata: Metadata, *, now_ms: int | None = None) -> int:
    """Remove the commits and checkpoints that are older than `delta.logRetentionDuration`, 30 days by default.

    Nothing is removed where `delta.enableExpiredLogCleanup` is false, nor while no checkpoint makes it needless.
    Versions from before that checkpoint can then no longer be read. Done twice, or by two at a time, it does no
    harm, and a crash in the middle leaves a log that can be read.

    Args:
        table: the table's directory.
        metadata: the metadata in force.
        now_ms: the time to hold the commits against, in milliseconds since the epoch; now without.

    Returns:
        How many files were removed.

    Raises:
        OSError: a file cannot be removed.
        DeltaLogError: the log is damaged, or a property of the table that this depends on is malformed.
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
    removed = 0
    # The oldest first: a log that loses some of them only ever begins later.
    for file in sorted(_files_before(table / LOG_DIRECTORY, base.version)):
        file.unlink(missing_ok=True)
        removed += 1
    for file in _unused_sidecars(table, now - now % _DAY - _DAY):
        file.unlink(missing_ok=True)
        removed += 1
    return removed


def _oldest_to_keep(listing: LogListing, metadata: Metadata, midnight: int) -> Checkpoint | None:
    """Return the checkpoint that the log shall begin with; None where there is nothing to remove."""
    times = commit_times(listing, metadata)
    expired = [version for version, at in times.items() if at <= midnight]
    if not expired:
        return None
    first_in_commit = first_in_commit_version(metadata)
    oldest = min([*listing.commits, *(checkpoint.version for checkpoint in listing.checkpoints)])
    for checkpoint in listing.checkpoints:
        version = checkpoint.version
        if version > expired[-1]:
            continue
        if version <= oldest:
            return None
        # Without the commits before it this one has the time of its file, and so must have it now.
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


def _files_before(log: Path, version: int) -> Iterator[Path]:
    for file in log.iterdir():
        match = _OF_A_VERSION.fullmatch(file.name)
        # A compacted file that begins with the checkpoint's own version is of no use any more.
        if match is not None and int(match[1]) < version + (match[2] is not None):
            yield file


def _unused_sidecars(table: Path, before: int) -> list[Path]:
    """Return the sidecars that no checkpoint names, except new ones, whose checkpoint may still be written."""
    folder = table / LOG_DIRECTORY / SIDECARS
    old = [file for file in _parquet_files(folder) if file.stat().st_mtime_ns // 1_000_000 < before]
    if not old:
        return []
    used = {file for checkpoint in list_log(table).checkpoints for file in sidecars(checkpoint)}
    return [file for file in old if file not in used]


def _parquet_files(folder: Path) -> list[Path]:
    try:
        return sorted(file for file in folder.iterdir() if file.suffix == ".parquet")
    except FileNotFoundError:
        return []
