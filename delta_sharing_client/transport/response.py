"""An answer whose body is read under control: counted against its announced length, its errors typed."""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from delta_sharing_client.errors import DeltaSharingError, IncompleteResponseError
from delta_sharing_client.secrets import MASK, SecretUrl
from delta_sharing_client.transport.body import decoded
from delta_sharing_client.transport.error_mapping import NETWORK_ERRORS, translate
from delta_sharing_client.transport.store_connections import StoreResponse

A = TypeVar("A", int, memoryview)
R = TypeVar("R", int, bytes)

#: The most that is read of an error's body.
MAX_ERROR_BODY: Final = 64 * 1024

_CHUNK: Final = 256 * 1024


class Response:
    """An answer whose body has yet to be read. Close it, or use it as a context manager.

    Args:
        raw: the answer of urllib3, or a `StoreResponse`.
        url: the request's URL.
        sent: the request's headers.
        what: the thing asked for, for messages.

    Attributes:
        status: the HTTP status.
        headers: the headers; names are case-insensitive.
        url: the URL that answered.
    """

    def __init__(self, raw: Any, *, url: SecretUrl, sent: Mapping[str, str], what: str) -> None:
        self.status: int = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self.url = url
        self._what = what
        self._sent = sent
        self._raw = raw

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # The socket must not stay open until the collector finds the cycle of connection and response.
        self.close()

    def close(self) -> None:
        """Give the connection back if the body was read, and close it otherwise."""
        self._raw.close()
        self._raw.release_conn()

    @property
    def ok(self) -> bool:
        """Whether the status is a success."""
        return 200 <= self.status < 300

    @property
    def length(self) -> int | None:
        """How many bytes of the body, as sent, are still to come; None where the server did not say."""
        length: int | None = self._raw.length_remaining
        return length

    def read_some(self, limit: int) -> bytes:
        """Return up to `limit` bytes of the body, as sent, as soon as there are any; none at its end.

        Raises:
            IncompleteResponseError: the body is shorter than announced.
            TransportError: the connection broke.
        """
        data: bytes = self._checked(partial(self._raw.read1, decode_content=False), limit)
        return data

    def read_into(self, view: memoryview) -> int:
        """Fill the beginning of `view` with what comes of the body, as sent; return how many bytes, 0 at its end.

        Raises:
            IncompleteResponseError: the body is shorter than announced.
            TransportError: the connection broke.
        """
        if self.length is None or not isinstance(self._raw, StoreResponse):
            data = self.read_some(len(view))
            view[: len(data)] = data
            return len(data)
        return self._checked(self._raw.readinto, view)

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, decompressed, in pieces of some 256 kB.

        Raises:
            IncompleteResponseError: the body is shorter than announced.
            TransportError: the connection broke.
            ProtocolError: the body is compressed in a way that was not asked for, or beyond all reason.
        """
        return decoded(self._raw_chunks(), self.headers.get("Content-Encoding") or "", what=self._what)

    def read(self, limit: int) -> bytes:
        """Return the first `limit` bytes of the body, decompressed; all of it if it is shorter."""
        data = bytearray()
        for chunk in self.chunks():
            data += chunk
            if len(data) >= limit:
                break
        return bytes(data[:limit])

    def excerpt(self) -> bytes:
        """Return the beginning of an error's body; what cannot be read of it is left out."""
        try:
            return self.read(MAX_ERROR_BODY)
        except DeltaSharingError:
            return b""

    def scrub(self, text: str) -> str:
        """Return `text` without the credential of the request, should a server repeat it in an error."""
        sent = self._sent.get("Authorization", "")
        for word in sent.split()[1:]:
            text = text.replace(word, MASK)
            if sent.lower().startswith("basic "):
                with contextlib.suppress(ValueError):
                    password = base64.b64decode(word).decode().partition(":")[2]
                    text = text.replace(password, MASK) if password else text
        return text

    def _raw_chunks(self) -> Iterator[bytes]:
        while chunk := self._checked(partial(self._raw.read, decode_content=False), _CHUNK):
            yield chunk

    def _checked(self, read: Callable[[A], R], wanted: A) -> R:
        """Return what `read` gives for `wanted`: bytes of the body, or how many."""
        try:
            came = read(wanted)
        except NETWORK_ERRORS as error:
            failure = translate(error, url=self.url, what=self._what, reading=True)
        else:
            if came or not self.length:
                return came
            failure = IncompleteResponseError(
                f"{self._what}: the answer was cut: {self.length} bytes of it are missing"
            )
        raise failure  # here, or the frames below would come with it
