"""Files from cloud storage, whole or in ranges, by pre-signed URL."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.download import Buffer, Cancelled, Download, Refresh, RetryBudget, Settings
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import Backoff
from delta_sharing_client.transport.storage_transport import StorageTransport

__all__ = ["Buffer", "Cancellation", "Cancelled", "Refresh", "RetryBudget", "StorageReader"]


class StorageReader:
    """Fetches files. May be used by several threads.

    Args:
        transport: sends the requests.
        options: attempts and back-off.
        budget: retries that all calls share which bring none of their own.
        sleep: waits for some seconds; without it a cancelled wait ends at once.
        rng: gives a number from 0 to 1, for the back-off.
    """

    def __init__(
        self,
        transport: StorageTransport,
        options: TransportOptions,
        *,
        budget: RetryBudget | None = None,
        sleep: Callable[[float], None] | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        self.transport = transport
        self.options = options
        self._budget = budget
        self._settings = Settings(
            attempts=options.storage_attempts,
            longest_wait=options.api_deadline.total_seconds(),
            backoff=Backoff.of(options, rng),
            sleep=sleep,
        )

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
        """Fetch a whole file.

        Args:
            url: its pre-signed URL.
            file_id: its id in the sharing protocol.
            size: its size in bytes; 0 where not told.
            refresh: gives a fresh URL when this one has expired; asked twice at the most.
            cancelled: set when nobody wants the file any more; a `Cancellation` also ends a wait for the store.
            budget: the retries that the load shares.

        Returns:
            The file's bytes: a buffer of exactly its size.

        Raises:
            DataError: the file has another size than the table says.
            UrlExpiredError: the URL has expired and cannot be renewed.
            FileGoneError: the store has no such file.
            StorageError: the file cannot be downloaded.
            InsecureUrlError: the URL may not be fetched.
            Cancelled: `cancelled` was set.
        """
        file = self.download(url, file_id=file_id, size=size, refresh=refresh, cancelled=cancelled, budget=budget)
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
        """Fetch ranges of a file, all of the same state of it.

        From a store that knows no ranges the whole file is fetched once and cut.

        Args:
            url: its pre-signed URL.
            file_id: its id in the sharing protocol.
            size: its size in bytes; 0 where not told.
            ranges: start and stop of each range, half-open like a slice's.
            refresh: gives a fresh URL when this one has expired; asked twice at the most.
            cancelled: set when nobody wants the file any more.
            budget: the retries that the load shares.
            executor: fetches the ranges side by side; never the one that this call runs in.

        Returns:
            The bytes of each range, in the order given.

        Raises:
            ValueError: a range is empty or lies outside the file.
            DeltaSharingError: as for `fetch`.
        """
        for start, stop in ranges:
            if not 0 <= start < stop or (size and stop > size):
                raise ValueError(f"the range {start}:{stop} is not one of a file of {size} bytes")
        file = self.download(url, file_id=file_id, size=size, refresh=refresh, cancelled=cancelled, budget=budget)

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

    def download(
        self,
        url: SecretUrl,
        *,
        file_id: str,
        size: int = 0,
        refresh: Refresh | None = None,
        cancelled: threading.Event | None = None,
        budget: RetryBudget | None = None,
        etag: str | None = None,
    ) -> Download:
        """Return a download to be read in pieces, all of the same state of the file; nothing is sent yet.

        Args:
            url: its pre-signed URL.
            file_id: its id in the sharing protocol.
            size: its size in bytes; 0 where not told.
            refresh: gives a fresh URL when this one has expired.
            cancelled: set when nobody wants the file any more.
            budget: the retries that the load shares.
            etag: the strong ETag of the file of which an earlier download left a part.
        """
        return Download(
            self.transport,
            self._settings,
            url=url,
            file_id=file_id,
            size=size,
            refresh=refresh,
            cancelled=cancelled,
            budget=budget or self._budget,
            etag=etag,
        )

    def abort(self) -> None:
        """Break all transfers under way, whosesoever they are."""
        self.transport.abort()

    def close(self) -> None:
        """Close the pooled connections."""
        self.transport.close()
