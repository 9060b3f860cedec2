"""`engine="native"`: Spark's own Parquet reader over pre-signed URLs, on pinned releases of Spark."""

from __future__ import annotations

import gc
import importlib
import logging
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
import pytest
import spark_processes
from golden.test_golden import CASES, READABLE, TABLES, Case
from loading.loading_tables import File, column, write_table
from test_golden_spark import collected, same_rows
from waiting import WallClock, run_program

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError, FileGoneError, SparkError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import engine as engines
from delta_sharing_client.spark import gateway as gateways
from delta_sharing_client.spark import native_dataframe
from delta_sharing_client.spark.engine import Engine
from delta_sharing_client.spark.session import kept_for, pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

#: The Hadoop and Parquet of each Spark on which these tests have passed: the gateway depends on what they request.
PINNED = {(4, 2): ("3.5.0", "1.17.0"), (4, 3): ("3.5.0", "1.17.0")}
REFUSED = {(3, 5), (4, 0), (4, 1)}
NATIVE = pyspark_version() in PINNED
needs_native = pytest.mark.skipif(not NATIVE, reason="this Spark is refused, which another test shows")


def test_each_release_of_spark_is_pinned_or_refused(spark: SparkSession, orders: SharingServer) -> None:
    jars = Path(pyspark.__file__).parent / "jars"
    if NATIVE:
        (hadoop,) = jars.glob("hadoop-client-api-*.jar")
        (parquet,) = jars.glob("parquet-hadoop-*.jar")
        found = hadoop.stem.removeprefix("hadoop-client-api-"), parquet.stem.removeprefix("parquet-hadoop-")
        assert found == PINNED[pyspark_version()]
        return
    assert pyspark_version() in REFUSED
    with pytest.raises(SparkError, match=rf"needs Spark 4\.2 or later, and this is Spark {spark.version}"):
        ds.load_as_spark("s.s.t", delta_sharing_profile=orders.profile, spark=spark, engine="native")


@pytest.fixture(autouse=True)
def all_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of any size are read by Spark."""
    monkeypatch.setattr(native_dataframe, "SMALLEST", 0)


ROWS = 60_000


def rows(start: int, count: int = ROWS) -> pa.Table:
    """Numbers that do not compress; `a` is sorted."""
    numbers = range(start, start + count)
    mixed = [pa.array([(i * 2_654_435_761 + n) % 2**61 for i in numbers], pa.int64()) for n in range(4)]
    return pa.table([pa.array(numbers, pa.int64()), *mixed], names=["a", "b", "c", "d", "e"])


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four files of two days, in row groups of 20,000 rows; one has deleted rows, and one is small."""
    plain = {"row_group_size": 20_000, "compression": "none", "use_dictionary": False}
    days = ["2024-01-01", "2024-01-02"]
    files = [
        File(
            rows=rows(n * ROWS) if n < 3 else rows(3 * ROWS, 10),
            name=f"{n}.parquet",
            values={"day": days[n % 2]},
            vector=range(5, 15) if n == 1 else None,
            options=plain,
        )
        for n in range(4)
    ]
    columns = [*(column(name, "long") for name in "abcde"), column("day", "date")]
    folder = tmp_path_factory.mktemp("orders") / "t"
    return write_table(folder, columns, files, partitions=["day"], features=["deletionVectors"])


@pytest.fixture(scope="module")
def orders(root: Path) -> Iterator[SharingServer]:
    with SharingServer({"s.s.t": root}) as server:
        yield server


@pytest.fixture
def load(spark: SparkSession, orders: SharingServer) -> Iterator[Callable[..., Any]]:
    with SharingClient(orders.profile) as client:

        def loaded(engine: Engine = "native", **options: Any) -> Any:
            orders.reset_requests()
            return client.table("s.s.t").scan(**options).to_spark(spark, engine=engine)

        yield loaded


