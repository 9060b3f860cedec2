"""Retries: retryable errors, waits, deadline, final error."""

import pickle
import random
import traceback
from datetime import timedelta
from functools import partial

import pytest
from waiting import SleepClock

from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    ForbiddenError,
    IncompleteResponseError,
    InsecureUrlError,
    NotFoundError,
    ProtocolError,
    QueryError,
    RateLimitError,
    RequestTimeoutError,
    ResponseFormatError,
    RestError,
    ServerError,
    TransportError,
    VersionMismatchError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError
from delta_sharing_client.transport.retry import Retrier, RetryLater, is_retryable, parse_retry_after


def retrier(time, *, random=lambda: 1.0, **options):
    return Retrier(TransportOptions(**options), clock=time, sleep=time.sleep, random=random)


def failing(error, *, times=10**6, time=None, takes=0.0, timeouts=None):
    count = 0

    def once(attempt):
        nonlocal count
        count += 1
        if timeouts is not None:
            timeouts.append(attempt.timeout)
        if time is not None:
            time.now += takes
        if count <= times:
            raise error() if callable(error) else error
        return count

    return once


def unreachable():
    return TransportError("connection refused", url="https://h/x")


def rest(status, kind=RestError):
    return kind(status=status, subject="x")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (rest(400, BadRequestError), False),
        (rest(401, AuthenticationError), False),
        (rest(403, ForbiddenError), False),
        (rest(404, NotFoundError), False),
        (rest(405), False),
        (rest(408), True),
        (rest(409), False),
        (rest(429, RateLimitError), True),
        (rest(500, ServerError), True),
        (rest(501, ServerError), False),
        (rest(502, ServerError), True),
        (rest(503, ServerError), True),
        (rest(504, ServerError), True),
        (rest(505, ServerError), False),
        (unreachable(), True),
        (RequestTimeoutError("x"), True),
        (InsecureUrlError("x"), False),
        (NonRetryableTransportError("x"), False),
        (IncompleteResponseError("x"), True),
        (ProtocolError("x"), False),
        (ResponseFormatError("x"), False),
        (VersionMismatchError("x"), False),
        (QueryError(subject="x", server_message="m"), False),
        (QueryError(subject="x", server_message="m", status=400), False),
        (QueryError(subject="x", server_message="m", status=429), True),
        (QueryError(subject="x", server_message="m", status=500), True),
        (QueryError(subject="x", server_message="m", status=503), True),
        (ValueError("x"), False),
        (KeyboardInterrupt(), False),
    ],
)
def test_retryable_errors(error, expected):
    assert is_retryable(error) is expected


def test_a_success_needs_one_attempt():
    time = SleepClock(1000.0)
    assert retrier(time).call(lambda attempt: attempt.timeout) == 120
    assert time.slept == []


def test_waits_double_up_to_the_cap():
    time = SleepClock(1000.0)
    with pytest.raises(TransportError):
        retrier(time, api_attempts=12, api_deadline=timedelta(hours=1)).call(failing(unreachable))
    assert time.slept == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 20, 20, 20, 20])


def test_full_jitter():
    quarter = Retrier(TransportOptions(), random=lambda: 0.25)
    assert [quarter.backoff(n) for n in (1, 2, 3, 100)] == pytest.approx([0.05, 0.1, 0.2, 5])
    assert Retrier(TransportOptions(), random=lambda: 0.0).backoff(9) == 0


def test_waits_leave_the_state_of_the_random_module_unchanged():
    random.seed(7)
    state = random.getstate()
    time = SleepClock(1000.0)
    with pytest.raises(TransportError):
        Retrier(TransportOptions(), clock=time, sleep=time.sleep).call(failing(unreachable))
    assert sum(time.slept) > 0
    assert random.getstate() == state


def test_six_attempts_by_default_named_in_the_error():
    time = SleepClock(1000.0)
    calls = []
    with pytest.raises(
        TransportError, match=r"connection refused \(gave up after 6 attempts over 6\.2 s\)"
    ) as caught:
        retrier(time).call(failing(unreachable, timeouts=calls))
    assert len(calls) == 6
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert caught.value.url == "https://h/x"


@pytest.mark.parametrize("failures", [1, 2, 5])
def test_result_after_failures_is_returned(failures):
    assert retrier(SleepClock(1000.0)).call(failing(unreachable, times=failures)) == failures + 1


