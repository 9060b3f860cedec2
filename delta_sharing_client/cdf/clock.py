"""Time for a poller, and how its waits are ended. Tests bring a clock that does not wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final, Protocol

#: Seconds that a wait lasts at a time: Windows tells of Ctrl-C only in between.
_SLICE: Final = 1.0


class StopSignal:
    """Tells a poller to stop; whoever waits on it goes on at once.

    It may be set from any thread and from a signal handler, one that interrupts a wait of the same thread
    included, which is why its lock is one that a thread may take twice.
    """

    def __init__(self) -> None:
        self._condition = threading.Condition(threading.RLock())
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Whether the poller is to stop."""
        return self._stopped

    def stop(self) -> None:
        """Tell the poller to stop."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def wake(self) -> None:
        """Have whoever waits look again at what it waits for."""
        with self._condition:
            self._condition.notify_all()

    def wait(self, seconds: float | None = None, until: Callable[[], bool] = bool) -> None:
        """Wait until told to stop, until `until` is true, or for some seconds."""
        end = None if seconds is None else time.monotonic() + seconds
        with self._condition:
            while not (self._stopped or until()):
                left = _SLICE if end is None else min(_SLICE, end - time.monotonic())
                if left <= 0:
                    return
                self._condition.wait(left)


class Clock(Protocol):
    """What a poller needs to know of time."""

    def now(self) -> float:
        """Return seconds since some moment; never goes back."""

    def wait(self, seconds: float, signal: StopSignal) -> None:
        """Wait for some seconds, or until told to stop."""


class SystemClock:
    """The system's clock."""

    def now(self) -> float:
        """Return seconds since some moment; never goes back."""
        return time.monotonic()

    def wait(self, seconds: float, signal: StopSignal) -> None:
        """Wait for some seconds, or until told to stop."""
        signal.wait(seconds)
