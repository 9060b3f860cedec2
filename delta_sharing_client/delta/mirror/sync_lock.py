"""The lock of a mirror: one sync or vacuum at a time, in all processes of a machine."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delta_sharing_client.delta.log.durable_files import make_directories, writing
from delta_sharing_client.delta.table.file_download import PRIVATE_FOLDER
from delta_sharing_client.locks import file_lock

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def exclusive(directory: Path) -> Iterator[bool]:
    """Hold the lock of a mirror; waits for the process or thread that holds it.

    Args:
        directory: the mirror's directory.

    Yields:
        Whether there is a lock at all; some network file systems have none. Commits are atomic without it
        too, but then the unfinished files of another sync look the same as left-overs of a crashed one.

    Raises:
        DeltaLogError: the lock file cannot be made.
    """
    folder = directory / PRIVATE_FOLDER
    with writing("the mirror's lock", directory):
        make_directories(folder)
        lock = file_lock(folder / "lock")
        try:
            lock.acquire()
        except OSError as error:
            if error.errno not in _NO_LOCKS:
                raise
    try:
        yield lock.is_locked
    finally:
        lock.release()
