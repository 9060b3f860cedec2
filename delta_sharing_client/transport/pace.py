"""HTTP responses with a deadline for the head and a minimum speed for the body.

A socket's time-out bounds the wait for the next bytes only. A server that sends one byte after the other,
each in time, would outlast it.
"""

from __future__ import annotations

import http.client
import io
import time
from typing import Any


class SlowBodyError(TimeoutError):
    """The body of an answer arrived below the minimum speed.

    Args:
        speed: the minimum, in bytes per second.
    """

    def __init__(self, speed: int) -> None:
        super().__init__(f"the answer arrived slower than {speed} bytes/s")


class PacedResponse(http.client.HTTPResponse):
    """An HTTP response whose head has to be complete within the time-out that the socket has when it is made.

    Args:
        sock: the connection.
        debuglevel: as `http.client.HTTPResponse` takes it.
        method: the request's method.
        url: as `http.client.HTTPResponse` takes it.
        stall: seconds that nothing may come of the body; also the time over which its speed is measured.
        speed: the minimum speed of the body, in bytes per second.
    """

    def __init__(
        self,
        sock: Any,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
        *,
        stall: float,
        speed: int,
    ) -> None:
        self._pace = _PacedSocket(sock, stall, speed)
        super().__init__(self._pace, debuglevel, method, url)  # type: ignore[arg-type]  # it calls `makefile` alone

    def begin(self) -> None:
        """Read the head."""
        super().begin()
        self._pace.begin_body()


class _PacedSocket(io.RawIOBase):
    """The receiving side of a socket. Seconds spent in decoding between two reads do not count."""

    def __init__(self, sock: Any, stall: float, speed: int) -> None:
        self._sock = sock
        self._file = sock.makefile("rb", buffering=0)
        self._stall = stall
        self._speed = speed
        timeout = sock.gettimeout()
        self._deadline: float | None = time.monotonic() + (stall if timeout is None else timeout)
        self._waited = 0.0
        self._received = 0

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def begin_body(self) -> None:
        """Lift the head's deadline."""
        self._deadline = None
        self._sock.settimeout(self._stall)

    def readinto(self, buffer: Any) -> int | None:
        began = time.monotonic()
        if self._deadline is not None:
            if began >= self._deadline:
                raise TimeoutError("the head did not come in time")
            self._sock.settimeout(self._deadline - began)
        count: int | None = self._file.readinto(buffer)
        if self._deadline is None and count:
            self._measure(count, time.monotonic() - began)
        return count

    def _measure(self, count: int, seconds: float) -> None:
        self._received += count
        self._waited += seconds
        if self._waited >= self._stall:
            if self._received < self._speed * self._waited:
                raise SlowBodyError(self._speed)
            self._received, self._waited = 0, 0.0
