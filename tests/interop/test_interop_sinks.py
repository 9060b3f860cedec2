"""Delta tables of sinks, read and written by delta-spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client import DeltaLog, SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.sinks import DeltaSink

TABLES = Path(__file__).parents[1] / "golden" / "tables"
NAMES = [
    "cdf_mapping",
    "nested",
    "partition_types",
    "primitives",
    "special_names",
    "special_names_mapped",
    "timestamp_ntz",
    "variant",
    "void",
]
#: Its dates are beyond those that deltalake writes.
EXTREME = "timestamps_extreme"
FEEDS = ["cdf", "cdf_dv", "cdf_mapping", "cdf_partitioned"]


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in {*NAMES, *FEEDS, EXTREME}}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


def rows(spark: Any, path: Path, *without: str) -> list[str]:
    """What delta-spark reads, each row as JSON, without some columns."""
    from pyspark.sql import functions as F

    frame = spark.read.format("delta").load(str(path)).drop(*without)
    # Of a map whose keys are structs Spark's JSON shows where they lie in memory.
    # A char(n) column is filled up with blanks by Spark alone; a copy has it as plain text.
    names = [name for name, kind in frame.dtypes if "map<struct" not in kind and name != "c"]
    columns = [F.col("`" + name.replace("`", "``") + "`") for name in names]
    return sorted(row[0] for row in frame.select(F.to_json(F.struct(*columns))).collect())


def follow(client: SharingClient, name: str, sink: DeltaSink, start: Any, **options: Any) -> None:
    shared = client.table(f"golden.tables.{name}")
    with sink, shared.poll_changes(starting_version=start, max_versions=2, **options) as poller:
        while (batch := poller.pull()) is not None:
            sink.write(batch)
            batch.commit()


@pytest.mark.parametrize("name", NAMES)
def test_delta_table_of_a_sink(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    follow(client, name, DeltaSink(tmp_path / "t", change_columns=False), "snapshot")
    assert rows(spark, tmp_path / "t") == rows(spark, TABLES / name / "table")


def test_extreme_timestamps_of_a_sink(spark: Any, client: SharingClient, tmp_path: Path) -> None:
    sink = DeltaSink(tmp_path / "t", change_columns=False)
    follow(client, EXTREME, sink, "snapshot", columns=["id", "ts"])
    assert rows(spark, tmp_path / "t") == rows(spark, TABLES / EXTREME / "table", "dt")


@pytest.mark.parametrize("name", FEEDS)
def test_delta_table_of_a_sink_after_several_batches(
    name: str, spark: Any, client: SharingClient, tmp_path: Path
) -> None:
    key = json.loads((TABLES / name / "case.json").read_text("utf-8"))["key"]
    follow(client, name, DeltaSink(tmp_path / "t", mode="apply", keys=key), 0)
    assert rows(spark, tmp_path / "t") == rows(spark, TABLES / name / "table")


def test_statistics_do_not_hide_rows(spark: Any, client: SharingClient, tmp_path: Path) -> None:
    """A filter for any value, which delta-spark answers by pruning, finds as many rows as in the original."""
    follow(client, "primitives", DeltaSink(tmp_path / "t", change_columns=False), "snapshot")
    original = spark.read.format("delta").load(str(TABLES / "primitives" / "table"))
    frame = spark.read.format("delta").load(str(tmp_path / "t"))
    for column in ("i8", "i64", "f32", "f64", "d9", "s", "ts"):
        for (value,) in frame.select(column).distinct().limit(5).collect():
            if value is not None:
                found, expected = (f.where(f[column].eqNullSafe(value)).count() for f in (frame, original))
                assert found == expected, (column, value)


def test_delta_spark_goes_on_where_a_sink_stopped(spark: Any, client: SharingClient, tmp_path: Path) -> None:
    """It appends to the table, and knows the txn of the sink for one of its own."""
    path = tmp_path / "t"
    sink = DeltaSink(path, change_columns=False)
    with client.table("golden.tables.timestamp_ntz").poll_changes(starting_version="snapshot") as poller:
        batch = poller.pull()
        assert batch is not None
        sink.write(batch)
    written = DeltaLog.for_table(path).latest_version()
    frame = spark.read.format("delta").load(str(path))
    count = frame.count()
    again = frame.limit(1).write.format("delta").mode("append")
    again.option("txnAppId", batch.poller_id).option("txnVersion", batch.last_version).save(str(path))
    assert spark.read.format("delta").load(str(path)).count() == count
    again.option("txnAppId", batch.poller_id).option("txnVersion", batch.last_version + 1).save(str(path))
    assert spark.read.format("delta").load(str(path)).count() == count + 1
    assert sink.last_version(batch.poller_id) == batch.last_version + 1
    assert DeltaLog.for_table(path).latest_version() == written + 1
