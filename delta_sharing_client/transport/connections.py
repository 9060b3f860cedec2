"""HTTP connections: urllib3 opens and pools them, httptools parses the responses.

The parser of `http.client` and the responses of urllib3 would take longer than the transfer of a small file
(`docs/decisions/0017-http-engine.md`). A socket's time-out bounds only the wait for the next bytes. A head has a
deadline, and a body a minimum speed, or a server that sends single bytes would never be interrupted.
"""

from __future__ import annotations

import http.client
import io
import re
import time
from collections import deque
from typing import Any, Final

import httptools
from urllib3 import HTTPHeaderDict
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.cancellation import SocketRegistry
from delta_sharing_client.transport.meanwhile import begin_to_wait

#: Maximum number of interim responses (1xx).
_MAX_INTERIM: Final = 10
_LENGTH: Final = re.compile(r"[0-9]{1,18}")
#: Bytes of a head, and of a body without a length, to receive at a time.
_HEAD_CHUNK: Final = 16 * 1024
_BODY_CHUNK: Final = 64 * 1024
#: Maximum bytes that are not of the body, in a head with its interim responses or between two parts of the body.
_MAX_OVERHEAD: Final = 64 * 1024
_MAX_LINES: Final = 100


class MalformedResponseError(http.client.HTTPException):
    """A response is not valid HTTP, or its end is ambiguous. The message has no part of the response."""


class SlowBodyError(TimeoutError):
    """The body of a response arrived below the minimum speed, in bytes per second."""

    def __init__(self, speed: int) -> None:
        super().__init__(f"the answer arrived slower than {speed} bytes/s")


class _Deadline:
    """The end of the time-out that a socket has now, for all that arrives of a head."""

    def __init__(self, sock: Any) -> None:
        self._sock = sock
        self._ends = time.monotonic() + sock.gettimeout()

    def limit(self) -> None:
        """Set the time-out for the next bytes; raise TimeoutError at the deadline."""
        left = self._ends - time.monotonic()
        if left <= 0:
            raise TimeoutError("the head did not arrive in time")
        self._sock.settimeout(left)


