"""`load_as_spark` and `to_spark`: rows, columns, sessions, errors."""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from loading.loading_tables import File, array_of, column, struct_of, write_table
from waiting import run_program

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import (
    AuthenticationError,
    ColumnError,
    FilterError,
    NotFoundError,
    ProfileError,
    SparkError,
    TableNameError,
    UnsupportedTypeError,
)
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import session as sessions
from delta_sharing_client.spark.spark_schema import spark_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture
def orders(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.orders"


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    """A table of 40 files with 5 rows each, half of them without statistics, and an empty one."""
    root = tmp_path_factory.mktemp("parts")
    columns = [column("id", "long", comment="the number"), column("part", "integer"), column("Name", "string")]
    numbered = [
        File(
            rows=pa.table(
                {"id": range(5 * i, 5 * i + 5), "part": pa.array([i] * 5, pa.int32()), "Name": [f"n{i}"] * 5}
            ),
            name=f"{i}.parquet",
            stats="rows" if i < 20 else None,
        )
        for i in range(40)
    ]
    full, empty = write_table(root / "parts", columns, numbered), write_table(root / "empty", columns, [])
    with SharingServer({"s.d.parts": full, "s.d.empty": empty}) as server:
        yield server


@pytest.fixture(scope="module")
def client(parts: SharingServer) -> Iterator[SharingClient]:
    with SharingClient(parts.profile) as client:
        yield client


def ids(frame: Any) -> list[int]:
    return [row["id"] for row in frame.collect()]


# -- what is loaded


def test_rows_come_in_the_order_of_the_server(spark: SparkSession, client: SharingClient) -> None:
    frame = client.table("s.d.parts").scan().to_spark(spark, partition_size=2000)
    assert frame.rdd.getNumPartitions() > 10
    assert ids(frame) == list(range(200))


def test_all_columns_may_be_null_and_keep_their_comments(spark: SparkSession, client: SharingClient) -> None:
    schema = client.table("s.d.parts").scan().to_spark(spark).schema
    assert all(field.nullable for field in schema.fields)
    assert schema["id"].metadata == {"comment": "the number"}


def test_columns_are_in_the_requested_order(spark: SparkSession, client: SharingClient) -> None:
    frame = client.table("s.d.parts").scan(columns=["name", "ID"], limit=1).to_spark(spark)
    assert frame.columns == ["Name", "id"]
    assert [tuple(row) for row in frame.collect()] == [("n0", 0)]


def test_an_empty_list_of_columns_gives_rows_without_columns(spark: SparkSession, client: SharingClient) -> None:
    frame = client.table("s.d.parts").scan(columns=[]).to_spark(spark)
    assert frame.columns == []
    assert frame.count() == 200


def test_filters_are_exact(spark: SparkSession, orders: str) -> None:
    expected = ds.load_as_arrow(orders, columns=["order_id"], filters="quantity >= 5 AND region = 'Asia'")
    frame = ds.load_as_spark(
        orders, columns=["order_id"], filters="quantity >= 5 AND region = 'Asia'", spark=spark
    )
    assert [row[0] for row in frame.collect()] == expected["order_id"].to_pylist()
    assert expected.num_rows


@pytest.mark.parametrize("limit", [0, 1, 7, 50, 103, 200, 1000])
@pytest.mark.parametrize("filters", [None, [("part", ">=", 10)]])
def test_a_limit_is_exact(spark: SparkSession, client: SharingClient, limit: int, filters: Any) -> None:
    scan = client.table("s.d.parts").scan(limit=limit, filters=filters)
    assert ids(scan.to_spark(spark, partition_size=2000)) == scan.to_arrow()["id"].to_pylist()


def test_an_empty_table_has_its_schema(spark: SparkSession, client: SharingClient) -> None:
    frame = client.table("s.d.empty").scan().to_spark(spark)
    assert frame.columns == ["id", "part", "Name"]
    assert frame.collect() == []
    assert client.table("s.d.empty").scan(columns=[]).to_spark(spark).count() == 0


def test_version_and_timestamp_select_an_earlier_snapshot(spark: SparkSession, orders: str) -> None:
    assert (
        ds.load_as_spark(orders, 0, spark=spark).count() == ds.load_as_arrow(orders, version=0).num_rows == 10_000
    )
    changed = ds.load_table_changes_as_arrow(orders, 6, 6, columns=[], commit_timestamp="timestamp")
    moment: datetime = changed["_commit_timestamp"][0].as_py()
    expected = ds.load_as_arrow(orders, version=6, columns=["order_id"]).num_rows
    assert ds.load_as_spark(orders, timestamp=moment, spark=spark).count() == expected != 60_000


def test_changes_are_loaded_with_timestamps(spark: SparkSession, orders: str) -> None:
    frame = ds.load_table_changes_as_spark(orders, 5, spark=spark)
    expected = ds.load_table_changes_as_arrow(orders, 5, commit_timestamp="timestamp")
    assert frame.columns == expected.column_names
    assert dict(frame.dtypes)["_commit_timestamp"] == "timestamp"
    counted = {
        (row[0], row[1]): row[2] for row in frame.groupBy("_change_type", "_commit_version").count().collect()
    }
    keys = zip(expected["_change_type"].to_pylist(), expected["_commit_version"].to_pylist(), strict=True)
    wanted: dict[Any, int] = {}
    for key in keys:
        wanted[key] = wanted.get(key, 0) + 1
    assert counted == wanted
    assert (
        dict(ds.load_table_changes_as_spark(orders, 5, spark=spark, commit_timestamp="long").dtypes)[
            "_commit_timestamp"
        ]
        == "bigint"
    )


def test_a_frame_is_reusable_and_works_in_sql(spark: SparkSession, sample_profile: str) -> None:
    frame = ds.load_as_spark(f"{sample_profile}#retail.sales.customers", spark=spark)
    assert frame.count() == frame.count() == 2000
    frame.createOrReplaceTempView("shared_customers")
    assert spark.sql("SELECT count(DISTINCT customer_id) FROM shared_customers").first()[0] == 2000


def test_instants_are_shown_in_the_zone_of_the_session(spark: SparkSession, orders: str) -> None:
    frame = ds.load_as_spark(orders, columns=["ordered_at"], limit=1, spark=spark)
    before = spark.conf.get("spark.sql.session.timeZone")
    try:
        spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
        shown = frame.selectExpr("CAST(ordered_at AS STRING)", "CAST(ordered_at AS BIGINT)").first()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
    assert tuple(shown) == ("2024-01-01 09:00:00", 1704067200)


def test_the_profile_can_be_an_argument(spark: SparkSession, parts: SharingServer) -> None:
    assert ds.load_as_spark("s.d.parts", delta_sharing_profile=parts.profile, spark=spark).count() == 200
    with pytest.raises(TableNameError, match="given twice"):
        ds.load_as_spark("here.share#s.d.parts", delta_sharing_profile=parts.profile, spark=spark)


# -- partitions


def test_small_files_share_a_partition(spark: SparkSession, client: SharingClient) -> None:
    assert client.table("s.d.parts").scan().to_spark(spark).rdd.getNumPartitions() == 1


def test_core_count_is_that_of_the_session(spark: SparkSession) -> None:
    assert sessions.core_count(spark) == 2


# -- sessions


def test_the_active_session_is_the_default(spark: SparkSession, client: SharingClient) -> None:
    assert sessions.session_for(None) is spark
    assert client.table("s.d.parts").scan().to_spark().count() == 200


def test_an_argument_that_is_no_session_raises(client: SharingClient) -> None:
    with pytest.raises(TypeError, match="SparkSession, not str"):
        client.table("s.d.parts").scan().to_spark("local[2]")  # type: ignore[arg-type]


@pytest.mark.parametrize("java", [None, "#!/bin/sh\necho UnsupportedClassVersionError >&2\nexit 1\n"])
def test_the_error_without_a_suitable_java_names_the_release(tmp_path: Path, java: str | None) -> None:
    """Java is missing, or fails because it is too old."""
    if java is not None:
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "java").write_text(java)
        (tmp_path / "bin" / "java").chmod(0o755)
    code = "from delta_sharing_client.spark.session import session_for; session_for(None)"
    environment = {name: value for name, value in os.environ.items() if name not in ("MASTER", "SPARK_REMOTE")}
    done = run_program([sys.executable, "-c", code], env=environment | {"JAVA_HOME": str(tmp_path)})
    oldest = 17 if sessions.pyspark_version() >= (4, 0) else 8
    assert f"SparkError: Spark could not start Java; it needs Java {oldest} or later. Install one" in done.stderr


