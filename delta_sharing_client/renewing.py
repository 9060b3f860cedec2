"""`Renewing`: a value that expires and is renewed, by one thread at a time and without a lock.

Access tokens, the URLs of a plan and the credentials of a directory are such values.
"""

from __future__ import annotations

import copy
import os
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.messages import module_logger

logger = module_logger(__name__)

#: A value is renewed when this part of its lifetime remains, or the longest margin of its kind if that is less.
_MARGIN: Final = 0.2
#: Seconds to the next attempt, if a renewal failed and the value is still used.
NEXT_TRY: Final = 30.0
#: Seconds after which a thread that waits for a renewal checks whether it has ended.
_LOOK_AGAIN: Final = 0.5


class Expiring(Protocol):
    """A value with the times at which it expires and is renewed, in seconds since the epoch; None for never."""

    @property
    def expires(self) -> float | None:
        """The time of expiration."""

    @property
    def renew_at(self) -> float | None:
        """The time of renewal."""


T = TypeVar("T", bound=Expiring)


def system_time() -> float:
    """Return the seconds since the epoch."""
    return time.time()


def lifetime_from(now: float, expires: float | None, longest_margin: float) -> tuple[float | None, float | None]:
    """Return the times of expiration and of renewal of a value that arrived at `now`.

    A value that arrives expired has neither: a clock is wrong, and what is expired is refused.
    """
    if expires is None or expires <= now:
        return None, None
    return expires, expires - min(longest_margin, _MARGIN * (expires - now))


class _Flight:
    """A renewal under way.

    Its lock is held until its end. A `Future` waits with a condition, whose lock an interrupt may leave held.

    Attributes:
        thread: the thread that renews.
        value: the new value; None if the value has to be looked at again.
        error: why there is no value.
        has_ended: whether the other attributes are set.
    """

    def __init__(self) -> None:
        self.thread = threading.get_ident()
        self.value: Any = None
        self.error: DeltaSharingError | None = None
        self.has_ended = False
        self._lock = threading.Lock()
        self._lock.acquire()

    def end(self, value: Any = None, error: DeltaSharingError | None = None) -> None:
        """Release the threads that wait; called by the thread that renews, and only the first call counts."""
        if not self.has_ended:
            self.value, self.error = value, error
            self.has_ended = True
            self._lock.release()

    def wait(self) -> None:
        """Wait until the renewal has ended."""
        # An interrupt may come just before or after the release of the lock.
        while not self.has_ended:
            if self._lock.acquire(timeout=_LOOK_AGAIN):
                self._lock.release()


class _Period(Generic[T]):
    """The time of one value, from its publication to the end of the renewal that replaces it.

    Attributes:
        value: the value.
        next_try: no renewal ahead of time before that.
        flights: the renewal that ends the period, by process: a forked process does not wait for its parent's.
    """

    def __init__(self, value: T | None, next_try: float = 0.0) -> None:
        self.value = value
        self.next_try = next_try
        self.flights: dict[int, _Flight] = {}


class Renewing(Generic[T]):
    """A value that is renewed before it expires, and when it is refused. May be used by several threads.

    The thread that finds that a renewal is due sends the request; there is one at a time. The others use the
    present value while it is valid, and wait otherwise. No lock is held during a request, as there is none: the
    first thread whose flight `dict.setdefault` enters is the one that renews, and only it replaces the period.

    - A renewal ahead of time that fails is logged, and the value is used; the next attempt is made after 30 s.
    - A renewal that is needed and fails raises its error, also in the threads that waited for it.
    - A thread that is interrupted leaves the renewal to one of those that wait.
    - A pickled copy has no value, and a forked process has the value but no renewal under way.

    Args:
        fetch: returns a new value, or raises `DeltaSharingError`; its argument is False if the old one can be
            used. It must not ask for the value that it renews.
        name: what is renewed, for the log, in the singular.
        value: the first value; by default it is fetched when it is needed.
        until_refused: the time of expiration is a hint: an expired value is used if its renewal fails.
        now: returns the seconds since the epoch.
    """

    def __init__(
        self,
        fetch: Callable[[bool], T],
        name: str,
        *,
        value: T | None = None,
        until_refused: bool = False,
        now: Callable[[], float] = system_time,
    ) -> None:
        self._fetch = fetch
        self._name = name
        self._until_refused = until_refused
        self._now = now
        self._period = _Period(value)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_period": _Period(None)}

    @property
    def present(self) -> T | None:
        """The present value, valid or not; None before the first one."""
        return self._period.value

    def get(self, refused: Callable[[T], bool] | None = None) -> T:
        """Return the value; renew it if that is due.

        Args:
            refused: whether a value is the one that was refused. It is renewed if it is still the present one.

        Raises:
            DeltaSharingError: there is no usable value, and the renewal failed.
            RuntimeError: `fetch` asked for the value that it renews.
        """
        while True:
            period = self._period
            usable = self._usable(period, refused)
            if usable is not None and not self._is_due(usable, period):
                return usable
            flight = _Flight()
            try:
                first = period.flights.setdefault(os.getpid(), flight)
                if first is flight:
                    value = self._renew(period, flight, usable, refused)
                elif usable is not None:
                    return usable
                else:
                    value = _outcome(first)
            finally:
                try:
                    self._end(period, flight)
                finally:  # again, as an interrupt may have come before its end
                    self._end(period, flight)
            if value is not None:
                return value

    def _usable(self, period: _Period[T], refused: Callable[[T], bool] | None) -> T | None:
        value = period.value
        if value is None or (refused is not None and refused(value)):
            return None
        if value.expires is None or (now := self._now()) < value.expires:
            return value
        return value if self._until_refused and now < period.next_try else None

    def _is_due(self, value: T, period: _Period[T]) -> bool:
        return value.renew_at is not None and self._now() >= max(value.renew_at, period.next_try)

    def _renew(
        self, period: _Period[T], flight: _Flight, usable: T | None, refused: Callable[[T], bool] | None
    ) -> T | None:
        """Fetch and publish a value; return None if that failed and the old one is used for now."""
        try:
            value = self._fetch(usable is None)
        except DeltaSharingError as error:
            old = period.value
            lasting = self._until_refused and old is not None and not (refused is not None and refused(old))
            if usable is None and not lasting:
                self._period = _Period(old, period.next_try)
                flight.end(error=copy.copy(error))
                raise
            self._period = _Period(old, self._now() + NEXT_TRY)
            end = "is refused" if self._until_refused else "expires"
            logger.warning("%s could not be renewed and is used until it %s: %s", self._name, end, error)
            return None
        self._period = _Period(value)
        flight.end(value)
        return value

    def _end(self, period: _Period[T], flight: _Flight) -> None:
        """Release the threads that wait for this thread's flight, if the flight ended without a result."""
        if period.flights.get(os.getpid()) is flight and not flight.has_ended:
            if self._period is period:
                self._period = _Period(period.value, period.next_try)
            flight.end()


def _outcome(flight: _Flight) -> Any:
    """Wait for another thread's flight, and return its result."""
    if flight.thread == threading.get_ident():
        raise RuntimeError("a renewal asked for the value that it renews")
    flight.wait()
    if flight.error is not None:
        raise copy.copy(flight.error)  # each thread adds its own traceback
    return flight.value
