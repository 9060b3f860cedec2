"""Verification of a mirror's files: sizes and checksums against the log."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from delta_sharing_client.delta.mirror.state import all_stored_files
from delta_sharing_client.delta.table.file_download import StoredFile, sha256_of
from delta_sharing_client.log import Snapshot
from delta_sharing_client.log.symbolic_links import LinkCheck, is_link


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A file that is missing or damaged.

    Attributes:
        path: the file's path relative to the mirror's directory.
        file_id: the file's id in the sharing protocol.
        reason: the defect.
    """

    path: str
    file_id: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class Verification:
    """The result of a verification.

    Attributes:
        version: the verified version of the local table.
        files: the number of files, deletion vectors included.
        bytes: their size in bytes.
        problems: the files that are missing or damaged.
    """

    version: int
    files: int
    bytes: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether no file is missing or damaged."""
        return not self.problems


def verify_files(snapshot: Snapshot, directory: Path) -> Verification:
    """Read all files of a version and compare them with the log; raise `DeltaLogError` if a folder is a link."""
    links = LinkCheck(directory)
    files = all_stored_files(snapshot)
    for path in files:
        links.folder((directory / path).parent)
    with ThreadPoolExecutor(os.cpu_count() or 1, "delta-sharing-verify") as pool:
        checked = list(pool.map(lambda file: _check(directory, file), files.values()))
    return Verification(
        version=snapshot.version,
        files=len(files),
        bytes=sum(size for size, _ in checked),
        problems=tuple(
            Problem(path=file.path, file_id=file.file_id, reason=reason)
            for file, (_, reason) in zip(files.values(), checked, strict=True)
            if reason is not None
        ),
    )


def _check(directory: Path, expected: StoredFile) -> tuple[int, str | None]:
    """Return the size of a file in bytes, and its defect or None."""
    file = directory / expected.path
    try:
        if is_link(file):
            return 0, "it is a symbolic link"
        if not file.is_file():
            return 0, "it is missing"
        size = file.stat().st_size
        if expected.is_known and size != expected.size:
            return size, f"it has {size} bytes instead of {expected.size}"
        if expected.is_known and sha256_of(file) != expected.sha256:
            return size, "its checksum differs from the downloaded file's"
    except OSError as error:
        return 0, f"it cannot be read: {error.strerror}"
    return size, None
