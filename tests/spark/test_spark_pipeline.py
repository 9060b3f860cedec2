"""examples/spark_pipeline.py: each change is stored once, however the job ends; schema changes, back-fill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from change_tables import COLUMNS, rows
from loading.loading_tables import column
from pipeline_job import Pipeline

from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.session import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.skipif(pyspark_version() < (4, 0), reason="Spark 3.5 has no Python data sources")


def stored(pipeline: Pipeline, spark: SparkSession, folder: str = "t") -> list[tuple[int, int]]:
    """The rows that Spark reads: version and id."""
    frame = spark.read.option("mergeSchema", "true").parquet(str(pipeline.folder / folder))
    return sorted(map(tuple, frame.select("_commit_version", "id").collect()))


@pytest.fixture
def pipeline(java: Path, tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path)
    with SharingServer({"s.s.t": pipeline.table.root}) as server:
        server.write_profile(tmp_path / "source.share")
        yield pipeline


@pytest.mark.slow
def test_a_job_that_is_killed_stores_each_change_once(pipeline: Pipeline, spark: SparkSession) -> None:
    # Within a batch after the second.
    pipeline.kill_when(lambda: pipeline.count("offsets") > pipeline.count("commits") > 1)
    pipeline.grow(2)
    pipeline.run()
    if pyspark_version() < (4, 2):  # a run is one batch: the one that was broken off; then the rest
        pipeline.run()
    assert stored(pipeline, spark) == pipeline.expected


@pytest.mark.slow
def test_columns_and_backfill(pipeline: Pipeline, spark: SparkSession) -> None:
    """A new column is followed, a dropped one ends the job, and a back-fill replaces its folder."""
    table = pipeline.table
    pipeline.run()
    table.commit(table.metadata([*COLUMNS, column("more", "long")]), table.add("wide", rows(77)))
    logged = pipeline.run()
    assert "ALERT: s.s.t has new columns: more" in logged
    assert stored(pipeline, spark) == [*pipeline.expected, (3, 77)]
    for _ in range(2):
        pipeline.run("--backfill", "1", "2")
        assert stored(pipeline, spark, "t_backfill_1_2") == pipeline.expected[2:6]
    table.commit(table.metadata(COLUMNS[:1]), table.add("narrow", rows(78).select(["id"])))
    pipeline.log.unlink()
    logged = pipeline.run(code=3)
    assert "ALERT: " in logged
    assert "version 4" in logged
    assert stored(pipeline, spark) == [*pipeline.expected, (3, 77)]


@pytest.mark.slow
def test_delta_needs_delta_spark(pipeline: Pipeline) -> None:
    """PySpark does not bring Delta: the job ends at once, and has written nothing."""
    logged = pipeline.run("--format", "delta", code=2)
    assert "cannot write delta: submit the job with the delta-spark of this release of Spark" in logged
    assert "Traceback" not in logged
    assert not pipeline.checkpoint.exists()
    assert not pipeline.target.exists()
