"""A table in the hand: its rows, history, columns and files in one call; names that IPython offers."""

from __future__ import annotations

import inspect
import io
from collections.abc import Iterator
from datetime import UTC
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import delta_sharing_client as ds
from delta_sharing_client.delta.mirror.mirror import Mirror, MirrorScan
from delta_sharing_client.scan.table_rows import Selection
from delta_sharing_client.server import SharingServer, write_sample_tables
from delta_sharing_client.table.delta_log import Snapshot
from delta_sharing_client.table.snapshot_scan import SnapshotScan


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    with SharingServer(write_sample_tables(tmp_path_factory.mktemp("hand"))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server: SharingServer) -> Iterator[ds.SharingClient]:
    with ds.SharingClient(server.profile) as opened:
        yield opened


@pytest.fixture(scope="module")
def orders(client: ds.SharingClient) -> ds.SharedTable:
    return client.table("retail.sales.orders")


@pytest.fixture(scope="module")
def some(orders: ds.SharedTable) -> pa.Table:
    return orders.scan(["order_id", "region"], [("order_id", "<", 50)], version=3).to_arrow()


SOME = {"columns": ["order_id", "region"], "filters": [("order_id", "<", 50)], "version": 3}


class TestRows:
    def test_the_methods_take_the_arguments_of_a_scan(self) -> None:
        parameters = list(inspect.signature(ds.SharedTable.scan).parameters)
        assert list(Selection.__annotations__) == parameters[1:]

    def test_every_form_has_the_rows_of_the_scan(self, orders: ds.SharedTable, some: pa.Table) -> None:
        assert orders.to_arrow(**SOME).equals(some)
        assert orders.to_pandas(**SOME).equals(some.to_pandas())
        assert orders.to_pandas(dtype_backend="pyarrow", **SOME).dtypes["order_id"] == pd.ArrowDtype(pa.int64())
        assert orders.to_polars(**SOME).to_dicts() == some.to_pylist()
        with duckdb.connect() as connection:
            rows = orders.to_duckdb(connection, **SOME).fetchall()
        assert rows == [tuple(row.values()) for row in some.to_pylist()]
        assert orders.count(**SOME) == len(some)

    @pytest.mark.parametrize(
        ("table", "scan"), [(ds.SharedTable, ds.TableScan), (Snapshot, SnapshotScan), (Mirror, MirrorScan)]
    )
    def test_a_table_has_the_methods_of_its_scan(self, table: type, scan: type) -> None:
        def parameters(kind: type, name: str) -> dict[str, tuple[Any, Any]]:
            found = inspect.signature(getattr(kind, name)).parameters
            return {key: (value.kind, value.default) for key, value in found.items()}

        loads = {name for name in dir(scan) if name.startswith("to_")}
        assert "to_csv" in loads
        for name in loads:
            own = parameters(table, name)
            assert own.pop("selection") == (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.empty)
            assert own == parameters(scan, name), name

    def test_files_readers_and_datasets(self, orders: ds.SharedTable, some: pa.Table, tmp_path: Path) -> None:
        assert orders.to_record_batch_reader(**SOME).read_all().equals(some)
        assert orders.to_dataset(**SOME).to_table().equals(some)
        assert orders.to_polars_lazy(**SOME).collect().to_dicts() == some.to_pylist()
        for name, write in (("a.parquet", orders.to_parquet), ("b.parquet", orders.to_file)):
            assert write(tmp_path / name, **SOME) == len(some)
            assert pq.read_table(tmp_path / name).equals(some)
        assert orders.to_csv(tmp_path / "c.csv", **SOME) == len(some)
        assert pd.read_csv(tmp_path / "c.csv")["order_id"].to_list() == some["order_id"].to_pylist()

    def test_mirrors_and_snapshots(self, orders: ds.SharedTable, some: pa.Table, tmp_path: Path) -> None:
        mirror = orders.mirror(tmp_path / "mirror")
        mirror.sync(at_version=3)
        given = {name: SOME[name] for name in ("columns", "filters")}
        for table in (mirror, ds.DeltaLog.for_table(mirror.directory).snapshot()):
            assert sorted(table.to_arrow(**given).to_pylist(), key=str) == sorted(some.to_pylist(), key=str)
            assert table.count(**given) == len(some)
            assert table.to_csv(tmp_path / "rows.csv", overwrite=True, **given) == len(some)
        assert mirror.head(2, version=3).shape == (2, len(orders.columns))

    def test_head(self, orders: ds.SharedTable) -> None:
        assert orders.head()["order_id"].to_list() == [0, 1, 2, 3, 4]
        assert len(orders.head(3, columns=["region"])) == 3
        with pytest.raises(ValueError, match="limit is -1"):
            orders.head(-1)

    def test_the_names_of_the_official_client(self, orders: ds.SharedTable) -> None:
        assert orders.snapshot(limit=3).to_pandas().equals(orders.head(3))
        assert orders.snapshot(version=0).count() == 10_000
        first = orders.head(3)["order_id"].to_list()
        for batches in (orders.snapshot(limit=3).to_record_batches(), orders.to_record_batches(limit=3)):
            assert [value for batch in batches for value in batch.column("order_id").to_pylist()] == first
        scan = orders.snapshot(timestamp="2024-01-01T00:00:00Z", jsonPredicateHints="{}", use_delta_format=False)
        assert scan.options.response_format == "parquet"
        assert orders.metadata(use_delta_format=False).schema_string
        assert orders.protocol(response_format="delta").response_format == "delta"
        assert orders.protocol(use_delta_format=False).response_format == "parquet"
        with pytest.raises(TypeError, match="use_delta_format"):
            orders.snapshot(use_delta_format="yes")


