"""Rows of Iceberg tables: the same as those of the Delta table, with the same arguments and types."""

from __future__ import annotations

import datetime as dt
import io
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from iceberg_server import TOKEN, IcebergServer
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import FixedType, IntegerType, LongType, NestedField, StringType, TimeType, UUIDType

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer

ORDERS = pa.table({"id": [1, 2, 3], "region": ["Europe", None, "Asia"], "amount": [1.5, None, 3.5]})
EVERY_TYPE = pa.table(
    {
        "flag": pa.array([True, None, False]),
        "small": pa.array([1, None, -(2**31)], pa.int32()),
        "large": pa.array([2**63 - 1, None, 0], pa.int64()),
        "single": pa.array([1.5, None, float("nan")], pa.float32()),
        "real": pa.array([-0.0, None, float("inf")], pa.float64()),
        "price": pa.array([Decimal("12345.67"), None, Decimal("-0.01")], pa.decimal128(9, 2)),
        "day": pa.array([dt.date(2024, 2, 29), None, dt.date(1, 1, 1)]),
        "at": pa.array([dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, None], pa.timestamp("us", "UTC")),
        "wall": pa.array([dt.datetime(2024, 1, 1, 1, 2, 3, 4), None, None], pa.timestamp("us")),
        "text": pa.array(["", None, "Zürich 🎿"]),
        "bytes": pa.array([b"", None, b"\x00\xff"]),
        "list": pa.array([[1, None], None, []], pa.list_(pa.int64())),
        "map": pa.array([[("a", 1)], None, []], pa.map_(pa.string(), pa.int64())),
        "struct": pa.array([{"a": 1, "b": None}, None, {"a": None, "b": "x"}]),
        "with space.and.dots": pa.array([1, 2, 3]),
    }
)


@pytest.fixture
def orders(iceberg: IcebergServer) -> Any:
    iceberg.create("sales.orders", ORDERS, ORDERS)
    with iceberg.client() as client:
        yield client.iceberg["retail.sales.orders"]


@pytest.mark.parametrize(
    "selection",
    [
        {},
        {"columns": ["text", "FLAG", "with space.and.dots"]},
        {"columns": []},
        {"limit": 2},
        {"limit": 0},
        {"filters": [("large", ">", 0)], "columns": ["day"]},
        {"filters": [[("text", "=", "")], [("real", ">", 1e300)]]},
        {"filters": "NOT single > 1 OR day < '1000-01-01'"},
        {"filters": [("with space.and.dots", ">=", 2)], "limit": 1},
    ],
)
@pytest.mark.protocol("icebergEndpoint", "GET /v1/{prefix}/namespaces/{schema}/tables/{table}")
def test_rows_and_types_are_those_of_the_delta_table(
    iceberg: IcebergServer, tmp_path: Path, selection: dict[str, Any]
) -> None:
    iceberg.create("sales.types", EVERY_TYPE)
    write_deltalake(tmp_path / "delta", EVERY_TYPE)
    with SharingServer({"retail.sales.types": tmp_path / "delta"}, token=TOKEN) as server:
        profile = {**server.profile, "icebergEndpoint": iceberg.profile()["icebergEndpoint"]}
        with ds.SharingClient(profile) as client:
            delta, found = client.table("retail.sales.types"), client.iceberg.table("retail.sales.types")
            assert str(found.to_arrow(**selection)) == str(delta.to_arrow(**selection))  # NaN is not equal
            assert found.to_arrow(**selection).schema == delta.to_arrow(**selection).schema
            assert found.count(**selection) == delta.count(**selection)
            assert found.schema() == delta.schema()
            assert found.scan(**selection).schema == delta.scan(**selection).schema
            left, right = found.to_pandas(**selection), delta.to_pandas(**selection)
            assert left.dtypes.equals(right.dtypes)
            assert str(left) == str(right)


def test_all_forms_have_the_rows(orders: ds.IcebergTable) -> None:
    rows = pa.concat_tables([ORDERS, ORDERS])
    scan = orders.scan(filters=[("amount", ">", 2)])
    assert orders.to_arrow() == rows
    assert orders.head(2).id.tolist() == [1, 2]
    assert scan.to_polars()["id"].to_list() == [3, 3]
    assert scan.to_polars_lazy().select("id").collect()["id"].to_list() == [3, 3]
    assert scan.to_duckdb().filter("region = 'Asia'").aggregate("count(*)").fetchall() == [(2,)]
    assert scan.to_dataset().to_table(columns=["region"]).to_pydict() == {"region": ["Asia", "Asia"]}
    assert scan.to_record_batch_reader().read_all()["id"].to_pylist() == [3, 3]
    written = io.BytesIO()
    assert scan.to_csv(written) == 2
    assert written.getvalue() == b'"id","region","amount"\n3,"Asia",3.5\n3,"Asia",3.5\n'
    assert [file.num_records for file in orders.scan().files()] == [3, 3]


