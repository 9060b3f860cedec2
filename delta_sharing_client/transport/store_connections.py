"""Connections to stores: urllib3 opens and pools them, `http.client` reads the responses.

urllib3 would wrap each response of `http.client` in one of its own and copy its body; small files then take a
third longer (`docs/decisions/0017-http-engine.md`).
"""

from __future__ import annotations

import http.client
import re
from typing import Any, Final

from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool
from urllib3.exceptions import InvalidHeader

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.cancellation import SocketRegistry
from delta_sharing_client.transport.pace import PacedResponse

_LENGTH: Final = re.compile(r"[0-9]{1,18}")


class StoreResponse(PacedResponse):
    """A response whose body is read into memory of the caller, with the parts of urllib3's that pools use.

    Its connection goes back to the pool if the body was read to its end, and is closed otherwise.
    """

    #: Read by urllib3, for its log.
    version_string = "HTTP/1.1"
    #: Set by urllib3's pool, which is given the connection back.
    _pool: HTTPConnectionPool | None = None
    _connection: HTTPConnection | None = None
    _is_broken = False

    @property
    def length_remaining(self) -> int | None:
        """Number of bytes of the body not received yet; None if it is not announced."""
        return self.length

    def begin(self) -> None:
        """Read the head, and check the length of the body that it announces."""
        super().begin()
        if self.headers.get_payload():
            raise InvalidHeader("a line is not a header")
        lengths = {
            length.strip(" \t")
            for line in self.headers.get_all("Content-Length", ())
            for length in line.split(",")
        }
        coding = self.headers.get("Transfer-Encoding", "identity").lower()
        if self.status in (204, 304):
            self.chunked, self.length = False, 0
        elif self.chunked:
            # Other readers would see another end.
            self.will_close = self.will_close or bool(lengths) or self.version < 11
        elif coding != "identity" or len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
            raise InvalidHeader("the end of the body is not clear")
        elif lengths:
            self.length = int(lengths.pop())

    def read1(self, n: int = -1, decode_content: bool = False) -> bytes:
        """Return up to `n` bytes of the body, as sent, as soon as there are any; none at its end."""
        try:
            return super().read1(n)
        except BaseException:
            self._is_broken = True
            raise

    def read(self, amt: int | None = None, decode_content: bool = False) -> bytes:
        """Do as `read1`."""
        return self.read1(-1 if amt is None else amt)

    def readinto(self, buffer: Any) -> int:
        """Fill the beginning of a buffer with what arrives of the body; return how many bytes."""
        try:
            return super().readinto(buffer)
        except BaseException:
            self._is_broken = True
            raise

    def close(self) -> None:
        """Give the connection back to its pool, closed unless it can be used again."""
        is_complete = self.isclosed() or self.length == 0
        super().close()
        pool, self._pool = self._pool, None
        connection, self._connection = self._connection, None
        if pool is None or connection is None:
            return
        if not is_complete or self.length or self._is_broken or self.pace.has_surplus:
            connection.close()
        pool._put_conn(connection)  # as the responses of urllib3 do it

    def release_conn(self) -> None:
        """Do nothing: `close` gives the connection back."""


class _Connection:
    """The parts of connections to stores that http and https have in common; mixed into urllib3's.

    mypy does not know the class after this one, whose methods `super()` calls; hence the exemptions.
    """

    sock: Any
    timeout: Any

    def __init__(self, *arguments: Any, options: TransportOptions, sockets: SocketRegistry, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.response_class = StoreResponse.factory(options)
        self._sockets = sockets

    def connect(self) -> None:
        super().connect()  # type: ignore[misc]
        self._sockets.register(self.sock)

    def request(self, *arguments: Any, **named: Any) -> None:
        self._sockets.register(self.sock)
        super().request(*arguments, **named)  # type: ignore[misc]

    def getresponse(self) -> http.client.HTTPResponse:
        self.sock.settimeout(self.timeout)
        return http.client.HTTPConnection.getresponse(self)  # type: ignore[arg-type]


class StoreConnection(_Connection, HTTPConnection):  # type: ignore[misc]  # `getresponse` returns another class
    """A connection to a store over http."""


class SecureStoreConnection(_Connection, HTTPSConnection):  # type: ignore[misc]
    """A connection to a store over https."""
