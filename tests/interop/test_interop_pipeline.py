"""examples/spark_pipeline.py --format delta: each change is stored once; schema changes, back-fill."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from change_tables import COLUMNS, rows
from loading.loading_tables import column
from pipeline_job import Pipeline

from delta_sharing_client.server import SharingServer


@pytest.fixture
def pipeline(delta_settings: dict[str, str], tmp_path: Path) -> Iterator[Pipeline]:
    pipeline = Pipeline(tmp_path, "--format", "delta", settings=delta_settings)
    with SharingServer({"s.s.t": pipeline.table.root}) as server:
        server.write_profile(tmp_path / "source.share")
        yield pipeline


def commits(pipeline: Pipeline) -> int:
    """The number of commits of the target: one of each batch that is stored."""
    return len(list((pipeline.target / "_delta_log").glob("[0-9]*.json")))


def table(pipeline: Pipeline, folder: str = "t") -> pa.Table:
    """The rows that deltalake reads."""
    target = deltalake.DeltaTable(pipeline.folder / folder)
    return pa.table(deltalake.QueryBuilder().register("t", target).execute("select * from t"))


def stored(pipeline: Pipeline, folder: str = "t") -> list[tuple[int, int]]:
    """The version and id of each row of the target, or of another folder; none before its first commit."""
    if not commits(pipeline) and folder == "t":
        return []
    found = table(pipeline, folder)
    return sorted(zip(found["_commit_version"].to_pylist(), found["id"].to_pylist(), strict=True))


def test_a_job_that_is_killed_stores_each_change_once(pipeline: Pipeline) -> None:
    """The first batch that is broken off is stored nowhere; the second is in the table, not in the checkpoint."""
    pipeline.kill_when(lambda: pipeline.count("offsets") > commits(pipeline) > 1)
    pipeline.kill_when(lambda: commits(pipeline) > pipeline.count("commits"))
    pipeline.grow(1)
    pipeline.run("--max-files", "1")
    assert stored(pipeline) == pipeline.expected
    assert commits(pipeline) == pipeline.count("commits")


def test_a_new_column_while_the_job_runs_and_a_dropped_one(pipeline: Pipeline) -> None:
    source = pipeline.table
    with pipeline.start("--follow", "--interval", "0") as process:
        pipeline.wait_until(lambda: stored(pipeline) == pipeline.expected, process)
        wide = rows(77).append_column("more", pa.array([7], pa.int64()))
        source.commit(source.metadata([*COLUMNS, column("more", "long")]), source.add("wide", wide))
        pipeline.expected.append((3, 77))
        pipeline.wait_until(lambda: stored(pipeline) == pipeline.expected, process)
    assert pipeline.log.read_text().count("ALERT: s.s.t has new columns: more") == 1
    more = table(pipeline)["more"].to_pylist()
    assert sorted(more, key=str) == [7, *[None] * 6]
    source.commit(source.metadata(COLUMNS[:1]), source.add("narrow", rows(78).select(["id"])))
    logged = pipeline.run(code=3)
    assert "version 4" in logged[logged.rindex("ALERT: ") :]
    assert stored(pipeline) == pipeline.expected


def test_a_backfill_replaces_its_folder(pipeline: Pipeline) -> None:
    """Also after a column was added to the source."""
    source = pipeline.table
    pipeline.run("--backfill", "1", "2")
    assert stored(pipeline, "t_backfill_1_2") == pipeline.expected[2:6]
    source.commit(source.metadata([*COLUMNS, column("more", "long")]), source.add("wide", rows(77)))
    pipeline.run("--backfill", "1", "2")
    assert stored(pipeline, "t_backfill_1_2") == pipeline.expected[2:6]
    assert not pipeline.target.exists()
    assert not pipeline.checkpoint.exists()
