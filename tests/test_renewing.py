"""`Renewing` alone: a scripted clock, seeded interleavings of threads, interrupts, forks and pickles."""

from __future__ import annotations

import contextlib
import dis
import os
import pickle
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest
from msgspec import Struct
from waiting import HANG, interrupt, join, wait_until

from delta_sharing_client import renewing
from delta_sharing_client.errors import DeltaSharingError, TokenError, TransportError
from delta_sharing_client.renewing import NEXT_TRY, Renewing, lifetime_from


class Value(Struct, frozen=True):
    number: int
    expires: float | None = None
    renew_at: float | None = None


class Source:
    """Values that live for 100 s and are renewed after 80; a failure that is set is raised."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.asked: list[bool] = []
        self.failure: BaseException | None = None

    def now(self) -> float:
        return self.time

    def __call__(self, needed: bool) -> Value:
        self.asked.append(needed)
        if self.failure is not None:
            raise self.failure
        return Value(len(self.asked), *lifetime_from(self.time, self.time + 100, 60))


@pytest.fixture
def source() -> Source:
    return Source()


def renewed_by(source: Source, **options: Any) -> Renewing[Value]:
    return Renewing(source, "the value", now=source.now, **options)


def refusing(value: Value) -> Callable[[Value], bool]:
    return lambda present: present is value


class TestOneThread:
    def test_the_value_is_fetched_once_while_it_is_valid(self, source: Source) -> None:
        value = renewed_by(source)
        assert value.present is None
        assert [value.get().number for _ in range(3)] == [1, 1, 1]
        assert (source.asked, value.present) == ([True], value.get())

    @pytest.mark.parametrize(("after", "asked"), [(79.9, []), (80, [False]), (99.9, [False]), (100, [True])])
    def test_it_is_renewed_ahead_of_its_expiration(self, source: Source, after: float, asked: list[bool]) -> None:
        value = renewed_by(source)
        value.get()
        source.time += after
        assert value.get().number == 1 + len(asked)
        assert source.asked == [True, *asked]

    def test_a_value_without_times_stays(self, source: Source) -> None:
        value = renewed_by(source, value=Value(7))
        source.time += 1e9
        assert (value.get().number, source.asked) == (7, [])

    def test_the_longest_margin_bounds_that_of_long_lifetimes(self) -> None:
        assert lifetime_from(1000, 1100, 60) == (1100, 1080)
        assert lifetime_from(1000, 5000, 60) == (5000, 4940)

    @pytest.mark.parametrize("expires", [None, 999.0, 1000.0])
    def test_the_expiration_of_a_value_that_arrives_expired_counts_as_unknown(self, expires: float | None) -> None:
        assert lifetime_from(1000, expires, 60) == (None, None)

    def test_a_refused_value_is_renewed_if_it_is_the_present_one(self, source: Source) -> None:
        value = renewed_by(source)
        first = value.get()
        assert value.get(refusing(first)).number == 2
        assert value.get(refusing(first)).number == 2
        assert source.asked == [True, True]

    def test_a_new_value_is_returned_even_if_it_is_refused_too(self, source: Source) -> None:
        assert renewed_by(source, value=Value(0)).get(lambda value: True).number == 1


class TestFailures:
    def test_a_first_value_that_cannot_be_fetched(self, source: Source) -> None:
        value = renewed_by(source)
        source.failure = TokenError("no")
        for _ in range(2):
            with pytest.raises(TokenError, match="no"):
                value.get()
        source.failure = None
        assert value.get().number == 3

    def test_a_valid_value_is_kept_and_the_next_attempt_waits(
        self, source: Source, caplog: pytest.LogCaptureFixture
    ) -> None:
        value = renewed_by(source, value=Value(0, 2000, 1000))
        source.failure = TransportError("down")
        assert [value.get().number for _ in range(3)] == [0, 0, 0]
        assert source.asked == [False]
        assert "the value could not be renewed and is used until it expires: " in caplog.text
        source.time += NEXT_TRY
        assert (value.get().number, source.asked) == (0, [False, False])
        source.failure = None
        source.time += NEXT_TRY
        assert value.get().number == 3

    @pytest.mark.parametrize("hint", [False, True])
    def test_an_expired_value_is_used_only_if_its_expiration_is_a_hint(self, source: Source, hint: bool) -> None:
        value = renewed_by(source, value=Value(0, 1000, 990), until_refused=hint)
        source.failure = TransportError("down")
        if not hint:
            with pytest.raises(TransportError):
                value.get()
            return
        assert [value.get().number for _ in range(3)] == [0, 0, 0]
        assert source.asked == [True]
        source.time += NEXT_TRY
        assert (value.get().number, source.asked) == (0, [True, True])

    @pytest.mark.parametrize("hint", [False, True])
    def test_a_refused_value_is_not_kept(self, source: Source, hint: bool) -> None:
        value = renewed_by(source, value=Value(0, 2000, 1900), until_refused=hint)
        source.failure = TransportError("down")
        for _ in range(2):
            with pytest.raises(TransportError):
                value.get(lambda present: True)
        assert value.get().number == 0

    def test_a_refused_value_does_not_wait_for_the_next_attempt(self, source: Source) -> None:
        value = renewed_by(source, value=Value(0, 2000, 1000))
        source.failure = TransportError("down")
        kept = value.get()
        source.failure = None
        assert value.get(refusing(kept)).number == 2

    @pytest.mark.parametrize("failure", [ValueError("fault"), KeyboardInterrupt()])
    def test_what_is_no_error_of_the_package_is_raised(self, source: Source, failure: BaseException) -> None:
        value = renewed_by(source, value=Value(0, 2000, 1000))
        source.failure = failure
        with pytest.raises(type(failure)):
            value.get()
        source.failure = None
        assert value.get().number == 2

    def test_a_source_that_asks_for_the_value_that_it_renews(self) -> None:
        value: Renewing[Value] = Renewing(lambda needed: value.get(), "the value")
        with pytest.raises(RuntimeError, match="asked for the value that it renews"):
            value.get()


class Held(Source):
    """A source whose fetches wait for the test."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def __call__(self, needed: bool) -> Value:
        self.asked.append(needed)
        assert self.release.wait(HANG)
        if self.failure is not None:
            raise self.failure
        return Value(len(self.asked))


