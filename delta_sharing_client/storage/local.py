"""Readers of the files that Delta logs and mirrors name: local ones, in an object store, and behind URLs."""

from __future__ import annotations

import mmap
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

from delta_sharing_client.errors import DataError, FileGoneError, StorageError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import (
    SINGLE_FILE,
    Buffer,
    BufferPool,
    ByteSource,
    Cancelled,
    StorageReader,
    Transfers,
)

if TYPE_CHECKING:
    from delta_sharing_client.log.object_store import ObjectStore

T = TypeVar("T")


class LogFileReader(StorageReader):
    """Opens files by their paths, and by pre-signed URLs, those of servers on this machine included.

    Args:
        options: attempts, back-off, memory and threads of a load.
        store: where the paths are; None for the local disk.
    """

    def __init__(self, options: TransportOptions, store: ObjectStore | None = None) -> None:
        super().__init__(options)
        self._store = store

    @cached_property
    def _web(self) -> StorageReader:
        from delta_sharing_client.storage.download import DownloadReader
        from delta_sharing_client.transport.storage_transport import StorageTransport

        return DownloadReader(StorageTransport(self.options, endpoint_is_loopback=True), self.options)

    def source(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = SINGLE_FILE,
        *,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file to be read; see `StorageReader.source`."""
        if is_web(url):
            return self._web.source(url, file_id, size, transfers, etag=etag)
        if self._store is not None:
            return _StoreSource(self._store, url.reveal(), file_id, size, transfers.cancelled)
        return LocalSource(url.reveal(), file_id, size, transfers.cancelled)

    def abort(self) -> None:
        """Abort the active transfers of URLs; a read of a path cannot be aborted."""
        if "_web" in vars(self):
            self._web.abort()

    def close(self) -> None:
        """Close the connections."""
        if "_web" in vars(self):
            self._web.close()


def is_web(url: SecretUrl) -> bool:
    """Return whether a file is behind a URL, and not at a path."""
    return url.reveal().lower().startswith(("https://", "http://"))


class _FileAtPath(ABC):
    """One file, of which `size` is 0 if it is not known; implements `ByteSource`."""

    #: The files of a table are never replaced.
    etag: str | None = None
    _gone: ClassVar[str]

    def __init__(self, path: str, file_id: str, size: int, cancelled: threading.Event | None) -> None:
        self._path = path
        self._id = file_id
        self._size = size
        self._cancelled = cancelled

    @abstractmethod
    def _read(self, start: int | None = None, stop: int | None = None) -> Buffer:
        """Return the bytes from `start` up to `stop`, or up to the end; without both all bytes."""

    def restarting(self, read: Callable[[], T]) -> T:
        """Read once: the file does not change, and the driver of a store repeats failed requests."""
        return read()

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Read the whole file, without `buffers`."""
        with self._errors():
            return self._read()

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read the bytes from `start` up to `stop`."""
        with self._errors():
            data = self._read(start, stop)
        if len(data) != stop - start:
            has = f"it has less than {stop} bytes; the table's metadata has {self._size or 'more'}"
            raise DataError(has, file_id=self._id)
        if view is None:
            return data
        view[:] = data
        return view

    def _check_size(self, size: int) -> None:
        if self._size and size != self._size:
            raise DataError(f"it has {size} bytes; the table's metadata has {self._size}", file_id=self._id)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled
        try:
            yield
        except FileNotFoundError:
            raise FileGoneError(self._gone, file_id=self._id) from None
        except OSError as error:
            raise StorageError(f"it cannot be read: {error.strerror}", file_id=self._id) from None


class LocalSource(_FileAtPath):
    """A file on the local disk."""

    _gone = (
        "it does not exist: vacuum or another program removed it; sync(repair=True) of a mirror fetches "
        "missing files of the newest version"
    )

    def _read(self, start: int | None = None, stop: int | None = None) -> Buffer:
        with Path(self._path).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            self._check_size(size)
            if start is None or stop is None:
                return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""
            file.seek(start)
            return file.read(stop - start)


class _StoreSource(_FileAtPath):
    """A file in an object store, through fsspec."""

    _gone = "the store has no such file: vacuum may have removed it"

    def __init__(
        self, store: ObjectStore, path: str, file_id: str, size: int, cancelled: threading.Event | None
    ) -> None:
        super().__init__(path, file_id, size, cancelled)
        self._store = store

    def _read(self, start: int | None = None, stop: int | None = None) -> Buffer:
        data = self._store.read(self._path, start, stop)
        if stop is None:
            self._check_size(len(data))
        return data
