"""Snapshots of local logs in Spark: rows of golden tables, selected files, files that Spark cannot read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from golden.test_golden import CASES, READABLE, TABLES, Case
from loading_tables import File, column, write_table
from test_golden_spark import collected, same_rows

import delta_sharing_client as ds
from delta_sharing_client.delta.table.materialize_snapshot import SignedUrlsWarning
from delta_sharing_client.server import SharingServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

#: One table for each way in which a file and its table differ.
FEW = (
    "dv_shared_file",
    "mapping_id_partition_dv",
    "widening_evolved",
    "partition_types",
    "special_names",
    "empty",
)
ROWS = pa.table({"a": pa.array(range(6), pa.int64()), "day": pa.array(["x", "x", "x", "y", "y", "z"])})


def golden(spark: SparkSession, case: Case) -> None:
    snapshot = ds.DeltaLog.for_table(TABLES / case.name / "table").snapshot()
    frame = snapshot.to_spark(spark, variant="json")
    same_rows(collected(frame), snapshot.to_arrow(variant="json"), case.key)


@pytest.mark.parametrize("name", FEW)
def test_rows_of_golden_tables(spark: SparkSession, name: str) -> None:
    golden(spark, CASES[name])


@pytest.mark.slow
@pytest.mark.parametrize("case", [case for case in READABLE if case.id not in FEW])
def test_rows_of_the_other_golden_tables(spark: SparkSession, case: Case) -> None:
    golden(spark, case)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["day"])
    return tmp_path / "t"


def test_selected_rows_and_files(spark: SparkSession, table: Path) -> None:
    snapshot = ds.DeltaLog.for_table(table).snapshot()
    assert sorted(snapshot.to_spark(spark).where("day = 'x'").select("a").collect()) == [(0,), (1,), (2,)]
    assert sorted(snapshot.to_spark(spark, filters="a > 3", columns=["a"]).collect()) == [(4,), (5,)]
    assert snapshot.to_spark(spark, limit=2).count() == 2
    files = snapshot.files(filters="day = 'y'")
    assert sorted(snapshot.to_spark(spark, add_files=files, columns=["a"]).collect()) == [(3,), (4,)]
    assert snapshot.to_spark(spark, add_files=[]).count() == 0


def test_a_snapshot_is_no_stream(table: Path) -> None:
    with pytest.raises(ds.errors.SparkError, match=r"spark\.readStream\.format\('deltaSharing'\)"):
        ds.DeltaLog.for_table(table).snapshot().to_spark(is_streaming=True)


def test_files_of_equal_names_keep_their_own_deleted_rows(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"a": pa.array(range(3), pa.int64())})
    write_table(
        tmp_path / "t",
        [column("a", "long"), column("p", "string")],
        [
            File(rows=rows, name=f"p={value}/f", values={"p": value}, vector=[gone])
            for value, gone in (("x", 0), ("y", 2))
        ],
        partitions=["p"],
        features=["deletionVectors"],
    )
    frame = ds.DeltaLog.for_table(tmp_path / "t").snapshot().to_spark(spark)
    assert sorted(frame.collect()) == [(0, "y"), (1, "x"), (1, "y"), (2, "x")]


@pytest.mark.filterwarnings(f"ignore::{SignedUrlsWarning.__module__}.{SignedUrlsWarning.__name__}")
def test_urls_of_a_materialized_snapshot(spark: SparkSession, table: Path, tmp_path: Path) -> None:
    with SharingServer({"s.s.t": table}) as server, ds.SharingClient(server.profile) as client:
        client.table("s.s.t").scan().materialize(tmp_path / "copy", data="urls", progress=False)
        snapshot = ds.DeltaLog.for_table(tmp_path / "copy", allow_absolute_paths=True).snapshot()
        frame = snapshot.to_spark(spark)
        assert sorted(frame.select("a").collect()) == [(n,) for n in range(6)]
        assert "token" not in json.dumps(frame._jdf.queryExecution().toString())
