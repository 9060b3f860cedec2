"""The clock of a poller, which tests replace, and the signal that ends its waits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

#: The maximum of one wait in seconds: Windows reports Ctrl-C only between waits.
_SLICE: Final = 1.0


class StopSignal:
    """A flag that stops a poller and ends its waits.

    Any thread and any signal handler may set it. The lock is reentrant, because a handler may interrupt a wait of
    its own thread.
    """

    def __init__(self) -> None:
        # Used by itself: an interrupt may leave it held if the condition acquires it.
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the poller must stop."""
        return self._stopped

    def stop(self) -> None:
        """Stop the poller."""
        with self._lock:
            self._stopped = True
            self._condition.notify_all()

    def wake(self) -> None:
        """Make waiting threads check their condition again."""
        with self._lock:
            self._condition.notify_all()

    def wait(self, seconds: float | None = None, until: Callable[[], bool] = bool) -> None:
        """Wait until the poller must stop, until `until` is true, or for some seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._lock:
            while not (self._stopped or until()):
                left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
                if left <= 0:
                    return
                self._condition.wait(left)


class Clock(Protocol):
    """A source of time for a poller."""

    def now(self) -> float:
        """Return monotonic time in seconds."""

    def wait(self, seconds: float, signal: StopSignal) -> None:
        """Wait for some seconds, or until the poller must stop."""


class SystemClock:
    """The system's clock."""

    def now(self) -> float:
        """Return monotonic time in seconds."""
        return time.monotonic()

    def wait(self, seconds: float, signal: StopSignal) -> None:
        """Wait for some seconds, or until the poller must stop."""
        signal.wait(seconds)
