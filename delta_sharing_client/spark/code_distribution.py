"""Code distribution: a zip of this package, added to a Spark session as a Python file.

Spark copies the zip to each executor, and puts it on the path of the Python workers before the installed packages.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import stat
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Final

from delta_sharing_client.locks import Timeout, file_lock
from delta_sharing_client.spark.entry_points import ARCHIVE_NAME
from delta_sharing_client.spark.session import is_connect, kept_for, owner_of

if TYPE_CHECKING:
    from filelock import FileLock
    from pyspark.sql import SparkSession

_PACKAGE: Final = "delta_sharing_client"
#: Subpackages that no worker needs.
_LEFT_OUT: Final = frozenset({"api", "cli", "distributed", "frames", "official", "server", "sinks", "testing"})
#: The time of each entry, so that equal files make equal zips.
_TIME: Final = (1980, 1, 1, 0, 0, 0)
#: The folder of a zip, and the file in it that is locked while the process runs.
_PREFIX: Final = "delta-sharing-code-"
_LOCK: Final = "lock"
_DAY_SECONDS: Final = 24 * 3600


def distribute_code(session: SparkSession) -> None:
    """Add the zip to a session, classic or Connect, once per Spark context or Connect session."""
    receiver = owner_of(session)
    kept = kept_for(receiver)
    with kept.lock:
        if kept.has_code:
            return
        archive = str(code_archive())
        if is_connect(session):
            receiver.addArtifacts(archive, pyfile=True)
        else:
            receiver.addPyFile(archive)
            _forget_on_driver(archive)
        kept.has_code = True


def _forget_on_driver(archive: str) -> None:
    """Remove the zip from this process's path: `addPyFile` adds it there too, and the driver has the package."""
    from pyspark import SparkFiles

    with suppress(ValueError):
        sys.path.remove(SparkFiles.get(Path(archive).name))


def code_archive() -> Path:
    """Return the zip of this package's modules, written once and removed when this process ends.

    It has source code alone. Its name has the release and a hash of its content, because Spark identifies files by
    their names.
    """
    return _code_archive(os.getpid())


@lru_cache(maxsize=1)
def _code_archive(process: int) -> Path:
    content = _zipped()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    lock = file_lock(folder / _LOCK, private=True)
    with suppress(OSError):  # the file system has no locks
        lock.acquire()
    atexit.register(_remove, folder, lock, process)
    _remove_abandoned(folder)
    archive = folder / ARCHIVE_NAME.format(digest=hashlib.sha256(content).hexdigest()[:12])
    archive.write_bytes(content)
    return archive


def _zipped() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, content in sorted(_sources(files(_PACKAGE), _PACKAGE)):
            entry = zipfile.ZipInfo(name, _TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()


def _sources(folder: Traversable, path: str) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of the modules and text files of a package."""
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name not in _LEFT_OUT and entry.joinpath("__init__.py").is_file():
                yield from _sources(entry, name)
        elif entry.name.endswith((".py", ".txt")):
            yield name, entry.read_bytes()


def _remove(folder: Path, lock: FileLock, process: int) -> None:
    if os.getpid() == process:  # not a forked child
        lock.release()
        shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(own: Path) -> None:
    """Remove this user's folders, a day old or older, of processes that were killed; `own` is the present one."""
    present = own.lstat()
    for folder in own.parent.glob(f"{_PREFIX}*"):
        with suppress(OSError, Timeout):  # of a process that runs, or just removed
            found = folder.lstat()
            is_old = found.st_mtime <= present.st_mtime - _DAY_SECONDS
            if is_old and found.st_uid == present.st_uid and stat.S_ISDIR(found.st_mode):
                with file_lock(folder / _LOCK, private=True).acquire(blocking=False):
                    pass
                shutil.rmtree(folder, ignore_errors=True)
