"""Scripted HTTP server on loopback that sends faults over real sockets.

    with FaultServer() as server:
        server.on("GET", "/shares", Reply(status=503), Reply.of_json({"items": []}))
        ...
        assert [request.path for request in server.requests] == ["/shares", "/shares"]

A rule sends its replies in order to the requests that match it, and repeats the last one. Later rules take
precedence. A reply may also be a function of the request.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import socketserver
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from waiting import wait_until

#: Linux's number of the state of a connection that is closed.
_TCP_CLOSE = 7


@dataclass(frozen=True)
class Request:
    """A received request; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {key: values[-1] for key, values in parse_qs(urlsplit(self.target).query).items()}

    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True, kw_only=True)
class Reply:
    """A response, and its fault.

    delay: seconds before the first byte.
    cut_at: bytes of the body to send before `ending`.
    ending: `close` the connection, `reset` it, `stall`, or send the rest after a `pause`.
    pause: seconds of a `pause`.
    length: the Content-Length header; "auto" is the correct one, None omits the header.
    chunk: size of the chunks with chunked transfer encoding; a cut omits the final chunk.
    raw: bytes to send instead of everything else.
    drop: close the connection before the first byte.
    endless: bytes to repeat after the body, until the client closes the connection.
    trickle: the part (`head` or `body`) from which to send single bytes, and the seconds between them.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    delay: float = 0.0
    cut_at: int | None = None
    ending: Literal["close", "reset", "stall", "pause"] = "close"
    pause: float = 0.5
    length: int | Literal["auto"] | None = "auto"
    chunk: int | None = None
    raw: bytes | None = None
    drop: bool = False
    endless: bytes = b""
    trickle: tuple[Literal["head", "body"], float] | None = None

    @classmethod
    def of_json(cls, value: Any, **changes: Any) -> Reply:
        return cls(body=json.dumps(value).encode(), headers={"Content-Type": "application/json"}, **changes)

    @classmethod
    def of_lines(cls, *lines: Any, headers: Mapping[str, str] | None = None, **changes: Any) -> Reply:
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        return cls(body=body, headers={"Content-Type": "application/x-ndjson", **(headers or {})}, **changes)

    def but(self, **changes: Any) -> Reply:
        return replace(self, **changes)


Responder = Reply | Callable[[Request], Reply]


def file_reply(
    data: bytes, *, etag: str | None = '"v1"', ranges: bool = True, **changes: Any
) -> Callable[[Request], Reply]:
    """Return a responder for an object, with ranges and If-Match as in S3; `changes` apply to each reply."""

    def answer(request: Request) -> Reply:
        headers = {"ETag": etag} if etag else {}
        required = request.headers.get("if-match")
        if required is not None and required != etag:
            return Reply(status=412, body=b"<Error><Code>PreconditionFailed</Code></Error>")
        match = re.fullmatch(r"bytes=(\d+)-(\d*)", request.headers.get("range", ""))
        if not ranges or match is None:
            return Reply(body=data, headers=headers).but(**changes)
        first = int(match[1])
        last = min(int(match[2]) if match[2] else len(data) - 1, len(data) - 1)
        if first > last:
            return Reply(status=416, headers={"Content-Range": f"bytes */{len(data)}"})
        headers["Content-Range"] = f"bytes {first}-{last}/{len(data)}"
        return Reply(status=206, body=data[first : last + 1], headers=headers).but(**changes)

    return answer


@dataclass
class _Rule:
    method: str
    path: str | re.Pattern[str]
    responders: tuple[Responder, ...]
    nth: int | None
    count: int = 0

    def matches(self, request: Request) -> bool:
        if self.method not in ("*", request.method):
            return False
        if isinstance(self.path, str):
            return self.path in ("*", request.path)
        return self.path.search(request.target) is not None

    def next(self) -> Responder | None:
        self.count += 1
        if self.nth is not None:
            return self.responders[0] if self.count == self.nth else None
        return self.responders[min(self.count, len(self.responders)) - 1]


class FaultServer:
    """The server, as a context manager.

    requests: the received requests, in order.
    connections: number of accepted connections.
    """

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        self.requests: list[Request] = []
        self.connections = 0
        self.stopping = threading.Event()
        self._rules: list[_Rule] = []
        self._lock = threading.Lock()
        self._tls = tls
        self._open: set[socket.socket] = set()

    def __enter__(self) -> FaultServer:
        faults = self

        class Server(socketserver.ThreadingTCPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 256

            def process_request_thread(self, request: Any, client_address: Any) -> None:
                with contextlib.suppress(OSError, ValueError):  # the client closed the connection
                    faults._serve(request)
                with contextlib.suppress(OSError):
                    request.close()

        self._server = Server(("127.0.0.1", 0), socketserver.BaseRequestHandler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        with self._lock:
            sockets = list(self._open)
        for sock in sockets:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}"

    @property
    def profile(self) -> dict[str, Any]:
        """A profile with this server as its endpoint."""
        return {"shareCredentialsVersion": 1, "endpoint": self.url, "bearerToken": "canary-token-7f3a"}

    def on(self, method: str, path: str | re.Pattern[str], *responders: Responder, nth: int | None = None) -> None:
        """Add a rule; `*` matches any method or path, and `nth` limits the rule to its n-th match."""
        with self._lock:
            self._rules.insert(0, _Rule(method, path, responders, nth))

    def seen(self, path: str) -> list[Request]:
        """Return the requests for a path."""
        return [request for request in list(self.requests) if request.path == path]

    def _serve(self, sock: socket.socket) -> None:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with self._lock:
            self.connections += 1
            number = self.connections
        if self._tls is not None:
            sock = self._tls.wrap_socket(sock, server_side=True)
        with self._lock:
            self._open.add(sock)
        try:
            with sock, sock.makefile("rb") as reader:
                while (request := _read_request(reader, number)) is not None:
                    if not self._send(sock, request, self._reply_to(request)):
                        return
        finally:
            with self._lock:
                self._open.discard(sock)

    def _reply_to(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            responder: Responder | None = None
            for rule in self._rules:
                if rule.matches(request) and (responder := rule.next()) is not None:
                    break
        if responder is None:
            return Reply.of_json({"errorCode": "NO_RULE", "message": request.path}, status=404)
        return responder if isinstance(responder, Reply) else responder(request)

    def _send(self, sock: socket.socket, request: Request, reply: Reply) -> bool:
        """Send a reply; return whether the connection can be reused."""
        if reply.delay:
            self.stopping.wait(reply.delay)
        if reply.drop:
            return False
        if reply.raw is not None:
            sock.sendall(reply.raw)
            return False
        headers = {"Date": time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time())), **reply.headers}
        if reply.chunk is not None:
            headers["Transfer-Encoding"] = "chunked"
        elif reply.length is not None:
            headers["Content-Length"] = str(len(reply.body) if reply.length == "auto" else reply.length)
        else:
            headers["Connection"] = "close"
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        data = f"HTTP/1.1 {reply.status} Scripted\r\n{lines}\r\n".encode("latin-1")
        if reply.trickle is not None and reply.trickle[0] == "head":
            return self._send_slowly(sock, data + reply.body, reply.trickle[1])
        sock.sendall(data)
        if reply.trickle is not None:
            return self._send_slowly(sock, reply.body, reply.trickle[1])
        if request.method == "HEAD":
            return True
        body = reply.body if reply.cut_at is None else reply.body[: reply.cut_at]
        if reply.endless:
            self._send_endlessly(sock, reply)
            return False
        if reply.chunk is None:
            sock.sendall(body)
        else:
            for start in range(0, len(body), reply.chunk):
                block = body[start : start + reply.chunk]
                sock.sendall(b"%x\r\n%s\r\n" % (len(block), block))
            if reply.cut_at is None:
                sock.sendall(b"0\r\n\r\n")
        if reply.cut_at is None and reply.length == "auto":
            return True
        if reply.ending == "pause":
            self.stopping.wait(reply.pause)
            sock.sendall(reply.body[len(body) :])
            return reply.length == "auto" and reply.chunk is None
        if reply.ending == "stall":
            self.stopping.wait()
        elif reply.ending == "reset":
            self._wait_until_acknowledged(sock)  # or the reset overtakes the data
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        return False

    def _send_slowly(self, sock: socket.socket, data: bytes, pause: float) -> bool:
        for number in data:
            if self.stopping.wait(pause):
                return False
            sock.sendall(bytes([number]))
        return True

    def _wait_until_acknowledged(self, sock: socket.socket) -> None:
        """Wait until the client has acknowledged all data; without system support, for a fixed time."""
        if sys.platform != "linux":
            time.sleep(0.5)
            return
        import fcntl
        import termios

        def is_done() -> bool:
            # A connection that the client has reset never acknowledges the rest.
            is_closed = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _TCP_CLOSE
            return is_closed or self.stopping.is_set() or not any(fcntl.ioctl(sock, termios.TIOCOUTQ, bytes(4)))

        wait_until(is_done, "the client does not read")

    def _send_endlessly(self, sock: socket.socket, reply: Reply) -> None:
        """Repeat the bytes until the client or the server stops, or up to a gigabyte."""
        block = reply.endless * max(1, 65536 // len(reply.endless))
        sock.sendall(reply.body)
        for _ in range(2**30 // len(block)):
            if self.stopping.is_set():
                return
            sock.sendall(block)


def _read_request(reader: Any, connection: int) -> Request | None:
    line = reader.readline(65536).decode("latin-1")
    if not line.strip():
        return None
    method, target, _ = line.split(" ", 2)
    headers: dict[str, str] = {}
    for raw in _header_lines(reader):
        name, _, value = raw.partition(":")
        headers[name.strip().lower()] = value.strip()
    body = reader.read(int(headers.get("content-length", 0)))
    return Request(method, target, headers, body, connection)


def _header_lines(reader: Any) -> Iterator[str]:
    while (line := reader.readline(65536).decode("latin-1").strip()) != "":
        yield line
