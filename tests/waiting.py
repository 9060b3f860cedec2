"""Waits for conditions. A time limit only ends a hang; no test depends on it."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

#: Seconds after which a wait counts as a hang: far more than anything takes, on a busy machine too. pytest's own
#: limit for a test (`timeout` in pyproject.toml) is longer, so that a wait can report what it waited for.
HANG = 600.0
#: Seconds to watch for what must not happen.
BRIEFLY = 0.05
#: Seconds, and a duration for client options, that no test outlives. Where a client would wait this long, a test
#: that ends shows that the wait was broken off; it need not measure how soon.
FOREVER = 86_400.0
NEVER = timedelta(seconds=FOREVER)


def wait_until(condition: Callable[[], T], subject: Callable[[], object] | str = "") -> T:
    """Wait until a condition is true, and return its value.

    Args:
        condition: called until its value is true.
        subject: what to report after a hang: a text, or a function that returns something to look at.
    """
    end = time.monotonic() + HANG
    while not (value := condition()):
        if time.monotonic() > end:
            raise AssertionError(
                f"still not true after {HANG:.0f} s: {subject() if callable(subject) else subject}"
            )
        time.sleep(0.005)
    return value


def wait_for_rest(measure: Callable[[], T], quiet: float = 0.2) -> T:
    """Wait until a measure has not changed for some time, and return it.

    Only for a condition that shows that something does *not* happen: an early return makes such a test weaker, and
    never fails it.

    Args:
        measure: what is compared.
        quiet: for how many seconds it has to stay the same.
    """
    end = time.monotonic() + HANG
    last, since = measure(), time.monotonic()
    while time.monotonic() - since < quiet:
        time.sleep(0.01)
        if (now := measure()) != last:
            last, since = now, time.monotonic()
        if time.monotonic() > end:
            raise AssertionError(f"still changing after {HANG:.0f} s: {last}")
    return last


def wait_for_time(moment: float) -> None:
    """Wait until the system clock is past a moment (seconds since 1970)."""
    wait_until(lambda: time.time() > moment, f"the time {moment}")


def join(threads: Iterable[threading.Thread]) -> None:
    """Wait until threads have ended."""
    for thread in threads:
        thread.join(HANG)
        assert not thread.is_alive(), f"{thread.name} still runs after {HANG:.0f} s"


def run_program(command: Sequence[Any], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and return its output as text."""
    options = {"capture_output": True, "text": True, "check": False, "timeout": HANG} | options
    return subprocess.run([str(part) for part in command], **options)


@contextlib.contextmanager
def meanwhile(*steps: Callable[[], object]) -> Iterator[None]:
    """Take some steps on another thread while the block runs; a failure of a step is raised at its end."""
    failures: list[BaseException] = []

    def take() -> None:
        try:
            for step in steps:
                step()
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    yield
    join([thread])
    if failures:
        raise failures[0]


class Interrupt(Exception):
    """Raised by a signal, as `KeyboardInterrupt` is."""


def interrupt(action: Callable[[], object], times: int, then: Callable[[], object] = bool) -> None:
    """Call an action again and again until a signal interrupts it, and then another; so many times.

    Tests need `signal.setitimer`, which Windows lacks.
    """

    def handle(*_: object) -> None:
        raise Interrupt

    def repeat() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0005)
        while True:
            action()

    before = signal.signal(signal.SIGALRM, handle)
    try:
        for _ in range(times):
            with contextlib.suppress(Interrupt):
                repeat()
            then()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class WallClock:
    """The system clock, ahead by the offset of a test; for clients and servers of the test's own process.

    Signed URLs and tokens that live for minutes expire at once with it, and never too soon on a busy machine.
    """

    def __init__(self) -> None:
        self._true = time.time
        self._ahead = 0.0

    def __call__(self) -> float:
        return self._true() + self._ahead

    def advance(self, seconds: float) -> None:
        """Set the clock forward."""
        self._ahead += seconds


def wait_until_asleep(pid: int) -> None:
    """Wait until the main thread of a process waits, or for a while if the system does not report that.

    An exception that a signal handler raises may be lost while Python collects garbage or finalizes an object.
    """
    if sys.platform != "linux":
        time.sleep(0.5)
        return
    status = Path(f"/proc/{pid}/task/{pid}/stat")

    def asleep() -> bool:
        return status.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0] == "S"

    while not (asleep() and wait_for_rest(asleep, 0.1)):
        time.sleep(0.01)


class SleepClock:
    """A monotonic clock that advances by sleeping, and by what a test adds to `now`; it records the sleeps."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