class RawResponse:
    """A response whose body is read into memory of the caller, with the parts of urllib3's that pools use.

    Its connection goes back to the pool if the body was read to its end, and is closed otherwise.

    Args:
        sock: the connection, with the time-out of the head.
        options: the limits of the body.
        method: the method of the request.

    Attributes:
        status: the HTTP status.
        headers: the headers; names are case-insensitive.
        length_remaining: number of bytes of the body not read yet; None if it is not announced.
    """

    #: Read by urllib3, for its log.
    version_string = "HTTP/1.1"
    #: Read by `requests`.
    reason = ""
    #: Read by `http.client`, which would close the connection before the body is read.
    will_close = False
    #: Set by urllib3's pool, which is given the connection back.
    _pool: HTTPConnectionPool | None = None
    _connection: HTTPConnection | None = None

    def __init__(self, sock: Any, options: TransportOptions, method: str) -> None:
        self.status = 0
        self.headers = HTTPHeaderDict()
        self.length_remaining: int | None = None
        self._sock = sock
        self._method = method
        self._stall = options.read_timeout.total_seconds()
        self._minimum_speed = options.minimum_speed
        self._waited = 0.0  # seconds in which the bytes since the last check of the speed arrived
        self._received = 0
        self._parser: Any = httptools.HttpResponseParser(self)
        self._parser.set_dangerous_leniencies(lenient_optional_cr_before_lf=True)
        self._parsed: deque[memoryview] = deque()
        self._lines = self._interim = 0
        self._has_head = self._has_end = self._has_surplus = False
        self._keeps_alive = self._is_chunked = self._is_closed = False

    def begin(self) -> None:
        """Read the head; skip interim responses (1xx)."""
        deadline = _Deadline(self._sock)
        size = 0
        while True:
            data = self._sock.recv(_HEAD_CHUNK)
            if not data:
                raise http.client.RemoteDisconnected("the connection was closed within the head")
            self._parse(data)
            if self._has_head:
                break
            size += len(data)
            if size > _MAX_OVERHEAD:
                raise MalformedResponseError("its head is too long")
            deadline.limit()
        set_timeout(self._sock, self._stall)
        if self.length_remaining is not None:
            self._parser = None  # it refers to this object

    def _parse(self, data: bytes | bytearray) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            raise MalformedResponseError("it changes the protocol") from None
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, MalformedResponseError):  # from a method below
                raise error.__context__ from None
            if not self._has_end:
                raise MalformedResponseError(str(error)) from None
            self._has_surplus = True

    def on_message_begin(self) -> None:
        """Called by the parser at the beginning of each response."""
        self._has_surplus = self._has_end

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each header, and each trailer after a chunked body."""
        self._lines += 1
        if self._lines > _MAX_LINES:
            raise MalformedResponseError(f"it has more than {_MAX_LINES} headers")
        if not self._has_head:
            self.headers.add(name.decode("latin-1"), value.decode("latin-1").strip(" \t"))

    def on_headers_complete(self) -> None:
        """Called by the parser at the end of each head."""
        status = self._parser.get_status_code()
        if self._has_head:
            return
        version = self._parser.get_http_version()
        if status < 100 or version not in ("1.0", "1.1"):
            raise MalformedResponseError("its status line is unknown")
        if status < 200:
            self.headers = HTTPHeaderDict()
            return
        self.status = status
        self._has_head = True
        self._keeps_alive = self._parser.should_keep_alive()
        coding, length = self.headers.get("Transfer-Encoding"), self.headers.get("Content-Length")
        self._is_chunked = coding is not None
        if self._is_chunked and version == "1.0":
            self._keeps_alive = False
        if status in (204, 304) or self._method == "HEAD":
            self.length_remaining = 0
            self._has_end = True
        elif coding is not None and coding.lower() != "chunked":
            raise MalformedResponseError("its transfer coding is unknown")
        elif length is not None:
            if not _LENGTH.fullmatch(length):
                raise MalformedResponseError("its length is not a number")
            self.length_remaining = int(length)

    def on_body(self, data: bytes) -> None:
        """Called by the parser for each part of the body."""
        if self._has_end:  # of a response that has no body, or of a surplus one
            self._has_surplus = True
        else:
            self._parsed.append(memoryview(data))

    def on_message_complete(self) -> None:
        """Called by the parser at the end of each response."""
        if self._has_head:
            self._has_end = True
            return
        self._interim += 1
        if self._interim >= _MAX_INTERIM:
            raise MalformedResponseError("it has too many interim responses")

    def read1(self, amt: int, decode_content: bool = False) -> bytes:
        """Return up to `amt` bytes of the body, as sent, as soon as there are any; none at its end."""
        buffer = bytearray(min(amt, _BODY_CHUNK if self.length_remaining is None else self.length_remaining))
        return bytes(memoryview(buffer)[: self.readinto(buffer)])

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of a buffer with what arrives of the body; return how many bytes."""
        view = memoryview(buffer)[: self.length_remaining]
        if self._is_closed or not view:
            return 0
        try:
            count = self._read(view)
        except BaseException:
            self.close()  # at once: an exception's traceback may keep this object
            raise
        if not count and self.length_remaining:
            self.close()
        return count

    def _read(self, view: memoryview) -> int:
        if self.length_remaining is None:
            self._parse_body()
        count = self._take_parsed(view) if self._parsed else 0
        if self.length_remaining is not None:
            count = count or self._receive(view)
            self.length_remaining -= count
            self._has_end = not self.length_remaining
        return count

    def _take_parsed(self, view: memoryview) -> int:
        count = 0
        while self._parsed and count < len(view):
            part = self._parsed.popleft()
            size = min(len(part), len(view) - count)
            view[count : count + size] = part[:size]
            count += size
            if size < len(part):
                self._parsed.appendleft(part[size:])
        return count

    def _parse_body(self) -> None:
        """Receive bytes until there is a part of the body, or its end."""
        overhead = 0
        while not self._parsed and not self._has_end:
            data = bytearray(_BODY_CHUNK)
            count = self._receive(memoryview(data))
            if count:
                self._parse(data[:count])
            elif self._is_chunked:
                raise http.client.IncompleteRead(b"")
            else:
                self._has_end = True
            overhead += count
            if overhead > _MAX_OVERHEAD:
                raise MalformedResponseError("a line of its chunked body is too long")

    def _receive(self, view: memoryview) -> int:
        """Receive bytes; raise SlowBodyError below the minimum speed. Time between two calls does not count."""
        began = time.monotonic()
        count: int = self._sock.recv_into(view)
        self._waited += time.monotonic() - began
        self._received += count
        if self._waited >= self._stall:
            if self._received < self._minimum_speed * self._waited:
                raise SlowBodyError(self._minimum_speed)
            self._received, self._waited = 0, 0.0
        return count

    def isclosed(self) -> bool:
        """Return whether the response is closed; `http.client` then sends the next request."""
        return self._is_closed

    def close(self) -> None:
        """Give the connection back to its pool, closed unless it can be used again."""
        self._is_closed = True
        self._parser = None
        pool, self._pool = self._pool, None
        connection, self._connection = self._connection, None
        if pool is None or connection is None:
            return
        pending = getattr(self._sock, "pending", None)  # sockets of TLS have it
        has_surplus = self._has_surplus or self._parsed or (pending is not None and pending() > 0)
        if not self._has_end or not self._keeps_alive or has_surplus:
            connection.close()
        pool._put_conn(connection)  # as the responses of urllib3 do it

    def release_conn(self) -> None:
        """Do nothing: `close` gives the connection back."""


