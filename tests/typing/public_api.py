"""Uses of the public API for `mypy --strict`; not executed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, assert_type

import duckdb
import pandas as pd
import polars as pl
from pyspark.sql import DataFrame as SparkDataFrame
from pyspark.sql import SparkSession

import delta_sharing_client as ds
from delta_sharing_client import (
    ChangeBatch,
    ChangePoller,
    DeltaSharingError,
    Metadata,
    Profile,
    Protocol,
    Schema,
    Share,
    SharedTable,
    SharingClient,
    Table,
    TableChanges,
    TableScan,
    TransportOptions,
    errors,
    get_table_metadata,
    get_table_protocol,
    get_table_version,
    load_as_arrow,
    load_as_duckdb,
    load_as_pandas,
    load_as_polars,
    load_table_changes_as_arrow,
    load_table_changes_as_pandas,
    scan_polars,
    sinks,
)
from delta_sharing_client.server import RecordedRequest, ServerOptions, SharingServer, write_sample_tables

URL = "config.share#retail.sales.orders"


def profiles() -> None:
    SharingClient()
    SharingClient("config.share")
    SharingClient(Path("config.share"))
    SharingClient({"shareCredentialsVersion": 1, "endpoint": "https://host", "bearerToken": "..."})
    with Path("config.share").open(encoding="utf-8") as text:
        SharingClient(text)
    with Path("config.share").open("rb") as binary:
        SharingClient(binary)
    profile = Profile.from_json(Path("config.share").read_bytes())
    client = SharingClient(profile)
    assert_type(client.profile, Profile)
    assert_type(profile.endpoint, str)
    assert_type(profile.expiration_time, datetime | None)
    assert_type(profile.expired(), bool)


def options() -> TransportOptions:
    return TransportOptions(
        connect_timeout=timedelta(seconds=5),
        read_timeout=timedelta(seconds=30),
        api_attempts=3,
        api_deadline=timedelta(minutes=1),
        max_connections=16,
        memory_budget=256 * 2**20,
        ca_bundle=Path("ca.pem"),
        proxies={"https": "http://proxy:3128"},
    )


def listing() -> None:
    with SharingClient("config.share", options=options()) as client:
        assert_type(client, SharingClient)
        assert_type(client.list_shares(), list[Share])
        assert_type(client.iter_shares(), Iterator[Share])
        assert_type(client.get_share("retail"), Share)
        assert_type(client.list_schemas("retail"), list[Schema])
        assert_type(client.list_schemas(Share("retail")), list[Schema])
        assert_type(client.iter_schemas(client.list_shares()[0]), Iterator[Schema])
        assert_type(client.list_tables("retail.sales"), list[Table])
        assert_type(client.iter_tables(Schema(name="sales", share="retail")), Iterator[Table])
        assert_type(client.list_all_tables(), list[Table])
        assert_type(client.iter_all_tables("retail"), Iterator[Table])
        for table in client.list_all_tables():
            assert_type(table.full_name, str)
            client.table(table)
        client.table(("retail", "sales", "orders"))
        client.table(Table(name="orders", share="retail", schema="sales"))


def about_a_table(client: SharingClient) -> None:
    orders = client.table("retail.sales.orders")
    assert_type(orders, SharedTable)
    assert_type(orders.name, Table)
    assert_type(orders.version(), int)
    assert_type(orders.version(datetime(2024, 1, 1, tzinfo=UTC)), int)
    assert_type(orders.version(starting_timestamp="2024-01-01T00:00:00Z"), int)
    assert_type(orders.metadata(), Metadata)
    assert_type(orders.metadata(version=3), Metadata)
    assert_type(orders.protocol(timestamp=date(2024, 1, 1)), Protocol)
    assert_type(orders.metadata().partition_columns, tuple[str, ...])
    for column in orders.schema():
        assert_type(column.name, str)
        assert_type(column.nullable, bool)
        print(column.type)


def scans(orders: SharedTable) -> None:
    scan = orders.scan(
        columns=["order_id", "amount"],
        filters=[("order_date", ">=", date(2024, 1, 5)), ("amount", ">", Decimal("9.99"))],
        limit=10,
        response_format="delta",
    )
    assert_type(scan, TableScan)
    assert_type(scan.replace(version=3, limit=None), TableScan)
    assert_type(scan.to_pandas(), pd.DataFrame)
    assert_type(scan.to_pandas(dtype_backend="pyarrow", progress=False), pd.DataFrame)
    assert_type(scan.count(), int)
    text: str = scan.explain()
    assert len(text) > 0
    for file in scan.files():
        assert_type(file.file_id, str)
        assert_type(file.size, int)
    assert_type(scan.to_polars(), pl.DataFrame)
    assert_type(scan.to_duckdb(), duckdb.DuckDBPyRelation)
    assert_type(scan.to_polars_lazy(), pl.LazyFrame)
    assert_type(scan.to_dataset().scanner(columns=["order_id"]).count_rows(), int)
    table = scan.to_arrow()
    print(table.num_rows)
    for batch in scan.to_record_batch_reader():
        print(batch.num_rows)


def filters(orders: SharedTable) -> None:
    orders.scan(filters=[("region", "=", "Asia")])
    orders.scan(filters="region = 'Asia' AND quantity < 3")
    orders.scan(filters=[("region", "in", ["Asia", "Europe"]), ("coupon", "is not", None)])
    orders.scan(filters=[[("region", "=", "Asia")], [("region", "=", "Europe"), ("coupon", "=", "SPRING")]])
    terms: list[tuple[str, str, Any]] = [("ordered_at", "<", datetime(2024, 1, 2, tzinfo=UTC))]
    orders.scan(filters=terms)
    orders.scan(filters=[terms, [("quantity", "<", 3)]])
    orders.scan(columns=("order_id",))
    orders.scan(columns=(name for name in ["order_id"]))


def changes(orders: SharedTable) -> None:
    feed = orders.changes(starting_version=3, ending_version=5, columns=["order_id"], commit_timestamp="timestamp")
    assert_type(feed, TableChanges)
    assert_type(feed.replace(ending_version=None), TableChanges)
    assert_type(feed.to_pandas(dtype_backend="pyarrow"), pd.DataFrame)
    assert_type(feed.to_polars(), pl.DataFrame)
    assert_type(feed.to_duckdb(), duckdb.DuckDBPyRelation)
    assert_type(feed.count(), int)
    orders.changes(starting_timestamp=datetime(2024, 1, 1, tzinfo=UTC), ending_timestamp="2024-02-01")
    assert_type(load_table_changes_as_pandas(URL, 0, 7), pd.DataFrame)
    print(load_table_changes_as_arrow(URL, starting_timestamp=date(2024, 1, 1)).num_rows)


def polling(orders: SharedTable) -> None:
    with orders.poll_changes(
        Path("orders.checkpoint"),
        starting_version="snapshot",
        poll_interval=timedelta(minutes=1),
        max_versions=10,
        schema_changes="follow",
        columns=["order_id"],
    ) as poller:
        assert_type(poller, ChangePoller)
        assert_type(poller.pull(), ChangeBatch | None)
        for batch in poller:
            assert_type(batch, ChangeBatch)
            assert_type(batch.first_version, int)
            assert_type(batch.is_snapshot, bool)
            assert_type(batch.to_pandas(), pd.DataFrame)
            batch.commit()
            poller.stop()


def storing(batch: ChangeBatch) -> None:
    with (
        sinks.DeltaSink(Path("lake/orders"), mode="apply", keys=["order_id"]) as lake,
        sinks.DuckDBSink(duckdb.connect(), "orders", schema="shop", add_columns=False) as duck,
        sinks.SQLiteSink("shop.sqlite", "orders", change_columns=False) as lite,
    ):
        for sink in (lake, duck, lite):
            assert_type(sink.write(batch), sinks.WriteResult)
            assert_type(sink.last_version(batch.poller_id), int | None)
    print(lake.write(batch).inserted + 1)


def functions() -> None:
    assert_type(load_as_pandas(URL), pd.DataFrame)
    assert_type(load_as_pandas(URL, 10, None, "2024-01-01T00:00:00Z"), pd.DataFrame)
    assert_type(
        load_as_pandas(
            URL,
            limit=10,
            version=3,
            use_delta_format=True,
            columns=["order_id"],
            filters=[("order_id", "<", 3)],
            dtype_backend="numpy_nullable",
        ),
        pd.DataFrame,
    )
    print(load_as_arrow(URL, columns=["order_id"]).schema)
    assert_type(load_as_polars(URL, limit=10), pl.DataFrame)
    assert_type(scan_polars(URL, columns=["order_id"]), pl.LazyFrame)
    assert_type(load_as_duckdb(URL, duckdb.connect(), columns=["order_id"]), duckdb.DuckDBPyRelation)
    assert_type(get_table_version(URL), int)
    assert_type(get_table_metadata(URL), Metadata)
    assert_type(get_table_protocol(URL, use_delta_format=False), Protocol)
    assert_type(ds.__version__, str)


def sparking(session: SparkSession) -> None:
    assert_type(ds.load_as_spark(URL), SparkDataFrame)
    assert_type(
        ds.load_as_spark(URL, 3, spark=session, columns=["a"], filters="a > 1", variant="json"), SparkDataFrame
    )
    assert_type(ds.load_table_changes_as_spark(URL, 1, 4, executor_credentials=False), SparkDataFrame)
    assert_type(SharingClient("config.share").table("a.b.c").scan().to_spark(session), SparkDataFrame)
    ds.spark.register(session)


def failures() -> str:
    try:
        ds.load_as_pandas(URL)
    except ds.errors.NotFoundError as error:
        assert_type(error.status, int)
        assert_type(error.server_message, str | None)
        return error.subject
    except errors.ColumnError as error:
        assert_type(error.columns, tuple[str, ...])
    except errors.StorageError as error:
        assert_type(error.file_id, str | None)
    except DeltaSharingError as error:
        return str(error)
    return ""


def serving() -> None:
    with SharingServer("warehouse") as server:
        assert_type(server, SharingServer)
        SharingClient(server.profile)
        assert_type(server.write_profile("config.share"), Path)
        assert_type(server.tables, tuple[str, ...])
        assert_type(server.requests, list[RecordedRequest])
    with ds.server.SharingServer(write_sample_tables("warehouse"), page_size=2, prefer_format="delta") as server:
        assert_type(server.endpoint, str)
    SharingServer(
        {"retail.sales.orders": Path("orders")}, options=ServerOptions(url_lifetime=timedelta(minutes=1))
    )
