"""Reader of files on a local disk, for mirrors."""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from delta_sharing_client.errors import DataError, FileGoneError, StorageError
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.byte_source import Buffer, ByteSource, Cancelled, Refresh, StorageReader
from delta_sharing_client.storage.retry_budget import RetryBudget

T = TypeVar("T")


class LocalStorage(StorageReader):
    """Opens files by their paths."""

    def source(
        self,
        url: SecretUrl,
        *,
        file_id: str,
        size: int = 0,
        refresh: Refresh | None = None,
        cancelled: threading.Event | None = None,
        budget: RetryBudget | None = None,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file to be read; see `StorageReader.source`."""
        return LocalSource(url.reveal(), file_id, size, cancelled)

    def abort(self) -> None:
        """Do nothing: a read of a local file cannot hang."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class LocalSource:
    """One local file.

    Args:
        path: its path.
        file_id: its id in the sharing protocol, for messages.
        size: its size in bytes; 0 if it is not known.
        cancelled: set to cancel the reads.
    """

    def __init__(self, path: str, file_id: str, size: int, cancelled: threading.Event | None) -> None:
        self._path = path
        self._id = file_id
        self._size = size
        self._cancelled = cancelled

    @property
    def etag(self) -> str | None:
        """Always None: the files of a copy are never replaced."""
        return None

    def restarting(self, read: Callable[[], T]) -> T:
        """Read once: a local file does not change while it is being read."""
        return read()

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Map the whole file into memory, without `buffers`."""

        def mapped(descriptor: int, size: int) -> Buffer:
            return mmap.mmap(descriptor, size, access=mmap.ACCESS_READ) if size else b""

        return self._opened(mapped)

    def range_into(self, view: memoryview, start: int, stop: int) -> None:
        """Read the bytes from `start` up to `stop` into `view`, which has that length."""
        view[:] = self.range(start, stop)

    def range(self, start: int, stop: int) -> Buffer:
        """Read the bytes from `start` up to `stop`."""

        def read(descriptor: int, size: int) -> Buffer:
            os.lseek(descriptor, start, os.SEEK_SET)
            with os.fdopen(os.dup(descriptor), "rb") as file:
                data = file.read(stop - start)
            if len(data) != stop - start:
                raise DataError(f"it ends before byte {stop}", file_id=self._id)
            return data

        return self._opened(read)

    def _opened(self, read: Callable[[int, int], Buffer]) -> Buffer:
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled
        try:
            descriptor = os.open(self._path, os.O_RDONLY | getattr(os, "O_BINARY", 0))  # a flag of Windows
        except FileNotFoundError:
            raise FileGoneError(
                "the local copy does not contain it: vacuum or another program removed it; sync(repair=True) "
                "fetches the missing files of the newest version",
                file_id=self._id,
            ) from None
        except OSError as error:
            raise StorageError(f"it cannot be opened: {error.strerror}", file_id=self._id) from error
        try:
            size = os.fstat(descriptor).st_size
            if self._size and size != self._size:
                raise DataError(f"it has {size} bytes; the table's metadata has {self._size}", file_id=self._id)
            return read(descriptor, size)
        except OSError as error:
            raise StorageError(f"it cannot be read: {error.strerror}", file_id=self._id) from error
        finally:
            os.close(descriptor)