class _Connection:
    """The parts of connections that http and https have in common; mixed into urllib3's.

    mypy does not know the class after this one, whose methods `super()` calls; hence the exemptions.
    """

    sock: Any
    timeout: Any
    #: `http.client` uses it for the response of a proxy to CONNECT.
    response_class: Any

    def __init__(self, *arguments: Any, options: TransportOptions, sockets: SocketRegistry, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.response_class = _TunnelResponse
        self._options = options
        self._sockets = sockets

    def _response(self, sock: Any, *_: Any, method: str) -> RawResponse:
        return RawResponse(sock, self._options, method)

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self._sockets.register(self.sock)

    def request(self, *arguments: Any, **named: Any) -> None:
        self._sockets.register(self.sock)
        super().request(*arguments, **named)  # type: ignore[misc]

    def getresponse(self) -> http.client.HTTPResponse:
        set_timeout(self.sock, self.timeout)
        begin_to_wait()
        self.response_class = self._response
        try:
            return http.client.HTTPConnection.getresponse(self)  # type: ignore[arg-type]
        finally:
            self.response_class = _TunnelResponse


def set_timeout(sock: Any, seconds: float | None) -> None:
    """Set a socket's time-out if it has another; a change is a system call."""
    if sock.gettimeout() != seconds:
        sock.settimeout(seconds)


class Connection(_Connection, HTTPConnection):  # type: ignore[misc]  # `getresponse` returns another class
    """A connection over http."""


class SecureConnection(_Connection, HTTPSConnection):  # type: ignore[misc]
    """A connection over https."""


class _TunnelResponse(http.client.HTTPResponse):
    """The head of a proxy's response to CONNECT, which has to arrive within the time-out of the socket."""

    def __init__(self, sock: Any, **named: Any) -> None:
        super().__init__(_HeadSocket(sock), **named)  # type: ignore[arg-type]  # it calls `makefile` alone


class _HeadSocket(io.RawIOBase):
    """The receiving side of a socket, with a deadline."""

    def __init__(self, sock: Any) -> None:
        self._file = sock.makefile("rb", buffering=0)
        self._deadline = _Deadline(sock)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int | None:
        self._deadline.limit()
        count: int | None = self._file.readinto(buffer)
        if not count:  # for `http.client` a head may end with its connection
            raise http.client.RemoteDisconnected("the connection was closed within the head")
        return count
