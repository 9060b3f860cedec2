"""One syncer at a time, in all processes of a machine."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delta_sharing_client.delta_log.durable import make_directories, writing
from delta_sharing_client.materialize.fetch_files import PRIVATE_FOLDER

_NO_LOCKS: Final = frozenset({errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})


@contextmanager
def exclusive(directory: Path) -> Iterator[bool]:
    """Hold the lock of a mirror; waits for whoever has it. The system gives it back when a process dies.

    Args:
        directory: the mirror's directory.

    Yields:
        Whether there is a lock at all; some network file systems have none. Commits are atomic without it
        too, but then nobody may tell another syncer's unfinished files from left-overs.

    Raises:
        DeltaLogError: the file cannot be made.
    """
    folder = directory / PRIVATE_FOLDER
    with writing("the mirror's lock", directory):
        make_directories(folder)
        descriptor = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o666)
    try:
        yield _lock(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> bool:
    if os.name == "nt":  # pragma: no cover
        return False
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno in _NO_LOCKS:
            return False
        raise
    return True
