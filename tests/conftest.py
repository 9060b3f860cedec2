"""What all tests share: no example is too slow for hypothesis, and a system clock that can be set forward."""

from __future__ import annotations

import time

import pytest
from hypothesis import HealthCheck, settings
from waiting import WallClock

settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


@pytest.fixture
def wall_clock(monkeypatch: pytest.MonkeyPatch) -> WallClock:
    """`time.time`, as the whole process sees it."""
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    return clock
