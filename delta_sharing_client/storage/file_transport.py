"""The interface of what sends the requests of downloads."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol, Self

from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.cancellation import Cancellation


class FileResponse(Protocol):
    """What a store answers to a request for a file; `Response` is one."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    @property
    def url(self) -> SecretUrl:
        """The URL that answered."""

    @property
    def length(self) -> int | None:
        """How many bytes of the body are still to come; None if that is not known."""

    def read_some(self, limit: int) -> bytes:
        """Return up to `limit` bytes of the body; none at its end."""

    def read_into(self, view: memoryview) -> int:
        """Fill the beginning of `view`; return how many bytes, 0 at the end."""

    def excerpt(self) -> bytes:
        """Return the beginning of an error's body."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...


class FileTransport(Protocol):
    """Sends requests for files: `StorageTransport` by HTTP, `DirectoryTransport` by a file system of pyarrow."""

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> FileResponse:
        """Send one GET, without retries, and return the response whatever its status."""

    def break_on(self, cancelled: Cancellation) -> None:
        """Have the transfers made for an event broken when it is set."""

    def abort(self) -> None:
        """Break every transfer under way."""

    def close(self) -> None:
        """Close what is kept open."""
