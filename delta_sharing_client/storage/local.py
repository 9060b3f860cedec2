"""Reader of files on a local disk."""

from __future__ import annotations

import contextlib
import mmap
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO, TypeVar

from delta_sharing_client.errors import DataError, FileGoneError, StorageError
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.byte_source import (
    UNSHARED,
    Buffer,
    ByteSource,
    Cancelled,
    StorageReader,
    Transfers,
)

T = TypeVar("T")


class LocalReader(StorageReader):
    """Opens files by their paths."""

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
        return LocalSource(url.reveal(), file_id, size, transfers.cancelled)

    def abort(self) -> None:
        """Do nothing: a read of a local file cannot hang."""

    def close(self) -> None:
        """Do nothing: no file is kept open."""


class LocalSource:
    """One local file, of which `size` is 0 if it is not known; implements `ByteSource`."""

    #: The files of a table are never replaced.
    etag: str | None = None

    def __init__(self, path: str, file_id: str, size: int, cancelled: threading.Event | None) -> None:
        self._path = Path(path)
        self._id = file_id
        self._size = size
        self._cancelled = cancelled

    def restarting(self, read: Callable[[], T]) -> T:
        """Read once: a local file does not change while it is being read."""
        return read()

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Map the whole file into memory, without `buffers`."""
        with self._opened() as (file, size):
            return mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) if size else b""

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read the bytes from `start` up to `stop`."""
        with self._opened() as (file, _):
            file.seek(start)
            data = file.read(stop - start)
        if len(data) != stop - start:
            raise DataError(f"it ends before byte {stop}", file_id=self._id)
        if view is None:
            return data
        view[:] = data
        return view

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[BinaryIO, int]]:
        """Open the file; yield it and its size."""
        if self._cancelled is not None and self._cancelled.is_set():
            raise Cancelled
        try:
            with self._path.open("rb") as file:
                size = os.fstat(file.fileno()).st_size
                if self._size and size != self._size:
                    raise DataError(
                        f"it has {size} bytes; the table's metadata has {self._size}", file_id=self._id
                    )
                yield file, size
        except FileNotFoundError:
            raise FileGoneError(
                "it does not exist: vacuum or another program removed it; sync(repair=True) of a mirror fetches "
                "missing files of the newest version",
                file_id=self._id,
            ) from None
        except OSError as error:
            raise StorageError(f"it cannot be read: {error.strerror}", file_id=self._id) from error
