"""Dask and Ray: the rows of a scan, read by their workers; only what is needed."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import dask
import pandas as pd
import pyarrow as pa
import pytest
from pandas.testing import assert_frame_equal
from pushdown_tables import NAME, write
from waiting import HANG

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import FilterError, MissingDependencyError, StorageError
from delta_sharing_client.server import SharingServer


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with SharingServer({NAME: write(tmp_path_factory.mktemp("mixed"))}) as started:
        yield started


@pytest.fixture(scope="module")
def table(server):
    with SharingClient(server.profile) as client:
        yield client.table(NAME)


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask_has_the_rows_of_the_scan(table, scheduler):
    scan = table.scan(columns=["id", "f", "s", "d", "t", "li", "o"], filters=[("i", ">=", 0)])
    frame = scan.to_dask(partition_size=2000)
    assert frame.npartitions > 1
    expected = scan.to_pandas(dtype_backend="pyarrow")
    assert list(frame.dtypes) == list(expected.dtypes)
    with dask.config.set(scheduler=scheduler):
        assert_frame_equal(frame.compute().reset_index(drop=True), expected)


def test_dask_fetches_the_columns_that_it_needs(tmp_path):
    import deltalake

    for day in range(3):
        columns = {f"c{n}": pa.array(range(day * n, 50_000 + day * n)) for n in range(12)}
        deltalake.write_deltalake(tmp_path, pa.table(columns), mode="append")
    with SharingServer({NAME: tmp_path}) as server, SharingClient(server.profile) as client:
        scan = client.table(NAME).scan(filters=[("c1", ">=", 0)])
        expected = scan.to_arrow()

        def fetched(read):
            before = len(server.requests)
            result = read()
            return sum(request.bytes_sent for request in server.requests[before:] if request.is_file), result

        full, _ = fetched(scan.to_arrow)
        size, total = fetched(lambda: scan.to_dask()["c3"].sum().compute(scheduler="synchronous"))
        assert total == sum(expected["c3"].to_pylist())
        assert size < full / 3


def test_changes_and_tables_without_rows(table, tmp_path):
    empty = table.scan(filters=[("id", "<", 0)])
    assert list(empty.to_dask().compute().columns) == table.scan().schema.names
    import deltalake

    feed = {"delta.enableChangeDataFeed": "true"}
    deltalake.write_deltalake(tmp_path, pa.table({"a": [1, 2]}), configuration=feed)
    with SharingServer({NAME: tmp_path}) as server, SharingClient(server.profile) as client:
        changes = client.table(NAME).changes(0).to_dask().compute()
        assert changes["_change_type"].tolist() == ["insert", "insert"]


def test_errors_of_the_query_come_at_once_and_those_of_files_from_the_workers(tmp_path):
    path = write(tmp_path / "mixed")
    with SharingServer({NAME: path}) as server, SharingClient(server.profile) as client:
        with pytest.raises(FilterError):
            client.table(NAME).scan(filters=[("i", "=", "no number")]).to_dask()
        frame = client.table(NAME).scan().to_dask()
        for file in path.rglob("*.parquet"):
            file.unlink()
        with pytest.raises(StorageError):
            frame.compute(scheduler="synchronous")


@pytest.mark.parametrize(
    ("package", "method"), [("dask", "to_dask"), ("ray", "to_ray"), ("polars", "to_polars_lazy")]
)
def test_a_missing_extra_is_named(table, monkeypatch, package, method):
    for name in [name for name in sys.modules if name.split(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"delta-sharing-client\[{package}\]"):
        getattr(table.scan(), method)()


def test_secrets_are_not_in_dask_graphs(server, table):
    frame = table.scan().to_dask()
    shown = repr(frame) + frame._repr_html_() + str(dict(frame.__dask_graph__()))
    assert "X-Amz" not in shown
    assert server.profile["bearerToken"] not in shown


@pytest.mark.slow
def test_ray_has_the_rows_of_the_scan(server, table, tmp_path):
    """In a process of its own, which ends Ray's processes with it."""
    server.write_profile(tmp_path / "config.share")
    job = f"""
    import os
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from delta_sharing_client import SharingClient

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    with SharingClient({str(tmp_path / "config.share")!r}) as client:
        table = client.table({NAME!r})
        scan = table.scan(columns=["id", "s", "d", "t", "li"], filters=[("i", ">=", 0)])
        rows = scan.to_ray(partition_size=2000)
        assert sorted(rows.to_pandas()["id"]) == sorted(scan.to_arrow()["id"].to_pylist())
        assert rows.schema().names == ["id", "s", "d", "t", "li"]
        empty = table.scan(columns=["id", "s"], filters=[("id", "<", 0)]).to_ray()
        assert empty.count() == 0
    ray.shutdown()
    print("rows are equal")
    """
    command = [sys.executable, "-c", textwrap.dedent(job)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=HANG, check=False)
    assert "rows are equal" in run.stdout, run.stderr[-3000:]


def test_frames_are_pandas(table):
    assert isinstance(table.scan(limit=3).to_dask().compute(), pd.DataFrame)
    assert len(table.scan(limit=3).to_dask().compute()) == 3
