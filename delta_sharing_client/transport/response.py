"""HTTP response: its body is checked against its length, decompressed within limits, and its errors are typed."""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from delta_sharing_client.errors import DeltaSharingError, IncompleteResponseError, ProtocolError
from delta_sharing_client.secrets import Secret, SecretUrl
from delta_sharing_client.tracebacks import clear_frames
from delta_sharing_client.transport.connections import RawResponse
from delta_sharing_client.transport.echoes import mask_echoes
from delta_sharing_client.transport.exception_mapping import NETWORK_ERRORS, translate

A = TypeVar("A", int, memoryview)
R = TypeVar("R", int, bytes)

#: Maximum bytes read of an error's body.
MAX_ERROR_BODY: Final = 64 * 1024

#: Maximum ratio of the decompressed to the compressed size of a response.
MAX_RATIO: Final = 100
#: The ratio is checked from this many decompressed bytes on, because short responses may be very repetitive.
RATIO_APPLIES_FROM: Final = 64 * 1024 * 1024

#: Maximum bytes of a gzip stream beyond its output: headers of its members, and members without output.
MAX_OVERHEAD: Final = 1024 * 1024

_CHUNK: Final = 256 * 1024
_GZIP: Final = 16 + zlib.MAX_WBITS


class Response:
    """HTTP response with an unread body. Close it, or use it as a context manager.

    The methods that read the body raise IncompleteResponseError if it is shorter than announced, and
    TransportError if the connection breaks.

    Attributes:
        status: the HTTP status.
        headers: the headers; names are case-insensitive.
        url: the URL that answered.
    """

    _raw: Any = None  # so that an interrupted constructor leaves an object that can be finalized

    def __init__(self, raw: Any, *, url: SecretUrl, secrets: Iterable[str], subject: str) -> None:
        self._raw = raw
        self.status: int = raw.status
        self.headers: Mapping[str, str] = raw.headers
        self.url = url
        self._subject = subject
        self._secrets = [Secret(text) for text in secrets]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        # Without this the socket stays open until the collector finds the cycle of connection and response.
        if self._raw is not None:
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
        """Number of bytes of the body, as sent, not received yet; None if the server announced no length."""
        length: int | None = self._raw.length_remaining
        return length

    def read_some(self, limit: int) -> bytes:
        """Return up to `limit` bytes of the body, as sent, as soon as they arrive; empty at its end."""
        return self._checked(self._read1, limit)

    def read_into(self, view: memoryview) -> int:
        """Receive bytes of the body, as sent, into `view`; return their number, 0 at its end."""
        if not isinstance(self._raw, RawResponse):  # but urllib3's, of a SOCKS proxy: it waits for a full view
            data = self.read_some(len(view))
            view[: len(data)] = data
            return len(data)
        return self._checked(self._raw.readinto, view)

    def chunks(self) -> Iterator[bytes]:
        """Yield the body, decompressed, in chunks of about 256 kB.

        Raises:
            ProtocolError: the body has an encoding other than gzip, or grows beyond the limits.
        """
        raw = iter(lambda: self.read_some(_CHUNK), b"")
        return decoded(raw, self.headers.get("Content-Encoding") or "", subject=self._subject)

    def read(self, limit: int) -> bytes:
        """Return the first `limit` bytes of the body, decompressed; all of it if it is shorter."""
        data = bytearray()
        for chunk in self.chunks():
            data += chunk
            if len(data) >= limit:
                break
        return bytes(data[:limit])

    def excerpt(self) -> bytes:
        """Return the beginning of an error's body; empty if it cannot be read."""
        try:
            return self.read(MAX_ERROR_BODY)
        except DeltaSharingError:
            return b""

    def scrub(self, text: str) -> str:
        """Return `text` without the secrets of the request, which a server may repeat; see `mask_echoes`."""
        return mask_echoes(text, (secret.reveal() for secret in self._secrets))

    def _read1(self, limit: int) -> bytes:
        data: bytes = self._raw.read1(limit, decode_content=False)
        return data

    def _checked(self, read: Callable[[A], R], wanted: A) -> R:
        """Return the result of `read(wanted)`: bytes of the body, or their number."""
        outer = sys.exception()
        try:
            result = read(wanted)
        except NETWORK_ERRORS as error:
            failure = translate(error, url=self.url, subject=self._subject, reading=True)
            clear_frames(error, outer=outer)
        else:
            if result or not self.length:
                return result
            failure = IncompleteResponseError(
                f"{self._subject}: the answer was cut: {self.length} bytes of it are missing"
            )
        try:
            raise failure  # outside of `except`: the traceback must not hold the network library's frames
        finally:
            del failure  # its traceback holds this frame, and with it the connection


def decoded(chunks: Iterable[bytes], encoding: str, *, subject: str) -> Iterator[bytes]:
    """Decode the body of a response by its `Content-Encoding`, in chunks of at most 256 kB.

    Raises:
        IncompleteResponseError: the compressed stream is truncated.
        ProtocolError: the stream is broken, has another encoding than gzip, or grows beyond the limits.
    """
    encoding = encoding.strip().lower()
    if encoding in ("", "identity"):
        return iter(chunks)
    if encoding in ("gzip", "x-gzip"):
        return _gunzipped(chunks, subject)
    raise ProtocolError(
        f"{subject}: the response has the encoding {encoding[:40]!r}; the request accepts gzip only"
    )


def _gunzipped(chunks: Iterable[bytes], subject: str) -> Iterator[bytes]:
    decoder = zlib.decompressobj(_GZIP)
    received = produced = 0
    for chunk in chunks:
        received += len(chunk)
        data = chunk
        while True:
            if decoder.eof:
                if not data:
                    break
                decoder = zlib.decompressobj(_GZIP)  # a further member of the stream
            try:
                piece = decoder.decompress(data, _CHUNK)
            except zlib.error:
                raise ProtocolError(f"{subject}: the gzip stream of the response is broken") from None
            produced += len(piece)
            if produced > RATIO_APPLIES_FROM and produced > received * MAX_RATIO:
                raise ProtocolError(
                    f"{subject}: the response decompresses to more than {MAX_RATIO} times its size"
                )
            if piece:
                yield piece
            data = decoder.unused_data if decoder.eof else decoder.unconsumed_tail
            # Data that cannot be compressed grows by less than 1 %.
            if received - len(data) > 2 * produced + MAX_OVERHEAD:
                raise ProtocolError(f"{subject}: the response has no end: its gzip stream decompresses to nothing")
            if not data and len(piece) < _CHUNK:
                break
    if received and not decoder.eof:
        raise IncompleteResponseError(f"{subject}: the gzip stream of the response is truncated")
