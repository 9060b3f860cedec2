"""Listing of `_delta_log`: commits, compacted commits and complete checkpoints, by version.

Serves "Delta Log Entries" and "Checkpoints". The folder is listed whole, so that `_last_checkpoint`, which only
shortens a listing, is not needed.
"""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError
from delta_sharing_client.log.store_path import LogPath, StorePath

LOG_DIRECTORY: Final = "_delta_log"
LAST_CHECKPOINT: Final = "_last_checkpoint"
SIDECARS: Final = "_sidecars"

_COMMIT: Final = re.compile(r"(\d{20})\.json")
_CHECKSUM: Final = re.compile(r"(\d{20})\.crc")
_COMPACTED: Final = re.compile(r"(\d{20})\.(\d{20})\.compacted\.json")
_CLASSIC: Final = re.compile(r"(\d{20})\.checkpoint\.parquet")
_PART: Final = re.compile(r"(\d{20})\.checkpoint\.(\d{10})\.(\d{10})\.parquet")
_V2: Final = re.compile(r"(\d{20})\.checkpoint\.[0-9a-fA-F-]{36}\.(?:parquet|json)")


def commit_name(version: int) -> str:
    """Return the name of the commit file of a version."""
    return f"{version:020}.json"


def checksum_name(version: int) -> str:
    """Return the name of the version checksum file of a version."""
    return f"{version:020}.crc"


def checkpoint_name(version: int) -> str:
    """Return the name of the classic checkpoint of a version."""
    return f"{version:020}.checkpoint.parquet"


def v2_checkpoint_name(version: int, unique: uuid.UUID) -> str:
    """Return the name of a V2 checkpoint of a version with its top level in JSON."""
    return f"{version:020}.checkpoint.{unique}.json"


def is_v2_name(name: str) -> bool:
    """Return whether a file has the name that only V2 checkpoints have."""
    return _V2.fullmatch(name) is not None


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """One complete checkpoint.

    Attributes:
        version: its table version.
        files: its top-level files: one, or all parts in order.
    """

    version: int
    files: tuple[LogPath, ...]


@dataclass(frozen=True, kw_only=True)
class LogListing:
    """The content of `_delta_log` at one time.

    Attributes:
        commits: the commit file of each version, ascending.
        checkpoints: complete checkpoints, newest first; of one version those with a single file first.
        compacted: files with the commits of a range of versions, by its first and last version.
        checksums: the version checksum file of each version that has one.
    """

    commits: dict[int, LogPath]
    checkpoints: tuple[Checkpoint, ...]
    compacted: dict[tuple[int, int], LogPath] = field(default_factory=dict)
    checksums: dict[int, LogPath] = field(default_factory=dict)

    @property
    def oldest_version(self) -> int:
        """The oldest version in the log."""
        return min([*self.commits, *(checkpoint.version for checkpoint in self.checkpoints)])

    @property
    def latest_version(self) -> int:
        """The newest version in the log."""
        return max([*self.commits, *(checkpoint.version for checkpoint in self.checkpoints[:1])])


def list_log(table: LogPath) -> LogListing:
    """List the log of a table in a directory.

    Raises:
        DeltaTableNotFoundError: there is no log, or it is empty.
    """
    log = table / LOG_DIRECTORY
    located: Callable[[str], LogPath] = log.__truediv__
    try:
        if isinstance(log, StorePath):
            found = log.listed()
            names, located = sorted(found), found.__getitem__
        else:
            with os.scandir(log) as entries:
                names = sorted(entry.name for entry in entries)
    except (FileNotFoundError, NotADirectoryError):
        raise DeltaTableNotFoundError("there is no Delta table here (no _delta_log)", path=str(table)) from None
    except OSError as error:
        raise DeltaLogError(f"the log cannot be listed: {error.strerror}", path=str(table)) from error
    commits: dict[int, LogPath] = {}
    compacted: dict[tuple[int, int], LogPath] = {}
    checksums: dict[int, LogPath] = {}
    single: dict[int, list[LogPath]] = {}
    parts: dict[tuple[int, int], dict[int, LogPath]] = {}
    for name in names:
        if match := _COMMIT.fullmatch(name):
            commits[int(match[1])] = located(name)
        elif match := _CHECKSUM.fullmatch(name):
            checksums[int(match[1])] = located(name)
        elif match := _COMPACTED.fullmatch(name):
            compacted[int(match[1]), int(match[2])] = located(name)
        elif match := (_CLASSIC.fullmatch(name) or _V2.fullmatch(name)):
            single.setdefault(int(match[1]), []).append(located(name))
        elif match := _PART.fullmatch(name):
            parts.setdefault((int(match[1]), int(match[3])), {})[int(match[2])] = located(name)
    checkpoints = [Checkpoint(version=v, files=(file,)) for v, files in single.items() for file in files]
    for (version, count), present in parts.items():
        if sorted(present) == list(range(1, count + 1)):
            ordered = tuple(file for _, file in sorted(present.items()))
            checkpoints.append(Checkpoint(version=version, files=ordered))
    if not commits and not checkpoints:
        raise DeltaTableNotFoundError("the _delta_log here contains no commit and no checkpoint", path=str(table))
    checkpoints.sort(key=lambda checkpoint: -checkpoint.version)
    return LogListing(commits=commits, checkpoints=tuple(checkpoints), compacted=compacted, checksums=checksums)
