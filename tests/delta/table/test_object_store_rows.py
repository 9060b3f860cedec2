"""Rows of snapshots in object stores: the golden tables, ranges, gone and damaged files, S3 itself."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from moto.server import ThreadedMotoServer

import delta_sharing_client as ds
from delta_sharing_client.errors import CommitConflictError, DataError, DeltaLogError, FileGoneError, StorageError
from delta_sharing_client.log import store_path

GOLDEN = Path(__file__).parents[2] / "golden" / "tables"
SECRET = "canary-secret-of-s3"
CHOSEN = [
    "cdf_dv",
    "checkpoint_cleaned",
    "checkpoint_dv_mapping",
    "checkpoint_multipart",
    "checkpoint_v2_json",
    "checkpoint_v2_parquet",
    "dv_inline",
    "dv_shared_file",
    "in_commit_timestamps",
    "mapping_id_partition_dv",
    "special_names",
    "time_travel",
]


@pytest.fixture(autouse=True)
def _empty() -> Iterator[None]:
    yield
    ds.DeltaLog.clear_cache()
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


def copied(directory: Path, url: str = "memory://bucket/t", **options: Any) -> ds.DeltaLog:
    system, root = fsspec.core.url_to_fs(url, **options)
    for file in directory.rglob("*"):
        if file.is_file():
            system.pipe_file(f"{root}/{file.relative_to(directory).as_posix()}", file.read_bytes())
    return ds.DeltaLog.for_table(url, storage_options=options)


def sorted_rows(table: pa.Table) -> list[str]:
    return sorted(map(repr, table.to_pylist()))


@pytest.mark.parametrize("name", CHOSEN)
def test_golden_tables_have_the_rows_of_their_local_copies(name: str) -> None:
    local, log = ds.DeltaLog.for_table(GOLDEN / name / "table"), copied(GOLDEN / name / "table")
    assert log.latest_version() == local.latest_version()
    history = local.history()
    assert [(info.version, info.raw) for info in log.history()] == [(info.version, info.raw) for info in history]
    for version in (info.version for info in history):
        expected = local.snapshot_at(version)
        snapshot = log.snapshot_at(version)
        assert sorted_rows(snapshot.to_arrow()) == sorted_rows(expected.to_arrow())
        assert snapshot.count() == expected.count()
    first = history[-1].version
    assert [commit.actions for commit in log.changes(first)] == [c.actions for c in local.changes(first)]
    if name.startswith("in_commit"):
        assert [info.timestamp for info in log.history()] == [info.timestamp for info in history]


@pytest.fixture
def wide(tmp_path: Path) -> Path:
    """A table with one file, large enough for ranges to be worth it."""
    numbers = pa.array(range(200_000), pa.int64())
    write_deltalake(tmp_path / "wide", pa.table({f"c{n}": numbers for n in range(8)}))
    return tmp_path / "wide"


def test_columns_filters_and_limits(wide: Path) -> None:
    snapshot = copied(wide).snapshot()
    assert snapshot.to_arrow(columns=["c3"], filters="c1 >= 199999").to_pydict() == {"c3": [199_999]}
    assert snapshot.to_pandas(columns=["c0"], limit=3)["c0"].tolist() == [0, 1, 2]
    assert len(snapshot.files(filters="c0 > 300000")) == 0
    assert snapshot.count() == 200_000


def test_missing_and_damaged_files_are_named(wide: Path) -> None:
    log = copied(wide)
    snapshot = log.snapshot()
    (path,) = [name for name in fsspec.filesystem("memory").store if name.endswith(".parquet")]
    store = fsspec.filesystem("memory").store
    data = store[path].getvalue()
    fsspec.filesystem("memory").pipe_file(path, data[:-1])
    with pytest.raises(DataError, match="bytes; the table's metadata has"):
        snapshot.to_arrow()
    del store[path]
    with pytest.raises(FileGoneError, match="no such file: vacuum may"):
        snapshot.to_arrow()
    outside = {"add": dict(snapshot.files[0].raw) | {"path": "../other"}}
    fsspec.filesystem("memory").pipe_file(f"/bucket/t/_delta_log/{1:020}.json", json.dumps(outside).encode())
    with pytest.raises(DeltaLogError, match=r"'\.\./other', which is not in the table's directory"):
        log.snapshot().to_arrow()


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("memory://bucket/other/p.parquet", True),
        ("memory://elsewhere/p", False),
        ("s3://bucket/p", False),
        ("/p", False),
    ],
)
def test_absolute_paths(path: str, allowed: bool) -> None:
    system = fsspec.filesystem("memory")
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"a": pa.array([1], pa.int64())}), sink)
    data = sink.getvalue().to_pybytes()
    system.pipe_file("/bucket/other/p.parquet", data)
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {}}
    described = {
        "id": "1",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": [field]}),
        "partitionColumns": [],
        "configuration": {},
    }
    added = {"path": path, "partitionValues": {}, "size": len(data), "modificationTime": 0, "dataChange": True}
    log = ds.DeltaLog.for_table("memory://bucket/t", allow_absolute_paths=True)
    protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    log.commit([{"protocol": protocol}, {"metaData": described}, {"add": added}])
    with pytest.raises(DeltaLogError, match="names files by absolute paths"):
        ds.DeltaLog.for_table("memory://bucket/t").snapshot().to_arrow()
    snapshot = log.snapshot()
    if allowed:
        assert snapshot.to_arrow().to_pydict() == {"a": [1]}
    else:
        with pytest.raises(DeltaLogError, match="which is not in the table's directory"):
            snapshot.to_arrow()


def test_spark_and_local_tools_refuse_a_store_by_name(wide: Path) -> None:
    snapshot = copied(wide).snapshot()
    with pytest.raises(DeltaLogError, match="memory://bucket/t: this needs a local directory"):
        snapshot.to_spark()


@pytest.fixture(scope="module")
def s3() -> Iterator[dict[str, Any]]:
    """The options of an S3 endpoint on loopback."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    endpoint = "http://{}:{}".format(*server.get_host_and_port())
    yield {
        "key": "AKIAEXAMPLE",
        "secret": SECRET,
        "client_kwargs": {"endpoint_url": endpoint, "region_name": "us-east-1"},
    }
    server.stop()


