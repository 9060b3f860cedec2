"""Reader of the data files of a Delta table in an object store, through fsspec."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from delta_sharing_client.delta.log.object_store import ObjectStore
from delta_sharing_client.errors import DataError, FileGoneError, StorageError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.byte_source import UNSHARED, Buffer, ByteSource, Cancelled, Transfers
from delta_sharing_client.storage.log_files import LogFileReader, is_web

T = TypeVar("T")


class StoreFileReader(LogFileReader):
    """Opens files by their paths in a store, and by pre-signed URLs.

    Args:
        store: the store of the table.
        options: attempts, back-off, memory and threads of a load.
    """

    def __init__(self, store: ObjectStore, options: TransportOptions) -> None:
        super().__init__(options)
        self._store = store

    def source(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = UNSHARED,
        *,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file to be read; see `StorageReader.source`."""
        if is_web(url):
            return super().source(url, file_id, size, transfers, etag=etag)
        return StoreSource(self._store, url.reveal(), file_id, size, transfers.cancelled)


class StoreSource:
    """One file in a store, of which `size` is 0 if it is not known; implements `ByteSource`."""

    #: The files of a table are never replaced.
    etag: str | None = None

    def __init__(
        self, store: ObjectStore, path: str, file_id: str, size: int, cancelled: threading.Event | None
    ) -> None:
        self._store = store
        self._path = path
        self._id = file_id
        self._size = size
        self._cancelled = cancelled

    def restarting(self, read: Callable[[], T]) -> T:
        """Read once: the driver repeats failed requests."""
        return read()

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Read the whole file, without `buffers`."""
        with self._errors():
            data = self._store.read(self._path)
        if self._size and len(data) != self._size:
            raise DataError(f"it has {len(data)} bytes; the table's metadata has {self._size}", file_id=self._id)
        return data

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read the bytes from `start` up to `stop`."""
        with self._errors():
            data = self._store.read(self._path, start, stop)
        if len(data) != stop - start:
            raise DataError(f"it ends before byte {stop}", file_id=self._id)
        if view is None:
            return data
        view[:] = data
        return view

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled
        try:
            yield
        except FileNotFoundError:
            raise FileGoneError(
                "the store has no such file: vacuum may have removed it", file_id=self._id
            ) from None
        except OSError as error:
            raise StorageError(f"it cannot be read: {error.strerror}", file_id=self._id) from None