@pytest.mark.parametrize(
    ("selection", "error", "words"),
    [
        ({"columns": ["regin"]}, ds.errors.ColumnError, "did you mean 'region'"),
        ({"columns": ["id", "ID"]}, ds.errors.ColumnError, "'ID' twice"),
        ({"filters": [("regin", "=", "x")]}, ds.errors.ColumnError, "did you mean 'region'"),
        ({"filters": [("id", "=", "x")]}, ds.errors.FilterError, "not a number"),
        ({"limit": -1}, ValueError, "0 or more"),
        ({"version": 7}, ds.errors.IcebergError, "no snapshot 7"),
        ({"timestamp": "2001-01-01"}, ds.errors.IcebergError, "no snapshot of 2001-01-01"),
        ({"version": 7, "timestamp": "2001-01-01"}, ValueError, "together"),
        ({"response_format": "delta"}, ds.errors.IcebergError, "use_delta_format"),
        ({"json_predicate_hints": "{}"}, ds.errors.IcebergError, "jsonPredicateHints"),
    ],
)
def test_errors_of_arguments(orders: ds.IcebergTable, selection: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        orders.to_arrow(**selection)


def test_earlier_snapshots_are_read_with_their_schema(iceberg: IcebergServer) -> None:
    table = iceberg.create("sales.orders", ORDERS)
    with table.update_schema() as change:
        change.rename_column("amount", "total")
        change.delete_column("region")
        change.add_column("note", StringType())
    table.append(pa.table({"id": [4], "total": [4.5], "note": ["new"]}))
    with iceberg.client() as client:
        found = client.iceberg.table("retail.sales.orders")
        first, last = found.snapshots()
        assert found.to_arrow(version=first.version) == ORDERS
        assert found.to_arrow(version=first.version, filters=[("amount", ">", 2)]) == ORDERS.slice(2)
        assert found.to_arrow(timestamp=first.time) == ORDERS
        assert found.schema(first.version).names == ["id", "region", "amount"]
        assert found.to_arrow(timestamp="2999-01-01").column_names == ["id", "total", "note"]
        assert found.to_arrow(filters=[("total", "<", 2)])["note"].to_pylist() == [None]
        assert found.version() == last.version
        assert found.version(first.time) == first.version


def test_every_millisecond_selects_its_snapshot(iceberg: IcebergServer) -> None:
    table = iceberg.create("sales.orders", ORDERS)
    for milliseconds in (1_700_000_000_123, 1_700_000_001_001, 4_102_444_799_999):
        metadata = table.metadata
        (snapshot,) = metadata.snapshots
        moved = snapshot.model_copy(update={"timestamp_ms": milliseconds})
        entry = metadata.snapshot_log[0].model_copy(update={"timestamp_ms": milliseconds})
        table.metadata = metadata.model_copy(update={"snapshots": [moved], "snapshot_log": [entry]})
        iceberg.loaded = table
        with iceberg.client() as client:
            found = client.iceberg.table("retail.sales.orders")
            (known,) = found.snapshots()
            assert known.time.microsecond == milliseconds % 1000 * 1000
            assert found.count(timestamp=known.time) == 3
            with pytest.raises(ds.errors.IcebergError, match="or before"):
                found.count(timestamp=known.time - dt.timedelta(milliseconds=1))


def test_a_table_without_a_snapshot_has_no_rows(iceberg: IcebergServer) -> None:
    iceberg.create("sales.orders", schema=ORDERS.schema)
    with iceberg.client() as client:
        table = client.iceberg.table("retail.sales.orders")
        assert table.to_arrow() == ORDERS.schema.empty_table()
        assert table.count() == 0
        with pytest.raises(ds.errors.IcebergError, match="no snapshot"):
            table.version()


def test_partitioned_tables_and_deleted_rows(iceberg: IcebergServer) -> None:
    fields = [(1, "id", LongType()), (2, "region", StringType())]
    schema = Schema(*(NestedField(number, name, kind, required=False) for number, name, kind in fields))
    spec = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "region"))
    table = iceberg.create("sales.parts", schema=schema, partition_spec=spec)
    table.append(pa.table({"id": range(100), "region": ["Europe", "Asia", None, "Africa"] * 25}))
    table.delete("id >= 90")
    with iceberg.client() as client:
        found = client.iceberg.table("retail.sales.parts")
        assert found.schema().partition_columns == ("region",)
        assert sorted(found.to_pandas().id) == list(range(90))
        assert found.count() == 90
        whole = len(found.scan().files())
        assert len(found.scan(filters=[("region", "=", "Asia")]).files()) < whole
        assert len(found.scan(filters=[("id", "=", 10_000)]).files()) == 0
        assert found.count(filters=[("region", "=", "Asia")]) == len([n for n in range(90) if n % 4 == 1])
        assert found.count(filters=[("region", "is", None)]) == len([n for n in range(90) if n % 4 == 2])


