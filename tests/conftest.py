"""Shared by all tests: order of the run, hypothesis settings, JVM options, an adjustable wall clock."""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings
from spark_java import JAVA_OPTIONS
from waiting import WallClock

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# For each JVM that Spark starts.
os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run Spark's files first: they take longest, and started last they would leave the other processes idle."""
    items.sort(key=lambda item: "spark" not in item.path.parts)


def pytest_collection_finish() -> None:
    """Exclude modules and collected tests from garbage collection; tests that call `gc.collect` scan them all."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def no_default_states() -> Iterator[None]:
    """A server of a later test may have the same port, and other tables of the same names."""
    yield
    state = sys.modules.get("delta_sharing_client.state")
    if state is not None:
        state.default_states.clear()


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """`time.time`, as the whole process sees it."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock


def pytest_unconfigure() -> None:
    """Let go of what was excluded; at exit, DuckDB would report its objects among it as leaked."""
    gc.unfreeze()
    gc.collect()
