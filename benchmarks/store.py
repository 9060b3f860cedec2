"""Sharing server and object store for benchmarks, in one process on loopback, with configurable delays.

Every response waits `latency` seconds before its first byte, and every connection is limited to `bandwidth` bytes
per second; both can be changed at run time. Files are sent with `sendfile`, to leave the processor to the client.
The server supports both response formats, skips files by `jsonPredicateHints` on partition values and statistics,
and counts requests and bytes.

    GET  /_counters            requests and bytes by kind; ?reset=1 sets them to zero
    POST /_settings            {"latency": seconds, "bandwidth": bytes per second or null}
    *    /delta-sharing/...    the protocol; the tables are bench.default.<name>
    GET  /files/<table>/<name> whole or ranges; also HEAD
    POST /_grow/<table>        adds a version to a table of `growing.py`, which exists once it is requested

`python benchmarks/store.py --scale quick` runs it for manual tests, until its standard input ends.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import data
import growing

LATENCY = 0.060
BANDWIDTH = 40_000_000
TABLES = ("warm", "small", "tiny", "large", "partitioned", "listing")
PREFIX = "/delta-sharing"
TOKEN = "benchmark"

_CHUNK = 256 * 1024
_STATUS = {200: "OK", 206: "Partial Content", 400: "Bad Request", 404: "Not Found"}
_STATUS |= {401: "Unauthorized", 412: "Precondition Failed", 416: "Range Not Satisfiable"}
_OPS = {
    "equal": lambda low, high, value: low <= value <= high,
    "lessThan": lambda low, high, value: low < value,
    "lessThanOrEqual": lambda low, high, value: low <= value,
    "greaterThan": lambda low, high, value: high > value,
    "greaterThanOrEqual": lambda low, high, value: high >= value,
}


@dataclass(frozen=True)
class FileRange:
    """A byte range of an open file."""

    descriptor: int
    start: int
    length: int


@dataclass
class Request:
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> list[str]:
        return [unquote(part) for part in urlsplit(self.target).path.strip("/").split("/")]


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    parts: list[bytes | FileRange]
    kind: str

    @property
    def length(self) -> int:
        return sum(part.length if isinstance(part, FileRange) else len(part) for part in self.parts)


class _RateLimit:
    """Limit of one response to a bandwidth in bytes per second; None for no limit."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self.sent = 0
        self._start = time.monotonic()

    def wait(self, remaining: int) -> int:
        """Wait until the next chunk may be sent; return its size."""
        if self.rate is None:
            return remaining
        size = min(_CHUNK, remaining)
        early = self._start + (self.sent + size) / self.rate - time.monotonic()
        if early > 0:
            time.sleep(early)
        return size


def _send_file(connection: socket.socket, part: FileRange, limit: _RateLimit) -> None:
    position, stop = part.start, part.start + part.length
    while position < stop:
        done = os.sendfile(connection.fileno(), part.descriptor, position, limit.wait(stop - position))
        if not done:
            raise ConnectionError
        position += done
        limit.sent += done


