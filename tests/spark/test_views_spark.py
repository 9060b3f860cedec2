"""`create_views`: a temporary view of each shared table."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply, Request
from loading.loading_tables import File, column, write_table
from waiting import HANG, join

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


@pytest.fixture
def views(spark: SparkSession, server: SharingServer) -> list[str]:
    """The views of share `one`; the requests that created them are forgotten."""
    names = ds.spark.create_views(spark, server.profile, share="one")
    server.reset_requests()
    return names


def queries(server: SharingServer) -> list[str]:
    """Return the tables that were loaded since requests were last forgotten."""
    return sorted(request.path.split("/")[-2] for request in server.requests if request.path.endswith("/query"))


def commit(root: Path, *actions: dict[str, Any]) -> None:
    """Commit version 1 to a table."""
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (root / "_delta_log" / f"{1:020}.json").write_text(lines, encoding="utf-8")


def test_tables_are_loaded_when_their_views_are_created(spark: SparkSession, server: SharingServer) -> None:
    assert sorted(ds.spark.create_views(spark, server.profile, share="one")) == ["orders", "select"]
    assert queries(server) == ["orders", "select"]
    native = pyspark_version() >= NATIVE_SINCE
    for _ in range(2):
        assert spark.sql("SELECT count(*), sum(a) FROM orders WHERE day = '2024-01-02'").first()[:] == (10, 45)
    assert spark.sql("SELECT sum(a) FROM `select`").first()[0] == 110
    plan = spark.table("orders")._jdf.queryExecution().executedPlan().toString()
    assert ("FileScan parquet" in plan) == native
    assert [row["col_name"] for row in spark.sql("DESCRIBE orders").collect()] == ["a", "day"]
    assert [each.name for each in spark.catalog.listColumns("orders")] == ["a", "day"]
    assert queries(server) == ["orders", "select"]


def test_the_views_of_another_schema(spark: SparkSession, server: SharingServer) -> None:
    assert ds.spark.create_views(spark, server.profile, share="two", database="SALES") == ["a-b", "Orders"]
    assert spark.sql("SELECT sum(a) FROM `a-b`").first()[0] == 150
    assert spark.table("orders").count() == 20


def test_views_are_joined(spark: SparkSession, server: SharingServer, views: list[str]) -> None:
    both = spark.sql("SELECT count(*) FROM orders o JOIN `select` s USING (a, day)")
    itself = spark.sql("SELECT count(*), sum(l.a + r.a) FROM `select` l JOIN `select` r USING (a, day)")
    assert (both.first()[0], itself.first()[:]) == (18, (20, 220))
    nested = "WITH t AS (SELECT a FROM `select` WHERE a > (SELECT min(a) FROM orders)) SELECT count(*) FROM t"
    assert spark.sql(nested).first()[0] == 20
    assert queries(server) == []


def test_a_view_keeps_its_version_until_it_is_created_again(
    spark: SparkSession, server: SharingServer, views: list[str], tmp_path: Path
) -> None:
    spark.sql("CACHE TABLE orders")
    assert spark.catalog.isCached("orders")
    assert "InMemory" in spark.sql("SELECT a FROM orders")._jdf.queryExecution().executedPlan().toString()
    gone = {"path": "2024-01-01.parquet", "dataChange": True, "deletionTimestamp": 0}
    commit(tmp_path / "0", {"remove": gone})
    assert spark.table("orders").count() == 20
    ds.spark.create_views(spark, server.profile, share="one")
    assert spark.table("orders").count() == 10
    assert not spark.catalog.isCached("orders")


def test_each_session_has_its_views(spark: SparkSession, server: SharingServer, views: list[str]) -> None:
    other = spark.newSession()
    assert not other.catalog.tableExists("orders")
    ds.spark.create_views(other, server.profile, share="two", database="sales")
    assert other.table("orders").agg({"a": "sum"}).first()[0] == 130
    assert spark.table("orders").agg({"a": "sum"}).first()[0] == 90


def test_no_secret_is_in_plans_and_descriptions(
    spark: SparkSession, server: SharingServer, views: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["DESCRIBE EXTENDED orders", "SHOW TABLE EXTENDED LIKE 'orders'"]
    shown = [str(spark.sql(text).collect()) for text in texts]
    spark.sql("SELECT * FROM orders").explain(True)
    shown.append(capsys.readouterr().out)
    assert not [text for text in shown if server.profile["bearerToken"] in text or "X-Delta-Sharing" in text]


def test_a_table_that_cannot_be_loaded_is_left_out(
    spark: SparkSession, server: SharingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = tmp_path / "1" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"minReaderVersion": 1', '"minReaderVersion": 99'))
    with caplog.at_level(logging.WARNING):
        assert ds.spark.create_views(spark, server.profile, share="one") == ["orders"]
    assert "no view of table one.hr.select: " in caplog.text
    assert spark.sql("SELECT sum(a) FROM orders WHERE day = '2024-01-02'").first()[0] == 45


@pytest.fixture
def listing() -> Iterator[FaultServer]:
    """A share of ten tables, none of which can be queried."""
    tables = [{"name": f"t{number}", "schema": "s", "share": "s"} for number in range(10)]
    with FaultServer() as server:
        server.on("GET", "/shares/s/all-tables", Reply.of_json({"items": tables}))
        yield server


def test_the_files_of_eight_tables_are_listed_at_a_time(
    spark: SparkSession, listing: FaultServer, caplog: pytest.LogCaptureFixture
) -> None:
    others: list[str] = []
    together: list[list[str]] = []
    eight = threading.Barrier(8, action=lambda: together.append(others.copy()))

    def reply(request: Request) -> Reply:
        if request.path.endswith(("t8/query", "t9/query")):
            others.append(request.path)
        else:
            eight.wait(HANG)
        return Reply(status=404)

    listing.on("POST", "*", reply)
    with caplog.at_level(logging.WARNING):
        assert ds.spark.create_views(spark, listing.profile, share="s") == []
    assert [f"no view of table s.s.t{number}: " in caplog.text for number in range(10)] == [True] * 10
    assert together == [[]]


@pytest.mark.skipif(sys.platform == "win32", reason="SIGINT cannot be sent to one process")
def test_an_interrupt_waits_for_no_request(spark: SparkSession, listing: FaultServer) -> None:
    first, ended = threading.Lock(), threading.Event()

    def reply(request: Request) -> Reply:
        if first.acquire(blocking=False):
            os.kill(os.getpid(), signal.SIGINT)
        ended.wait(HANG)
        return Reply(status=404)

    listing.on("POST", "*", reply)
    with pytest.raises(KeyboardInterrupt):
        ds.spark.create_views(spark, listing.profile, share="s")
    ended.set()
    join(thread for thread in threading.enumerate() if thread.name.startswith("delta-sharing-views"))
    assert len([request for request in listing.requests if request.method == "POST"]) <= 8


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


def test_a_refused_token_is_an_error(spark: SparkSession, server: SharingServer) -> None:
    with pytest.raises(AuthenticationError):
        ds.spark.create_views(spark, server.profile | {"bearerToken": "wrong"}, share="one")
