"""HTTP/1.1 as files are fetched: one request written, one head parsed, the body straight into its place.

The standard library parses the head of an answer as it would a mail's, and urllib3 wraps request and answer
once more; for a small file all that takes more processor time than its transfer. Connections and TLS stay
urllib3's: `Exchange` says how a request and its answer pass over a connection of it, `Connections` keeps the
idle ones.
"""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import urllib3.exceptions

_LINE_END: Final = re.compile(rb"\r?\n")
_HEAD_END: Final = re.compile(rb"\r?\n\r?\n")
_STATUS: Final = re.compile(rb"HTTP/1\.([01]) ([1-5][0-9]{2})(?: .*)?", re.DOTALL)
_UNSAFE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CHUNK_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})[ \t]*(?:;.*)?", re.DOTALL)
#: What may stand around a value. `str.strip` alone would take off more, and read what other readers do not.
_BLANK: Final = " \t"
#: Bytes that are asked for while the head is coming; what is of the body is copied.
_FIRST: Final = 4096
_MAX_HEAD: Final = 64 * 1024
_MAX_HEADERS: Final = 100
#: Answers that only announce another one.
_MAX_INTERIM: Final = 10


class Headers(Mapping[str, str]):
    """The headers of an answer; names are case-insensitive, the values of one that is repeated are joined."""

    __slots__ = ("_values",)

    def __init__(self, lines: list[bytes]) -> None:
        if len(lines) > _MAX_HEADERS:
            raise http.client.HTTPException(f"more than {_MAX_HEADERS} headers")
        values: dict[str, str] = {}
        name = ""
        for line in lines:
            text = line.decode("latin-1")
            if text[:1] in (" ", "\t"):  # goes on with the last one, as was once allowed
                if name:
                    values[name] = f"{values[name]} {text.strip(_BLANK)}".strip(_BLANK)
                continue
            name, colon, value = text.partition(":")
            name = name.strip(_BLANK).lower() if colon else ""
            if name:
                value = value.strip(_BLANK)
                values[name] = f"{values[name]}, {value}" if name in values else value
        self._values = values

    def __getitem__(self, name: str) -> str:
        return self._values[name.lower()]

    def get(self, name: str, default: Any = None) -> Any:
        """Return a header's value, or `default` where there is none; the one inherited takes longer."""
        return self._values.get(name.lower(), default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.lower() in self._values

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


class Answer:
    """An answer whose head has come. Its connection can be used again once the body was read to its end.

    Args:
        connection: where it comes from.
        method: the request's method.
        minor: 0 for HTTP/1.0, 1 for HTTP/1.1.
        status: its status.
        headers: its headers.
        rest: what has come already of its body.

    Attributes:
        status: its status.
        headers: its headers.
        left: bytes of the body still to come; None where only its end tells.
        home: who gets the connection back; without it that stays open for whoever made it.

    Raises:
        urllib3.exceptions.InvalidHeader: it says two lengths.
    """

    def __init__(
        self, connection: Any, method: str, minor: int, status: int, headers: Headers, rest: bytes
    ) -> None:
        self._from = connection
        self._begun = self._ended = False
        self.status = status
        self.headers = headers
        self.home: Connections | None = None
        self._rest = memoryview(rest)
        said = headers.get("connection", "").lower()
        self._keeps = "close" not in said if minor else "keep-alive" in said
        self._chunk: int | None = None
        self.left = body_length(method, status, headers)
        coding = headers.get("transfer-encoding", "").lower()
        if coding and coding != "identity" and not _is_bodiless(method, status):
            self.left = None
            if coding.rpartition(",")[2].strip(_BLANK) == "chunked":
                self._chunk = 0
            if not minor or "content-length" in headers:  # who reads it the other way sees another end
                self._keeps = False
        if self.left is None and self._chunk is None:
            self._keeps = False

    def read_into(self, view: memoryview) -> int:
        """Fill the beginning of `view` with what comes of a body of known length; return how many bytes."""
        left = self.left or 0
        view = view[:left]
        count = self._take(view) if len(view) and not self._ended else 0
        self.left = left - count
        if not self.left:
            self._end()
        return count

    def read1(self, limit: int, decode_content: bool = False) -> bytes:
        """Return up to `limit` bytes of the body, as sent, as soon as there are any; none at its end."""
        if self._ended:
            if self.left == 0:
                return b""
            raise http.client.IncompleteRead(b"")  # broken off
        if self._chunk is not None:
            try:
                return self._read_chunked(limit)
            except BaseException:
                self._break_off()  # where the next chunk begins is not known any more
                raise
        if self.left is None:
            data = self._some(limit)
            if not data:
                self._end()
            return data
        limit = min(limit, self.left)
        data = self._some(limit) if limit else b""
        self.left -= len(data)
        if not self.left:
            self._end()
        return data

    def read(self, limit: int, decode_content: bool = False) -> bytes:
        """Return up to `limit` bytes of the body, as sent; none at its end."""
        return self.read1(limit)

    def close(self) -> None:
        """Break the connection off, unless the body was read to its end."""
        if self.left == 0:
            self._end()
        self._break_off()

    def __del__(self) -> None:
        # Nobody can read it any more: the socket must not stay open until the collector finds it.
        self._break_off()

    def _break_off(self) -> None:
        """Close the connection, once: it may soon be somebody else's."""
        if not self._ended:
            self._ended = True
            self._from.close()

    def release_conn(self) -> None:
        """Give the connection back."""
        home, self.home = self.home, None
        if home is not None:
            home.put(self._from)

    def _end(self) -> None:
        """Note that the body has come, and let the connection be used again."""
        if not self._ended:
            self._ended = True
            self.left = 0
            # More than was announced: what follows would be misread.
            if not self._keeps or len(self._rest) or _is_pending(self._from.sock):
                self._from.close()
            self.release_conn()

    def _take(self, view: memoryview) -> int:
        """Put some bytes into a view that is not empty; return how many, 0 at the connection's end."""
        if rest := len(self._rest):
            count = min(rest, len(view))
            view[:count] = self._rest[:count]
            self._rest = self._rest[count:]
            return count
        sock = self._from.sock
        if sock is None:  # broken off meanwhile
            return 0
        received: int = sock.recv_into(view)
        return received

    def _some(self, limit: int) -> bytes:
        if len(self._rest):
            data = bytes(self._rest[:limit])
            self._rest = self._rest[limit:]
            return data
        sock = self._from.sock
        received: bytes = b"" if sock is None else sock.recv(limit)
        return received

    def _read_chunked(self, limit: int) -> bytes:
        if not self._chunk:
            if self._begun and self._line():
                raise urllib3.exceptions.ProtocolError("a chunk is longer than it says")
            self._begun = True
            match = _CHUNK_SIZE.fullmatch(self._line())
            if match is None:
                raise urllib3.exceptions.ProtocolError("a chunk does not say its length")
            self._chunk = int(match[1], 16)
            if not self._chunk:
                for _ in range(_MAX_HEADERS):
                    if not self._trailer():
                        self._end()
                        return b""
                raise urllib3.exceptions.ProtocolError("too much follows the last chunk")
        data = self._some(min(limit, self._chunk))
        if not data:
            raise http.client.IncompleteRead(b"")
        self._chunk -= len(data)
        return data

    def _trailer(self) -> bytes:
        """The next line behind the last chunk; with the connection's end it is over, too."""
        try:
            return self._line()
        except http.client.IncompleteRead:
            self._keeps = False
            return b""

    def _line(self) -> bytes:
        """The next line, without its end."""
        line = bytearray()
        while True:
            data = self._some(_FIRST)
            if not data:
                raise http.client.IncompleteRead(b"")
            before, end, after = data.partition(b"\n")
            line += before
            if len(line) > _MAX_HEAD:
                raise urllib3.exceptions.ProtocolError("a line without end")
            if end:
                self._rest = memoryview(after + bytes(self._rest))
                return bytes(line).removesuffix(b"\r")


def body_length(method: str, status: int, headers: Mapping[str, str]) -> int | None:
    """Return how long a body is announced to be; None where that is not told.

    Raises:
        urllib3.exceptions.InvalidHeader: it is told twice, and not the same.
    """
    if _is_bodiless(method, status):
        return 0
    said = {part.strip(_BLANK) for part in headers.get("content-length", "").split(",")}
    if not all(part.isascii() and part.isdigit() for part in said):
        return None
    lengths = {int(part) for part in said}
    if len(lengths) > 1:
        raise urllib3.exceptions.InvalidHeader("more than one Content-Length")
    return lengths.pop()


def _is_bodiless(method: str, status: int) -> bool:
    return method == "HEAD" or status in (204, 304)


def _is_pending(sock: Any) -> bool:
    """Tell whether TLS has bytes that were decrypted and not read: no look at the socket would find them."""
    pending = getattr(sock, "pending", None)
    return pending is not None and pending() > 0


class Connections:
    """The connections to one origin that nobody uses just now; they may be used by several threads, one at a time.

    urllib3's own pools do the same for any kind of request, in three times as many steps.

    Args:
        pool: a pool of urllib3 whose connections are `Exchange`s; it makes them, and keeps none.
        keep: how many to keep.
    """

    def __init__(self, pool: Any, keep: int) -> None:
        self._pool = pool
        self._keep = keep
        # Its methods are atomic.
        self._idle: list[Any] = []
        self._closed = False

    def __del__(self) -> None:
        self.close()

    def get(self, target: str, headers: Mapping[str, str], *, connect: float, read: float) -> Answer:
        """Send a GET, and return the answer as soon as its head is there.

        Args:
            target: path and query string.
            headers: the headers.
            connect: seconds that a connection may take to come about.
            read: seconds that the store may be silent.

        Raises:
            http.client.HTTPException: what comes is no answer.
            urllib3.exceptions.HTTPError: no connection came about, or the answer's headers contradict each other.
            OSError: the connection broke, or the store was silent for too long.
            ValueError: something of the request cannot be sent.
        """
        connection = self._take()
        try:
            connection.timeout = connect
            connection.request("GET", target, headers=headers)
            connection.timeout = read
            answer: Answer = connection.getresponse()
        except BaseException:
            connection.close()
            raise
        answer.home = self
        return answer

    def _take(self) -> Any:
        """The connection that was used last, if it still stands; a new one else."""
        while self._idle:
            try:
                connection = self._idle.pop()
            except IndexError:  # another thread was faster
                break
            if connection.is_connected:
                return connection
            connection.close()
        return self._pool._new_conn()

    def put(self, connection: Any) -> None:
        """Keep a connection whose answer was read to its end; one that was closed, or is one too many, goes."""
        if connection.sock is None:
            return
        if self._closed or len(self._idle) >= self._keep:
            connection.close()
            return
        self._idle.append(connection)
        if self._closed:  # meanwhile
            self.close()

    def close(self) -> None:
        """Close the connections that are idle, and those in use as soon as they are given back."""
        self._closed = True
        while self._idle:
            try:
                self._idle.pop().close()
            except IndexError:
                break


class Exchange:
    """How a request without a body and its answer pass over a connection of urllib3; mixed into its class."""

    _method = "GET"

    def request(
        self, method: str, url: str, body: None = None, headers: Mapping[str, str] | None = None, **_: Any
    ) -> None:
        """Send a request.

        Raises:
            ValueError: something of it cannot be sent.
            OSError: the connection broke, or did not come about.
        """
        connection: Any = self
        if body is not None:
            raise ValueError("only requests without a body")
        lines = [f"{method} {url} HTTP/1.1", f"Host: {_host(connection)}"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        if " " in url or _UNSAFE.search("".join(lines)):
            raise ValueError("a request with a control character in it")
        self._method = method
        if connection.sock is None:
            connection.connect()
        else:
            connection.sock.settimeout(connection.timeout)
        connection.sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))

    def getresponse(self) -> Answer:
        """Return the answer, as soon as its head is there.

        Raises:
            http.client.HTTPException: it is none.
            urllib3.exceptions.InvalidHeader: it says two lengths.
            OSError: the connection broke.
        """
        connection: Any = self
        connection.sock.settimeout(connection.timeout)
        rest = b""
        deadline = time.monotonic() + connection.timeout
        for _ in range(_MAX_INTERIM):
            head, rest = _receive_head(connection.sock, rest, deadline)
            lines = _LINE_END.split(head)
            match = _STATUS.fullmatch(lines[0])
            if match is None:
                raise http.client.BadStatusLine("not HTTP/1.1")
            status = int(match[2])
            if status >= 200 or status == 101:
                connection.sock.settimeout(connection.timeout)
                return Answer(connection, self._method, int(match[1]), status, Headers(lines[1:]), rest)
        raise http.client.HTTPException("interim answers without end")


def _host(connection: Any) -> str:
    """The value of the Host header."""
    host = str(connection.host).strip("[]")
    if ":" in host:
        host = f"[{host.partition('%')[0]}]"
    return host if connection.port == connection.default_port else f"{host}:{connection.port}"


def _receive_head(sock: Any, data: bytes, deadline: float) -> tuple[bytes, bytes]:
    """Receive up to the end of a head; return it, and what has come of what follows.

    Args:
        sock: the connection.
        data: what has come already.
        deadline: when it has to be complete, by the monotonic clock.
    """
    searched = 0
    while True:
        match = _HEAD_END.search(data, searched)
        if match is not None:
            return data[: match.start()], data[match.end() :]
        if len(data) > _MAX_HEAD:
            raise http.client.LineTooLong("head")
        searched = max(0, len(data) - 3)
        if data:  # for the first bytes the socket's own time-out holds
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError("the head did not come in time")
            sock.settimeout(left)
        more = sock.recv(_FIRST)
        if not more:
            raise http.client.RemoteDisconnected("the connection was closed before an answer came")
        data += more