class Table:
    """A table of `data.py`, with open files."""

    def __init__(self, name: str, scale: str, base: str) -> None:
        self.name = name
        directory = data.table_dir(name, scale)
        manifest = data.read_manifest(name, scale)
        self.partition_columns = manifest["partitionColumns"]
        self.files = {entry["name"]: entry for entry in manifest["files"]}
        self.open: dict[str, FileRange] = {path.name: _open(path) for path in directory.iterdir()}
        for entry in manifest["files"]:
            entry["url"] = f"{base}/files/{name}/{entry['name']}?X-Amz-Expires=3600&X-Amz-Signature={'5' * 64}"
            stats = json.loads(entry["stats"])
            values = entry["partitionValues"]
            entry["bounds"] = {key: (low, stats["maxValues"][key]) for key, low in stats["minValues"].items()}
            entry["bounds"] |= {key: (value, value) for key, value in values.items()}

    def lines(self, delta: bool, hint: dict[str, Any] | None) -> list[bytes | FileRange]:
        """Return the response to /query, without `endStreamAction`."""
        header = self.header(delta)
        if self.name == "listing":
            return [header, self.open["delta.ndjson" if delta else "parquet.ndjson"]]
        lines = []
        for entry in self.files.values():
            if hint is not None and not may_match(hint, entry["bounds"]):
                continue
            common = {key: entry[key] for key in ("partitionValues", "size", "stats")}
            line: dict[str, Any] = {"url": entry["url"], "id": entry["name"], **common}
            if delta:
                add = {"path": entry["url"], **common, "modificationTime": 1_735_689_600_000, "dataChange": True}
                line = {"id": entry["name"], "deltaSingleAction": {"add": add}}
            lines.append(json.dumps({"file": {**line, "expirationTimestamp": data.EXPIRES}}).encode() + b"\n")
        return [header, *lines]

    def changes(self, delta: bool) -> list[bytes | FileRange]:
        """Return the response to /changes, without `endStreamAction`: each version adds a file."""
        lines = [self.header(delta, version=1)]
        for number, entry in enumerate(data.changed_files(list(self.files.values())), 1):
            when = {"version": number, "timestamp": 1_735_689_600_000 + number * 1000}
            common = {key: entry[key] for key in ("partitionValues", "size", "stats")}
            line: dict[str, Any] = {"add": {"url": entry["url"], "id": entry["name"], **common, **when}}
            if delta:
                add = {"path": entry["url"], **common, "modificationTime": when["timestamp"], "dataChange": True}
                line = {"file": {"id": entry["name"], **when, "deltaSingleAction": {"add": add}}}
            lines.append(json.dumps(line).encode() + b"\n")
        return list(lines)

    def header(self, delta: bool, **more: Any) -> bytes:
        """Return the lines of protocol and metadata, with more fields of the metadata line."""
        metadata: dict[str, Any] = {
            "id": f"bench-{self.name}",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": data.schema_string(),
            "partitionColumns": self.partition_columns,
            "configuration": {"delta.enableChangeDataFeed": "true"},
        }
        protocol: dict[str, Any] = {"minReaderVersion": 1}
        metadata = {"deltaMetadata": metadata, "numFiles": len(self.files)} if delta else metadata
        metadata |= more
        if delta:
            protocol = {"deltaProtocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        return b"".join(
            json.dumps(line).encode() + b"\n" for line in ({"protocol": protocol}, {"metaData": metadata})
        )


def _open(path: Path) -> FileRange:
    descriptor = os.open(path, os.O_RDONLY)
    size = os.fstat(descriptor).st_size
    with contextlib.suppress(AttributeError, OSError):  # not on every system
        os.posix_fadvise(descriptor, 0, size, os.POSIX_FADV_WILLNEED)
    return FileRange(descriptor, 0, size)


def may_match(hint: dict[str, Any], bounds: dict[str, tuple[Any, Any]]) -> bool:
    """Return whether a file with these bounds may contain a row that matches a JSON predicate."""
    children = hint.get("children", [])
    if hint["op"] == "and":
        return all(may_match(child, bounds) for child in children)
    if hint["op"] == "or":
        return any(may_match(child, bounds) for child in children)
    if hint["op"] not in _OPS:
        return True
    column, literal = children
    if column.get("name") not in bounds:
        return True
    low, high = bounds[column["name"]]
    value = literal["value"] if isinstance(low, str) else type(low)(literal["value"])
    return bool(_OPS[hint["op"]](low, high, value))


def _growing_response(table: growing.GrowingTable, endpoint: str, request: Request) -> Response:
    """Answer a request for a table that grows; always in parquet format."""
    body = json.loads(request.body or b"{}") if endpoint == "query" else {}
    if not table.has_history and ("version=" in request.target or body.keys() & {"version", "startingVersion"}):
        return _text(400, {"errorCode": "INVALID", "message": "the table is shared without its history"})
    version, lines = table.query(body) if endpoint == "query" else (table.version, [])
    parts: list[bytes | FileRange] = [] if endpoint == "version" else [table.header(), *lines]
    return Response(200, {"Delta-Table-Version": str(version)}, parts, "api")