class TestDescription:
    def test_columns_and_schema(self, orders: ds.SharedTable) -> None:
        schema = orders.schema()
        assert orders.columns == schema.names == [field.name for field in schema]
        assert len(schema) == len(orders.columns)
        assert schema["REGION"] is schema["region"]
        assert str(schema["amount"].type) == "decimal(12,2)"
        assert "Region" in schema
        assert schema["region"] in schema
        assert "nope" not in schema
        with pytest.raises(KeyError, match="did you mean 'region'"):
            schema["regoin"]

    def test_text_is_the_name(self, orders: ds.SharedTable) -> None:
        assert str(orders) == "retail.sales.orders"
        assert repr(orders) == "SharedTable('retail.sales.orders')"

    def test_history(self, orders: ds.SharedTable) -> None:
        latest, before, *_ = orders.history(2)
        assert (latest.version, latest.updated, before.version, before.deleted) == (7, 8, 6, 10)
        assert latest.time.tzinfo is not None
        assert latest.time.astimezone(UTC) > before.time
        assert [row.version for row in orders.history()] == [7, 6, 5, 4, 3, 2, 1, 0]
        assert list(pd.DataFrame(orders.history()))[:2] == ["version", "time"]


class TestClient:
    def test_tables(self, client: ds.SharingClient) -> None:
        assert [table.name for table in client.tables()] == client.list_all_tables()
        assert client.tables("retail") == client.tables()
        assert client.tables("`retail`") == client.tables()
        assert client.get_share("`retail`") == client.get_share("retail")
        assert client.list_schemas("`retail`") == client.list_schemas("retail")

    def test_names_that_ipython_offers(self, client: ds.SharingClient, orders: ds.SharedTable) -> None:
        assert "retail.sales.orders" in client._ipython_key_completions_()
        assert client["retail.sales.orders"] == client["`retail`.`sales`.`orders`"] == orders
        assert orders.schema()._ipython_key_completions_() == orders.columns

    def test_names_in_backticks(self, server: SharingServer, tmp_path: Path) -> None:
        profile = server.write_profile(tmp_path / "config.share")
        assert ds.get_table_version(f"{profile}#`retail`.`sales`.`orders`") == 7


class TestMistakes:
    @pytest.mark.parametrize("use", [pd.DataFrame, list, iter, len], ids=lambda use: use.__name__)
    def test_a_scan_is_no_list_of_rows(self, orders: ds.SharedTable, use: type) -> None:
        with pytest.raises(TypeError, match=r"to_pandas|has no len"):
            use(orders.scan())
        with pytest.raises(TypeError, match=r"to_pandas|has no len"):
            use(orders.changes(6))


class TestFiles:
    @pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
    def test_the_suffix_selects_the_format(
        self, orders: ds.SharedTable, some: pa.Table, tmp_path: Path, suffix: str
    ) -> None:
        path = tmp_path / f"rows.{suffix}"
        assert orders.scan(**SOME).to_file(path) == len(some)
        if suffix == "parquet":
            assert pq.read_table(path).equals(some)
        elif suffix == "arrow":
            assert pa.ipc.open_file(path).read_all().equals(some)
        else:
            assert len(path.read_text().splitlines()) == len(some) + (suffix == "csv")

    def test_parquet_and_csv_by_name(self, orders: ds.SharedTable, some: pa.Table, tmp_path: Path) -> None:
        scan = orders.scan(**SOME)
        scan.to_parquet(str(tmp_path / "rows"))
        assert pq.read_table(tmp_path / "rows").equals(some)
        scan.to_csv(tmp_path / "rows", overwrite=True)
        assert (tmp_path / "rows").read_text().splitlines()[:2] == ['"order_id","region"', '0,"Africa"']
        target = io.BytesIO()
        orders.changes(6, 6).to_parquet(target)
        assert pq.read_table(target).num_rows == 10

    def test_a_mirror_is_written_too(self, orders: ds.SharedTable, some: pa.Table, tmp_path: Path) -> None:
        scan = orders.scan(SOME["columns"], SOME["filters"], version=3).mirrored(tmp_path / "mirror")
        scan.to_parquet(tmp_path / "rows.parquet")
        assert pq.read_table(tmp_path / "rows.parquet").sort_by("order_id").equals(some.sort_by("order_id"))

    def test_nothing_is_requested_for_an_existing_file(
        self, server: SharingServer, orders: ds.SharedTable, tmp_path: Path
    ) -> None:
        path = tmp_path / "rows.csv"
        path.write_text("mine")
        server.reset_requests()
        with pytest.raises(FileExistsError):
            orders.scan().to_file(path)
        with pytest.raises(ValueError, match="is unknown"):
            orders.scan().to_file(tmp_path / "rows.xlsx")
        assert server.requests == []
