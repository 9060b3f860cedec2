"""Interfaces of a transport for files and of its responses."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any, Protocol, Self

from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.cancellation import Cancellation


class FileResponse(Protocol):
    """Response to a request for a file, such as `transport.response.Response`."""

    @property
    def status(self) -> int:
        """The HTTP status."""

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers."""

    @property
    def url(self) -> SecretUrl:
        """The URL of the response, after redirects."""

    @property
    def length(self) -> int | None:
        """Number of bytes of the body not received yet; None if it is not known."""

    def read_some(self, limit: int) -> bytes:
        """Return up to `limit` bytes of the body; empty at its end."""

    def read_into(self, view: memoryview) -> int:
        """Receive bytes into `view`; return their number, 0 at the end."""

    def excerpt(self) -> bytes:
        """Return the beginning of an error's body."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exception: Any) -> None: ...


class FileTransport(Protocol):
    """Transport for files: `StorageTransport` over HTTP, `DirectoryTransport` over a file system of pyarrow."""

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> FileResponse:
        """Send one GET, without retries, and return the response with any status."""

    def break_on(self, cancelled: Cancellation) -> None:
        """Break the transfers made for an event when it is set."""

    def abort(self) -> None:
        """Abort the active transfers."""

    def close(self) -> None:
        """Close the connections or files kept open."""