def test_s3_commits_exclusively_and_returns_the_rows(s3: dict[str, Any], wide: Path) -> None:
    system = fsspec.filesystem("s3", **s3, skip_instance_cache=True)
    system.call_s3("create_bucket", Bucket="bucket")
    url = "s3://bucket/some/t"
    log = copied(wide, url, **s3)
    assert repr(log) == f"DeltaLog({url!r})"
    snapshot = log.snapshot()
    assert snapshot.to_arrow(columns=["c7"], filters="c0 = 5").to_pydict() == {"c7": [5]}
    modified = system.modified(f"bucket/some/t/_delta_log/{0:020}.json")
    assert snapshot.timestamp == int(modified.timestamp() * 1000)
    added = dict(snapshot.files[0].raw)

    def write(name: str) -> list[int]:
        other = ds.DeltaLog(store_path.open_location(url, s3))
        return [other.commit([{"txn": {"appId": name + n, "version": 1}}], max_retries=99) for n in "xy"]

    with ThreadPoolExecutor(3) as pool:
        versions = [version for found in pool.map(write, "abc") for version in found]
    assert sorted(versions) == list(range(1, 7))
    assert len(log.snapshot().transactions) == 6
    log.checkpoint()
    assert system.exists(f"bucket/some/t/_delta_log/{6:020}.checkpoint.parquet")
    stale = log.start_transaction()
    log.commit([{"remove": {"path": added["path"], "deletionTimestamp": 1, "dataChange": True}}])
    with pytest.raises(CommitConflictError) as caught:
        stale.commit([{"txn": {"appId": "z", "version": 1}}])
    assert caught.value.commit_info["operation"] == "WRITE"
    assert log.snapshot().count() == 0
    assert not [name for name in system.ls("bucket/some/t/_delta_log", detail=False) if "exclusive" in name]


def test_s3_errors_have_no_credentials(s3: dict[str, Any]) -> None:
    log = ds.DeltaLog.for_table("s3://no-bucket/t", storage_options=s3)
    for call in (log.snapshot, log.latest_version, lambda: log.table_exists):
        with pytest.raises(DeltaLogError, match="s3://no-bucket/t: there is no such bucket or container"):
            call()
    metadata = ds.DeltaLog.for_table(GOLDEN / "primitives" / "table").metadata.raw
    log = ds.DeltaLog.for_table("s3://made/t", storage_options=s3)
    fsspec.filesystem("s3", **s3, skip_instance_cache=True).call_s3("create_bucket", Bucket="made")
    transaction = log.start_transaction()
    fsspec.filesystem("s3", **s3, skip_instance_cache=True).call_s3("delete_bucket", Bucket="made")
    with pytest.raises(DeltaLogError, match="s3://made/t: there is no such bucket or container") as caught:
        transaction.commit(
            [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": dict(metadata)}]
        )
    assert SECRET not in repr(caught.value) + str(vars(log))
    assert not isinstance(caught.value, StorageError)


def test_an_s3_endpoint_that_refuses_is_named() -> None:
    with socket.socket() as bound:  # and not listening
        bound.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{bound.getsockname()[1]}"
        endpoint = f"http://{address}"
        options = {"key": "AKIAEXAMPLE", "secret": SECRET, "client_kwargs": {"endpoint_url": endpoint}}
        config = {"retries": {"max_attempts": 1}}
        log = ds.DeltaLog.for_table("s3://bucket/t", storage_options=options | {"config_kwargs": config})
        with pytest.raises(DeltaLogError, match=rf"endpoint URL: \"http://{address}/bucket\?\*\*\*\"") as caught:
            log.snapshot()
    assert SECRET not in str(caught.value)
