"""The Spark benchmark returns correct results: tiny tables, one repetition, no timing."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from waiting import run_program

BENCHMARK = Path(__file__).resolve().parents[2] / "benchmarks" / "spark.py"


@pytest.mark.slow
def test_every_method_returns_the_sums_of_the_data(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARK), "--scale", "tiny", "--repeat", "1"]
    command += ["--only", "sum,small", "--json", str(tmp_path / "runs.json")]
    environment = {**os.environ, "DELTA_SHARING_BENCH_DATA": str(tmp_path / "data")}
    done = run_program(command, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr  # a wrong sum raises
    assert "| **sum of 1 of 14 columns** | load_as_spark, columns= |" in done.stdout
    output = json.loads((tmp_path / "runs.json").read_text())
    assert {name: len(methods) for name, methods in output["seconds"].items()} == {"sum": 6, "small": 4}
    assert all(
        len(runs) == 1 and runs[0] > 0 for methods in output["seconds"].values() for runs in methods.values()
    )
