"""examples/duckdb_pipeline.py: each change is stored once, however the process ends; schema changes, back-fill."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from change_tables import COLUMNS, GrowingTable, rows
from loading.loading_tables import column
from script_modules import ROOT
from waiting import HANG

from delta_sharing_client.server import SharingServer

PIPELINE = ROOT / "examples" / "duckdb_pipeline.py"
#: Runs the pipeline with a process that kills itself at the n-th call of a function.
KILLED = """
import os, runpy, signal, sys
from delta_sharing_client.cdf.batch import ChangeBatch
from delta_sharing_client.sinks.duckdb import DuckDBSink

where, call = sys.argv[1], int(sys.argv[2])
owner = ChangeBatch if where == "commit" else DuckDBSink
name = "_insert" if where == "insert" else where
original, calls = getattr(owner, name), []

def dying(*arguments, **named):
    calls.append(1)
    result = None if where == "commit" and len(calls) == call else original(*arguments, **named)
    if len(calls) == call:
        os.kill(os.getpid(), signal.SIGKILL)
    return result

setattr(owner, name, dying)
sys.argv = sys.argv[3:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Pipeline(GrowingTable):
    """A shared table, and the pipeline that follows it."""

    def command(self, *arguments: str) -> list[str]:
        url = f"{self.folder / 'source.share'}#s.s.t"
        checkpoint = ["--checkpoint", str(self.folder / "t.checkpoint"), "--start", "0"]
        return [str(PIPELINE), url, str(self.folder / "shop.duckdb"), *checkpoint, *arguments]

    def run(self, *arguments: str, code: int = 0, before: tuple[str, ...] = ()) -> str:
        """Run it to its end; returns what it logged."""
        done = subprocess.run(
            [sys.executable, *before, *self.command(*arguments)],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=HANG,
            check=False,
        )
        assert done.returncode == code, done.stderr
        return done.stderr

    def stored(self) -> list[tuple[int, int]]:
        """The rows in DuckDB: version and id."""
        with duckdb.connect(str(self.folder / "shop.duckdb")) as connection:
            return connection.execute("SELECT _commit_version, id FROM t ORDER BY ALL").fetchall()


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    with SharingServer({"s.s.t": pipeline.table.root}) as server:
        server.write_profile(tmp_path / "source.share")
        yield pipeline


def test_each_run_stores_what_is_new(pipeline: Pipeline) -> None:
    pipeline.run()
    pipeline.grow(2)
    pipeline.run()
    assert "WriteResult" not in pipeline.run()
    assert pipeline.stored() == pipeline.expected


@pytest.mark.parametrize("where", ["insert", pytest.param("write", marks=pytest.mark.slow), "commit"])
@pytest.mark.parametrize("call", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_killed_run_stores_each_change_once(pipeline: Pipeline, where: str, call: int) -> None:
    """Killed within the transaction, after it, and before the checkpoint is written."""
    batches = ("--max-versions", "2")
    pipeline.run(*batches, before=("-c", KILLED, where, str(call)), code=-signal.SIGKILL)
    pipeline.grow(2)
    pipeline.run(*batches)
    assert pipeline.stored() == pipeline.expected


def test_following_ends_with_ctrl_c(pipeline: Pipeline) -> None:
    command = [sys.executable, *pipeline.command("--follow", "--interval", "0.05")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "versions 0 to 2" in line:
                pipeline.grow(1)
            if "versions 3 to 3" in line:
                process.send_signal(signal.SIGINT)
        assert process.wait(HANG) == 0
    assert pipeline.stored() == pipeline.expected


def test_a_new_column_is_reported_and_stored(pipeline: Pipeline) -> None:
    table = pipeline.table
    table.commit(table.metadata([*COLUMNS, column("more", "long")]), table.add("wide", rows(77)))
    logged = pipeline.run("--max-versions", "1")
    assert "ALERT: s.s.t: version 3 has new columns: more" in logged
    assert pipeline.stored() == [*pipeline.expected, (3, 77)]


def test_a_dropped_column_ends_the_run_after_the_rows_before_it(pipeline: Pipeline) -> None:
    table = pipeline.table
    table.commit(table.metadata(COLUMNS[:1]), table.add("narrow", rows(77).select(["id"])))
    logged = pipeline.run(code=3)
    assert "ALERT: " in logged
    assert "Traceback" not in logged
    assert pipeline.stored() == pipeline.expected


def test_a_backfill_replaces_the_rows_of_its_versions(pipeline: Pipeline) -> None:
    pipeline.run()
    with duckdb.connect(str(pipeline.folder / "shop.duckdb")) as connection:
        connection.execute("DELETE FROM t WHERE _commit_version = 1")
        connection.execute("UPDATE t SET id = -1 WHERE _commit_version = 2")
    for _ in range(2):
        pipeline.run("--backfill", "1", "2")
        assert pipeline.stored() == pipeline.expected
    pipeline.grow(1)
    pipeline.run()
    assert pipeline.stored() == pipeline.expected
