"""Durable, atomic writes of files: temporary file, fsync, rename.

Serves "Creation of New Log Entries" of the Delta transaction protocol: atomic creation, mutual exclusion.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Final

from delta_sharing_client.errors import DeltaLogError, DiskFullError
from delta_sharing_client.log.store_path import LogPath, StorePath

#: Suffix of unfinished files; readers of a table ignore names that begin with a dot.
TEMPORARY: Final = ".tmp"
#: Characters of a file's name that its temporary file has too; a name has at most 255 bytes.
_NAME_PART: Final = 40

_TEMPORARY_NAME: Final = re.compile(rf"\.(.+)\.[0-9a-f]{{32}}{re.escape(TEMPORARY)}", re.DOTALL)
_ABANDONED_AFTER: Final = timedelta(days=1)

#: Error codes of a full disk, an exhausted quota and a file that is too large.
FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NO_LINKS: Final = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


@contextmanager
def writing(subject: str, table: LogPath) -> Iterator[None]:
    """Convert errors of the file system, while `subject` of a table is written.

    Raises:
        DiskFullError: the disk is full, or the quota is exhausted.
        DeltaLogError: any other error of the file system.
    """
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise DiskFullError(
                f"{subject} cannot be written: {error.strerror}; nothing was committed: make room and try again",
                path=str(table),
            ) from error
        raise DeltaLogError(f"{subject} cannot be written: {error.strerror}", path=str(table)) from error


def _lock(file: int) -> bool | None:
    """Lock a file until it is closed; False if another process has locked it, None if it cannot be locked."""
    if sys.platform == "win32":  # cannot remove an open file, so there is nothing to lock
        return None
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _create_temporary(target: Path, *, private: bool = False) -> tuple[Path, BinaryIO]:
    """Create a file in the folder of `target`, locked until it is closed; see `remove_abandoned`."""
    while True:
        temporary = target.with_name(f".{target.name[:_NAME_PART]}.{uuid.uuid4().hex}{TEMPORARY}")
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        file = os.fdopen(descriptor, "wb")
        # Before it was locked, another process may have locked and removed it as abandoned.
        locked = _lock(descriptor)
        if locked is None or (locked and os.fstat(descriptor).st_nlink):
            return temporary, file
        file.close()
        remove_quietly(temporary)


def _sync(file: BinaryIO) -> None:
    """Make the content of a temporary file durable, before the file is renamed."""
    file.flush()
    os.fsync(file.fileno())
    if os.name == "nt":  # pragma: no cover  # it does not rename an open file
        file.close()


@contextmanager
def _temporary_file(target: Path, *, private: bool) -> Iterator[tuple[Path, BinaryIO]]:
    """Create a temporary file beside `target`; remove it at the end if it still has its name."""
    temporary, file = _create_temporary(target, private=private)
    try:
        with file:
            yield temporary, file
    finally:
        remove_quietly(temporary)


def remove_abandoned(directory: LogPath, name: str | None = None) -> None:
    """Remove the temporary files in a folder that killed processes have left; errors are ignored.

    A temporary file is locked until it has its final name, and the system unlocks it when the process ends. Where
    files cannot be locked, one is abandoned if it was last written a day ago.

    Args:
        directory: the folder; nothing is done in an object store, where no file is written in parts.
        name: the file that was to be written; any by default.
    """
    if isinstance(directory, StorePath):
        return
    with suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            match = _TEMPORARY_NAME.fullmatch(entry.name)
            # Earlier releases used the whole name.
            if match is not None and (name is None or match[1] in (name, name[:_NAME_PART])):
                with suppress(OSError):
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    status = path.lstat()
    if not stat.S_ISREG(status.st_mode):
        return
    is_old = time.time() - status.st_mtime > _ABANDONED_AFTER.total_seconds()
    if os.name == "nt":  # pragma: no cover  # it does not remove an open file
        if is_old:
            path.unlink()
        return
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        locked = _lock(descriptor)
        if locked or (locked is None and is_old):
            path.unlink()
    finally:
        os.close(descriptor)


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
    with _temporary_file(target, private=private) as (temporary, file):
        file.write(data)
        _sync(file)
        try:
            created = _link(temporary, target)
        except OSError as error:
            if error.errno in _NO_LINKS:
                raise OSError(
                    error.errno, "the file system has no hard links, which an atomic commit needs", str(target)
                ) from error
            raise
    sync_directory(target.parent)
    return created


def _link(temporary: Path, target: Path) -> bool:
    """Give a finished file the name `target`; return False if another file has it."""
    try:
        if os.name == "nt":  # pragma: no cover  # a rename never replaces a file there
            temporary.rename(target)
        else:
            target.hardlink_to(temporary)
    except FileExistsError:
        # A network file system may repeat a link that it has made: then both names are one file.
        return os.name != "nt" and temporary.samefile(target)
    return True


def replace_file(target: LogPath, data: bytes, *, private: bool = False) -> None:
    """Write a file atomically; an existing file is replaced. Only the owner may read a private local file."""
    with replacing(target, private=private) as file:
        file.write(data)


def rename_durably(temporary: Path, target: Path) -> None:
    """Rename a finished, fsynced file or folder."""
    temporary.replace(target)
    sync_directory(target.parent)


@contextmanager
def replacing(target: LogPath, *, overwrite: bool = True, private: bool = False) -> Iterator[BinaryIO]:
    """Yield a file for the content of `target`, which appears under this name atomically and durably at the end.

    Args:
        target: the file.
        overwrite: replace an existing file, whose permissions the new one has. A file system without hard links
            replaces a file in any case if another process creates it at the same moment.
        private: only the owner may read a local file.

    Raises:
        FileExistsError: there is a file, and it must not be replaced.
    """
    if isinstance(target, StorePath):
        buffer = BytesIO()
        yield buffer
        target.write_bytes(buffer.getbuffer())
        return
    remove_abandoned(target.parent, target.name)
    with _temporary_file(target, private=private) as (temporary, file):
        yield file
        _sync(file)
        if not overwrite:
            try:
                if _link(temporary, target):
                    sync_directory(target.parent)
                    return
            except OSError as error:
                if error.errno not in _NO_LINKS:
                    raise
            else:
                raise FileExistsError(f"{target} was created by another process meanwhile; it is unchanged")
        if not private:
            with suppress(OSError):
                shutil.copymode(target, temporary)
        rename_durably(temporary, target)


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
