"""Code distribution: a zip of this package, given to a session's Python workers as Spark gives any library.

Spark fetches the zip to each executor, and puts it on the path of the Python workers before what they have
installed.
"""

from __future__ import annotations

import atexit
import hashlib
import io
import os
import shutil
import sys
import tempfile
import threading
import weakref
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.spark.entry_points import ARCHIVE_NAME
from delta_sharing_client.spark.session import is_connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PACKAGE: Final = "delta_sharing_client"
#: Rooms of the package that no worker needs.
_LEFT_OUT: Final = frozenset({"cli", "frames", "server", "sinks"})
#: Each entry has this time, so that the same files make the same zip.
_TIME: Final = (1980, 1, 1, 0, 0, 0)

_distributed: Final[weakref.WeakSet[Any]] = weakref.WeakSet()
_lock: Final = threading.Lock()


def distribute_code(session: SparkSession) -> None:
    """Let the Python workers of a session import this package; done once per Spark context or Connect session.

    Args:
        session: the session, classic or Connect.
    """
    receiver: Any = session if is_connect(session) else session.sparkContext
    with _lock:
        if receiver in _distributed:
            return
        archive = str(code_archive())
        if is_connect(session):
            receiver.addArtifacts(archive, pyfile=True)
        else:
            receiver.addPyFile(archive)
            _forget_on_driver(archive)
        _distributed.add(receiver)


def _forget_on_driver(archive: str) -> None:
    """Take the zip off the path of this process, where `addPyFile` puts it too: the driver has the package."""
    from pyspark import SparkFiles

    with suppress(ValueError):
        sys.path.remove(SparkFiles.get(Path(archive).name))


@lru_cache(maxsize=1)
def code_archive() -> Path:
    """Return the zip of this package's modules; it is written once, and removed when this process ends.

    It holds source code and nothing of the process. Its name has the release and a hash of its content, because
    Spark takes a file of the same name for the same file.
    """
    content = _zipped()
    folder = Path(tempfile.mkdtemp(prefix="delta-sharing-code-"))
    atexit.register(_remove, folder, os.getpid())
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
    """Yield the modules in a package, and the texts that lie beside them."""
    for entry in folder.iterdir():
        name = f"{path}/{entry.name}"
        if entry.is_dir():
            if entry.name not in _LEFT_OUT and entry.joinpath("__init__.py").is_file():
                yield from _sources(entry, name)
        elif entry.name.endswith((".py", ".txt")):
            yield name, entry.read_bytes()


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:  # not a forked child
        shutil.rmtree(folder, ignore_errors=True)
