"""Durable, atomic writes of files: temporary file, fsync, rename.

Serves "Creation of New Log Entries" of the Delta transaction protocol: atomic creation, mutual exclusion.
"""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from delta_sharing_client.delta.log.store_path import LogPath, StorePath
from delta_sharing_client.errors import DeltaLogError, DiskFullError

#: Suffix of unfinished files; readers of a table ignore names that begin with a dot.
TEMPORARY: Final = ".tmp"

#: Error codes of a full disk, an exhausted quota and a file that is too large.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def writing(what: str, table: LogPath) -> Iterator[None]:
    """Convert errors of the file system, while `what` of a table is written.

    Raises:
        DiskFullError: the disk is full, or the quota is exhausted.
        DeltaLogError: any other error of the file system.
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


@contextmanager
def _temporary_file(target: Path, data: bytes, *, private: bool) -> Iterator[Path]:
    """Write a durable temporary file beside `target`; remove it at the end if it still exists."""
    temporary = temporary_name(target)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        remove_quietly(temporary)


def write_durably(file: Path, data: bytes | memoryview) -> None:
    """Write a file and fsync it; after a crash it may be incomplete."""
    with file.open("wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def put_if_absent(target: LogPath, data: bytes, *, private: bool = False) -> bool:
    """Create a file with its whole content atomically, unless it exists.

    Args:
        target: the file.
        data: its content.
        private: only the owner may read it.

    Returns:
        False if the file exists; it is not changed.

    Raises:
        OSError: the file system does not support it.
        DeltaLogError: the object store does not support it, or gives no answer.
    """
    if isinstance(target, StorePath):
        if private:
            raise DeltaLogError("a file for its owner only needs a local directory", path=str(target))
        return target.create(data)
    with _temporary_file(target, data, private=private) as temporary:
        try:
            if os.name == "nt":  # pragma: no cover  # a rename never replaces a file there
                temporary.rename(target)
            else:
                target.hardlink_to(temporary)
        except FileExistsError:
            # A network file system may repeat a link that it has made: then both names are one file.
            return os.name != "nt" and temporary.samefile(target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise OSError(
                    error.errno, "the file system has no hard links, which an atomic commit needs", str(target)
                ) from error
            raise
    sync_directory(target.parent)
    return True


def replace_file(target: LogPath, data: bytes, *, private: bool = False) -> None:
    """Write a file atomically; an existing file is replaced. Only the owner may read a private local file."""
    if isinstance(target, StorePath):
        target.write_bytes(data)
        return
    with _temporary_file(target, data, private=private) as temporary:
        temporary.replace(target)
    sync_directory(target.parent)


def rename_durably(temporary: Path, target: Path) -> None:
    """Rename a finished, fsynced file or folder."""
    temporary.replace(target)
    sync_directory(target.parent)


@contextmanager
def replacing(target: LogPath) -> Iterator[BinaryIO]:
    """Yield a file for the content of `target`, which is replaced atomically and durably at the end."""
    if isinstance(target, StorePath):
        buffer = BytesIO()
        yield buffer
        target.write_bytes(buffer.getbuffer())
        return
    temporary = temporary_name(target)
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        rename_durably(temporary, target)
    except BaseException:
        remove_quietly(temporary)
        raise


def make_directories(directory: LogPath) -> None:
    """Create a directory and its missing parents durably; an object store needs none."""
    if isinstance(directory, StorePath):
        return
    missing = []
    while not directory.is_dir():
        missing.append(directory)
        directory = directory.parent
    for path in reversed(missing):
        path.mkdir(exist_ok=True)
        sync_directory(path.parent)


def sync_file(file: Path) -> None:
    """Make the content of a file durable."""
    with file.open("rb+") as opened:
        os.fsync(opened.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable, if the system supports it."""
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
    """Remove a file; errors are ignored."""
    with suppress(OSError):
        path.unlink()