def caller(call: Callable[[], Value], results: list[Any]) -> threading.Thread:
    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:  # noqa: BLE001  # a result of the test
            results.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def test_others_use_a_valid_value_while_one_renews_it() -> None:
    source, results = Held(), list[Any]()
    value = renewed_by(source, value=Value(0, 2000, 1000))
    thread = caller(value.get, results)
    wait_until(lambda: source.asked)
    assert [value.get().number for _ in range(3)] == [0, 0, 0]
    source.release.set()
    join([thread])
    assert (results[0].number, value.get().number, source.asked) == (1, 1, [False])


@contextlib.contextmanager
def forked() -> Iterator[Callable[[Callable[[], None]], int]]:
    def run(child: Callable[[], None]) -> int:
        pid = os.fork()
        if not pid:
            code = 1
            try:
                signal.alarm(60)  # ends the process if it waits for its parent
                child()
                code = 0
            finally:
                os._exit(code)
        return os.waitpid(pid, 0)[1]

    yield run


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # forks of processes with threads
class TestForks:
    def test_a_forked_process_renews_by_itself_during_a_renewal_of_its_parent(self) -> None:
        source, results = Held(), list[Any]()
        value = renewed_by(source)
        thread = caller(value.get, results)
        wait_until(lambda: source.asked)

        def child() -> None:
            source.release.set()
            assert (value.get().number, value.get().number, source.asked) == (2, 2, [True, True])

        with forked() as run:
            assert run(child) == 0
        source.release.set()
        join([thread])
        assert (results[0].number, value.get().number) == (1, 1)

    def test_a_renewal_that_forks(self) -> None:
        """As a credential provider that starts a process by a fork, which uses the same client."""
        codes = list[int]()

        def fetch(needed: bool) -> Value:
            if not codes:
                codes.append(-1)
                with forked() as run:
                    codes[0] = run(lambda: pytest.fail("other value") if value.get().number != 5 else None)
            return Value(5)

        value: Renewing[Value] = Renewing(fetch, "the value")
        assert (value.get().number, codes) == (5, [0])

    def test_a_forked_process_has_the_value(self, source: Source) -> None:
        value = renewed_by(source)
        value.get()
        with forked() as run:
            assert run(lambda: pytest.fail("fetched") if value.get().number != 1 else None) == 0


