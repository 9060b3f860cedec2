"""Commit timestamps: in-commit timestamps, or the modification times of commit files."""

from __future__ import annotations

from typing import Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.actions import OtherAction
from delta_sharing_client.log.commit_reader import parse_lines
from delta_sharing_client.log.log_segment import LogListing
from delta_sharing_client.log.store_path import LogPath, prefetch
from delta_sharing_client.log.table_properties import flag_property
from delta_sharing_client.model.actions import Metadata

#: Digits of a version.
_DIGITS: Final = 18


def commit_times(listing: LogListing, metadata: Metadata, *, up_to: int | None = None) -> dict[int, int]:
    """Return the commit times of the versions in a log, in milliseconds since the epoch.

    A later version has a later time; file times are adjusted. Commits that were removed since the log was listed
    are omitted.

    Args:
        listing: the log.
        metadata: the table's metadata, which may enable in-commit timestamps.
        up_to: the last version; None for all.

    Raises:
        DeltaLogError: a commit lacks its in-commit timestamp, or is damaged.
    """
    first_in_commit = first_in_commit_version(metadata)
    timestamps: dict[int, int] = {}
    previous: int | None = None
    if first_in_commit is not None:
        prefetch(file for number, file in listing.commits.items() if number >= first_in_commit)
    for version, file in listing.commits.items():
        if up_to is not None and version > up_to:
            break
        kept_in_commit = first_in_commit is not None and version >= first_in_commit
        try:
            timestamp = _in_commit_timestamp(file) if kept_in_commit else file.stat().st_mtime_ns // 1_000_000
        except FileNotFoundError:
            continue  # expired since the log was listed
        if not kept_in_commit and previous is not None and timestamp <= previous:
            timestamp = previous + 1
        timestamps[version] = previous = timestamp
    if first_in_commit is not None and first_in_commit in listing.commits:
        # A copy of a table has new file times; they must precede the in-commit timestamps.
        try:
            following = _in_commit_timestamp(listing.commits[first_in_commit])
        except FileNotFoundError:
            return timestamps  # expired, like those before it
        for version in range(first_in_commit - 1, -1, -1):
            following -= 1
            if version in timestamps:
                following = timestamps[version] = min(timestamps[version], following)
    return timestamps


def first_in_commit_version(metadata: Metadata) -> int | None:
    """Return the first version with an in-commit timestamp; None if the table has none."""
    configuration = metadata.configuration
    if not flag_property(configuration, "delta.enableInCommitTimestamps"):
        return None
    text = str(configuration.get("delta.inCommitTimestampEnablementVersion", 0)).strip()
    if not text.isdecimal() or len(text) > _DIGITS:
        raise DeltaLogError(
            f"the table's in-commit timestamps begin at version {text[:40]!r}, which is not a version"
        )
    return int(text)


def _in_commit_timestamp(file: LogPath) -> int:
    """Return the in-commit timestamp of a commit."""
    with file.open("rb") as lines:
        for action in parse_lines(lines, where=file.name):
            if isinstance(action, OtherAction) and action.name == "commitInfo":
                timestamp = action.raw.get("inCommitTimestamp")
                if isinstance(timestamp, int):
                    return timestamp
    table = str(file.parent.parent)
    raise DeltaLogError(f"{file.name} has no in-commit timestamp, which the table enables", path=table)