def test_traceback_has_no_frames_below_the_call():
    """The frames below are of this package and tenacity; the message is complete without them."""
    failed = partial(rest, 404, NotFoundError)
    with pytest.raises(NotFoundError) as caught:
        retrier(SleepClock(1000.0)).call(failing(failed))
    frames = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
    assert frames == ["test_traceback_has_no_frames_below_the_call", "call", "value"]
    assert caught.value.__context__ is None


def test_permanent_error_is_raised_at_once_and_unchanged():
    time = SleepClock(1000.0)
    with pytest.raises(ForbiddenError) as caught:
        retrier(time).call(failing(lambda: rest(403, ForbiddenError)))
    assert time.slept == []
    assert "gave up" not in str(caught.value)


def test_foreign_exceptions_pass_through():
    with pytest.raises(ZeroDivisionError):
        retrier(SleepClock(1000.0)).call(lambda attempt: 1 / 0)


def test_the_deadline_ends_the_attempts():
    time = SleepClock(1000.0)
    timeouts = []
    with pytest.raises(
        RequestTimeoutError, match=r"gave up after 3 attempts over 120\.6 s: the deadline is 120 s"
    ):
        retrier(time).call(failing(lambda: RequestTimeoutError("x"), time=time, takes=40.0, timeouts=timeouts))
    assert timeouts == pytest.approx([120, 79.8, 39.4])


def test_timeout_of_an_attempt_is_the_remaining_time():
    time = SleepClock(1000.0)
    timeouts = []
    with pytest.raises(RequestTimeoutError):
        retrier(time, api_deadline=timedelta(seconds=5)).call(
            failing(lambda: RequestTimeoutError("x"), time=time, takes=2.0, timeouts=timeouts)
        )
    assert timeouts == pytest.approx([5, 2.8, 0.4])


def test_time_of_receiving_does_not_count_against_the_deadline():
    time = SleepClock(1000.0)
    timeouts = []

    def once(attempt):
        timeouts.append(attempt.timeout)
        attempt.answered()
        time.now += 500
        if len(timeouts) < 3:
            raise IncompleteResponseError("cut")
        return "done"

    assert retrier(time).call(once) == "done"
    assert timeouts == pytest.approx([120, 119.8, 119.4])


def test_retry_after_is_waited_for():
    time = SleepClock(1000.0)
    answer = retrier(time).call(failing(lambda: RetryLater(rest(429, RateLimitError), 17.0), times=2))
    assert answer == 3
    assert time.slept == [17, 17]


def test_the_longer_of_header_and_backoff_is_waited():
    time = SleepClock(1000.0)
    with pytest.raises(ServerError):
        retrier(time).call(failing(lambda: RetryLater(rest(503, ServerError), 1.0)))
    assert time.slept == pytest.approx([1, 1, 1, 1.6, 3.2])


def test_retry_after_past_the_deadline_raises_at_once():
    time = SleepClock(1000.0)
    with pytest.raises(
        RateLimitError, match=r"gave up after 1 attempt over 0\.0 s: the server asks to wait 300 s"
    ):
        retrier(time).call(failing(lambda: RetryLater(rest(429, RateLimitError), 300.0)))
    assert time.slept == []


def test_a_late_timeout_is_never_zero():
    time = SleepClock(1000.0)
    timeouts = []
    with pytest.raises(RequestTimeoutError):
        retrier(time, random=lambda: 0.0, api_deadline=timedelta(seconds=4)).call(
            failing(lambda: RequestTimeoutError("x"), time=time, takes=1.0, timeouts=timeouts)
        )
    assert timeouts == [4, 3, 2, 1]
    assert min(timeouts) > 0


class TestRetryAfter:
    def test_seconds(self):
        assert parse_retry_after({"Retry-After": "17"}) == 17
        assert parse_retry_after({"Retry-After": " 0 "}) == 0

    def test_a_date_is_relative_to_the_answer(self):
        headers = {"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT", "Date": "Wed, 21 Oct 2015 07:28:00 GMT"}
        assert parse_retry_after(headers) == 30

    def test_a_date_that_has_passed(self):
        assert parse_retry_after({"Retry-After": "Wed, 21 Oct 2015 07:28:30 GMT"}) == 0

    @pytest.mark.parametrize("value", ["", "soon", "-5", "1.5", "²", "Wed, 99 Oct 2015 07:28:30 GMT"])
    def test_nonsense_is_ignored(self, value):
        assert parse_retry_after({"Retry-After": value}) is None
        assert parse_retry_after({}) is None
