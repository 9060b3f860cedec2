"""Tests wait for conditions with the limits of `waiting.py`, and measure no time."""

from __future__ import annotations

import ast
import sys
import threading
import time
from functools import cache
from pathlib import Path

import pytest
import waiting
from waiting import HANG, WallClock, join, meanwhile, run_program, wait_for_rest, wait_until

TESTS = Path(__file__).parent
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time", "sleep"}
#: Where the clock is needed, and what for.
MAY_USE_THE_CLOCK = {
    "cdf/poller/test_poll_kill.py": "kills at a random moment",
    "faults/chaos.py": "prints how long it took",
    "faults/server.py": "pauses where the system does not report what has arrived",
    "faults/stream_kills.py": "kills at a random moment, and prints how long it took",
    "faults/stress.py": "runs for a given time, and exits and interrupts at random moments",
    "faults/stress_programs.py": "runs for a given time, and interrupts at random moments",
    "fuzz/fuzz.py": "runs for a given time",
    "golden/make_golden.py": "prints how long it took",
    "loading/interrupted_loads.py": "interrupts at a random moment",
    "log/test_delta_log_cleanup.py": "makes an operation slow",
    "rest/test_rest_slow_reader.py": "makes decoding slow",
    "scan/test_many_files.py": "makes a consumer slow",
    "sinks/test_sinks_kill.py": "kills at a random moment",
    "security/test_shown_text.py": "measures the time of searches",
    "security/test_regular_expressions.py": "measures the time of searches",
    "spark/spark_jobs.py": "waits in processes that have no tests",
    "spark/spark_processes.py": "lets a process end kindly before it is killed",
    "spark/stream_worker.py": "waits in a process that has no tests",
    "spark/test_stream_planning.py": "sets a moment of the past",
    "waiting.py": "waits",
}
#: Calls whose limit is for hangs (HANG), or for what must not happen (BRIEFLY).
WAITS = {"run", "communicate", "check_output", "get", "post", "acquire", "wait", "join", "result"}


@cache
def calls(path: Path) -> list[ast.Call]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


def name_of(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def test_the_clock_is_used_where_it_must_be() -> None:
    found = set()
    for path in TESTS.rglob("*.py"):
        for call in calls(path):
            of_time = isinstance(call.func, ast.Attribute) and getattr(call.func.value, "id", "") == "time"
            if of_time and name_of(call) in CLOCKS:
                found.add(path.relative_to(TESTS).as_posix())
    assert found == set(MAY_USE_THE_CLOCK)


def test_time_limits_have_names() -> None:
    numbers = []
    for path in TESTS.rglob("*.py"):
        for call in calls(path):
            limits = [word.value for word in call.keywords if word.arg == "timeout"]
            if name_of(call) in WAITS and any(isinstance(limit, ast.Constant) for limit in limits):
                numbers.append(f"{path.relative_to(TESTS)}:{call.lineno}")
    assert numbers == []


def test_a_wait_ends_with_the_condition_and_gives_its_value() -> None:
    values = iter([0, [], "there"])
    assert wait_until(lambda: next(values)) == "there"


def test_hanging_wait_names_its_condition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "HANG", 0.01)
    with pytest.raises(AssertionError, match=r"still not true after 0 s: \[1, 2\]"):
        wait_until(lambda: False, lambda: [1, 2])
    numbers = iter(range(10**9))
    with pytest.raises(AssertionError, match="still changing"):
        wait_for_rest(lambda: next(numbers))


def test_steps_run_while_waiting_and_raise_their_failures() -> None:
    taken: list[int] = []
    with meanwhile(lambda: taken.append(1), lambda: taken.append(2)):
        wait_until(lambda: taken == [1, 2])
    with pytest.raises(ZeroDivisionError), meanwhile(lambda: 1 / 0):
        pass


def test_programs_run_to_their_end() -> None:
    done = run_program([sys.executable, "-c", "print('said'); raise SystemExit(3)"])
    assert (done.returncode, done.stdout) == (3, "said\n")


def test_a_thread_that_has_ended_is_joined() -> None:
    thread = threading.Thread(target=lambda: None)
    thread.start()
    join([thread])
    assert not thread.is_alive()


def test_the_system_clock_is_set_forward_for_all(wall_clock: WallClock) -> None:
    before = time.time()
    wall_clock.advance(3600)
    assert 3600 <= time.time() - before < 3600 + HANG
