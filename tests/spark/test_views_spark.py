"""`create_views`: a temporary view of each shared table."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from loading.loading_tables import File, column, write_table

import delta_sharing_client as ds
from delta_sharing_client.errors import AuthenticationError, NotFoundError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import native_dataframe
from delta_sharing_client.spark.native_dataframe import NATIVE_SINCE
from delta_sharing_client.spark.session import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharingServer]:
    """Three tables; `orders` is in two shares, and the names are no plain words of SQL."""
    monkeypatch.setattr(native_dataframe, "SMALLEST", 0)
    tables = {}
    for number, name in enumerate(("one.sales.orders", "one.hr.select", "two.sales.Orders", "two.sales.a-b")):
        days = [
            File(rows=pa.table({"a": range(number, number + 10)}), name=f"{day}.parquet", values={"day": day})
            for day in ("2024-01-01", "2024-01-02")
        ]
        columns = [column("a", "long"), column("day", "date")]
        tables[name] = write_table(tmp_path / str(number), columns, days, partitions=["day"])
    with SharingServer(tables) as server:
        yield server


def test_each_table_has_a_view(spark: SparkSession, server: SharingServer) -> None:
    assert sorted(ds.spark.create_views(spark, server.profile, share="one")) == ["orders", "select"]
    queries = [request.path for request in server.requests if request.path.endswith("/query")]
    assert len(queries) == 2
    server.reset_requests()
    assert spark.sql("SELECT sum(a) FROM orders WHERE day = '2024-01-02'").first()[0] == 45
    assert spark.sql("SELECT sum(a) FROM `select`").first()[0] == 110
    files = {request.path for request in server.requests if request.is_file}
    native = pyspark_version() >= NATIVE_SINCE
    assert len(files) == (0 if native else 4)  # by Spark: the footers have been read, and these files are small
    plan = spark.table("orders")._jdf.queryExecution().executedPlan().toString()
    assert ("FileScan parquet" in plan) == native
    assert ds.spark.create_views(spark, server.profile, share="two", database="SALES") == ["a-b", "Orders"]
    assert spark.sql("SELECT sum(a) FROM `a-b`").first()[0] == 150


@pytest.mark.parametrize(
    ("share", "database", "message"),
    [
        ("one", "sale", "There is no schema 'sale'.*[Dd]id you mean 'sales'"),
        (None, "nope", "There is no schema 'nope'"),
        ("on", "sales", "There is no share 'on'.*[Dd]id you mean 'one'"),
    ],
)
def test_a_share_or_schema_that_does_not_exist(
    spark: SparkSession, server: SharingServer, share: str | None, database: str, message: str
) -> None:
    with pytest.raises(NotFoundError, match=message):
        ds.spark.create_views(spark, server.profile, share=share, database=database)


def test_a_schema_that_one_share_has(spark: SparkSession, server: SharingServer) -> None:
    assert ds.spark.create_views(spark, server.profile, database="hr") == ["select"]


def test_two_tables_of_a_name_are_refused(spark: SparkSession, server: SharingServer) -> None:
    with pytest.raises(ValueError, match=r"one\.sales\.orders and two\.sales\.Orders would have the same view"):
        ds.spark.create_views(spark, server.profile)


def test_a_table_that_cannot_be_loaded_is_left_out(
    spark: SparkSession, server: SharingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1" / "2024-01-01.parquet").write_bytes(b"none" * 100)
    log = tmp_path / "1" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"minReaderVersion": 1', '"minReaderVersion": 99'))
    with caplog.at_level(logging.WARNING):
        assert ds.spark.create_views(spark, server.profile, share="one") == ["orders"]
    assert "no view of table one.hr.select: " in caplog.text


def test_a_refused_token_is_an_error(spark: SparkSession, server: SharingServer) -> None:
    with pytest.raises(AuthenticationError):
        ds.spark.create_views(spark, server.profile | {"bearerToken": "wrong"}, share="one")
