"""File locks between processes (filelock), released by the system when their process ends."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

__all__ = ["Timeout", "file_lock", "holder_of"]

#: Offset of the process id: the first byte is locked, and on Windows a locked byte cannot be read.
_START: Final = 1
_LENGTH: Final = 20


def file_lock(path: Path, *, private: bool = False) -> FileLock:
    """Return an unlocked lock on a file. `acquire` creates the file if it is missing, and `release` keeps it.

    The lock belongs to the process: any of its threads may release it, and a forked child does not inherit it.
    `acquire` raises `OSError` if the file system has no locks, or if the lock file is a symbolic link.

    Args:
        path: the lock file; its directory must exist.
        private: only the owner may read the lock file.
    """
    return FileLock(
        path,
        mode=0o600 if private else -1,
        thread_local=False,
        fallback_to_soft=False,
        preserve_lock_file=True,
        on_acquired=_write_holder,
    )


def holder_of(path: Path) -> int | None:
    """Return the id of the process that locked a file last, or None if it cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(_START)
            return int(file.read(_LENGTH) or b"")
    except (OSError, ValueError):
        return None


def _write_holder(descriptor: int) -> None:
    with suppress(OSError):  # the disk is full; an error would leave the lock held
        os.lseek(descriptor, _START, os.SEEK_SET)
        os.write(descriptor, str(os.getpid()).rjust(_LENGTH).encode())
