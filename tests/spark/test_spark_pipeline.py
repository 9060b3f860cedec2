"""examples/spark_pipeline.py: each change is stored once, however the job ends; schema changes, back-fill."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import spark_processes
from change_tables import COLUMNS, ChangeTable, rows
from loading.loading_tables import column
from script_modules import ROOT
from waiting import HANG, wait_until

from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.session import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")

#: Sets a small local master, as spark-submit would, and runs the job.
SUBMIT = """
import runpy, sys
from spark_jobs import open_session

open_session({"master": "local[2]"})
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


class Pipeline:
    """A shared table of which each version inserts two rows, and the job that follows it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = ChangeTable(folder / "source")
        self.checkpoint, self.target = folder / "checkpoint", folder / "t"
        self.expected: list[tuple[int, int]] = []
        self.grow(3)

    def grow(self, versions: int) -> None:
        for _ in range(versions):
            number = self.table.version + 1
            self.table.commit(self.table.add(f"f{number}", rows(number, number + 1000)))
            self.expected += [(number, number), (number, number + 1000)]

    @contextlib.contextmanager
    def start(self, *arguments: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the job in a process group of its own, which is killed at the end, its JVM too."""
        url = f"{self.folder / 'source.share'}#s.s.t"
        command = [sys.executable, "-W", "ignore", "-c", SUBMIT, str(ROOT / "examples" / "spark_pipeline.py"), url]
        command += [str(self.target), "--checkpoint", str(self.checkpoint), "--start", "0", *arguments]
        path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                command,
                stderr=log,
                env=spark_processes.environment(PYTHONPATH=path),
                cwd=self.folder,
                start_new_session=True,
            )
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(HANG)

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run the job to its end; returns what it logged."""
        with self.start(*arguments) as process:
            assert process.wait(HANG) == code, self.log.read_text()[-3000:]
        return self.log.read_text()

    def count(self, name: str) -> int:
        """The number of batches in a folder of the checkpoint."""
        return len(list((self.checkpoint / name).glob("[0-9]*")))

    def stored(self, spark: SparkSession, folder: str = "t") -> list[tuple[int, int]]:
        """The rows that Spark reads: version and id."""
        frame = spark.read.option("mergeSchema", "true").parquet(str(self.folder / folder))
        return sorted(map(tuple, frame.select("_commit_version", "id").collect()))


@pytest.fixture
def pipeline(java: Path, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    with SharingServer({"s.s.t": pipeline.table.root}) as server:
        server.write_profile(tmp_path / "source.share")
        yield pipeline


@pytest.mark.slow
def test_a_job_that_is_killed_stores_each_change_once(pipeline: Pipeline, spark: SparkSession) -> None:
    pipeline.grow(7)
    with pipeline.start("--follow", "--interval", "0", "--max-files", "1") as process:

        def is_within_a_batch() -> bool:
            """Whether a batch after the second has begun and not ended."""
            return process.poll() is not None or pipeline.count("offsets") > pipeline.count("commits") > 1

        wait_until(is_within_a_batch, lambda: pipeline.log.read_text()[-3000:])
        assert process.poll() is None, pipeline.log.read_text()[-3000:]
        os.killpg(process.pid, signal.SIGKILL)
    assert pipeline.count("commits") < 10
    pipeline.grow(2)
    pipeline.run()
    if pyspark_version() < (4, 2):  # a run is one batch: the one that was broken off; then the rest
        pipeline.run()
    assert pipeline.stored(spark) == pipeline.expected


@pytest.mark.slow
def test_columns_and_backfill(pipeline: Pipeline, spark: SparkSession) -> None:
    """A new column is followed, a dropped one ends the job, and a back-fill replaces its folder."""
    table = pipeline.table
    pipeline.run()
    table.commit(table.metadata([*COLUMNS, column("more", "long")]), table.add("wide", rows(77)))
    logged = pipeline.run()
    assert "ALERT: s.s.t has new columns: more" in logged
    assert pipeline.stored(spark) == [*pipeline.expected, (3, 77)]
    for _ in range(2):
        pipeline.run("--backfill", "1", "2")
        assert pipeline.stored(spark, "t_backfill_1_2") == pipeline.expected[2:6]
    table.commit(table.metadata(COLUMNS[:1]), table.add("narrow", rows(78).select(["id"])))
    pipeline.log.unlink()
    logged = pipeline.run(code=3)
    assert "ALERT: " in logged
    assert "version 4" in logged
    assert pipeline.stored(spark) == [*pipeline.expected, (3, 77)]


@pytest.mark.slow
def test_delta_needs_delta_spark(pipeline: Pipeline) -> None:
    """PySpark does not bring Delta: the job ends at once, and has written nothing."""
    logged = pipeline.run("--format", "delta", code=2)
    assert "cannot write delta: submit the job with the delta-spark of this release of Spark" in logged
    assert "Traceback" not in logged
    assert not pipeline.checkpoint.exists()
    assert not pipeline.target.exists()
