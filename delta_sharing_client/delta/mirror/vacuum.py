"""Removal of a mirror's files that no version needs: vacuum of old versions, and clean-up after a crashed sync."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from delta_sharing_client.delta.mirror.state import all_stored_files
from delta_sharing_client.delta.table.file_download import PARTIAL, PRIVATE_FOLDER
from delta_sharing_client.delta.table.local_actions import now_in_ms
from delta_sharing_client.log import DeltaLog, deletion_vector_uri
from delta_sharing_client.log.commit_reader import read_commit
from delta_sharing_client.log.durable_files import remove_abandoned, writing
from delta_sharing_client.log.log_segment import LOG_DIRECTORY, SIDECARS, list_log
from delta_sharing_client.log.store_path import local_directory
from delta_sharing_client.log.symbolic_links import refuse_links
from delta_sharing_client.model.actions import RemoveFile

#: Names of a mirror's files; files with other names are kept.
_MIRROR_FILE: Final = re.compile(r"[0-9a-f]{32}\.parquet|deletion_vector_[0-9a-f-]{36}\.bin")


@dataclass(frozen=True, kw_only=True)
class VacuumResult:
    """The result of a vacuum, or of a dry run.

    Attributes:
        files: the number of removed files.
        bytes: their size in bytes.
    """

    files: int
    bytes: int


def vacuum_files(log: DeltaLog, retain: timedelta, *, dry_run: bool) -> VacuumResult:
    """Remove, or in a dry run count, the files that only versions replaced before the retention period need.

    Raises:
        DeltaLogError: the log is damaged, the directory contains a link, or a file cannot be removed.
    """
    directory = local_directory(log.table_path)
    refuse_links(directory)
    files = size = 0
    for path in _unneeded_files(log, now_in_ms() - int(retain / timedelta(milliseconds=1))):
        with writing(path.name, directory):
            files += 1
            size += path.lstat().st_size
            if not dry_run:
                path.unlink()
    if not dry_run:
        _remove_empty_folders(directory)
    return VacuumResult(files=files, bytes=size)


def remove_crashed_sync_files(log: DeltaLog) -> int:
    """Remove the files of a crashed sync; return the number of removed data files and deletion vectors.

    No other sync of the mirror may be running.

    Raises:
        DeltaLogError: a file cannot be removed.
    """
    directory = local_directory(log.table_path)
    private, folder = directory / PRIVATE_FOLDER, directory / LOG_DIRECTORY
    left_over = list(_unneeded_files(log, 0))
    unfinished = list((private / PARTIAL).glob("*"))
    for parent in (private, folder, folder / SIDECARS):
        remove_abandoned(parent)
    with writing("the directory", directory):
        for path in (*left_over, *unfinished):
            path.unlink(missing_ok=True)
    return len(left_over)


def _unneeded_files(log: DeltaLog, since: int) -> Iterator[Path]:
    """Yield files that neither the newest version names nor a version that was replaced after `since`."""
    directory = local_directory(log.table_path)
    needed = set(all_stored_files(log.snapshot()))
    for file in list_log(directory).commits.values():
        for action in read_commit(file):
            if isinstance(action, RemoveFile) and int(action.raw.get("deletionTimestamp") or 0) > since:
                vector = None if action.deletion_vector is None else deletion_vector_uri(action.deletion_vector)
                needed |= {unquote(uri) for uri in (action.path, vector) if uri is not None}
    for folder, folders, names in os.walk(directory):
        if Path(folder) == directory:
            folders[:] = [name for name in folders if not name.startswith(("_", "."))]
        for name in filter(_MIRROR_FILE.fullmatch, names):
            path = Path(folder) / name
            if path.relative_to(directory).as_posix() not in needed:
                yield path


def _remove_empty_folders(directory: Path) -> None:
    for folder, folders, _ in os.walk(directory, topdown=False):
        for name in folders:
            path = Path(folder) / name
            if "=" in name and not any(path.iterdir()):
                path.rmdir()
