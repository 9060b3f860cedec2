"""The fuzz targets with 300 inputs of hypothesis each; `make fuzz` runs them for minutes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from thorough import examples
from waiting import run_program

sys.path.append(str(Path(__file__).parent))

from fuzz_mutations import mutations
from fuzz_targets import TARGETS

FUZZ = Path(__file__).parent / "fuzz.py"


@pytest.mark.parametrize("name", TARGETS)
def test_arbitrary_bytes_raise_only_typed_errors(name: str) -> None:
    target, samples = TARGETS[name]

    @settings(
        max_examples=examples(300),
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    )
    @given(mutations(samples))
    def run(data: bytes) -> None:
        target(data)

    run()


@pytest.mark.parametrize("name", TARGETS)
def test_some_samples_are_decoded(name: str) -> None:
    """A target that rejected every sample would test nothing."""
    target, samples = TARGETS[name]
    assert any(target(sample) for sample in samples)


@pytest.mark.slow
def test_fuzz_command_runs(tmp_path: Path) -> None:
    sample = tmp_path / "sample"
    sample.write_bytes(TARGETS["profile"][1][0])
    command = [sys.executable, str(FUZZ), "profile", "--input", str(sample)]
    done = run_program(command, check=True)
    assert done.stdout == "decoded\n"
    command = [sys.executable, str(FUZZ), "storage_error", "--seconds", "1"]
    done = run_program(command)
    assert done.returncode == 0, done.stdout
    assert "1 of 1 targets passed" in done.stdout
