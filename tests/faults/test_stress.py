"""Short runs of the stress test; `make soak` takes longer."""

from __future__ import annotations

import os

import pytest
from faults import stress

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")


def correct_loads(scenario: str, seconds: float, threads: int = 64) -> int:
    result = stress.run_stress(scenario, seconds, seed=7, threads=threads)
    assert result.faults == []
    return result.outcomes["exits" if scenario == "exits" else "correct"]


@pytest.mark.parametrize("scenario", ["threads", "forks"])
def test_loads_of_some_threads(scenario: str) -> None:
    assert correct_loads(scenario, 1, threads=4)


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["threads", "forks", "interrupts", "exits"])
def test_loads_of_many_threads(scenario: str) -> None:
    assert correct_loads(scenario, 30)


@pytest.mark.slow
def test_resources_do_not_grow() -> None:
    result = stress.run_stress("soak", 60, seed=7)
    assert result.faults == []


def test_a_resource_that_grows_is_a_fault() -> None:
    flat = [(100_000 + 500 * (n % 3), 20 + n % 2, 4) for n in range(30)]
    assert stress._growth(flat, collects=True) == []
    for kind, name in enumerate(("memory in kB", "open files", "threads")):
        grows = [tuple(v * (20 + n) / 20 if k == kind else v for k, v in enumerate(s)) for n, s in enumerate(flat)]
        (fault,) = stress._growth(grows, collects=True)
        assert name in fault


def test_wrong_outcomes_are_faults() -> None:
    result = stress.Result()
    result.add({"correct": 3, "fault: other rows": 1})
    assert (result.outcomes["correct"], result.faults) == (3, ["other rows (1 times)"])
