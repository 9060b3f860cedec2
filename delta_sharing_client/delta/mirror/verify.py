"""Verification of a mirror's files: sizes and checksums against the log."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from delta_sharing_client.delta.log import Snapshot
from delta_sharing_client.delta.log.symbolic_links import LinkCheck, is_link
from delta_sharing_client.delta.mirror.state import LocalData, data_of
from delta_sharing_client.delta.table.file_download import sha256_of


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A file that is missing or damaged.

    Attributes:
        path: the file's path relative to the mirror's directory.
        file_id: the file's id in the sharing protocol.
        reason: what is wrong with it.
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
    """Read all files of a version and compare them with the log.

    Args:
        snapshot: the version.
        directory: the mirror's directory.

    Raises:
        DeltaLogError: a folder of the mirror is a link.
    """
    links = LinkCheck(directory)
    items = {data.path: data for file in snapshot.files for data in data_of(file, directory)}
    for path in items:
        links.folder((directory / path).parent)
    with ThreadPoolExecutor(os.cpu_count() or 1, "delta-sharing-verify") as pool:
        reasons = list(pool.map(lambda data: _reason(directory, data), items.values()))
    problems = tuple(
        Problem(path=data.path, file_id=data.file_id, reason=reason)
        for data, (reason, _) in zip(items.values(), reasons, strict=True)
        if reason is not None
    )
    total = sum(size for _, size in reasons)
    return Verification(version=snapshot.version, files=len(items), bytes=total, problems=problems)


def _reason(directory: Path, data: LocalData) -> tuple[str | None, int]:
    """Return the defect of a file, or None, and its size in bytes."""
    file = directory / data.path
    try:
        if is_link(file):
            return "it is a symbolic link", 0
        if not file.is_file():
            return "it is missing", 0
        size = file.stat().st_size
        if data.known is not None and size != data.known.size:
            return f"it has {size} bytes instead of {data.known.size}", size
        if data.known is not None and sha256_of(file) != data.known.sha256:
            return "its checksum is another one than when it was fetched", size
    except OSError as error:
        return f"it cannot be read: {error.strerror}", 0
    return None, size
