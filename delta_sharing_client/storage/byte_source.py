"""Byte sources: one interface for files behind pre-signed URLs, in directories of object stores, and on disk."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Any, Protocol, TypeAlias, TypeVar

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.retry_budget import RetryBudget

T = TypeVar("T")

#: Anything with the buffer protocol.
Buffer: TypeAlias = Any
#: Returns a fresh URL for a file, from its id and the URL that has expired.
Refresh: TypeAlias = Callable[[str, SecretUrl], SecretUrl]


class Cancelled(Exception):  # noqa: N818  # nothing went wrong
    """The file is not wanted any more."""


class FileChanged(Exception):  # noqa: N818  # `ByteSource.restarting` handles it
    """The file is another one than when its first part was read."""


class UrlRenewal(ABC):
    """Fresh URLs for files. A plain function does as well, if it renews no URL before it expires."""

    @abstractmethod
    def __call__(self, file_id: str, expired: SecretUrl) -> SecretUrl:
        """Return a fresh URL for a file, from its id and the URL that has expired."""

    @abstractmethod
    def ahead(self, file_id: str, url: SecretUrl) -> SecretUrl:
        """Return the URL for the next request: `url`, or a fresher one; never raises."""


class ByteSource(Protocol):
    """One file, read whole or in ranges. Several threads may read ranges of it."""

    @property
    def etag(self) -> str | None:
        """The strong ETag of the file, once it is known; None for a file that has none."""

    def restarting(self, read: Callable[[], T]) -> T:
        """Return what `read` returns, which reads all that is wanted; read again if the file changed meanwhile."""

    def whole(self, buffers: BufferPool | None = None) -> Buffer:
        """Read the whole file; a small one into memory of `buffers`."""

    def range(self, start: int, stop: int) -> Buffer:
        """Read the bytes from `start` up to `stop`."""

    def range_into(self, view: memoryview, start: int, stop: int) -> None:
        """Read the bytes from `start` up to `stop` into `view`, which has that length.

        Raises:
            FileChanged: the file is another one than when its first part was read.
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
        *,
        file_id: str,
        size: int = 0,
        refresh: Refresh | None = None,
        cancelled: threading.Event | None = None,
        budget: RetryBudget | None = None,
        etag: str | None = None,
    ) -> ByteSource:
        """Return a file to be read, all parts of the same state of it; nothing is sent or opened yet.

        Args:
            url: its pre-signed URL, or its path.
            file_id: its id in the sharing protocol.
            size: its size in bytes; 0 if it is not known.
            refresh: returns a fresh URL when this one has expired; called twice at most.
            cancelled: set when the file is not wanted any more; a `Cancellation` also ends waits for the store.
            budget: the retries that a load shares.
            etag: the strong ETag of the file of which an earlier run left a part.
        """

    def fetch(
        self,
        url: SecretUrl,
        *,
        file_id: str,
        size: int = 0,
        refresh: Refresh | None = None,
        cancelled: threading.Event | None = None,
        budget: RetryBudget | None = None,
    ) -> Buffer:
        """Read a whole file.

        Args: as for `source`.

        Returns:
            The file's bytes: a buffer of exactly its size.

        Raises:
            DataError: the file has another size than the table says.
            UrlExpiredError: the URL has expired and cannot be renewed.
            FileGoneError: the store has no such file.
            StorageError: the file cannot be read.
            InsecureUrlError: the URL may not be fetched.
            Cancelled: `cancelled` was set.
        """
        file = self.source(url, file_id=file_id, size=size, refresh=refresh, cancelled=cancelled, budget=budget)
        return file.restarting(file.whole)

    def fetch_ranges(
        self,
        url: SecretUrl,
        *,
        file_id: str,
        size: int,
        ranges: Sequence[tuple[int, int]],
        refresh: Refresh | None = None,
        cancelled: threading.Event | None = None,
        budget: RetryBudget | None = None,
        executor: Executor | None = None,
    ) -> list[Buffer]:
        """Read ranges of a file, all of the same state of it.

        From a store that knows no ranges the whole file is fetched once and cut.

        Args: as for `source`, and
            ranges: start and stop of each range, half-open like a slice's.
            executor: reads the ranges side by side; never the one that this call runs in.

        Returns:
            The bytes of each range, in the order given.

        Raises:
            ValueError: a range is empty or lies outside the file.
            DeltaSharingError: as for `fetch`.
        """
        for start, stop in ranges:
            if not 0 <= start < stop or (size and stop > size):
                raise ValueError(f"the range {start}:{stop} is not one of a file of {size} bytes")
        file = self.source(url, file_id=file_id, size=size, refresh=refresh, cancelled=cancelled, budget=budget)

        def read() -> list[Buffer]:
            if executor is None or len(ranges) < 2:
                return [file.range(start, stop) for start, stop in ranges]
            futures = [executor.submit(file.range, start, stop) for start, stop in ranges]
            try:
                return [future.result() for future in futures]
            finally:
                for future in futures:
                    future.cancel()

        return file.restarting(read)

    @abstractmethod
    def abort(self) -> None:
        """Break all transfers under way, of every load."""

    @abstractmethod
    def close(self) -> None:
        """Close what is kept open between loads."""
