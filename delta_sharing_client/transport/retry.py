"""Retries by tenacity (which errors, attempts, back-off, deadline), and polls, which end at their first error.

Every request of the protocol only reads, POST /query included, so all are retried alike. Clock, sleep and
randomness are arguments, so that tests run through hours of back-off without sleeping.
"""

from __future__ import annotations

import email.utils
import math
import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar, cast

import tenacity

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    InsecureUrlError,
    QueryError,
    RequestTimeoutError,
    RestError,
    TransportError,
)
from delta_sharing_client.messages import module_logger
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError, with_message

logger = module_logger(__name__)

T = TypeVar("T")

#: Returns a number from 0 to 1; the state of the module `random`, which users may have seeded, stays as it is.
JITTER: Final[Callable[[], float]] = random.SystemRandom().random

#: Statuses after which the same request may succeed.
RETRYABLE_STATUSES: Final = frozenset({408, 429, 500, 502, 503, 504})

_LEAST_TIMEOUT: Final = 0.001
#: The first and the longest wait between two polls, in seconds, and the ratio of each wait to the one before.
_FIRST_POLL_WAIT: Final = 0.5
_LONGEST_POLL_WAIT: Final = 10.0
_POLL_GROWTH: Final = 1.5


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


class RetryBudget:
    """The retries that all downloads of one load share, so that a dead store fails in seconds.

    Only retries without progress count. Each received file or range gives one back, so that a load from a busy
    store continues. Each of the connections, on which files are fetched at a time, may fail once at the start.
    """

    #: Retries that a time-out uses up: it takes longer than other failures.
    TIMEOUT_COST: Final = 5

    def __init__(self, files: int = 0, connections: int = 32) -> None:
        self._connections = connections
        self._files = 0
        self._maximum = self._left = 10
        self._lock = threading.Lock()
        self.expect(files)

    def expect(self, files: int) -> None:
        """Count further files, or ranges of a file."""
        with self._lock:
            self._files += files
            maximum = 10 + min(self._files, self._connections) + self._files // 5
            self._left += maximum - self._maximum
            self._maximum = maximum

    def take(self, error: BaseException | None) -> bool:
        """Use up a retry after `error`; return whether one was left."""
        cost = self.TIMEOUT_COST if isinstance(error, RequestTimeoutError) else 1
        with self._lock:
            if self._left < cost:
                return False
            self._left -= cost
            return True

    def give_back(self) -> None:
        """Give one retry back, for a received file or range."""
        with self._lock:
            self._left = min(self._maximum, self._left + 1)


class Retrier:
    """Repeats a request until it succeeds, fails permanently, or exceeds its attempts or deadline.

    Tests pass a `clock`, a `sleep` and a `random` of their own.

    Args:
        options: attempts, deadline, back-off.
        clock: returns the seconds since some moment.
        sleep: waits for some seconds.
        random: returns a number from 0 to 1.
        downloads: whether the requests are downloads: these have no deadline, and other attempts.
    """

    def __init__(
        self,
        options: TransportOptions,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        random: Callable[[], float] = JITTER,
        downloads: bool = False,
    ) -> None:
        self.attempts = options.storage_attempts if downloads else options.api_attempts
        self.longest_wait = options.api_deadline.total_seconds()
        self.deadline = math.inf if downloads else self.longest_wait
        self.clock = clock
        self.sleep = sleep
        self._random = random
        self._first_bound = options.backoff_base.total_seconds()
        self._last_bound = options.backoff_cap.total_seconds()

    def backoff(self, failures: int) -> float:
        """Return the seconds to wait after so many failures in a row: random, below a bound that doubles."""
        return self._random() * min(self._last_bound, self._first_bound * 2.0 ** min(failures - 1, 60))

    def call(
        self,
        function: Callable[[Attempt], T],
        *,
        sleep: Callable[[float], None] | None = None,
        budget: RetryBudget | None = None,
        give_up: Callable[[DeltaSharingError, str], DeltaSharingError] = with_message,
    ) -> T:
        """Call `function` until it returns.

        Args:
            function: makes one attempt with the time-out of the `Attempt`, and calls `Attempt.answered` when the
                response begins. It raises `RetryLater` if the server sent a `Retry-After`.
            sleep: waits between two attempts, instead of the retrier's.
            budget: pays for retries after attempts without progress.
            give_up: makes the final error from the last one and its message with the attempts.

        Raises:
            DeltaSharingError: the last attempt's error; its message has the number of attempts and their time.
        """
        attempt = Attempt(self, sleep or self.sleep, budget)
        _TENACITY(Attempt.make, attempt, function)
        return cast(T, attempt.value(give_up))

    def poll(self, ask: Callable[[], T], least: Callable[[T], float | None], deadline: float) -> T:
        """Call `ask` until its answer is final, or `deadline` seconds have passed; return the last answer.

        Args:
            ask: requests the answer; its errors are raised.
            least: returns the least seconds until the next poll; None for a final answer.
            deadline: seconds for all polls.
        """
        began = self.clock()
        wait = _FIRST_POLL_WAIT
        while True:
            answer = ask()
            seconds = least(answer)
            left = deadline - (self.clock() - began)
            if seconds is None or left <= 0:
                return answer
            self.sleep(min(max(wait, seconds), left))
            wait = min(_LONGEST_POLL_WAIT, wait * _POLL_GROWTH)