def test_types_without_a_counterpart(iceberg: IcebergServer) -> None:
    kinds = {"id": IntegerType(), "key": UUIDType(), "code": FixedType(2), "noon": TimeType()}
    fields = [NestedField(n, name, kind, required=False) for n, (name, kind) in enumerate(kinds.items(), 1)]
    table = iceberg.create("sales.odd", schema=Schema(*fields))
    rows = {"id": [1], "key": [b"0123456789abcdef"], "code": [b"ab"], "noon": [dt.time(12)]}
    kinds = [pa.int32(), pa.uuid(), pa.binary(2), pa.time64("us")]
    table.append(pa.table({name: pa.array(v, k) for (name, v), k in zip(rows.items(), kinds, strict=True)}))
    with iceberg.client() as client:
        found = client.iceberg.table("retail.sales.odd")
        problem = r"column 'noon' has the Iceberg type 'time', which no output of this package has.*columns="
        for load in (found.to_arrow, found.to_pandas, found.to_polars, found.to_duckdb, found.to_dataset):
            with pytest.raises(ds.errors.UnsupportedTypeError, match=problem):
                load()
        assert found.count() == found.count(filters=[("id", "=", 1)]) == found.scan([]).to_arrow().num_rows == 1
        assert len(found.scan().files()) == 1
        assert found.to_arrow(columns=["key", "code", "id"]).to_pylist() == [
            {"key": b"0123456789abcdef", "code": b"ab", "id": 1}
        ]


def test_files_are_read_in_groups_within_the_memory_budget(
    iceberg: IcebergServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.io.pyarrow import ArrowScan

    groups: list[int] = []
    read = ArrowScan.to_record_batches

    def recorded(scan: ArrowScan, tasks: Any) -> Any:
        groups.append(len(tasks))
        return read(scan, tasks)

    monkeypatch.setattr(ArrowScan, "to_record_batches", recorded)
    iceberg.create("sales.orders", ORDERS, ORDERS, ORDERS)
    with iceberg.client(memory_budget=1) as client:
        table = client.iceberg.table("retail.sales.orders")
        assert table.to_arrow().num_rows == 9
        assert groups == [1, 1, 1]
        assert table.to_arrow(limit=4).num_rows == 4
        assert groups == [1, 1, 1, 1, 1]
    with iceberg.client() as client:
        client.iceberg.table("retail.sales.orders").to_arrow()
        assert groups[5:] == [3]


def test_a_missing_file_is_named(iceberg: IcebergServer, tmp_path: Path) -> None:
    iceberg.create("sales.orders", ORDERS)
    (file,) = tmp_path.rglob("*.parquet")
    file.unlink()
    with (
        iceberg.client() as client,
        pytest.raises(ds.errors.FileGoneError, match=f"retail.sales.orders.*{file.name}"),
    ):
        client.iceberg.table("retail.sales.orders").to_arrow()


def test_a_damaged_file_is_an_error(iceberg: IcebergServer, tmp_path: Path) -> None:
    iceberg.create("sales.orders", ORDERS)
    (file,) = tmp_path.rglob("*.parquet")
    file.write_bytes(b"PAR1 damaged PAR1")
    with iceberg.client() as client, pytest.raises(ds.errors.DeltaSharingError, match=r"retail.sales.orders"):
        client.iceberg.table("retail.sales.orders").to_arrow()