def test_without_pyspark_the_error_names_the_extra(orders: str, tmp_path: Path) -> None:
    """Each way into Spark, in a process that cannot import PySpark."""
    code = f"""
import sys
sys.modules["pyspark"] = None
import pyarrow as pa
import delta_sharing_client as ds
from deltalake import write_deltalake
url, folder = {orders!r}, {str(tmp_path / "table")!r}
write_deltalake(folder, pa.table({{"a": [1]}}))
with ds.SharingClient(url.partition("#")[0]) as client:
    table = client.table(url.partition("#")[2])
    for way in (
        table.to_spark,
        table.scan().to_spark,
        table.changes(starting_version=6).to_spark,
        ds.DeltaLog.for_table(folder).snapshot().to_spark,
        ds.spark.register,
        lambda: ds.spark.create_views(None, url.partition("#")[0]),
        lambda: ds.load_as_spark(url),
        lambda: ds.load_as_spark(url, mirror=folder),
        lambda: ds.load_table_changes_as_spark(url, 6),
    ):
        try:
            way()
        except ds.errors.MissingDependencyError as error:
            print(error.package, error.extra, "delta-sharing-client[spark]" in str(error))
"""
    done = run_program([sys.executable, "-c", code])
    assert done.stdout == "pyspark spark True\n" * 9, done.stderr