class Attempt:
    """The present attempt of a request, with what came of it and of those before.

    Errors do not pass through tenacity: an error and tenacity's frames would hold each other, and with them the
    connections of a dropped client, until the garbage collector runs.

    Attributes:
        number: its number, from 1.
        timeout: seconds until the response must begin.
        has_progress: set by the request if it brought something that the next attempt need not repeat.
        retry_after: the least seconds after which another attempt may succeed; None if it will not.
    """

    def __init__(self, retrier: Retrier, sleep: Callable[[float], None], budget: RetryBudget | None) -> None:
        self.number = 0
        self.timeout = retrier.deadline
        self.has_progress = False
        self.retry_after: float | None = None
        self._retrier = retrier
        self._sleep = sleep
        self._budget = budget
        self._began = retrier.clock()
        self._answered_at: float | None = None
        self._reading = 0.0
        self._failures = 0  # in a row, without progress
        self._result: Any = None
        self._error: BaseException | None = None
        self._why = ""

    def answered(self) -> None:
        """Record that the response has begun: from now on only stalls count, not the deadline."""
        self._answered_at = self._retrier.clock()

    def make(self, function: Callable[[Attempt], object]) -> None:
        """Call the function.

        The variables of the frames in the traceback of an error, and in that of its context, hold the unredacted
        response with URLs and tokens. The message is complete without them.
        """
        self.number += 1
        self.timeout = max(self._left(), _LEAST_TIMEOUT)
        self.has_progress = False
        self._answered_at = self._error = self.retry_after = None
        try:
            self._result = function(self)
        except RetryLater as later:
            self._error, self.retry_after = later.error, later.seconds
        except DeltaSharingError as error:
            self._error = error.with_traceback(None)
            self._error.__context__ = None
            self.retry_after = 0.0 if is_retryable(error) else None
        except BaseException as error:  # noqa: BLE001  # `value` raises it
            self._error = error
        if self._answered_at is not None:
            self._reading += self._retrier.clock() - self._answered_at
        self._failures = 0 if self.has_progress else self._failures + 1

    def wait(self) -> float:
        """Return the seconds until the next attempt."""
        return max(self._retrier.backoff(max(self._failures, 1)), self.retry_after or 0.0)

    def stop(self, wait: float) -> bool:
        """Return whether to give up instead of waiting for some seconds."""
        left, limit = self._left(), self._retrier.longest_wait
        if self._failures >= self._retrier.attempts:
            if self._failures < self.number:
                self._why = f": {self._failures} times in a row without progress"
        elif self.retry_after and self.retry_after >= min(left, limit):
            self._why = (
                f": the server asks to wait {self.retry_after:.0f} s, which is past the deadline of {limit:g} s"
            )
        elif wait >= left:
            self._why = f": the deadline is {limit:g} s"
        elif self._failures and self._budget is not None and not self._budget.take(self._error):
            self._why = ": the retries that all files of the load share are used up"
        else:
            return False
        return True

    def pause(self, wait: float) -> None:
        """Wait for the next attempt."""
        logger.info("attempt %d failed, next in %.1f s: %s", self.number, wait, self._error)
        self._sleep(wait)

    def value(self, final: Callable[[DeltaSharingError, str], DeltaSharingError]) -> Any:
        """Return the result, or raise the error; called once.

        An error that was retried is replaced by the final one. Its message has the attempts, their time, and what
        ended them.
        """
        error, self._error = self._error, None
        if self.retry_after is not None:
            times = "1 attempt" if self.number == 1 else f"{self.number} attempts"
            message = f"{error} (gave up after {times} over {self._elapsed():.1f} s{self._why})"
            error = final(cast(DeltaSharingError, error), message)
        try:
            if error is not None:
                raise error
            return self._result
        finally:
            del error  # its traceback has this frame

    def _elapsed(self) -> float:
        return self._retrier.clock() - self._began

    def _left(self) -> float:
        """Return the seconds until the deadline; those in which a response arrived do not count."""
        return self._retrier.deadline - (self._elapsed() - self._reading)


def _of(state: tenacity.RetryCallState) -> Attempt:
    attempt: Attempt = state.args[0]
    return attempt


#: Repeats the requests of all threads; each has its state in its `Attempt`, which `sleep` alone is not given.
_TENACITY: Final = tenacity.Retrying(
    retry=lambda state: _of(state).retry_after is not None,
    wait=lambda state: _of(state).wait(),
    stop=lambda state: _of(state).stop(state.upcoming_sleep),
    before_sleep=lambda state: _of(state).pause(state.upcoming_sleep),
    sleep=lambda _: None,
    retry_error_callback=lambda _: None,
)
