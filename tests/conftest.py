"""What all tests share: the marker `long`, patient hypothesis settings, a system clock that can be set forward."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from waiting import WallClock

#: Runs that `make check` leaves out, by the beginning of their path: crash and chaos runs, golden tables by every
#: loader, other clients and engines, notebooks, benchmarks.
LONG = (
    "benchmarks/",
    "cdf/poller/test_poll_crash.py",
    "cdf/poller/test_poll_kill.py",
    "conformance/",
    "delta/mirror/test_mirror_crashes.py",
    "delta/mirror/test_mirror_golden.py",
    "delta/table/test_materialize_golden.py",
    "differential/",
    "faults/test_chaos.py",
    "fuzz/",
    "golden/test_golden_loaders.py",
    "interop/",
    "notebooks/",
    "sinks/test_sinks_kill.py",
    "spark/test_stream_kill.py",
    "typing/",
)
#: Whatever asks for one of these starts a Spark.
SPARK_FIXTURES = frozenset({"spark", "local_cluster", "standalone", "spark_connect"})
HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the long tests."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if item.path.relative_to(HERE).as_posix().startswith(LONG) or fixtures & SPARK_FIXTURES:
            item.add_marker(pytest.mark.long)


settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """`time.time`, as the whole process sees it."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock
