"""The data source of `spark.read.format("deltaSharing")`: options, schemas, SQL, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from loading.loading_tables import File, column, write_table

import delta_sharing_client as ds
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.errors import ColumnError, ProfileError, SparkError, TableNameError
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.schema import parse_schema
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.configuration import TIME_ZONE
from delta_sharing_client.spark.data_source import describe
from delta_sharing_client.spark.data_source_options import parse_options
from delta_sharing_client.spark.option_parsers import OPTIONS
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.spark.spark_schema import requested_columns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

PROFILE = {"shareCredentialsVersion": "1", "endpoint": "https://host/api", "bearerToken": "canary-token"}


@pytest.fixture
def orders(sample_profile: str) -> str:
    return f"{sample_profile}#retail.sales.orders"


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharingServer]:
    """A table of 8 files with 10 rows each."""
    columns = [column("Id", "long"), column("part", "integer")]
    files = [
        File(
            rows=pa.table({"Id": range(10 * i, 10 * i + 10), "part": pa.array([i] * 10, pa.int32())}),
            name=f"{i}.parquet",
        )
        for i in range(8)
    ]
    root = write_table(tmp_path_factory.mktemp("numbers") / "t", columns, files)
    with SharingServer({"s.d.numbers": root}) as server:
        yield server


def read(spark: SparkSession, path: str, **options: Any) -> DataFrame:
    return spark.read.format("deltaSharing").options(**options).load(path)


# -- rows


def test_a_filter_of_one_query_does_not_apply_to_the_next(source: SparkSession, orders: str) -> None:
    """Spark 4.1 to 4.3 keep the planned reader: a reader that took filters would keep those of the first use."""
    frame = read(source, orders, columns="order_id,region")
    filtered = frame.where("region = 'Asia'")
    some = filtered.count()
    assert 0 < some < frame.count()
    assert (
        frame.where("region = 'Europe'").count() == ds.load_as_arrow(orders, filters="region = 'Europe'").num_rows
    )
    assert filtered.count() == some


def test_the_reader_has_no_filter_pushdown() -> None:
    datasource = pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")
    from delta_sharing_client.spark.python_data_source import SharedTableReader

    base = getattr(datasource.DataSourceReader, "pushFilters", None)
    assert getattr(SharedTableReader, "pushFilters", None) is base


def test_spark_offers_no_projection_or_limit_pushdown() -> None:
    """A release whose readers have more methods can prune, and then they have to be used."""
    datasource = pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")
    methods = {name for name in vars(datasource.DataSourceReader) if not name.startswith("_")}
    assert methods <= {"partitions", "pushFilters", "read"}


def test_spark_reuses_the_reader_of_a_pushed_filter(source: SparkSession) -> None:
    """The fault for which filters are not pushed. A release without it fails here, and can have the pushdown."""
    datasource = pytest.importorskip("pyspark.sql.datasource", reason="Spark 3.5 has no Python data sources")
    if not hasattr(datasource.DataSourceReader, "pushFilters"):
        pytest.skip("Spark 4.0 has no filter pushdown")

    class Reader(datasource.DataSourceReader):  # type: ignore[misc, name-defined]
        rows = range(10)

        def pushFilters(self, filters: list[Any]) -> Iterator[Any]:
            for pushed in filters:
                if isinstance(pushed, datasource.EqualTo):
                    self.rows = [pushed.value]
                else:
                    yield pushed

        def read(self, partition: object) -> Iterator[tuple[int]]:
            return iter([(row,) for row in self.rows])

    class Numbers(datasource.DataSource):  # type: ignore[misc, name-defined]
        @classmethod
        def name(cls) -> str:
            return "numbers_with_pushdown"

        def schema(self) -> str:
            return "a int"

        def reader(self, schema: object) -> Reader:
            return Reader()

    setting = "spark.sql.python.filterPushdown.enabled"
    source.conf.set(setting, "true")
    try:
        source.dataSource.register(Numbers)
        frame = source.read.format("numbers_with_pushdown").load()
        assert frame.where("a = 3").count() == 1
        assert frame.count() == 1  # of ten rows
    finally:
        source.conf.unset(setting)


def test_snapshot_options_select_version_columns_and_rows(source: SparkSession, orders: str) -> None:
    frame = read(
        source, orders, versionAsOf=0, columns='["order_id", "region"]', filters="order_id < 100", limit=12
    )
    assert frame.columns == ["order_id", "region"]
    assert frame.select("order_id").collect() == [(i,) for i in range(12)]


def test_read_change_feed_returns_the_changes(source: SparkSession, orders: str) -> None:
    frame = read(source, orders, readChangeFeed="true", startingVersion=6)
    expected = ds.load_table_changes_as_arrow(orders, 6, commit_timestamp="timestamp")
    assert frame.columns == expected.column_names
    assert dict(frame.dtypes)["_commit_timestamp"] == "timestamp"
    assert frame.count() == expected.num_rows > 0
    assert (
        read(source, orders, readChangeData="true", startingVersion=6, endingVersion=6).count() < expected.num_rows
    )


def test_profile_fields_are_options(source: SparkSession, numbers: SharingServer) -> None:
    fields = {name: str(value) for name, value in numbers.profile.items()}
    assert read(source, "s.d.numbers", **fields).count() == 80
    assert read(source, "s.d.numbers", **{name.lower(): value for name, value in fields.items()}).count() == 80


def test_partition_size_sets_the_number_of_partitions(source: SparkSession, numbers: SharingServer) -> None:
    fields = {name: str(value) for name, value in numbers.profile.items()}
    frame = read(source, "s.d.numbers", partitionSize=1, **fields)
    assert frame.rdd.getNumPartitions() == 8
    assert [row["Id"] for row in frame.collect()] == list(range(80))


def test_a_user_schema_selects_columns(source: SparkSession, numbers: SharingServer) -> None:
    fields = {name: str(value) for name, value in numbers.profile.items()}
    reader = source.read.format("deltaSharing").options(**fields, filters="part = 3")
    frame = reader.schema("ID bigint").load("s.d.numbers")
    assert frame.columns == ["ID"]
    assert [row["ID"] for row in frame.collect()] == list(range(30, 40))


def test_a_sql_view_has_the_options(source: SparkSession, orders: str) -> None:
    source.sql(
        f"CREATE OR REPLACE TEMPORARY VIEW some_orders (order_id BIGINT, region STRING) USING deltaSharing "
        f"OPTIONS (path '{orders}', versionAsOf '0', filters \"region = 'Asia'\")"
    )
    row = source.sql("SELECT count(*), count(DISTINCT region), max(region) FROM some_orders").first()
    expected = ds.load_as_arrow(orders, version=0, filters="region = 'Asia'").num_rows
    assert tuple(row) == (expected, 1, "Asia")


def test_the_version_of_the_schema_is_read(source: SparkSession, tmp_path: Path) -> None:
    """Spark requests the schema first and the rows later; the table may have another schema then."""
    first = pa.table({"id": [1]})
    root = write_table(tmp_path / "t", [column("id", "long")], [File(rows=first, name="a.parquet")])
    with SharingServer({"s.d.t": root}) as server:
        fields = {name: str(value) for name, value in server.profile.items()}
        frame = read(source, "s.d.t", **fields)
        commit = {
            "metaData": json.loads((root / "_delta_log" / f"{0:020}.json").read_text().splitlines()[1])["metaData"]
        }
        commit["metaData"]["schemaString"] = json.dumps(
            {"type": "struct", "fields": [column("id", "string"), column("more", "string")]}
        )
        (root / "_delta_log" / f"{1:020}.json").write_text(json.dumps(commit) + "\n")
        assert [tuple(row) for row in frame.collect()] == [(1,)]
        assert read(source, "s.d.t", **fields).columns == ["id", "more"]


def test_a_time_after_the_last_commit_reads_the_latest_version_on_request(
    source: SparkSession, orders: str
) -> None:
    rows = ds.load_as_arrow(orders).num_rows
    given = {"timestampAsOf": "2999-01-01T00:00:00Z", "onFuture": "latest"}
    assert source.read.format("deltaSharing").options(**given).load(orders).count() == rows
    assert ds.load_as_spark(orders, timestamp="2999-01-01", on_future="latest", spark=source).count() == rows


def test_changes_after_the_last_commit_are_none_on_request(source: SparkSession, orders: str) -> None:
    columns = ds.load_table_changes_as_arrow(orders, 6).column_names
    for start in ({"startingTimestamp": "2999-01-01T00:00:00Z"}, {"startingVersion": "999"}):
        given = {"readChangeFeed": "true", "onFuture": "latest", **start}
        frame = source.read.format("deltaSharing").options(**given).load(orders)
        assert (frame.columns, frame.count()) == (columns, 0)
    later = ds.load_table_changes_as_spark(orders, 999, on_future="latest", spark=source)
    assert (later.columns, later.count()) == (columns, 0)


def test_a_refused_time_names_the_option_of_the_data_source(source: SparkSession, orders: str) -> None:
    before = source.conf.get(TIME_ZONE)
    assert before is not None
    source.conf.unset(TIME_ZONE)
    try:
        ds.spark.register(source)
        reader = source.read.format("deltaSharing").option("timestampAsOf", "2999-01-01")
        with pytest.raises(Exception, match="after the latest version") as caught:
            reader.load(orders)
        assert "or the option onFuture 'latest'" in str(caught.value)
        assert "on_future" not in str(caught.value)
    finally:
        source.conf.set(TIME_ZONE, before)


@pytest.mark.parametrize(
    ("given", "messages"),
    [
        (
            {"limit": "5"},
            ["startingTimestamp means nothing without readChangeFeed", "limit means nothing to a stream"],
        ),
        ({"onFuture": "latest"}, ["onFuture means nothing to a stream"]),
        ({"endingVersion": "5"}, ["endingVersion means nothing to a stream"]),
    ],
)
def test_options_of_neither_a_batch_nor_a_stream_are_named(given: dict[str, str], messages: list[str]) -> None:
    start = {"path": "s.d.t", "startingTimestamp": "2024-01-01T00:00:00Z"}
    with pytest.raises(ValueError, match=r"^as a stream: the option ") as caught:
        describe({name.lower(): text for name, text in (PROFILE | start | given).items()})
    assert all(message in str(caught.value) for message in messages)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"versionAsOf": "1", "unheard": "1"}, "^the option 'unheard' is unknown"),
        ({"partitionSize": "0", "limit": "5"}, "^partition_size is 0"),
    ],
)
def test_other_errors_of_options_are_those_of_a_batch(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        describe({name.lower(): text for name, text in (PROFILE | {"path": "s.d.t"} | given).items()})


def test_a_server_without_history_is_read_at_its_latest_version(source: SparkSession, tmp_path: Path) -> None:
    rows = pa.table({"id": [1, 2]})
    root = write_table(tmp_path / "t", [column("id", "long")], [File(rows=rows, name="a.parquet")])
    with SharingServer({"s.d.t": root}, history=False) as server:
        fields = {name: str(value) for name, value in server.profile.items()}
        assert read(source, "s.d.t", **fields).count() == 2


# -- where it is known


def test_spark_3_5_has_no_data_sources(monkeypatch: pytest.MonkeyPatch, spark: SparkSession) -> None:
    from delta_sharing_client.spark import data_source as front

    monkeypatch.setattr(front, "spark_version", lambda _: (3, 5))
    with pytest.raises(SparkError, match=r"needs Spark 4\.0 or later, and this is 3\.5: use load_as_spark"):
        ds.spark.register(spark)


# -- mistakes


@pytest.mark.parametrize(
    ("path", "options", "message"),
    [
        ("{profile}#retail.sales.nothing", {}, "NotFoundError: table retail.sales.nothing"),
        ("{profile}.none#retail.sales.orders", {}, "ProfileError: profile .*there is no such file"),
        ("{profile}#retail.sales.orders", {"versionAsOf": "99"}, "BadRequestError: .*there is no version 99"),
        ("{profile}#retail.sales.orders", {"columns": "nope"}, "ColumnError: table retail.* 'nope'"),
        ("{profile}#retail.sales.orders", {"verionAsOf": "1"}, "ValueError: .*is 'versionAsOf' meant"),
    ],
)
def test_a_mistake_raises_one_short_error(
    source: SparkSession, sample_profile: str, path: str, options: dict[str, str], message: str
) -> None:
    with pytest.raises(Exception, match=message) as caught:
        read(source, path.format(profile=sample_profile), **options).collect()
    assert len(str(caught.value)) < 1200


def test_the_error_for_a_wrong_token_is_short_and_without_it(source: SparkSession, numbers: SharingServer) -> None:
    fields = {name: str(value) for name, value in numbers.profile.items()} | {"bearerToken": "wrong-canary-token"}
    with pytest.raises(Exception, match=r"AuthenticationError: table s\.d\.numbers") as caught:
        read(source, "s.d.numbers", **fields).collect()
    assert "canary" not in str(caught.value)
    assert len(str(caught.value)) < 1200


@pytest.mark.parametrize(
    ("name", "kind", "nullable", "message"),
    [
        ("other", "long", True, "names 'other', which the table lacks; it has id, part"),
        ("id", "integer", True, "has 'id' as integer, the table has it as long"),
        ("id", "long", False, "leave NOT NULL out"),
        (
            "many",
            {"type": "array", "elementType": "long", "containsNull": False},
            True,
            "leave NOT NULL out",
        ),
    ],
)
def test_user_schemas_that_do_not_fit_the_table_raise(name: str, kind: Any, nullable: bool, message: str) -> None:
    from pyspark.sql.types import StructType

    given = {"type": "struct", "fields": [column(name, kind, nullable=nullable)]}
    columns = [column("id", "long"), column("part", "integer")]
    if name == "many":
        columns.append(column("many", {"type": "array", "elementType": "long", "containsNull": True}))
    table = parse_schema(json.dumps({"type": "struct", "fields": columns}))
    with pytest.raises(ColumnError, match=message):
        requested_columns(StructType.fromJson(given), table, "struct")


# -- options


def test_every_option_is_parsed() -> None:
    given = {
        "path": "s.d.t",
        "versionAsOf": "3",
        "responseFormat": "parquet, delta",
        "columns": "a, b",
        "filters": "a > 1",
        "limit": "5",
        "variant": "json",
        "executorCredentials": "FALSE",
        "asynchronousQueries": "TRUE",
        "partitionSize": "1000",
        "minPartitions": "7",
    }
    options = parse_options(PROFILE | given)
    assert options.table == Table("t", "s", "d")
    assert options.query == ScanOptions(columns=("a", "b"), filters="a > 1", limit=5, version=3, variant="json")
    assert options.executors == ExecutorOptions(credentials=False, partition_size=1000, min_partitions=7)
    assert options.transport == TransportOptions(asynchronous_queries=True)
    assert "canary" not in repr(options)
    changes = {
        "path": "s.d.t",
        "readChangeFeed": "true",
        "startingTimestamp": "2024-01-01T00Z",
        "endingVersion": "9",
    }
    assert parse_options(PROFILE | changes).transport == TransportOptions()
    assert parse_options(PROFILE | changes).query == ChangeOptions(
        starting_timestamp="2024-01-01T00:00:00Z", ending_version=9, commit_timestamp="timestamp"
    )
    asked = {"path": "s.d.t", "timestampAsOf": "2999-01-01T00:00:00Z", "onFuture": "latest"}
    future = parse_options(PROFILE | asked).query
    assert isinstance(future, ScanOptions)
    assert (str(future.timestamp)[:10], future.on_future) == ("2999-01-01", "latest")
    others = {"startingVersion", "endingTimestamp", "callerOrg"}
    assert {*given, *changes, *asked, *others} == set(OPTIONS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "no table is given"),
        ({"path": "s.d.t", "limit": "-1"}, "the option limit is '-1'; it takes a whole number"),
        ({"path": "s.d.t", "readChangeFeed": "yes"}, "readChangeFeed is 'yes'; it takes true or false"),
        ({"path": "s.d.t", "readChangeFeed": "true"}, "exactly one of the options startingVersion"),
        (
            {"path": "s.d.t", "startingVersion": "1", "startingTimestamp": "2024-01-01T00Z"},
            "startingVersion and startingTimestamp cannot be given together",
        ),
        ({"path": "s.d.t", "owner": "root"}, "CREATE TABLE does not work .* use CREATE TEMPORARY VIEW"),
        ({"path": "s.d.t", "startingVersion": "1"}, "startingVersion means nothing without readChangeFeed"),
        (
            {"path": "s.d.t", "readChangeFeed": "true", "startingVersion": "1", "limit": "3"},
            "limit means nothing with readChangeFeed",
        ),
        (
            {"path": "s.d.t", "readChangeFeed": "true", "startingVersion": "3", "endingVersion": "1"},
            "ending_version is 1, which is before starting_version, 3",
        ),
        (
            {
                "path": "s.d.t",
                "readChangeFeed": "true",
                "startingVersion": "3",
                "endingVersion": "4",
                "endingTimestamp": "2024-01-01T00:00:00Z",
            },
            "cannot be given together",
        ),
        (
            {"path": "s.d.t", "versionAsOf": "1", "timestampAsOf": "2024-01-01T00:00:00Z"},
            "cannot be given together",
        ),
        ({"path": "s.d.t", "timestampAsOf": "yesterday"}, "timestampAsOf is .yesterday.; it takes a time"),
        ({"path": "s.d.t", "columns": "[1]"}, "it takes names with commas"),
        ({"path": "s.d.t", "columns": "a,,b"}, "it takes names with commas"),
        ({"path": "s.d.t", "columns": "[nonsense"}, "it takes names with commas"),
        ({"path": "s.d.t", "responseFormat": "csv"}, "'csv'"),
        ({"path": "s.d.t", "variant": "struct"}, "variant is 'struct'"),
        ({"path": "s.d.t", "partitionSize": "0"}, "partition_size is 0"),
        ({"path": "s.d.t", "unheard": "1"}, "the option 'unheard' is unknown; there are path"),
    ],
)
def test_invalid_options_raise(given: Mapping[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        parse_options(PROFILE | dict(given))
    assert "canary" not in str(caught.value)


def test_a_profile_in_both_options_and_path_raises(tmp_path: Path) -> None:
    with pytest.raises(TableNameError, match="given twice"):
        parse_options(PROFILE | {"path": "here.share#s.d.t"})
    with pytest.raises(TableNameError, match="not a table URL"):
        parse_options({"path": "s.d.t"})
    with pytest.raises(ProfileError, match="'bearerToken' is missing"):
        parse_options({"path": "s.d.t", "endpoint": "https://host/api"})
