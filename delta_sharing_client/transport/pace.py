"""Responses of `http.client` with a deadline for the head and a minimum speed for the body.

A socket's time-out bounds only the wait for the next bytes. A server that sends single bytes within it would
never be interrupted.
"""

from __future__ import annotations

import http.client
import io
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from delta_sharing_client.options import TransportOptions

#: Maximum number of interim responses (1xx).
MAX_INTERIM: Final = 10


class SlowBodyError(TimeoutError):
    """The body of a response arrived below the minimum speed, in bytes per second."""

    def __init__(self, speed: int) -> None:
        super().__init__(f"the answer arrived slower than {speed} bytes/s")


class MinimumSpeed:
    """Checks that a body arrives with a minimum speed. Time between two reads does not count.

    Args:
        stall: seconds over which the speed is measured.
        speed: bytes per second.
    """

    def __init__(self, stall: float, speed: int) -> None:
        self._stall = stall
        self._speed = speed
        self._waited = 0.0
        self._received = 0

    def check(self, count: int, seconds: float) -> None:
        """Add the bytes that arrived in a number of seconds; raises SlowBodyError."""
        self._received += count
        self._waited += seconds
        if self._waited >= self._stall:
            if self._received < self._speed * self._waited:
                raise SlowBodyError(self._speed)
            self._received, self._waited = 0, 0.0


class PacedResponse(http.client.HTTPResponse):
    """HTTP response whose head must be complete within the time-out that the socket has at its creation.

    Args:
        sock: the connection.
        stall: maximum seconds without a byte of the body; also the time over which its speed is measured.
        speed: the minimum speed of the body, in bytes per second.
        arguments: those of `http.client.HTTPResponse`.
    """

    def __init__(self, sock: Any, *arguments: Any, stall: float, speed: int, **named: Any) -> None:
        self.pace = _PacedSocket(sock, stall, speed)
        super().__init__(self.pace, *arguments, **named)  # type: ignore[arg-type]  # it calls `makefile` alone

    @classmethod
    def factory(cls, options: TransportOptions) -> Callable[..., PacedResponse]:
        """Return a factory of responses with the limits of the options, for `response_class` of a connection."""
        return partial(cls, stall=options.read_timeout.total_seconds(), speed=options.minimum_speed)

    def begin(self) -> None:
        """Read the head; skip interim responses (1xx)."""
        for _ in range(MAX_INTERIM):
            super().begin()
            if self.status >= 200 or self.status == 101:
                self.pace.begin_body()
                return
            self.headers = self.msg = None  # type: ignore[assignment]  # or `begin` does nothing
        raise http.client.HTTPException("too many interim responses")


class _PacedSocket(io.RawIOBase):
    """The receiving side of a socket, with a deadline for the head and a minimum speed for the body."""

    def __init__(self, sock: Any, stall: float, speed: int) -> None:
        self._is_ended = False
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._stall = stall
        self._minimum = MinimumSpeed(stall, speed)
        timeout = sock.gettimeout()
        self._deadline: float | None = time.monotonic() + (stall if timeout is None else timeout)

    def makefile(self, mode: str) -> io.BufferedReader:
        return _Reader(self)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def begin_body(self) -> None:
        """Remove the deadline of the head."""
        self._deadline = None
        self._sock.settimeout(self._stall)

    def end(self) -> None:
        """Receive nothing more."""
        self._is_ended = True

    def readinto(self, buffer: Any) -> int | None:
        if self._is_ended:
            return 0
        began = time.monotonic()
        if self._deadline is not None:
            if began >= self._deadline:
                raise TimeoutError("the head did not arrive in time")
            self._sock.settimeout(self._deadline - began)
        count: int | None = self._file.readinto(buffer)
        if self._deadline is None and count:
            self._minimum.check(count, time.monotonic() - began)
        elif self._deadline is not None and not count:  # for `http.client` a head may end with its connection
            raise http.client.RemoteDisconnected("the connection was closed within the head")
        return count


class _Reader(io.BufferedReader):
    """The buffer before a `_PacedSocket`; `readinto` returns what one receive gives."""

    raw: _PacedSocket
    readinto = io.BufferedReader.readinto1

    def close(self) -> None:
        if not self.closed:
            self.raw.end()
        super().close()