class Store:
    """The server, with one thread per connection.

    Args:
        scale: scale of the tables.
        latency: seconds before the first byte of each response.
        bandwidth: bytes per second and connection; None for no limit.
        port: 0 for a free port.
    """

    def __init__(self, scale: str, *, latency: float, bandwidth: float | None, port: int = 0) -> None:
        self.latency = latency
        self.bandwidth = bandwidth
        self.requests: Counter[str] = Counter()
        self.bytes: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", port), backlog=512)
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._scale = scale
        self._growing_tables: dict[str, growing.GrowingTable] = {}
        self.tables = {name: Table(name, scale, self.base) for name in TABLES}

    def serve(self) -> None:
        """Accept connections until the process ends."""
        while True:
            connection, _ = self._listener.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._serve_connection, args=(connection,), daemon=True).start()

    def _serve_connection(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            buffered = bytearray()
            while (request := _receive(connection, buffered)) is not None:
                try:
                    response = self._respond(request)
                except (KeyError, ValueError, TypeError) as error:
                    response = _text(400, {"errorCode": "BAD", "message": repr(error)})
                self._send(connection, request, response)

    def _send(self, connection: socket.socket, request: Request, response: Response) -> None:
        headers = {"Content-Length": str(response.length), **response.headers}
        header = f"HTTP/1.1 {response.status} {_STATUS[response.status]}\r\n"
        header += "".join(f"{name}: {value}\r\n" for name, value in headers.items()) + "\r\n"
        parts = [] if request.method == "HEAD" else response.parts
        rate = None
        if response.kind != "admin":
            rate = self.bandwidth
            with self._lock:
                self.requests[response.kind] += 1
            time.sleep(self.latency)
        limit = _RateLimit(rate)
        try:
            # Small parts are sent together with the header: one packet, one system call.
            pending = [header.encode()]
            for part in parts:
                if isinstance(part, bytes):
                    pending.append(part)
                    limit.sent += len(part)
                    continue
                connection.sendall(b"".join(pending))
                pending.clear()
                _send_file(connection, part, limit)
            if pending:
                connection.sendall(b"".join(pending))
        finally:
            if response.kind != "admin":
                with self._lock:
                    self.bytes[response.kind] += limit.sent

    def _respond(self, request: Request) -> Response:
        path = request.path
        if path[0] == "files" and request.method in ("GET", "HEAD"):
            return self._file(request, path)
        if path[0] == "_counters":
            with self._lock:
                counts = {"requests": dict(self.requests), "bytes": dict(self.bytes)}
                if "reset" in parse_qs(urlsplit(request.target).query):
                    self.requests.clear()
                    self.bytes.clear()
            return _text(200, counts, kind="admin")
        if path[0] == "_settings":
            settings = json.loads(request.body)
            self.latency, self.bandwidth = settings["latency"], settings["bandwidth"]
            return _text(200, {}, kind="admin")
        if path[0] == "_grow":
            self._growing(path[1]).version += 1
            return _text(200, {}, kind="admin")
        if path[0] == PREFIX.strip("/"):
            if request.headers.get("authorization") != f"Bearer {TOKEN}":
                return _text(401, {"errorCode": "UNAUTHENTICATED", "message": "wrong bearer token"})
            return self._protocol(request, path[1:])
        return _text(404, {"errorCode": "NOT_FOUND", "message": "no such path"})

    def _protocol(self, request: Request, path: list[str]) -> Response:
        names = [{"name": name, "share": "bench", "schema": "default"} for name in self.tables]
        listings = {
            "shares": [{"name": "bench"}],
            "shares/bench/schemas": [{"name": "default", "share": "bench"}],
            "shares/bench/schemas/default/tables": names,
            "shares/bench/all-tables": names,
        }
        if "/".join(path) in listings:
            return _text(200, {"items": listings["/".join(path)]})
        if len(path) != 7 or path[:5] != ["shares", "bench", "schemas", "default", "tables"]:
            return _text(404, {"errorCode": "NOT_FOUND", "message": "no such path"})
        if path[5].startswith(("listed-", "stored-")):
            return _growing_response(self._growing(path[5]), path[6], request)
        table = self.tables.get(path[5])
        if table is None:
            return _text(404, {"errorCode": "NOT_FOUND", "message": "no such table"})
        capabilities = _capabilities(request.headers.get("delta-sharing-capabilities", ""))
        delta = "delta" in capabilities.get("responseformat", "parquet").split(",")
        with_end = capabilities.get("includeendstreamaction") == "true"
        headers = {"Delta-Table-Version": "1", "Content-Type": "application/x-ndjson; charset=utf-8"}
        if capabilities:
            headers["delta-sharing-capabilities"] = (
                f"responseformat={'delta' if delta else 'parquet'};includeendstreamaction={str(with_end).lower()}"
            )
        parts: list[bytes | FileRange] = []
        if path[6] == "query":
            hint = json.loads(request.body or b"{}").get("jsonPredicateHints")
            parts = table.lines(delta, json.loads(hint) if hint else None)
        elif path[6].partition("?")[0] == "changes":
            parts = table.changes(delta)
        elif path[6] == "metadata":
            parts = [table.header(delta)]
        elif path[6] != "version":
            return _text(404, {"errorCode": "NOT_FOUND", "message": "no such path"})
        if with_end and parts:
            parts.append(b'{"endStreamAction":{}}\n')
        return Response(200, headers, parts, "api")

    def _growing(self, name: str) -> growing.GrowingTable:
        with self._lock:
            if name not in self._growing_tables:
                self._growing_tables[name] = growing.GrowingTable(name, self._scale, self.base)
            return self._growing_tables[name]

    def _file(self, request: Request, path: list[str]) -> Response:
        whole = self.tables[path[1]].open.get(path[2]) if len(path) == 3 and path[1] in self.tables else None
        if path[1] in self._growing_tables:
            table = self._growing_tables[path[1]]
            whole = FileRange(table.descriptor, 0, table.size)
        if whole is None:
            return _text(404, {"errorCode": "NOT_FOUND", "message": "no such file"})
        etag = f'"{path[2]}-{whole.length}"'
        headers = {"Accept-Ranges": "bytes", "ETag": etag, "Content-Type": "application/octet-stream"}
        headers["Last-Modified"] = "Wed, 01 Jan 2025 00:00:00 GMT"
        if request.headers.get("if-match", etag) not in (etag, "*"):
            return Response(412, headers, [], "refused")
        kind = "head" if request.method == "HEAD" else "get"
        requested = request.headers.get("range")
        if requested is None or kind == "head":
            return Response(200, headers, [whole], kind)
        first, _, last = requested.removeprefix("bytes=").partition("-")
        start = int(first) if first else max(0, whole.length - int(last))
        stop = min(int(last) + 1, whole.length) if first and last else whole.length
        if start >= stop:
            return Response(416, {**headers, "Content-Range": f"bytes */{whole.length}"}, [], "refused")
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{whole.length}"
        return Response(206, headers, [FileRange(whole.descriptor, start, stop - start)], "range")


def _text(status: int, value: Any, kind: str = "api") -> Response:
    return Response(status, {"Content-Type": "application/json"}, [json.dumps(value).encode()], kind)


def _capabilities(text: str) -> dict[str, str]:
    pairs = (part.partition("=") for part in text.lower().split(";"))
    return {key.strip(): value.strip() for key, equals, value in pairs if equals}


def _receive(connection: socket.socket, buffered: bytearray) -> Request | None:
    """Return the next request of a connection, or None at its end; `buffered` keeps the bytes after it."""
    while (end := buffered.find(b"\r\n\r\n")) < 0:
        if not (received := connection.recv(65536)):
            return None
        buffered += received
    first, *rest = buffered[:end].decode("latin-1").split("\r\n")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
    stop = end + 4 + int(headers.get("content-length", 0))
    while len(buffered) < stop:
        if not (received := connection.recv(65536)):
            return None
        buffered += received
    body = bytes(buffered[end + 4 : stop])
    del buffered[:stop]
    method, target, _ = first.split(" ")
    return Request(method, target, headers, body)


class RunningStore:
    """A store in another process.

    Attributes:
        base: URL of the store.
    """

    def __init__(self, process: subprocess.Popen[str], base: str) -> None:
        self.process = process
        self.base = base

    def write_profile(self, path: Path) -> None:
        """Write a profile for the store, readable for its owner only."""
        profile = {"shareCredentialsVersion": 1, "endpoint": self.base + PREFIX, "bearerToken": TOKEN}
        path.touch(0o600)
        path.write_text(json.dumps(profile))

    def settings(self, latency: float, bandwidth: float | None) -> None:
        """Change the delays."""
        body = json.dumps({"latency": latency, "bandwidth": bandwidth}).encode()
        with urllib.request.urlopen(f"{self.base}/_settings", body, timeout=10) as response:
            response.read()


@contextlib.contextmanager
def running_store(
    scale: str, *, latency: float = LATENCY, bandwidth: float | None = BANDWIDTH
) -> Iterator[RunningStore]:
    """Run a store in another process; its tables must exist."""
    command = [sys.executable, str(Path(__file__).resolve()), "--scale", scale, "--latency", str(latency)]
    command += ["--bandwidth", str(bandwidth or 0)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        base = process.stdout.readline().strip()
        if not base:
            raise RuntimeError("the store did not start")
        try:
            yield RunningStore(process, base)
        finally:
            process.stdin.close()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def counters(base: str, *, reset: bool = False) -> dict[str, dict[str, int]]:
    """Return the requests and bytes that a store has counted."""
    with urllib.request.urlopen(f"{base}/_counters{'?reset=1' if reset else ''}", timeout=10) as response:
        counts: dict[str, dict[str, int]] = json.load(response)
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scale", choices=sorted(data.SCALES), default="quick")
    parser.add_argument("--latency", type=float, default=LATENCY, help="seconds before the first byte")
    parser.add_argument("--bandwidth", type=float, default=BANDWIDTH, help="bytes per second; 0 for no limit")
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    data.make(options.scale)
    store = Store(options.scale, latency=options.latency, bandwidth=options.bandwidth or None, port=options.port)
    print(store.base, flush=True)
    threading.Thread(target=store.serve, daemon=True).start()
    sys.stdin.read()  # until the parent process closes it


if __name__ == "__main__":
    main()
