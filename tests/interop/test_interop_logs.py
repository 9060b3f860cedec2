"""Logs of `DeltaLog`, read by delta-spark, deltalake and DuckDB, and theirs read by `DeltaLog`."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_sharing_client.log import DeltaLog, resolve_path, uri_of

FEATURES = {
    "minReaderVersion": 3,
    "minWriterVersion": 7,
    "readerFeatures": ["v2Checkpoint"],
    "writerFeatures": ["v2Checkpoint", "appendOnly", "invariants"],
}
LEGACY = {"minReaderVersion": 1, "minWriterVersion": 2}
NAMES = ["plain", "a b", "ü", "100%", "x=1/y z", "q#?&+", "p%41", "semi;colon,", "[b]{c}", "tilde~"]


def write_log(
    directory: Path, protocol: dict[str, Any], *, compact: bool = False, **properties: str
) -> tuple[DeltaLog, list[int]]:
    """Write a partitioned table of many versions; return its log and the values of its column `a`."""
    log = DeltaLog.for_table(directory)
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("p", "date"))]
    metadata = {
        "id": "0b4a2d0e-3f1c-4c39-9f53-24a57d5e1e1f",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
        "configuration": properties,
    }
    log.commit([{"protocol": protocol}, {"metaData": metadata}], "CREATE TABLE")
    values: list[int] = []
    before: dict[str, Any] = {}
    for number, name in enumerate([*NAMES, "gone", "last", "after"]):
        path = directory / f"{name}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": pa.array([number, number + 100])}), path)
        stats = {"numRecords": 2, "minValues": {"a": number}, "maxValues": {"a": number + 100}}
        add = {
            "path": uri_of(f"{name}.parquet"),
            "partitionValues": {"p": f"2024-01-{number + 1:02}"},
            "size": path.stat().st_size,
            "modificationTime": 1_700_000_000_000,
            "dataChange": True,
            "stats": json.dumps(stats | {"nullCount": {"a": 0}}),
        }
        actions: list[dict[str, Any]] = [{"add": add}]
        values += [number, number + 100]
        if name == "last":
            removed = {k: v for k, v in before.items() if k in ("path", "partitionValues", "size", "dataChange")}
            actions.append({"remove": removed | {"deletionTimestamp": 1, "extendedFileMetadata": True}})
            values = [value for value in values if value % 100 != number - 1]
        before = add
        log.commit(actions, "WRITE")
    if compact:
        log.checkpoint(11)
        for version in range(11):
            (directory / "_delta_log" / f"{version:020}.json").unlink()
    return log, sorted(values)


def write_cleaned_log(directory: Path) -> tuple[DeltaLog, list[int]]:
    """Write a log whose first commits were so old that a later commit removed them."""
    log, values = write_log(directory, LEGACY)
    old = time.time() - 60 * 86_400
    for version in range(13):
        os.utime(directory / "_delta_log" / f"{version:020}.json", (old + version, old + version))
    for number in range(7):
        log.commit([{"txn": {"appId": "filler", "version": number}}])
    assert min(path.name for path in (directory / "_delta_log").glob("0*")) == f"{10:020}.checkpoint.parquet"
    return log, values


LOGS: dict[str, Callable[[Path], tuple[DeltaLog, list[int]]]] = {
    "commits": lambda path: write_log(path, LEGACY),
    "classic": lambda path: write_log(path, LEGACY, compact=True),
    "struct": lambda path: write_log(
        path,
        LEGACY,
        compact=True,
        **{"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
    ),
    "cleaned": write_cleaned_log,
    "v2": lambda path: write_log(path, FEATURES, compact=True, **{"delta.checkpointPolicy": "v2"}),
}


@pytest.fixture(params=LOGS, scope="module")
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[int]]:
    directory = tmp_path_factory.mktemp("logs") / "table with space"
    _, values = LOGS[request.param](directory)
    return directory, values


def test_delta_spark_reads_our_logs(spark: Any, written: tuple[Path, list[int]]) -> None:
    directory, values = written
    frame = spark.read.format("delta").load(str(directory))
    assert sorted(row["a"] for row in frame.collect()) == values
    # Data skipping by our statistics and partition values, of the checkpoint.
    assert sorted(row["a"] for row in frame.where("a > 104").collect()) == [v for v in values if v > 104]
    assert sorted(row["a"] for row in frame.where("p = DATE'2024-01-03'").collect()) == [2, 102]


def test_delta_spark_appends_to_our_logs(spark: Any, written: tuple[Path, list[int]]) -> None:
    directory, values = written
    spark.sql(f"DELETE FROM delta.`{directory}` WHERE a < 5")
    spark.sql(f"INSERT INTO delta.`{directory}` VALUES (999, DATE'2025-01-01')")
    DeltaLog.clear_cache()
    log = DeltaLog.for_table(directory)
    snapshot = log.snapshot()
    found = []
    for file in snapshot.files:
        found += pq.ParquetFile(resolve_path(directory, file.path)).read(["a"])["a"].to_pylist()
    assert sorted(found) == sorted([v for v in values if v >= 5] + [999])
    assert log.history()[0].operation == "WRITE"
    values[:] = sorted(found)
    # And we on top of that again.
    (removed,) = [file for file in snapshot.files if file.partition_values["p"] == "2025-01-01"]
    log.commit(
        [
            {
                "remove": {
                    "path": removed.path,
                    "deletionTimestamp": 1,
                    "dataChange": True,
                    "extendedFileMetadata": True,
                    "partitionValues": removed.partition_values,
                    "size": removed.size,
                }
            }
        ],
        "DELETE",
    )
    values.remove(999)
    frame = spark.read.format("delta").load(str(directory))
    assert sorted(row["a"] for row in frame.collect()) == values


def test_deltalake_reads_our_logs(written: tuple[Path, list[int]]) -> None:
    deltalake = pytest.importorskip("deltalake")
    directory, values = written
    table = deltalake.DeltaTable(directory)
    rows = pa.table(deltalake.QueryBuilder().register("t", table).execute("select a from t"))
    assert sorted(rows["a"].to_pylist()) == values


def test_duckdb_reads_our_logs(duck: Any, written: tuple[Path, list[int]]) -> None:
    directory, values = written
    rows = duck.execute("select a from delta_scan(?)", [str(directory)]).fetchall()
    assert sorted(value for (value,) in rows) == values


def test_many_sidecars(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.log.checkpoint_writer._ROWS_PER_SIDECAR", 4)
    _, values = write_log(tmp_path / "t", FEATURES, compact=True, **{"delta.checkpointPolicy": "v2"})
    assert len(list((tmp_path / "t" / "_delta_log" / "_sidecars").iterdir())) >= 3
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    assert sorted(row["a"] for row in frame.collect()) == values
