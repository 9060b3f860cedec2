"""Workers of a local Spark master run the Python of the driver."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cluster_jobs import FRONTS
from spark_processes import Jobs

from delta_sharing_client.spark.session import worker_python


@pytest.mark.slow
def test_workers_of_a_local_master_run_the_python_of_the_program(
    java: Path, sample_profile: str, tmp_path: Path
) -> None:
    other = tmp_path / "path" / "python3"
    other.parent.mkdir()
    other.write_text("#!/bin/sh\nexit 3\n")  # Spark would take it, the first python3 on the path
    other.chmod(0o755)
    orders = f"{sample_profile}#retail.sales.orders"
    jobs = [{"job": "totals", "url": orders, "front": front, "limit": 1000} for front in FRONTS]
    path = {"PATH": f"{other.parent}:{os.environ['PATH']}"}
    with Jobs(tmp_path, {"master": "local[2]"}, None, path) as program:
        assert [result["rows"] for result in program.run(*jobs)] == [1000] * len(FRONTS)


def test_a_spark_without_the_attribute_for_its_python_runs_its_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    context = SimpleNamespace(master="local[2]")
    session: Any = SimpleNamespace(sparkContext=context, conf=SimpleNamespace(get=lambda *_: None))
    with worker_python(session):
        assert vars(context) == {"master": "local[2]"}
