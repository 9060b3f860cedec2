"""Byte sources: one interface for files behind pre-signed URLs, in directories of object stores, and on disk."""

from __future__ import annotations

import mmap
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.retry import RetryBudget

T = TypeVar("T")

#: An object with the buffer protocol.
Buffer: TypeAlias = Any

#: Private pages: they can be freed one by one.
PRIVATE: Final[dict[str, Any]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}  # Windows
)


class BufferPool:
    """Buffers that one small file after another uses. Several threads may use the pool.

    The allocation of fresh pages would dominate the time of their transfer.
    """

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes with arbitrary content; raises MemoryError if the allocation fails."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = bytearray(size)
        if len(memory) < size:
            memory = bytearray(size)
        return memoryview(memory)[:size]

    def give_back(self, view: memoryview) -> None:
        """Return a view of `take` to the pool; memory with another view is dropped."""
        memory = view.obj
        if not isinstance(memory, bytearray) or not memory:
            return
        try:
            view.release()
            memory.append(memory.pop())  # BufferError while there is another view
        except BufferError:
            return
        self._free.append(memory)


class Cancelled(Exception):  # noqa: N818  # not an error
    """The caller cancelled the read."""


class FileChanged(Exception):  # noqa: N818  # `ByteSource.restarting` handles it
    """The file changed since its first part was read."""


class UrlRenewal(ABC):
    """The present URLs of files. May be used by several threads."""

    @abstractmethod
    def renew(self, file_id: str, refused: SecretUrl) -> SecretUrl:
        """Return a fresh URL of a file whose URL the store refused; from then on it is the current one.

        Raises:
            DeltaSharingError: there is none.
        """

    @abstractmethod
    def current_url(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """Return the URL for the next request: `url`, or a fresher one; never raises."""


class Transfers(Struct, frozen=True):
    """What the transfers of one load share.

    Attributes:
        renewal: the present URLs of the files; without it URLs are not renewed.
        cancelled: set to cancel the transfers; a `Cancellation` also ends waits for the store.
        budget: the retries that all files of the load share.
    """

    renewal: UrlRenewal | None = None
    cancelled: threading.Event | None = None
    budget: RetryBudget | None = None


#: For a file that is fetched alone.
SINGLE_FILE: Final = Transfers()


class ByteSource(Protocol):
    """One file, for reads of all of it or of ranges. Several threads may read ranges."""

    @property
    def etag(self) -> str | None:
        """The strong ETag of the file, once it is known; None for a file that has none."""

    def restarting(self, read: Callable[[], T]) -> T:
        """Return the result of `read`, which reads all that is needed; repeat it if the file changed meanwhile."""

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Read the whole file; a small one into memory of `buffers`, which the caller gives back."""

    def range(self, start: int, stop: int, view: memoryview | None = None) -> Buffer:
        """Read the bytes from `start` up to `stop`, into `view` if that is given; it has that length.

        Raises:
            FileChanged: the file changed since its first part was read.
            DeltaSharingError: it cannot be read.
        """


class StorageReader(ABC):
    """Opens the files of a table. May be used by several threads.

    Args:
        options: attempts, back-off, memory and threads of a load.
    """

    def __init__(self, options: TransportOptions) -> None:
        self.options = options

    @abstractmethod
    def source(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = SINGLE_FILE,
        *,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file whose parts are all read from the same state; no request is sent and no file opened yet.

        Args:
            url: its pre-signed URL, or its path.
            file_id: its id in the sharing protocol.
            size: its size in bytes; 0 if it is not known.
            transfers: what the transfers of its load share.
            etag: the strong ETag of the file that an earlier run received in part.
        """

    def fetch(
        self,
        url: SecretUrl,
        file_id: str,
        size: int = 0,
        transfers: Transfers = SINGLE_FILE,
        *,
        byte_range: tuple[int, int] | None = None,
    ) -> Buffer:
        """Read a whole file, or the bytes of `byte_range`; the other arguments are those of `source`.

        Returns:
            A buffer of exactly the size of the file or of the range.

        Raises:
            DataError: the size of the file differs from the table's metadata.
            UrlExpiredError: the URL has expired and cannot be renewed.
            FileGoneError: the store has no such file.
            StorageError: the file cannot be read.
            InsecureUrlError: the URL may not be fetched.
            Cancelled: `transfers.cancelled` was set.
        """
        file = self.source(url, file_id, size, transfers)
        return file.restarting(file.whole if byte_range is None else lambda: file.range(*byte_range))

    @abstractmethod
    def abort(self) -> None:
        """Abort the active transfers of all loads."""

    @abstractmethod
    def close(self) -> None:
        """Close the resources kept between loads."""
