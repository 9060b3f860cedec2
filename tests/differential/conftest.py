"""Fixtures: the results of the other clients, from one run in their own environment, and of this package."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from compare_results import Result
from differential_jobs import GOLDEN, JOBS, Job
from plain_values import arrow_columns, frame_columns
from script_modules import load_script
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.server import SharingServer, write_sample_tables

HERE = Path(__file__).parent


@pytest.fixture(scope="session")
def peer_python() -> str:
    python = load_script("benchmarks/peer.py").installed_python()
    if python is None:
        pytest.fail("the environment of the other clients does not exist; `make differential` creates it")
    return str(python)


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    tables = {f"golden.tables.{path.name}": path / "table" for path in GOLDEN.iterdir()}
    tables |= write_sample_tables(tmp_path_factory.mktemp("samples"))
    with SharingServer(tables) as running:
        yield running


@pytest.fixture(scope="session")
def theirs(peer_python: str, server: SharingServer, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Result]:
    """The results of the other clients, by the name of the job."""
    directory = tmp_path_factory.mktemp("differential")
    profile = server.write_profile(directory / "server.share")
    jobs = {
        job.name: {
            "reader": job.reader,
            "url": f"{profile}#{job.table_name}",
            "path": str(GOLDEN / job.table / "table"),
            "arguments": job.arguments,
        }
        for job in JOBS
    }
    (directory / "jobs.json").write_text(json.dumps(jobs), "utf-8")
    command = [peer_python, str(HERE / "other_clients_worker.py")]
    command += [str(directory / "jobs.json"), str(directory / "results.pickle")]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG, env=environment)
    assert done.returncode == 0, done.stderr
    results: dict[str, Result] = pickle.loads((directory / "results.pickle").read_bytes())
    return results


@pytest.fixture(scope="session")
def ours(server: SharingServer) -> Callable[[Job], Result]:
    """A function that runs a job with this package: same table, response format and arguments."""
    client = SharingClient(server.profile)

    def read(job: Job) -> Result:
        table = client.table(job.table_name)
        arguments: dict[str, Any] = dict(job.arguments)
        try:
            if job.reader == "deltalake":
                return arrow_columns(table.scan(**arguments).to_arrow())
            arguments["response_format"] = job.reader
            if "starting_version" in arguments:
                return frame_columns(table.changes(**arguments).to_pandas(progress=False))
            batches = arguments.pop("convert_in_batches", False)
            arguments["json_predicate_hints"] = arguments.pop("jsonPredicateHints", None)
            scan = table.scan(**arguments)
            return frame_columns(scan.to_pandas(convert_in_batches=batches, progress=False))
        except DeltaSharingError as error:
            return f"{type(error).__name__}: {error}"

    return read
