"""What all tests share: patient hypothesis settings, small JVMs, a system clock that can be set forward."""

from __future__ import annotations

import os
import time

import pytest
from hypothesis import HealthCheck, settings
from waiting import WallClock

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")

# For each JVM that Spark starts: one that lives for seconds does better without the second compiler.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """`time.time`, as the whole process sees it."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock
