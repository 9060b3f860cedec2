"""Retries of requests to the sharing server: which errors are retried, attempts, back-off, deadline.

Every request of the protocol only reads, POST /query included, so all are retried alike. Clock, sleep and
randomness are arguments, so that tests run through hours of back-off without sleeping.
"""

from __future__ import annotations

import email.utils
import logging
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import tenacity

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    InsecureUrlError,
    QueryError,
    RestError,
    TransportError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.error_mapping import NonRetryableTransportError

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Statuses after which the same request may succeed.
RETRYABLE_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})

_LEAST_TIMEOUT: Final = 0.001


class RetryLater(Exception):  # noqa: N818  # it carries an error
    """How an attempt says that the server named a time to come back.

    Args:
        error: what the attempt would have raised.
        seconds: the server's `Retry-After`.
    """

    def __init__(self, error: DeltaSharingError, seconds: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds


def is_retryable(error: BaseException) -> bool:
    """Tell whether the same request may succeed when it is sent again."""
    if isinstance(error, RetryLater | IncompleteResponseError):
        return True
    if isinstance(error, RestError | QueryError):
        return error.status in RETRYABLE_STATUSES
    return isinstance(error, TransportError) and not isinstance(
        error, InsecureUrlError | NonRetryableTransportError
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a `Retry-After` header asks to wait; None without one that can be read.

    Args:
        headers: the answer's headers. An HTTP date is taken relative to the answer's own `Date`, so that
            the clocks of the two machines need not agree.
    """
    value = (headers.get("Retry-After") or "").strip()
    if not value:
        return None
    if value.isascii() and value.isdigit():
        return float(value[:12])
    until = parse_http_date(value)
    if until is None:
        return None
    now = parse_http_date(headers.get("Date"))
    return max(0.0, until - (time.time() if now is None else now))


def parse_http_date(value: str | None) -> float | None:
    """Return an HTTP date as seconds since the epoch; None if it is none."""
    if not value:
        return None
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


@dataclass(frozen=True, kw_only=True)
class Backoff:
    """Full jitter: a random wait below a bound that doubles from attempt to attempt.

    Attributes:
        base: the first bound, in seconds.
        cap: the last one, in seconds.
        random: gives a number from 0 to 1.
    """

    base: float
    cap: float
    random: Callable[[], float] = random.random

    @classmethod
    def of(cls, options: TransportOptions, random: Callable[[], float]) -> Backoff:
        """Build it from the options."""
        return cls(
            base=options.backoff_base.total_seconds(), cap=options.backoff_cap.total_seconds(), random=random
        )

    def seconds(self, failures: int) -> float:
        """Return how long to wait after so many failures in a row, the first being 1."""
        return self.random() * min(self.cap, self.base * 2.0 ** min(failures - 1, 60))


class Attempt:
    """One attempt, as seen by the function that makes it.

    Attributes:
        timeout: seconds in which an answer has to begin.
    """

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self.timeout = timeout
        self._clock = clock
        self._answered_at: float | None = None

    def answered(self) -> None:
        """Say that an answer has begun: from here on only stalls count, not the deadline."""
        self._answered_at = self._clock()

    def reading_time(self) -> float:
        """Return the seconds since the answer began; 0 if none did."""
        return 0.0 if self._answered_at is None else self._clock() - self._answered_at


class Retrier:
    """Runs a request until it succeeds, fails for good, or runs out of attempts or time.

    Args:
        options: attempts, deadline and back-off.
        clock: a monotonic clock in seconds.
        sleep: waits for some seconds.
        random: gives a number from 0 to 1.
    """

    def __init__(
        self,
        options: TransportOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = random.random,
    ) -> None:
        self.attempts = options.api_attempts
        self.deadline = options.api_deadline.total_seconds()
        self.backoff = Backoff.of(options, random)
        self.clock = clock
        self.sleep = sleep

    def call(self, function: Callable[[Attempt], T]) -> T:
        """Call `function` until it returns.

        Args:
            function: makes one attempt; it takes its time-out from the `Attempt` and tells it when an answer
                begins. It raises `RetryLater` where the server named a time.

        Returns:
            What the first successful attempt returned.

        Raises:
            DeltaSharingError: the last attempt's error; after several attempts it says how many and how long.
        """
        run = _Run(self, function)
        retrying = tenacity.Retrying(
            stop=run.stop,
            wait=run.wait,
            retry=tenacity.retry_if_exception(is_retryable),
            sleep=self.sleep,
            before_sleep=run.log,
        )
        try:
            return retrying(run.attempt)
        except tenacity.RetryError as exhausted:
            failure = run.last_word(exhausted.last_attempt.exception())
        except DeltaSharingError as error:
            failure = error
        # It says all there is to say: a user should not have to look for it below twenty frames of ours. Their
        # variables hold the answer as it came, with its URLs and tokens; so do those of what it suppresses.
        failure.__context__ = None
        raise failure.with_traceback(None)


class _Run(Generic[T]):
    """The state of one call: what has been tried, and what it took."""

    def __init__(self, retrier: Retrier, function: Callable[[Attempt], T]) -> None:
        self._retrier = retrier
        self._function = function
        self._started = retrier.clock()
        self._reading = 0.0
        self._planned_for = 0
        self._wait = 0.0
        self._count = 0
        self._why = ""

    def attempt(self) -> T:
        left = self._retrier.deadline - self._waited()
        attempt = Attempt(max(left, _LEAST_TIMEOUT), self._retrier.clock)
        self._count += 1
        try:
            return self._function(attempt)
        finally:
            self._reading += attempt.reading_time()

    def stop(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome is not None else None
        self._plan(state.attempt_number, error)
        if state.attempt_number >= self._retrier.attempts:
            return True
        left = self._retrier.deadline - self._waited()
        if self._wait < left:
            return False
        if isinstance(error, RetryLater) and error.seconds >= left:
            self._why = (
                f"the server asks to wait {error.seconds:.0f} s, which is past the deadline of "
                f"{self._retrier.deadline:g} s"
            )
        else:
            self._why = f"the deadline is {self._retrier.deadline:g} s"
        return True

    def wait(self, state: tenacity.RetryCallState) -> float:
        self._plan(state.attempt_number, state.outcome.exception() if state.outcome is not None else None)
        return self._wait

    def log(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome is not None else None
        logger.info("attempt %d failed, next in %.1f s: %s", state.attempt_number, self._wait, error)

    def last_word(self, error: BaseException | None) -> BaseException:
        """The error to raise in the end: the last one, with what was done about it added to its sentence."""
        if isinstance(error, RetryLater):
            error = error.error
        if error is None:  # tenacity gives up on failures alone
            return TransportError("no attempt was made")
        elapsed = self._retrier.clock() - self._started
        times = "1 attempt" if self._count == 1 else f"{self._count} attempts"
        added = f"gave up after {times} over {elapsed:.1f} s" + (f": {self._why}" if self._why else "")
        # Not a copy with another text: each class of errors takes other arguments, and callers may hold this one.
        error.args = (f"{error} ({added})", *error.args[1:])
        return error

    def _plan(self, number: int, error: BaseException | None) -> None:
        """Decide once per failure how long to wait; `stop` and `wait` come in either order."""
        if number != self._planned_for:
            self._planned_for = number
            self._wait = self._retrier.backoff.seconds(number)
            if isinstance(error, RetryLater):
                self._wait = max(self._wait, error.seconds)

    def _waited(self) -> float:
        """Seconds that count against the deadline: all but those in which an answer was arriving."""
        return self._retrier.clock() - self._started - self._reading
