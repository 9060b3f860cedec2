"""`create_views`: a temporary view of each shared table, which the first query that uses it loads."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
import spark_processes
from loading.loading_tables import File, column, write_table
from waiting import run_program

import delta_sharing_client as ds
from delta_sharing_client.errors import AuthenticationError, NotFoundError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import native_dataframe
from delta_sharing_client.spark.lazy_views import lazy_views
from delta_sharing_client.spark.native_dataframe import NATIVE_SINCE
from delta_sharing_client.spark.session import DATA_SOURCE_SINCE, pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

lazy = pytest.mark.skipif(pyspark_version() < DATA_SOURCE_SINCE, reason="Spark 3.5 loads views at once")
pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


#: Without it the columns of a view are those of its creation.
SCHEMA_MODE = "spark.sql.legacy.viewSchemaBindingMode"


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


@lazy
def test_views_are_created_by_a_listing_alone(spark: SparkSession, server: SharingServer) -> None:
    assert sorted(ds.spark.create_views(spark, server.profile, share="one")) == ["orders", "select"]
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["all-tables"]
    server.reset_requests()
    assert {row["tableName"] for row in spark.sql("SHOW TABLES").collect()} >= {"orders", "select"}
    assert spark.sql("DESCRIBE orders").collect() == []
    assert server.requests == []


def test_the_first_query_loads_a_view(spark: SparkSession, server: SharingServer, views: list[str]) -> None:
    native = pyspark_version() >= NATIVE_SINCE
    for _ in range(2):
        assert spark.sql("SELECT count(*), sum(a) FROM orders WHERE day = '2024-01-02'").first()[:] == (10, 45)
    assert queries(server) == (["orders"] if pyspark_version() >= DATA_SOURCE_SINCE else [])
    assert spark.sql("SELECT sum(a) FROM `select`").first()[0] == 110
    plan = spark.table("orders")._jdf.queryExecution().executedPlan().toString()
    assert ("FileScan parquet" in plan) == native
    assert [row["col_name"] for row in spark.sql("DESCRIBE orders").collect()] == ["a", "day"]
    assert [each.name for each in spark.catalog.listColumns("orders")] == ["a", "day"]


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
    assert len(queries(server)) <= 2


@lazy
def test_a_view_is_joined_with_itself_by_its_first_query(
    spark: SparkSession, server: SharingServer, views: list[str]
) -> None:
    assert spark.sql("SELECT count(*) FROM orders l JOIN orders r USING (a, day)").first()[0] == 20
    assert queries(server) == ["orders"]


@lazy
def test_threads_use_views_for_the_first_time(spark: SparkSession, server: SharingServer) -> None:
    texts = ["SELECT count(*) FROM orders", "SELECT count(*) FROM `select`", "SELECT 20", "SHOW TABLES"] * 4
    with ThreadPoolExecutor(len(texts)) as pool:
        for _ in range(5):
            ds.spark.create_views(spark, server.profile, share="one")
            server.reset_requests()
            answers = list(pool.map(lambda text: spark.sql(text).collect()[0], texts))
            assert {answer[0] for answer in answers[:3]} == {20}
            assert set(queries(server)) == {"orders", "select"}


@lazy
def test_a_stream_uses_a_view_for_the_first_time(
    spark: SparkSession, server: SharingServer, views: list[str], tmp_path: Path
) -> None:
    spark.range(4).repartition(2).write.parquet(str(tmp_path / "in"))
    counts = []

    def count(batch: DataFrame, _: int) -> None:
        counts.append(batch.sparkSession.sql("SELECT count(*) FROM orders").first()[0])

    stream = spark.readStream.schema("id long").option("maxFilesPerTrigger", 1).parquet(str(tmp_path / "in"))
    stream = stream.join(spark.table("`select`"), stream.id == spark.table("`select`").a)
    stream.writeStream.foreachBatch(count).trigger(availableNow=True).start().awaitTermination()
    assert counts == [20, 20]
    assert queries(server) == ["orders", "select"]
    assert spark.table("orders").count() == 20
    assert queries(server) == ["orders", "select"]


@lazy
def test_a_table_that_cannot_be_loaded_raises_when_it_is_used(
    spark: SparkSession, server: SharingServer, views: list[str], tmp_path: Path
) -> None:
    from pyspark.errors import IllegalArgumentException

    log = tmp_path / "1" / "_delta_log" / f"{0:020}.json"
    before = log.read_text()
    log.write_text(before.replace('"minReaderVersion": 1', '"minReaderVersion": 99'))
    for use in (lambda: spark.sql("SELECT * FROM `select`"), lambda: spark.table("`select`")):
        with pytest.raises(IllegalArgumentException) as caught:
            use()
        message = str(caught.value)
        start = "The view select of the shared table one.hr.select cannot be loaded: "
        assert message.startswith(start)
        assert "reader version 99" in message.replace("minReaderVersion", "reader version")
        assert "\n" not in message
        assert server.profile["bearerToken"] not in message
    log.write_text(before)
    assert spark.sql("SELECT count(*) FROM `select`").first()[0] == 20


@lazy
@pytest.mark.parametrize("error", [OSError("https://store.test/f?sig=canary\nwhy\nat Java"), KeyboardInterrupt()])
def test_any_error_of_a_load_is_a_short_one_without_secrets(spark: SparkSession, error: BaseException) -> None:
    from pyspark.errors import IllegalArgumentException

    def load() -> DataFrame:
        raise error

    creator = lazy_views(spark)
    assert creator is not None
    creator.create("broken", "s.s.t", load)
    for _ in range(2):
        with pytest.raises(IllegalArgumentException, match=f"table s.s.t .*: {type(error).__name__}: ") as caught:
            spark.table("broken")
        assert "canary" not in str(caught.value)
        assert "at Java" not in str(caught.value)


@lazy
def test_views_are_dropped_and_replaced(spark: SparkSession, server: SharingServer, views: list[str]) -> None:
    from pyspark.errors import AnalysisException

    spark.sql("DROP VIEW orders")
    spark.range(3).createOrReplaceTempView("select")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("orders")
    assert spark.table("`select`").count() == 3
    assert server.requests == []
    ds.spark.create_views(spark, server.profile, share="one")
    assert spark.table("`select`").count() == spark.table("orders").count() == 20
    spark.sql("DROP VIEW orders")
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        spark.table("orders")


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


@lazy
def test_each_session_has_its_views(spark: SparkSession, server: SharingServer, views: list[str]) -> None:
    other = spark.newSession()
    assert not other.catalog.tableExists("orders")
    ds.spark.create_views(other, server.profile, share="two", database="sales")
    assert other.table("orders").agg({"a": "sum"}).first()[0] == 130
    assert spark.table("orders").agg({"a": "sum"}).first()[0] == 90


@lazy
def test_no_secret_is_in_plans_and_descriptions(
    spark: SparkSession, server: SharingServer, views: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    texts = ["DESCRIBE EXTENDED orders", "SHOW TABLE EXTENDED LIKE 'orders'", "SHOW USER FUNCTIONS"]
    for _ in range(2):
        shown = [str(spark.sql(text).collect()) for text in texts]
        spark.sql("SELECT * FROM orders").explain(True)
        shown.append(capsys.readouterr().out)
        assert not [text for text in shown if server.profile["bearerToken"] in text or "X-Delta-Sharing" in text]


@pytest.fixture
def fixed_schemas(spark: SparkSession) -> Iterator[None]:
    """Spark cannot have views of any schema."""
    spark.conf.set(SCHEMA_MODE, "false")
    try:
        yield
    finally:
        spark.conf.unset(SCHEMA_MODE)


@pytest.mark.usefixtures("fixed_schemas")
def test_without_lazy_views_tables_are_loaded_at_once(
    spark: SparkSession, server: SharingServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "1" / "2024-01-01.parquet").write_bytes(b"none" * 100)
    log = tmp_path / "1" / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace('"minReaderVersion": 1', '"minReaderVersion": 99'))
    with caplog.at_level(logging.WARNING):
        assert ds.spark.create_views(spark, server.profile, share="one") == ["orders"]
    assert "no view of table one.hr.select: " in caplog.text
    assert queries(server) == ["orders", "select"]
    assert not [row for row in spark.sql("SHOW TABLES").collect() if "delta_sharing" in row["tableName"]]
    assert spark.sql("SELECT sum(a) FROM orders WHERE day = '2024-01-02'").first()[0] == 45


PROGRAM = """
import json, sys
from pyspark.sql import SparkSession
import delta_sharing_client as ds