def bytes_of(server: SharingServer) -> int:
    return sum(request.bytes_sent for request in server.requests if request.is_file)


# -- what is read


def gateway_of(spark: SparkSession) -> gateways.Gateway:
    found = kept_for(spark.sparkContext).gateway
    assert found is not None
    return found


@needs_native
@pytest.mark.parametrize("mode", ["none", "name"])
def test_partition_values_under_names_in_another_case_or_logical_names(
    spark: SparkSession, tmp_path: Path, mode: str
) -> None:
    """Among them a file that holds the partition column itself, and has no value for it."""
    physical = {"none": "Day", "name": "col-D"}[mode]
    fields = [column("a", "long"), column("Day", "string")]
    for number, field in enumerate(fields):
        names = {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": ("a", physical)[number]}
        field["metadata"] |= names
    names = [physical, physical.upper(), "Day", "dAY"]
    files = [
        File(rows=pa.table({"a": [n]}), name=f"{n}.parquet", values={name: f"d{n}"})
        for n, name in enumerate(names)
    ]
    files.append(File(rows=pa.table({"a": [8], physical: ["d8"]}), name="8.parquet"))
    files.append(File(rows=pa.table({"a": [9]}), name="9.parquet", values={"dAY": None}))
    root = write_table(
        tmp_path / "t",
        fields,
        files,
        partitions=["Day"],
        configuration={"delta.columnMapping.mode": mode},
        features=["columnMapping"] if mode == "name" else [],
    )
    expected = [(n, f"d{n}") for n in (0, 1, 2, 3, 8)] + [(9, None)]
    with SharingServer({"s.s.t": root}) as server, SharingClient(server.profile) as client:
        table = client.table("s.s.t")
        frames = {engine: table.scan().to_spark(spark, engine=engine) for engine in ("native", "arrow")}
        assert "FileScan parquet" in plan_of(frames["native"])
        frames["snapshot"] = ds.DeltaLog.for_table(root).snapshot().to_spark(spark)
        frames["mirror"] = ds.load_as_spark(
            "s.s.t", delta_sharing_profile=server.profile, spark=spark, mirror=tmp_path / "mirror"
        ).where("a != 8")  # a local table has a value for each file
        for name, frame in frames.items():
            rows = [row for row in expected if name != "mirror" or row[0] != 8]
            assert sorted(map(tuple, frame.select("a", "Day").collect())) == rows, name
            assert [tuple(row) for row in frame.where("Day = 'd3'").collect()] == [(3, "d3")], name


@needs_native
def test_columns_partitions_and_row_groups_are_pruned_by_spark(
    load: Callable[..., Any], orders: SharingServer, root: Path
) -> None:
    whole = sum(file.stat().st_size for file in root.glob("*.parquet"))
    frame = load()
    footers = bytes_of(orders)
    assert footers <= 4 * 65_536 + 2_000
    assert frame.count() == 3 * ROWS
    assert bytes_of(orders) == footers  # the footers have the numbers of rows
    frame = load().where("day = '2024-01-02'").selectExpr("max(c)")
    assert "FileScan parquet" in plan_of(frame)
    frame.collect()
    assert bytes_of(orders) - footers < whole / 3 / 4
    frame = load()
    frame.createOrReplaceTempView("orders")
    found = frame.sparkSession.sql("SELECT d FROM orders WHERE a = 25000").collect()
    assert [row[0] for row in found] == [(25_000 * 2_654_435_761 + 2) % 2**61]
    assert bytes_of(orders) - footers < whole / 9


@needs_native
def test_the_rows_are_those_of_the_arrow_loader(
    load: Callable[..., Any], orders: SharingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the small file, which this package reads, in the same DataFrame."""
    monkeypatch.setattr(native_dataframe, "SMALLEST", 10_000)
    with SharingClient(orders.profile) as client:
        expected = client.table("s.s.t").scan().to_arrow()
    assert expected.num_rows == 3 * ROWS
    frame = load()
    assert "FileScan parquet" in plan_of(frame)
    assert "MapInArrow" in plan_of(frame)
    same_rows(collected(frame), expected, ["a"])
    columns = ["d", "day"]
    same_rows(collected(load(columns=columns)), expected.select(columns), columns)


@needs_native
def test_the_same_dataframe_again_requests_nothing(load: Callable[..., Any], orders: SharingServer) -> None:
    frame = load().selectExpr("sum(a)", "max(e)")
    first = frame.collect()
    orders.reset_requests()
    assert frame.collect() == first
    assert orders.requests == []


@needs_native
def test_a_limit_reads_little(load: Callable[..., Any], orders: SharingServer, root: Path) -> None:
    whole = sum(file.stat().st_size for file in root.glob("*.parquet"))
    assert len(load(limit=5).collect()) == 5
    assert bytes_of(orders) < whole / 2
    frame = load()
    assert len(frame.select("a").limit(5).collect()) == 5
    assert bytes_of(orders) < whole / 4


def plan_of(frame: Any) -> str:
    return str(frame._jdf.queryExecution().executedPlan().toString())


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({}, None),
        ({"columns": ["a"]}, "leaves columns, filters and limit to Spark"),
        ({"filters": [("a", "<", 5)]}, "leaves columns, filters and limit to Spark"),
        ({"limit": 3}, "leaves columns, filters and limit to Spark"),
        ({"partition_size": 1_000_000}, "has no partition size"),
    ],
)
def test_auto_takes_the_native_engine_for_whole_tables(
    spark: SparkSession,
    orders: SharingServer,
    caplog: pytest.LogCaptureFixture,
    options: dict[str, Any],
    reason: str | None,
) -> None:
    caplog.set_level(logging.INFO, "delta_sharing_client.spark")
    frame = ds.load_as_spark("s.s.t", delta_sharing_profile=orders.profile, spark=spark, **options)
    native = NATIVE and reason is None
    assert ("FileScan parquet" in plan_of(frame)) == native
    assert ("MapInArrow" in plan_of(frame)) != native
    (message,) = (text for text in caplog.messages if "Spark reads it by engine=" in text)
    if native:
        assert message == "table s.s.t: Spark reads it by engine='native'"
        assert caplog.messages[-1] == "table s.s.t: Spark's Parquet reader reads 4 files, and this package 0"
    else:
        assert message.startswith("table s.s.t: Spark reads it by engine='arrow', because engine='native' ")
        assert not NATIVE or message.endswith(reason or "")


@needs_native
def test_auto_reads_small_files_and_long_listings_by_arrow(
    load: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "delta_sharing_client.spark")
    monkeypatch.setattr(native_dataframe, "SMALLEST", 1024 * 1024)
    monkeypatch.setattr(engines, "MOST_FOOTERS", 2)
    assert "MapInArrow" in plan_of(load(engine="auto"))
    assert caplog.messages[-1].endswith("fetches the footers of all 3 files first")
    monkeypatch.setattr(native_dataframe, "SMALLEST", 10 * 1024 * 1024)
    assert "MapInArrow" in plan_of(load(engine="auto"))
    assert caplog.messages[-1].endswith("is for tables of which most bytes are in files of more than 1 MB")


@needs_native
def test_filters_are_left_to_spark(load: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match=r"leave filters out, and use where\(\)"):
        load(filters=[("a", "=", 1)])


def test_an_unknown_engine_is_refused(spark: SparkSession, orders: SharingServer) -> None:
    with SharingClient(orders.profile) as client, pytest.raises(ValueError, match="engine is 'java'"):
        client.table("s.s.t").scan().to_spark(spark, engine="java")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def golden() -> Iterator[SharingClient]:
    tables = {case.table_name: TABLES / case.name / "table" for case in CASES.values()}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


@needs_native
@pytest.mark.slow
@pytest.mark.parametrize("case", READABLE)
def test_golden_tables_have_the_rows_of_the_arrow_loader(
    spark: SparkSession, golden: SharingClient, case: Case
) -> None:
    scan = golden.table(case.table_name).scan(variant="json")
    same_rows(collected(scan.to_spark(spark, engine="native")), scan.to_arrow(), case.key)


# -- faults


@needs_native
def test_expired_urls_are_renewed(spark: SparkSession, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("credential_provider", "oauth", "renewal"):  # before the clock is patched
        importlib.import_module(f"delta_sharing_client.auth.{name}")
    clock = WallClock()
    monkeypatch.setattr(time, "time", clock)
    lifetime = timedelta(minutes=10)
    with SharingServer({"s.s.t": root}, url_lifetime=lifetime) as server, SharingClient(server.profile) as client:
        frame = client.table("s.s.t").scan().to_spark(spark, engine="native")
        for _ in range(2):
            clock.advance(lifetime.total_seconds() + 1)
            gateway_of(spark).cache.forget(None)
            assert frame.selectExpr("count(b)").first()[0] == 3 * ROWS
            for plan in gateway_of(spark)._plans.values():
                gateway_of(spark).cache.forget(plan.files)


@needs_native
def test_a_missing_or_damaged_file_is_an_error_of_this_package(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = write_table(
        tmp_path / "t", [column("a", "long")], [File(rows=rows(0).select(["a"]), name="f.parquet")]
    )
    with SharingServer({"s.s.t": table}) as server, SharingClient(server.profile) as client:
        frame = client.table("s.s.t").scan().to_spark(spark, engine="native")
        path = table / "f.parquet"
        content = path.read_bytes()
        path.write_bytes(content[:-4] + b"none")
        with pytest.raises(DataError, match="not a readable Parquet file"):
            client.table("s.s.t").scan().to_spark(spark, engine="native")
        path.unlink()
        with pytest.raises(FileGoneError):
            client.table("s.s.t").scan().to_spark(spark, engine="native")
        with pytest.raises(Exception, match=r"FileGoneError|the file changed while Spark was reading it"):
            frame.agg({"a": "sum"}).collect()


@needs_native
def test_a_plan_lives_as_long_as_java_needs_it(
    load: Callable[..., Any], spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The DataFrame of Python may be gone while a view is left."""
    frame = load()
    frame.createOrReplaceTempView("held")
    (key,) = list(gateway_of(spark)._plans)[-1:]
    del frame
    monkeypatch.setattr(gateways, "LINGER", -1.0)
    jvm: Any = spark._jvm

    def collect() -> bool:
        gc.collect()
        jvm.System.gc()
        load()
        return gateway_of(spark).plan(key) is None

    assert not collect()
    assert spark.sql("SELECT sum(a) FROM held").first() is not None
    spark.catalog.dropTempView("held")


@needs_native
def test_a_gateway_that_is_gone_is_a_clear_error(spark: SparkSession, load: Callable[..., Any]) -> None:
    frame = load()
    gateway_of(spark).close()
    message = r"(?s)webhdfs://127\.0\.0\.1:\d+/delta-sharing/s\.s\.t/.*(Connection refused|load it again)"
    with pytest.raises(Exception, match=message):
        frame.agg({"b": "sum"}).collect()
    assert load().count() == 3 * ROWS  # the next load starts another


# -- sessions


@needs_native
@pytest.mark.parametrize("host", [None, "10.0.0.1"])
def test_a_cluster_needs_an_address(spark: SparkSession, host: str | None) -> None:
    class Cluster:
        class sparkContext:
            master = "spark://cluster:7077"

        version = spark.version

        class conf:
            @staticmethod
            def get(name: str, default: Any) -> Any:
                return host or default

    reason = native_dataframe.why_not_native(Cluster)  # type: ignore[arg-type]
    if host is None:
        assert reason is not None
        assert "set spark.delta.sharing.gateway.host to an address of the driver" in reason
    else:
        assert reason is None


JOB = """
import json, sys, urllib.request
from pathlib import Path
from pyspark.sql import SparkSession
import delta_sharing_client as ds
from delta_sharing_client.spark import native_dataframe
from delta_sharing_client.spark.session import kept_for

native_dataframe.SMALLEST = 0
profile, folder = sys.argv[1], Path(sys.argv[2])
builder = SparkSession.builder.master("local[2]").config("spark.ui.port", "0").config("spark.ui.enabled", "true")
builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file://" + str(folder))
builder = builder.config("spark.eventLog.rolling.enabled", "false").config("spark.eventLog.compress", "false")
builder = builder.config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("INFO")
frame = ds.load_as_spark(profile + "#s.d.good", spark=spark, engine="native")
frame.createOrReplaceTempView("good")
frame.explain(True)
print(frame._jdf.queryExecution().debug().codegen())
print(frame, frame.inputFiles(), frame.storageLevel)
print(spark.sql("SELECT *, input_file_name() FROM good").collect())
spark.sql("DESCRIBE EXTENDED good").show(truncate=False)
spark.sql("EXPLAIN COST SELECT * FROM good").show(truncate=False)
frame.cache().count()
print("rows:", frame.count())
frame.unpersist()
(folder.parent / "t" / "good.parquet").write_bytes(b"x" * 100)
gateways = [kept_for(spark.sparkContext).gateway]
for plan in gateways[0]._plans.values():
    plan.files.cache.forget(plan.files)
    for file in plan.files.files:
        file.drop_footer()
try:
    frame.collect()
except Exception as error:
    print("CAUGHT", type(error), error)
app = spark.sparkContext.applicationId
for page in ("/jobs/", "/SQL/", "/SQL/execution/?id=0", "/environment/", "/storage/", "/executors/",
             f"/api/v1/applications/{app}/environment", f"/api/v1/applications/{app}/sql?details=true"):
    print("PAGE", page, urllib.request.urlopen(spark.sparkContext.uiWebUrl + page, timeout=600).read().decode())
(folder.parent / "secret").write_text(gateways[0]._header)
for each in gateways:
    each.close()
try:
    frame.collect()
except Exception as error:
    print("CAUGHT", type(error), error)
spark.stop()
"""


@needs_native
@pytest.mark.slow
def test_no_plan_page_log_or_error_holds_a_secret(java: Path, tmp_path: Path) -> None:
    file = File(rows=pa.table({"id": range(10)}), name="good.parquet")
    table = write_table(tmp_path / "t", [column("id", "long")], [file])
    token = "canary-token-4711"
    events = tmp_path / "events"
    events.mkdir()
    with SharingServer({"s.d.good": table}, token=token) as server:
        profile = server.write_profile(tmp_path / "p.share")
        urls = [task.url.reveal() for task in SharingClient(server.profile).table("s.d.good").scan().files()]
        environment = spark_processes.environment(PYTHONPATH=str(spark_processes.ROOT))
        command = [sys.executable, "-W", "ignore", "-c", JOB, profile, events]
        done = run_program(command, env=environment, cwd=tmp_path)
    printed = done.stdout + done.stderr
    assert "rows: 10" in printed, printed[-5000:]
    assert printed.count("CAUGHT") == 2, printed[-5000:]
    assert printed.count("PAGE") == 8
    assert "webhdfs://127.0.0.1:" in printed
    (log,) = events.iterdir()
    kept = log.read_text()
    assert "FileScan parquet" in kept
    header = (tmp_path / "secret").read_text()
    for text in (printed, kept):
        assert token not in text
        assert header.lower() not in text.lower()
        assert "X-Amz-Signature" not in text
        for url in urls:
            assert url.split("?")[0].rpartition("/")[2] not in text
