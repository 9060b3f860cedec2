"""Retries of requests to the sharing server: which errors are retried, attempts, back-off, deadline.

Every request of the protocol only reads, POST /query included, so all are retried alike. Clock, sleep and
randomness are arguments, so that tests run through hours of back-off without sleeping.
"""

from __future__ import annotations

import email.utils
import random
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from msgspec import Struct

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    InsecureUrlError,
    QueryError,
    RestError,
    TransportError,
)
from delta_sharing_client.messages import module_logger
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.tracebacks import clear_frames
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError, with_message

if TYPE_CHECKING:
    import tenacity

logger = module_logger(__name__)

T = TypeVar("T")

#: Returns a number from 0 to 1; the state of the module `random`, which users may have seeded, stays as it is.
JITTER: Final[Callable[[], float]] = random.SystemRandom().random

#: Statuses after which the same request may succeed.
RETRYABLE_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})

_LEAST_TIMEOUT: Final = 0.001


class RetryLater(Exception):  # noqa: N818  # it carries an error
    """Raised by an attempt if the server sent a `Retry-After`; with the error of the attempt."""

    def __init__(self, error: DeltaSharingError, seconds: float) -> None:
        super().__init__(str(error))
        self.error = error
        self.seconds = seconds


def is_retryable(error: BaseException) -> bool:
    """Return whether the same request may succeed if it is sent again."""
    if isinstance(error, RetryLater | IncompleteResponseError):
        return True
    if isinstance(error, RestError | QueryError):
        return error.status in RETRYABLE_STATUSES
    return isinstance(error, TransportError) and not isinstance(
        error, InsecureUrlError | NonRetryableTransportError
    )


def parse_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that a `Retry-After` header requests; None if it is absent or malformed.

    An HTTP date counts relative to the response's own `Date`: the clocks of the two machines may differ.
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
    """Return an HTTP date as seconds since the epoch; None if it is malformed."""
    if not value:
        return None
    try:
        return email.utils.parsedate_to_datetime(value).timestamp()
    except (TypeError, ValueError, OverflowError):
        return None


class Backoff(Struct, frozen=True, kw_only=True):
    """Full jitter: a random wait below a bound that doubles from `base` to `cap` seconds."""

    base: float
    cap: float
    random: Callable[[], float] = JITTER

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
    """One attempt of a request; `timeout` is the seconds until the response must begin."""

    def __init__(self, timeout: float, clock: Callable[[], float]) -> None:
        self.timeout = timeout
        self._clock = clock
        self._answered_at: float | None = None

    def answered(self) -> None:
        """Record that the response has begun: from now on only stalls count, not the deadline."""
        self._answered_at = self._clock()

    def reading_time(self) -> float:
        """Return the seconds since the response began; 0 before."""
        return 0.0 if self._answered_at is None else self._clock() - self._answered_at


class Retrier:
    """Repeats a request until it succeeds, fails permanently, or exceeds its attempts or deadline.

    tenacity repeats whole requests. Downloads have a loop of their own, see `Download` in `storage/download.py`.
    Tests pass a `clock`, a `sleep` and a `random` of their own.
    """

    def __init__(
        self,
        options: TransportOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = JITTER,
    ) -> None:
        self.attempts = options.api_attempts
        self.deadline = options.api_deadline.total_seconds()
        self.backoff = Backoff.of(options, random)
        self.clock = clock
        self.sleep = sleep

    def call(self, function: Callable[[Attempt], T]) -> T:
        """Call `function` until it returns.

        Args:
            function: makes one attempt with the time-out of the `Attempt`, and calls `Attempt.answered` when the
                response begins. It raises `RetryLater` if the server sent a `Retry-After`.

        Raises:
            DeltaSharingError: the last attempt's error; its message has the number of attempts and their time.
        """
        run = _Run(self, function)
        try:
            return run.result()
        except DeltaSharingError as error:
            failure = error
        # The variables of the frames in its traceback, and in that of its context, hold the unredacted response
        # with URLs and tokens. The message is complete without them.
        failure.__context__ = None
        try:
            raise failure.with_traceback(None)
        finally:
            del failure  # its traceback has this frame