def test_a_spark_before_3_5_raises(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    monkeypatch.setattr(sessions, "spark_version", lambda _: (3, 4))
    with pytest.raises(SparkError, match=r"Spark 3\.4 is too old"):
        sessions.session_for(spark)


def test_this_python_runs_the_workers_of_a_local_session(
    monkeypatch: pytest.MonkeyPatch, spark: SparkSession, client: SharingClient
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON")
    context = spark.sparkContext
    monkeypatch.setattr(context, "pythonExec", "/nowhere/python3")
    assert client.table("s.d.parts").scan().to_spark(spark).count() == 200
    assert context.pythonExec == "/nowhere/python3"


def test_without_a_session_a_local_one_is_started_and_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, spark: SparkSession
) -> None:
    from pyspark.sql import SparkSession as Session

    monkeypatch.setattr(Session, "getActiveSession", staticmethod(lambda: None))
    with caplog.at_level(logging.WARNING, "delta_sharing_client"):
        made = sessions.session_for(None)  # there is a context in this process already: it is the same
    assert made.sparkContext is spark.sparkContext
    assert "no Spark session is active: starting a local one" in caplog.text


# -- errors, in the caller's process


def test_mistakes_raise_errors_of_this_package(spark: SparkSession, parts: SharingServer, tmp_path: Path) -> None:
    def load(table: str = "s.d.parts", profile: Any = parts.profile, **options: Any) -> None:
        ds.load_as_spark(table, delta_sharing_profile=profile, spark=spark, **options)

    with pytest.raises(NotFoundError, match=r"s\.d\.nothing"):
        load("s.d.nothing")
    with pytest.raises(AuthenticationError):
        load(profile={**parts.profile, "bearerToken": "wrong"})
    with pytest.raises(ProfileError):
        ds.load_as_spark(f"{tmp_path}/none.share#s.d.parts", spark=spark)
    with pytest.raises(ColumnError):
        load(columns=["nothing"])
    with pytest.raises(FilterError):
        load(filters=[("id", "~", 3)])
    with pytest.raises(ValueError, match="together"):
        load(version=0, timestamp="2024-01-01")
    with pytest.raises(ValueError, match="variant is 'struct'"):
        load(variant="struct")
    with pytest.raises(ValueError, match="partition_size is 0"):
        load(partition_size=0)


def test_errors_of_executors_name_the_cause_without_urls(spark: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    root = write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows, name="a.parquet")])
    with SharingServer({"s.d.t": root}) as server:
        frame = ds.load_as_spark("s.d.t", delta_sharing_profile=server.profile, spark=spark)
        (root / "a.parquet").write_bytes(b"PAR1 this is no Parquet file PAR1")
        with pytest.raises(Exception, match="DataError") as caught:
            frame.collect()
    assert "/files/" not in str(caught.value)
    assert "Signature" not in str(caught.value)


# -- types


def test_variants_need_spark_4() -> None:
    variants = StructType((StructField("v", PrimitiveType("variant")),))
    with pytest.raises(
        UnsupportedTypeError, match=r"'v' has the type variant, which Spark 3\.5 lacks.*variant='json'"
    ):
        spark_schema(variants, "struct", (3, 5))
    assert spark_schema(variants, "json", (3, 5)).simpleString() == "struct<v:string>"


def test_nested_nulls_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    kind = pa.struct([("a", pa.list_(pa.int32())), ("b", pa.struct([("c", pa.string())]))])
    rows = [{"a": [1, None], "b": {"c": "x"}}, None, {"a": None, "b": None}, {"a": [], "b": {"c": None}}]
    nested = column(
        "s", struct_of(column("a", array_of("integer")), column("b", struct_of(column("c", "string"))))
    )
    table = pa.table({"s": pa.array(rows, kind)})
    with SharingServer(
        {"s.d.t": write_table(tmp_path / "t", [nested], [File(rows=table, name="a.parquet")])}
    ) as server:
        frame = ds.load_as_spark("s.d.t", delta_sharing_profile=server.profile, spark=spark)
        found = [row["s"] and row["s"].asDict(recursive=True) for row in frame.collect()]
    assert found == rows
    assert re.fullmatch(r"struct<s:struct<a:array<int>,b:struct<c:string>>>", frame.schema.simpleString())
