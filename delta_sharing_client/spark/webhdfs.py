"""HTTP server of a gateway: the read-only part of WebHDFS that Hadoop's client uses.

`Content-Type` is left out: with one, the client of Hadoop 3.5 looks for a class that Spark's jars lack.
"""

from __future__ import annotations

import json
import secrets
import select
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol
from urllib.parse import parse_qs, quote, unquote, urlsplit

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.secrets import redact_text
from delta_sharing_client.spark.gateway_files import GatewayFile, PlanFiles
from delta_sharing_client.storage.byte_source import Cancelled

#: The first part of every path.
ROOT: Final = "delta-sharing"
_PREFIX: Final = "/webhdfs/v1"
#: Seconds that a client has to close the connection at the end of a column chunk, before more is fetched.
_HANG_UP: Final = 1.0
#: Seconds after which an idle connection is closed.
_IDLE: Final = 120.0
#: Bytes sent together with the head.
_FIRST: Final = 64 * 1024
#: Bytes of a response after which the connection is used again.
_SMALL: Final = 64 * 1024
_NOT_FOUND: Final = "java.io.FileNotFoundException"


class ServerClosed(Exception):  # noqa: N818  # not an error
    """The loop of the server ends."""


class ServedPlans(Protocol):
    """What a server serves."""

    def plan(self, key: str) -> PlanFiles | None:
        """Return an open plan; None if there is none."""

    def has_ended(self) -> bool:
        """Return whether to stop; called about twice a second."""


class GatewayServer(ThreadingHTTPServer):
    """Serves plans under ``/delta-sharing/<table>/<plan>/<group>/...``, each file by the last part of its path.

    Args:
        host: the address to listen on; the port is chosen by the system.
        header: the name of the header that requests must have: the secret.
        plans: what to serve.
    """

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128

    def __init__(self, host: str, header: str, plans: ServedPlans) -> None:
        self.header = header
        self.plans = plans
        super().__init__((host, 0), _Handler)

    def service_actions(self) -> None:
        """Called by the loop of the server."""
        if self.plans.has_ended():
            raise ServerClosed

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore that a client closed its connection."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = _IDLE
    server: GatewayServer

    def log_message(
        self,
        format: str,  # noqa: A002
        *arguments: Any,
    ) -> None:
        """Log nothing: the header of a request is a secret."""

    def do_GET(self) -> None:
        """Answer a request; other methods are refused."""
        wanted = self.server.header.lower().encode()
        if not any(secrets.compare_digest(name.lower().encode(), wanted) for name in self.headers):
            self._refuse(403, "org.apache.hadoop.security.AccessControlException", "the request is not Spark's")
            return
        target = urlsplit(self.path)
        query = {name.lower(): values[-1] for name, values in parse_qs(target.query).items()}
        parts = unquote(target.path.removeprefix(_PREFIX)).strip("/").split("/")
        plan = self.server.plans.plan(parts[2]) if len(parts) > 2 and parts[0] == ROOT else None
        if plan is None:
            self._refuse(404, _NOT_FOUND, "the shared table is not open any more: load it again")
            return
        answers: dict[str, Callable[[PlanFiles, list[str], dict[str, str]], None]] = {
            "GETFILESTATUS": self._status,
            "LISTSTATUS": self._list,
            "OPEN": self._open,
            "GETFILEBLOCKLOCATIONS": self._locations,
            "GET_BLOCK_LOCATIONS": self._locations,
        }
        answer = answers.get(query.get("op", "").upper())
        if answer is None:
            name = "java.lang.UnsupportedOperationException"
            self._refuse(400, name, "a shared table can only be listed and read")
            return
        try:
            answer(plan, parts, query)
        except (DeltaSharingError, Cancelled) as error:
            message = redact_text(f"{type(error).__name__}: {error}")
            self._refuse(500, "java.io.IOException", message)

    def _status(self, plan: PlanFiles, parts: list[str], query: dict[str, str]) -> None:
        file = plan.named(parts[-1])
        if file is None and len(parts) != 4:
            self._refuse(404, _NOT_FOUND, f"there is no file {parts[-1]}")
            return
        self._send({"FileStatus": _file_status("", file)})

    def _list(self, plan: PlanFiles, parts: list[str], query: dict[str, str]) -> None:
        group = parts[3] if len(parts) == 4 else ""
        files = plan.groups[int(group)] if group.isdecimal() and int(group) < len(plan.groups) else []
        # All files at once: a name may have folders.
        statuses = [_file_status(file.folders + plan.name_of(file), file) for file in files]
        self._send({"FileStatuses": {"FileStatus": statuses}})

    def _locations(self, plan: PlanFiles, parts: list[str], query: dict[str, str]) -> None:
        self._send({"BlockLocations": {"BlockLocation": []}})

    def _open(self, plan: PlanFiles, parts: list[str], query: dict[str, str]) -> None:
        """Redirect to the place of the data, which is here; or send the file from an offset."""
        file = plan.named(parts[-1])
        if file is None:
            self._refuse(404, _NOT_FOUND, f"there is no file {parts[-1]}")
        elif "redirected" not in query:
            host, port = self.connection.getsockname()[:2]
            path = quote("/".join([_PREFIX, *parts]))
            self.send_response(307)
            self.send_header("Location", f"http://{host}:{port}{path}?op=OPEN&redirected=true")
            self.send_header("Content-Length", "0")
            self.end_headers()
        else:
            offset = query.get("offset", "0")
            start = int(offset) if offset.isdecimal() else 0
            length = query.get("length", "")
            stop = min(file.task.size, start + int(length)) if length.isdecimal() else file.task.size
            self._send_file(file, min(start, stop), stop)

    def _send_file(self, file: GatewayFile, position: int, stop: int) -> None:
        """Send the bytes from `position`, a column chunk at a time, until the client closes the connection."""
        keep = stop - position <= _SMALL
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {stop - position}\r\n"
        head += "\r\n" if keep else "Connection: close\r\n\r\n"
        unsent = head.encode()
        self.close_connection = self.close_connection or not keep
        while unsent or position < stop:
            try:
                for data in file.read(position) if position < stop else [memoryview(b"")]:
                    part = data[: stop - position]
                    # A client that finds the head alone reads nothing else, and asks again.
                    self.wfile.write(unsent + bytes(part[:_FIRST]))
                    self.wfile.write(part[_FIRST:])
                    unsent = b""
                    position += len(part)
            except DeltaSharingError:
                if unsent:
                    raise
                self.close_connection = True  # the client asks for the rest, and gets the error
                return
            except OSError:
                self.close_connection = True  # the client has what it wanted
                return
            if position < stop and select.select([self.connection], [], [], _HANG_UP)[0]:
                return

    def _refuse(self, status: int, name: str, message: str) -> None:
        """Answer with an exception of Java."""
        short = name.rpartition(".")[2]
        error = {"exception": short, "javaClassName": name, "message": message}
        self._send({"RemoteException": error}, status)

    def _send(self, value: object, status: int = 200) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _file_status(path: str, file: GatewayFile | None) -> dict[str, Any]:
    return {
        "accessTime": 0,
        "blockSize": 128 * 1024 * 1024,
        "group": "",
        "length": 0 if file is None else file.task.size,
        "modificationTime": 1,
        "owner": "",
        "pathSuffix": path,
        "permission": "444",
        "replication": 1,
        "type": "DIRECTORY" if file is None else "FILE",
    }