class _Run(Generic[T]):
    """The state of one call: its attempts and their time."""

    def __init__(self, retrier: Retrier, function: Callable[[Attempt], T]) -> None:
        self._retrier = retrier
        self._function = function
        self._started = retrier.clock()
        self._reading = 0.0
        self._why = ""
        self._first_failure: Exception | None = None

    def result(self) -> T:
        """Return the result of the first attempt that succeeds."""
        outer = sys.exception()
        try:
            return self._attempt()
        except Exception as error:
            if not is_retryable(error):
                raise
            self._first_failure = error
        # Most requests succeed at once, and tenacity imports asyncio, and tornado if that is installed.
        import tenacity

        retrying = tenacity.Retrying(
            wait=self._wait,
            stop=self._stop,
            retry=tenacity.retry_if_exception(is_retryable),
            sleep=self._retrier.sleep,
            before_sleep=self._log,
        )
        try:
            return retrying(self._counted_attempt)
        except tenacity.RetryError as exhausted:
            failure = self._final_error(exhausted.last_attempt)
            clear_frames(exhausted, exhausted.last_attempt.exception(), outer=outer)
        finally:
            vars(retrying).clear()  # it refers to itself, and to this call
        try:
            raise failure
        finally:
            del failure

    def _counted_attempt(self) -> T:
        """Make an attempt; for tenacity the first one is that which has failed already."""
        failure, self._first_failure = self._first_failure, None
        if failure is None:
            return self._attempt()
        try:
            raise failure
        finally:
            del failure

    def _attempt(self) -> T:
        attempt = Attempt(max(self._left(), _LEAST_TIMEOUT), self._retrier.clock)
        try:
            return self._function(attempt)
        finally:
            self._reading += attempt.reading_time()

    def _wait(self, state: tenacity.RetryCallState) -> float:
        error = _failure(state.outcome)
        seconds = self._retrier.backoff.seconds(state.attempt_number)
        return max(seconds, error.seconds) if isinstance(error, RetryLater) else seconds

    def _stop(self, state: tenacity.RetryCallState) -> bool:
        error, left = _failure(state.outcome), self._left()
        if state.attempt_number >= self._retrier.attempts:
            return True
        if state.upcoming_sleep < left:
            return False
        self._why = f": the deadline is {self._retrier.deadline:g} s"
        if isinstance(error, RetryLater) and error.seconds >= left:
            self._why = (
                f": the server asks to wait {error.seconds:.0f} s, which is past the deadline of "
                f"{self._retrier.deadline:g} s"
            )
        return True

    def _log(self, state: tenacity.RetryCallState) -> None:
        error = _failure(state.outcome)
        logger.info("attempt %d failed, next in %.1f s: %s", state.attempt_number, state.upcoming_sleep, error)

    def _final_error(self, outcome: tenacity.Future) -> BaseException:
        """Return the last error, with the attempts added to its message."""
        error = _failure(outcome)
        if isinstance(error, RetryLater):
            error = error.error
        count, elapsed = outcome.attempt_number, self._retrier.clock() - self._started
        times = "1 attempt" if count == 1 else f"{count} attempts"
        return with_message(error, f"{error} (gave up after {times} over {elapsed:.1f} s{self._why})")

    def _left(self) -> float:
        """Return the seconds until the deadline; those in which a response arrived do not count."""
        return self._retrier.deadline - (self._retrier.clock() - self._started - self._reading)


def _failure(outcome: tenacity.Future | None) -> BaseException:
    error = None if outcome is None else outcome.exception()
    return error or TransportError("no attempt was made")  # tenacity stops and waits after failures alone
