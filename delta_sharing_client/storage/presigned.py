"""Reader of files by a transport, with retries: behind pre-signed URLs, or in directories of object stores."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import ByteSource, Refresh, StorageReader
from delta_sharing_client.storage.download import Download, Settings
from delta_sharing_client.storage.file_transport import FileTransport
from delta_sharing_client.storage.retry_budget import RetryBudget
from delta_sharing_client.transport.retry import Backoff


class PresignedReader(StorageReader):
    """Fetches files by a transport, with retries. May be used by several threads.

    Args:
        transport: sends the requests.
        options: attempts and back-off.
        budget: the retries that sources without an own budget share.
        sleep: waits for some seconds; without it a cancelled wait ends at once.
        rng: returns a number from 0 to 1, for the back-off.
    """

    def __init__(
        self,
        transport: FileTransport,
        options: TransportOptions,
        *,
        budget: RetryBudget | None = None,
        sleep: Callable[[float], None] | None = None,
        rng: Callable[[], float] = random.random,
    ) -> None:
        super().__init__(options)
        self._transport = transport
        self._budget = budget
        self._settings = Settings(
            attempts=options.storage_attempts,
            longest_wait=options.api_deadline.total_seconds(),
            backoff=Backoff.of(options, rng),
            sleep=sleep,
        )

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
        """Return a download; see `StorageReader.source`."""
        return Download(
            self._transport,
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
        """Abort the active transfers of all loads."""
        self._transport.abort()

    def close(self) -> None:
        """Close the pooled connections."""
        self._transport.close()
