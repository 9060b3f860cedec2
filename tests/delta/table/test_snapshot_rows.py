"""Rows of the snapshots of `DeltaLog`: selection, forms, local files, and the URLs of materialized snapshots."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from loading_tables import File, column, write_table
from waiting import wait_until

import delta_sharing_client as ds
from delta_sharing_client.delta.table.materialize_snapshot import SignedUrlsWarning
from delta_sharing_client.errors import (
    ColumnError,
    DeltaLogError,
    DeltaTableNotFoundError,
    FileGoneError,
    FilterError,
)

ROWS = pa.table({"a": pa.array(range(6), pa.int64()), "day": pa.array(["x", "x", "x", "y", "y", "z"])})


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_deltalake(tmp_path / "t", ROWS, partition_by=["day"])
    return tmp_path / "t"


def snapshot_of(table: Path, **options: Any) -> Any:
    return ds.DeltaLog.for_table(table, **options).snapshot()


def test_all_forms_have_the_same_rows(table: Path) -> None:
    snapshot = snapshot_of(table)
    expected = sorted(ROWS.to_pylist(), key=lambda row: row["a"])
    assert sorted(snapshot.to_arrow().to_pylist(), key=lambda row: row["a"]) == expected
    assert sorted(snapshot.to_pandas()["a"]) == list(range(6))
    assert snapshot.to_polars().sort("a")["day"].to_list() == ROWS["day"].to_pylist()
    assert sorted(snapshot.to_duckdb().fetchall()) == [(row["a"], row["day"]) for row in expected]
    assert pl.DataFrame(snapshot.scan()).height == 6
    assert len(snapshot.head(2)) == 2


def test_columns_filters_and_limit(table: Path) -> None:
    snapshot = snapshot_of(table)
    assert snapshot.to_arrow(columns=["DAY"], filters=[("a", ">=", 5)]).to_pydict() == {"day": ["z"]}
    assert snapshot.to_arrow(limit=2).num_rows == 2
    assert snapshot.count(filters="day = 'x' AND a > 0") == 2
    assert snapshot.scan(["a"]).schema == pa.schema([("a", pa.int64())])
    with pytest.raises(ColumnError):
        snapshot.to_arrow(columns=["b"])
    with pytest.raises(TypeError, match="version"):
        snapshot.to_arrow(version=1)


def test_files_are_selected_by_partition_values_and_statistics(table: Path) -> None:
    files = snapshot_of(table).files
    assert len(files) == len(files()) == 3
    assert [file.partition_values for file in files(filters="day = 'y'")] == [{"day": "y"}]
    assert [file.partition_values for file in files(filters=[("a", "<", 1)])] == [{"day": "x"}]
    assert files(filters="day = 'w'") == ()
    assert isinstance(pickle.loads(pickle.dumps(files)), tuple)
    with pytest.raises(FilterError):
        files(filters="day >")


def test_properties_of_the_log(table: Path) -> None:
    log = ds.DeltaLog.for_table(table)
    assert (log.data_path, log.log_path) == (table, table / "_delta_log")
    assert log.metadata.partition_columns == ("day",)
    assert (log.checkpoint_interval, log.tombstone_retention) == (10, timedelta(days=7))
    changed = dict(log.metadata.raw) | {
        "configuration": {
            "delta.checkpointInterval": "3",
            "delta.deletedFileRetentionDuration": "interval 2 days",
        }
    }
    log.commit([{"metaData": changed}])
    assert (log.checkpoint_interval, log.tombstone_retention) == (3, timedelta(days=2))


def test_a_directory_without_a_table(tmp_path: Path) -> None:
    log = ds.DeltaLog.for_table(tmp_path)
    assert log.snapshot().version == -1
    assert log.snapshot().files() == ()
    for read in (lambda: log.metadata, log.snapshot().to_arrow, log.snapshot().count):
        with pytest.raises(DeltaTableNotFoundError):
            read()


def test_a_function_in_a_new_transaction(table: Path) -> None:
    log = ds.DeltaLog.for_table(table)
    committed = log.with_new_transaction(
        lambda transaction: (transaction.read_version, transaction.commit([{"txn": {"appId": "j", "version": 5}}]))
    )
    assert committed == (0, 1)
    assert log.snapshot().transactions["j"].version == 5


def test_an_asynchronous_update_returns_the_last_snapshot_at_once(table: Path) -> None:
    log = ds.DeltaLog.for_table(table)
    assert log.update(asynchronous=True).version == 0
    write_deltalake(table, ROWS, mode="append")
    assert log.update(asynchronous=True).version == 0
    wait_until(lambda: log.update(staleness_acceptable=True).version == 1)
    assert log.update(asynchronous=True).to_arrow().num_rows == 12


def test_a_failed_asynchronous_update_is_logged(table: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = ds.DeltaLog.for_table(table)
    log.update()
    (table / "_delta_log" / f"{1:020}.json").write_text("{")
    with caplog.at_level(logging.WARNING):
        assert log.update(asynchronous=True).version == 0
        wait_until(lambda: "was not updated" in caplog.text)
    (table / "_delta_log" / f"{1:020}.json").unlink()
    wait_until(lambda: log._refreshing.acquire(blocking=False))
    log._refreshing.release()


def test_a_pickled_log_gives_rows(table: Path) -> None:
    log = pickle.loads(pickle.dumps(ds.DeltaLog.for_table(table)))
    assert log.snapshot().to_arrow().num_rows == 6


def test_deleted_rows_and_renamed_columns(tmp_path: Path) -> None:
    write_table(
        tmp_path / "t",
        [column("a", "long", **{"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "c"})],
        [File(rows=pa.table({"c": pa.array(range(4), pa.int64())}), name="f", vector=[1, 2])],
        configuration={"delta.columnMapping.mode": "name"},
        features=["columnMapping", "deletionVectors"],
    )
    assert snapshot_of(tmp_path / "t").to_arrow().to_pydict() == {"a": [0, 3]}


def test_links_and_paths_outside_need_a_trusted_log(table: Path, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a": pa.array([9], pa.int64())}), tmp_path / "secret.parquet")
    log = ds.DeltaLog.for_table(table)
    raw = {"size": 0, "modificationTime": 0, "dataChange": True, "partitionValues": {"day": "x"}}
    commit = table / "_delta_log" / f"{1:020}.json"
    commit.write_text(json.dumps({"add": raw | {"path": "../secret.parquet"}}))
    with pytest.raises(DeltaLogError, match="outside"):
        log.snapshot().to_arrow()
    (table / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    commit.write_text(json.dumps({"add": raw | {"path": "link.parquet", "tags": {}}}))
    with pytest.raises(DeltaLogError, match="symbolic link"):
        log.snapshot().to_arrow()
    trusted = ds.DeltaLog.for_table(table, allow_absolute_paths=True)
    assert 9 in trusted.snapshot().to_arrow()["a"].to_pylist()


def test_a_missing_file_is_named(table: Path) -> None:
    (file,) = (table / "day=z").glob("*.parquet")
    file.unlink()
    with pytest.raises(FileGoneError, match=file.name) as caught:
        snapshot_of(table).to_arrow()
    assert str(table) in str(caught.value)
    assert snapshot_of(table).to_arrow(filters="day = 'x'").num_rows == 3


@pytest.mark.filterwarnings(f"ignore::{SignedUrlsWarning.__module__}.{SignedUrlsWarning.__name__}")
def test_urls_of_a_materialized_snapshot_are_read(
    table: Path, tmp_path: Path, serve: Callable[..., Any], connect: Callable[..., Any]
) -> None:
    scan = connect(serve({"s.s.t": table})).table("s.s.t").scan()
    scan.materialize(tmp_path / "copy", data="urls", progress=False)
    with pytest.raises(DeltaLogError, match="allow_absolute_paths"):
        snapshot_of(tmp_path / "copy").to_arrow()
    snapshot = snapshot_of(tmp_path / "copy", allow_absolute_paths=True)
    assert snapshot.to_arrow().sort_by("a") == scan.to_arrow().sort_by("a")
    assert snapshot.count(filters="a = 4") == 1
    assert len(snapshot.files(filters="day = 'y'")) == 1
