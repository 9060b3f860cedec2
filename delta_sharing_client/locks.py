"""Locks between processes: one holder per lock file, released by the system when its process ends."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

__all__ = ["Timeout", "file_lock", "holder_of"]

#: The process id is written behind the first byte, which is locked: on Windows a locked byte cannot be read.
_START: Final = 1
_LENGTH: Final = 20


def file_lock(path: Path, *, private: bool = False) -> FileLock:
    """Return a lock on a file, which is made where it is missing and stays; nothing is locked yet.

    The lock belongs to the process: any of its threads may release it, and a forked child does not inherit it.
    A file system without locks raises `OSError`. A lock file that is a symbolic link is refused.

    Args:
        path: the lock file; its folder has to exist.
        private: nobody but the owner may read the lock file.
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
    """Return the id of the process that locked a file last; None if that cannot be read."""
    try:
        with path.open("rb", buffering=0) as file:
            file.seek(_START)
            return int(file.read(_LENGTH) or b"")
    except (OSError, ValueError):
        return None


def _write_holder(descriptor: int) -> None:
    os.lseek(descriptor, _START, os.SEEK_SET)
    os.write(descriptor, str(os.getpid()).rjust(_LENGTH).encode())
