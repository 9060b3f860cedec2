"""Vacuum of a mirror: removal of files that only old versions name."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

from delta_sharing_client.delta.log import DeltaLog, deletion_vector_path, resolve_path
from delta_sharing_client.delta.log.durable_files import writing
from delta_sharing_client.delta.log.log_segment import list_log
from delta_sharing_client.delta.log.symbolic_links import refuse_links
from delta_sharing_client.delta.mirror.state import data_of
from delta_sharing_client.delta.table.local_actions import now_in_ms
from delta_sharing_client.model.actions import RemoveFile

#: Names of a mirror's files; files with other names are left alone.
_OURS: Final = re.compile(r"[0-9a-f]{32}\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")


@dataclass(frozen=True, kw_only=True)
class VacuumResult:
    """The result of a vacuum, or of a dry run.

    Attributes:
        files: how many files were removed.
        bytes: how many bytes they had.
    """

    files: int
    bytes: int


def vacuum_files(log: DeltaLog, retain: timedelta, *, dry_run: bool) -> VacuumResult:
    """Remove the files that are named only by versions older than the retention period.

    Args:
        log: the mirror's log.
        retain: the retention period; a version counts from the time at which it was replaced.
        dry_run: count the files without removing them.

    Raises:
        DeltaLogError: the log is damaged, there is a link in the directory, or a file cannot be removed.
    """
    directory = log.table_path
    refuse_links(directory)
    kept = _needed(log, now_in_ms() - int(retain / timedelta(milliseconds=1)))
    files = size = 0
    for path in _ours(directory):
        if path.relative_to(directory).as_posix() in kept:
            continue
        with writing(path.name, directory):
            files += 1
            size += path.lstat().st_size
            if not dry_run:
                path.unlink()
    if not dry_run:
        _remove_empty_folders(directory)
    return VacuumResult(files=files, bytes=size)


def _needed(log: DeltaLog, since: int) -> set[str]:
    """Return the paths named by the newest version, or by a version that was replaced after `since`."""
    directory = log.table_path
    needed = {data.path for file in log.snapshot().files for data in data_of(file, directory)}
    for commit in log.changes(min(list_log(directory).commits)):
        for action in commit.actions:
            if isinstance(action, RemoveFile) and int(action.raw.get("deletionTimestamp") or 0) > since:
                paths = [resolve_path(directory, action.path)]
                if action.deletion_vector is not None:
                    vector = deletion_vector_path(directory, action.deletion_vector)
                    paths += [] if vector is None else [vector]
                needed |= {path.relative_to(directory).as_posix() for path in paths}
    return needed


def _ours(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        if Path(folder) == directory:
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        yield from (Path(folder) / name for name in names if _OURS.fullmatch(name))


def _remove_empty_folders(directory: Path) -> None:
    for folder, folders, _ in os.walk(directory, topdown=False):
        for name in folders:
            path = Path(folder) / name
            if "=" in name and not any(path.iterdir()):
                path.rmdir()
