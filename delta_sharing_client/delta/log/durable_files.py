"""Durable, atomic writes of files: temporary file, fsync, rename.

Serves "Creation of New Log Entries" of the Delta transaction protocol: atomic creation, mutual exclusion.
"""

from __future__ import annotations

import contextlib
import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from delta_sharing_client.errors import DeltaLogError, DiskFullError

#: Ends the name of every file that is not finished; readers of a table ignore names that begin with a dot.
TEMPORARY: Final = ".tmp"

#: Errors that mean that there is no room left.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def writing(what: str, table: Path) -> Iterator[None]:
    """Turn errors of the file system into ours.

    Args:
        what: what is being written, for the message.
        table: the table's directory.

    Raises:
        DiskFullError: there is no room, or no quota, left.
        DeltaLogError: anything else that the file system refuses.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                f"{what} cannot be written: {error.strerror}; nothing was committed: make room and try again",
                path=str(table),
            ) from error
        raise DeltaLogError(f"{what} cannot be written: {error.strerror}", path=str(table)) from error


def temporary_name(target: Path) -> Path:
    """Return an unused name in the folder of a file."""
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}{TEMPORARY}")


def write_temporary(target: Path, data: bytes, *, private: bool = False) -> Path:
    """Write a finished temporary file beside `target` and return its path.

    Args:
        target: the file that it shall become.
        data: what it holds.
        private: only the owner may read it.
    """
    temporary = temporary_name(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        remove_quietly(temporary)
        raise
    return temporary


def put_if_absent(target: Path, data: bytes, *, private: bool = False) -> bool:
    """Create a file with all of its content at once, unless there is one of that name.

    Args:
        target: the file.
        data: what it holds.
        private: only the owner may read it.

    Returns:
        False if there was such a file already; it is left as it is.

    Raises:
        OSError: the file system cannot do it.
    """
    temporary = write_temporary(target, data, private=private)
    try:
        if os.name == "nt":  # pragma: no cover  # there a rename never replaces
            temporary.rename(target)
        else:
            target.hardlink_to(temporary)
    except FileExistsError:
        # A network file system may repeat a link that it had made: then both names are one file.
        return os.name != "nt" and temporary.samefile(target)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise OSError(
                error.errno, "the file system has no hard links, which an atomic commit needs", str(target)
            ) from error
        raise
    finally:
        remove_quietly(temporary)
    sync_directory(target.parent)
    return True


def replace_file(target: Path, data: bytes, *, private: bool = False) -> None:
    """Write a file whole, in place of the one of that name where there is one."""
    temporary = write_temporary(target, data, private=private)
    try:
        temporary.replace(target)
    except BaseException:
        remove_quietly(temporary)
        raise
    sync_directory(target.parent)


def rename_durably(temporary: Path, target: Path) -> None:
    """Give a finished, fsynced file its name for good."""
    temporary.replace(target)
    sync_directory(target.parent)


def make_directories(directory: Path) -> None:
    """Make a directory, and those above it that are missing, so that they survive a crash."""
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync_file(file: Path) -> None:
    """Make the content of a file durable that somebody else has written."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, where the system can."""
    if os.name == "nt":  # pragma: no cover
        return
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems
            raise
    finally:
        os.close(descriptor)


def remove_quietly(path: Path) -> None:
    """Remove a file; ignores failures, because the caller raises another error."""
    with contextlib.suppress(OSError):
        path.unlink()