def number_one(needed: bool) -> Value:
    return Value(1)


class Owner:
    """An object that renews by a method of its own."""

    def __init__(self) -> None:
        self.value = Renewing(self.fetch, "the value", value=Value(0))

    def fetch(self, needed: bool) -> Value:
        return Value(2)


def test_a_pickled_copy_has_no_value_and_no_flight() -> None:
    value = Renewing(number_one, "the value", value=Value(0))
    copied = pickle.loads(pickle.dumps(value))
    assert (copied.present, copied.get().number, value.get().number) == (None, 1, 0)
    assert pickle.loads(pickle.dumps(Owner())).value.get().number == 2

    started, release = threading.Event(), threading.Event()
    busy = Renewing(lambda needed: (started.set(), release.wait(HANG), Value(3))[-1], "the value")
    thread = caller(busy.get, [])
    assert started.wait(HANG)
    busy._fetch = number_one
    assert pickle.loads(pickle.dumps(busy)).get().number == 1
    release.set()
    join([thread])


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_an_interrupt_leaves_no_thread_waiting() -> None:
    """Interrupts arrive within the library code of a wait too."""

    value = Renewing(lambda needed: Value(1), "the value")
    done = threading.Event()

    def renew() -> None:
        value.get(lambda _: True)

    def renew_until_done() -> None:
        while not done.is_set():
            renew()

    others = [threading.Thread(target=renew_until_done) for _ in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in others:
            thread.start()
        interrupt(renew, 200)
    finally:
        sys.setswitchinterval(interval)
        done.set()
    join(others)


NOP = dis.opmap["NOP"]


class Interleaving:
    """Runs threads one at a time, switching at random lines of the module `renewing`.

    A thread that waits for a flight is not chosen until the flight has ended.

    Args:
        seed: determines the schedule.
        actions: what each thread calls.
        interrupts: how many lines raise `KeyboardInterrupt`.
    """

    def __init__(self, seed: int, actions: list[Callable[[], object]], interrupts: int = 0) -> None:
        self.random = random.Random(seed)
        self.interrupts = interrupts
        self.turns = [threading.Semaphore(0) for _ in actions]
        self.waiting: dict[int, renewing._Flight | None] = dict.fromkeys(range(len(actions)))
        self.ended = threading.Semaphore(0)
        self.stuck = False
        self.threads = [
            threading.Thread(target=self._run, args=(n, action), daemon=True) for n, action in enumerate(actions)
        ]

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        self.turns[0].release()
        assert self.ended.acquire(timeout=HANG)
        assert not self.stuck, "threads wait for a flight that has no end"
        join(self.threads)

    def step(self, here: int) -> None:
        """Let another thread, or this one, go on."""
        ready = [n for n, flight in self.waiting.items() if flight is None or flight.has_ended]
        if not ready:
            self.stuck = bool(self.waiting)
            self.ended.release()
            return
        there = self.random.choice(ready)
        if there != here:
            self.turns[there].release()
            if here in self.waiting:
                self.turns[here].acquire()

    def pause(self) -> None:
        """Let another thread go on, if this is one of these."""
        if (thread := threading.current_thread()) in self.threads:
            self.step(self.threads.index(thread))

    def trace(self) -> None:
        """Trace this thread; again after an interrupt, since Python stops that."""
        here = self.threads.index(threading.current_thread())
        sys.settrace(lambda frame, event, argument: self._trace(here, frame))

    def _run(self, here: int, action: Callable[[], object]) -> None:
        self.turns[here].acquire()
        self.trace()
        try:
            action()
        finally:
            sys.settrace(None)
            del self.waiting[here]
            self.step(here)

    def _trace(self, here: int, frame: FrameType) -> Any:
        name = frame.f_code.co_name
        if frame.f_code.co_filename != renewing.__file__ or name in ("present", "__init__"):
            return None
        if name == "wait":
            self.waiting[here] = frame.f_locals["self"]
            self.step(here)
            self.waiting[here] = None
            return None

        def line(frame: FrameType, event: str, argument: object) -> Any:
            if event == "line":
                if self.random.random() < 0.4:
                    self.step(here)
                # Python raises it in calls and jumps, never where a `try` begins.
                code = frame.f_code.co_code[frame.f_lasti]
                if self.interrupts and code != NOP and self.random.random() < 0.05:
                    self.interrupts -= 1
                    raise KeyboardInterrupt
            return line

        return line


class Model:
    """A source for an interleaving, which checks what callers receive."""

    def __init__(self, seed: int, *, interrupts: int = 0) -> None:
        self.random = random.Random(seed)
        self.hint = self.random.random() < 0.5
        self.time = 1000.0
        self.fetching = 0
        self.fetched = 0
        self.failed: list[DeltaSharingError] = []
        self.raised: list[DeltaSharingError] = []
        self.interrupted = 0
        self.calls = 0
        first = Value(0, 1000 + self.random.choice([0, 5, 500]), 1000) if self.random.random() < 0.7 else None
        self.value: Renewing[Value] = Renewing(
            self.fetch, "the value", value=first, until_refused=self.hint, now=lambda: self.time
        )
        self.threads = Interleaving(seed, [self.call] * self.random.randrange(2, 5), interrupts)

    def fetch(self, needed: bool) -> Value:
        assert not self.fetching, "two fetches at a time"
        self.fetching += 1
        try:
            self.fetched += 1
            number = self.fetched
            for _ in range(self.random.randrange(4)):
                self.time += self.random.choice([0, 0, 3])
                self.threads.pause()
            assert number == self.fetched
            if self.random.random() < 0.15:
                raise ValueError("a fault of the source")
            if self.random.random() < 0.3:
                self.failed.append(TransportError(f"failure {number}"))
                raise self.failed[-1]
            return Value(number, *lifetime_from(self.time, self.time + 20, 60))
        finally:
            self.fetching -= 1

    def call(self) -> None:
        last: Value | None = None
        for _ in range(self.random.randrange(1, 4)):
            before = self.value.present
            refused = last if self.random.random() < 0.4 else None
            began, fetched = self.time, self.fetched
            try:
                self.calls += 1
                value = self.value.get(None if refused is None else refusing(refused))
            except (KeyboardInterrupt, ValueError):
                self.interrupted += 1
                self.threads.trace()
                continue
            except TransportError as error:
                self.check_error(error, fetched)
                continue
            assert value is not refused
            assert before is None or value.number >= before.number, "an older value"
            assert self.hint or value.expires is None or value.expires > began
            last = value

    def check_error(self, error: TransportError, fetched: int) -> None:
        number = int(str(error).split()[-1])
        assert str(error) in {str(each) for each in self.failed}
        assert number >= fetched, "the renewal ended before the call"
        assert not any(error is each for each in self.raised), "each thread raises its own error"
        self.raised.append(error)

    def check(self) -> None:
        self.threads.run()
        assert self.fetched <= self.calls + len(self.failed) + self.interrupted
        with contextlib.suppress(TransportError, ValueError):
            self.value.get()


def run_schedules(seeds: range, interrupts: int = 0) -> list[Model]:
    models = []
    failures: list[str] = []
    hook, threading.excepthook = threading.excepthook, lambda args: failures.append(f"{args.exc_value!r}")
    try:
        for seed in seeds:
            model = Model(seed, interrupts=interrupts)
            model.check()
            assert not failures, f"seed {seed}: {failures}"
            models.append(model)
    finally:
        threading.excepthook = hook
    return models


@pytest.mark.parametrize("interrupts", [0, 2])
def test_interleavings(interrupts: int) -> None:
    models = run_schedules(range(400), interrupts)
    assert sum(len(model.raised) for model in models) > 100
    assert sum(model.fetched for model in models) > 400
    assert sum(model.interrupted for model in models) > 100


@pytest.mark.slow
@pytest.mark.parametrize("interrupts", [0, 1, 3])
def test_more_interleavings(interrupts: int) -> None:
    run_schedules(range(400, 1200), interrupts)