for _ in range(2):
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    ds.spark.create_views(spark, json.loads(sys.argv[1]), share="one")
    print("columns", spark.sql("DESCRIBE orders").count(), "rows", spark.table("orders").count())
    spark.stop()
"""


@pytest.mark.slow
@pytest.mark.parametrize("pinned", [True, False])
def test_views_of_a_new_session_with_and_without_threads_of_java(
    java: Path, server: SharingServer, pinned: bool
) -> None:
    given = spark_processes.environment(PYSPARK_PIN_THREAD=str(pinned).lower())
    done = run_program([sys.executable, "-c", PROGRAM, json.dumps(server.profile)], env=given)
    columns = 0 if pinned and pyspark_version() >= DATA_SOURCE_SINCE else 2
    assert done.stdout == f"columns {columns} rows 20\n" * 2, done.stderr


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


@lazy
@pytest.mark.parametrize("used", [False, True])
def test_a_renamed_view_keeps_its_table(spark: SparkSession, server: SharingServer, used: bool) -> None:
    ds.spark.create_views(spark, server.profile, share="one")
    if used:
        spark.table("orders").count()
    spark.sql("ALTER VIEW orders RENAME TO first_orders")
    ds.spark.create_views(spark, server.profile, share="two")
    ds.spark.create_views(spark, server.profile, share="two")
    assert spark.sql("SELECT min(a) FROM first_orders").first()[0] == 0
    assert spark.sql("SELECT min(a) FROM orders").first()[0] == 2
    assert spark.sql("SELECT min(a) FROM first_orders").first()[0] == 0
    spark.sql("DROP VIEW first_orders")


@lazy
def test_views_whose_names_differ_in_case_alone(spark: SparkSession, server: SharingServer) -> None:
    spark.conf.set("spark.sql.caseSensitive", "true")
    try:
        for share in ("one", "two"):
            ds.spark.create_views(spark, server.profile, share=share)
        rows = spark.sql("SELECT (SELECT min(a) FROM orders), (SELECT min(a) FROM Orders)").first()
        assert tuple(rows) == (0, 2)
        spark.sql("DROP VIEW Orders")
    finally:
        spark.conf.unset("spark.sql.caseSensitive")


@lazy
def test_the_function_of_a_replaced_view_is_dropped(spark: SparkSession, server: SharingServer) -> None:
    def functions() -> set[str]:
        return {row["function"] for row in spark.sql("SHOW USER FUNCTIONS LIKE 'delta_sharing_view_*'").collect()}

    others = functions()  # of other tests
    ds.spark.create_views(spark, server.profile, share="one")
    created, count = functions() - others, len(functions())
    spark.table("orders").count()
    for _ in range(3):
        ds.spark.create_views(spark, server.profile, share="one")
    assert len(functions()) == count
    assert len(created) == 2
    assert not functions() & created
