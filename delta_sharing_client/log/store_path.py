"""`StorePath`: an object of a table's store with the part of `pathlib.Path` that logs use; `LogPath` is either."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.object_store import ObjectStore, StoreStatus
from delta_sharing_client.paths import local_path
from delta_sharing_client.representation import representation

#: Concurrent requests for the files of one log.
_THREADS: Final = 16
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]+://")  # a single letter is a drive of Windows


class StorePath:
    """A file or folder in the store of a table; `str` returns its URL without credentials.

    Args:
        store: the store.
        path: the path in it, without a slash at its end.
        status: the status from a listing.
    """

    __slots__ = ("_path", "_status", "store")

    def __init__(self, store: ObjectStore, path: str, status: StoreStatus | None = None) -> None:
        self.store = store
        self._path = path
        self._status = status

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self._path.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its dot."""
        return os.path.splitext(self.name)[1]  # noqa: PTH122  # not a path of this machine

    @property
    def parent(self) -> StorePath:
        """The folder."""
        return StorePath(self.store, self._path.rpartition("/")[0])

    def __truediv__(self, name: str) -> StorePath:
        return StorePath(self.store, f"{self._path}/{name}")

    def listed(self) -> dict[str, StorePath]:
        """List the folder; return its files by name, with their status.

        Raises:
            FileNotFoundError: there are none.
            OSError: the store cannot be read.
        """
        found = self.store.list(self._path)
        return {name: StorePath(self.store, f"{self._path}/{name}", found[name]) for name in found}

    def iterdir(self) -> Iterator[StorePath]:
        """Yield the files of the folder; raises as `listed`."""
        yield from self.listed().values()

    def read_bytes(self) -> bytes:
        """Read the file; small files with a known status are kept."""
        if self._status is not None and self.is_kept:
            return self.store.read_cached(self._path, self._status)
        return self.store.read(self._path)

    @property
    def is_kept(self) -> bool:
        """Whether the file is kept in memory after it was read."""
        return self.store.is_kept(self._status)

    def open(self, mode: str) -> BytesIO:
        """Read the file into memory; `mode` is ``rb``."""
        return BytesIO(self.read_bytes())

    def stat(self) -> StoreStatus:
        """Return the status from the listing, or request it."""
        return self.store.status(self._path) if self._status is None else self._status

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Remove the file; a missing one is no error, because stores do not report it."""
        self.store.remove(self._path)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Write the file; an existing one is replaced."""
        self.store.replace(self._path, data)

    def create(self, data: bytes) -> bool:
        """Create the file unless it exists; see `ObjectStore.create`."""
        return self.store.create(self._path, data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorePath) and (self.store, self._path) == (other.store, other._path)

    def __hash__(self) -> int:
        return hash(self._path)

    def __str__(self) -> str:
        return self.store.shown + self._path.removeprefix(self.store.root)

    @representation
    def __repr__(self) -> str:
        return f"StorePath({str(self)!r})"


LogPath: TypeAlias = Path | StorePath


def location_of(path: str | os.PathLike[str], argument: str = "path") -> str:
    """Return one form of a table's place: the URL of a store, or a path with every link resolved.

    Args:
        path: a path, or the text of a URL.
        argument: the name of the argument, for messages.

    Raises:
        TypeError, ValueError: it is neither; see `local_path`.
    """
    if isinstance(path, str) and _URL.match(path) is not None and not path.lower().startswith("file:"):
        scheme, _, rest = path.rstrip("/").partition(":")
        return f"{scheme.lower()}:{rest}"
    supported = (
        "a directory of this machine, its file: URL, or the text of an object store's URL (s3://bucket/table)"
    )
    return os.path.realpath(local_path(path, argument, supported=supported))


def open_location(location: str, storage_options: Mapping[str, Any] | None) -> LogPath:
    """Return the directory of a table, from a result of `location_of`.

    Raises:
        ValueError: there are options for a local directory.
        MissingDependencyError: fsspec or the driver of the store is not installed.
        DeltaLogError: fsspec cannot open the URL.
    """
    if _URL.match(location) is not None:
        store = ObjectStore(location, storage_options or {})
        return StorePath(store, store.root)
    if storage_options:
        raise ValueError("storage_options are for URLs of object stores; this is a local directory")
    return Path(location)


def digest_of(location: str, storage_options: Mapping[str, Any] | None) -> str:
    """Return a hash of the options, so that a cache has no credentials in its keys; empty for a directory."""
    if storage_options is not None and not isinstance(storage_options, Mapping):
        raise TypeError(f"storage_options is a dict, not {type(storage_options).__name__}")
    if _URL.match(location) is None:
        return ""
    text = repr(sorted((storage_options or {}).items(), key=lambda item: item[0]))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def local_directory(path: LogPath) -> Path:
    """Return a path on a local disk; raise `DeltaLogError` for one in an object store."""
    if isinstance(path, StorePath):
        raise DeltaLogError("this needs a local directory, and the table is in an object store", path=str(path))
    return path


def prefetch(files: Iterable[LogPath]) -> None:
    """Read the small files of a store concurrently, so that they are read from memory afterwards."""
    wanted = [file for file in files if isinstance(file, StorePath) and file.is_kept]
    if len(wanted) < 2:
        return
    with ThreadPoolExecutor(max_workers=min(_THREADS, len(wanted))) as pool:
        for reading in [pool.submit(file.read_bytes) for file in wanted]:
            with suppress(OSError):  # raised again when the file is needed
                reading.result()
