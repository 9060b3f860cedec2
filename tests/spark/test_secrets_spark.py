"""No token and no signature in what Spark keeps or prints: plans, event log, errors, output."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
import spark_processes
from loading.loading_tables import File, column, write_table
from waiting import run_program

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.job import decode
from delta_sharing_client.spark.session import pyspark_version

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

TOKEN = "canary-token-4711"
JOB = """
import json, sys
from pyspark.sql import SparkSession
import delta_sharing_client as ds

profile, fields, folder = sys.argv[1], json.loads(sys.argv[2]), sys.argv[3]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", "file://" + folder)
builder = builder.config("spark.eventLog.rolling.enabled", "false").config("spark.eventLog.compress", "false")
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("INFO")  # the most that anybody logs
good = [ds.load_as_spark(profile + "#s.d.good", spark=spark)]
bad = [ds.load_as_spark(profile + "#s.d.bad", spark=spark)]
if hasattr(spark, "dataSource"):
    ds.spark.register(spark)
    good += [spark.read.format("deltaSharing").load(profile + "#s.d.good")]
    good += [spark.read.format("deltaSharing").options(**fields).load("s.d.good")]
    bad += [spark.read.format("deltaSharing").load(profile + "#s.d.bad")]
for frame in good:
    frame.explain(True)
    print("rows:", frame.count())
for frame in bad:
    try:
        frame.collect()
    except Exception as error:
        print("\\nCAUGHT", type(error), error)
spark.stop()
"""


@pytest.fixture
def tables(tmp_path: Path) -> dict[str, Path]:
    """A table that can be read, and one whose file is no Parquet."""
    rows = pa.table({"id": range(10)})
    tables = {
        name: write_table(tmp_path / name, [column("id", "long")], [File(rows=rows, name="a.parquet")])
        for name in ("good", "bad")
    }
    (tables["bad"] / "a.parquet").write_bytes(b"PAR1" * 100)
    return tables


@pytest.mark.slow
def test_nothing_that_spark_keeps_or_prints_holds_a_secret(
    java: Path, tables: dict[str, Path], tmp_path: Path
) -> None:
    shared = {f"s.d.{name}": path for name, path in tables.items()}
    with SharingServer(shared, token=TOKEN) as server:
        profile = server.write_profile(tmp_path / "tables.share")
        urls = [
            task.url.reveal()
            for name in shared
            for task in ds.SharingClient(server.profile).table(name).scan().files()
        ]
        fields = {name: str(value) for name, value in server.profile.items()}
        events = tmp_path / "events"
        events.mkdir()
        env = spark_processes.environment(PYTHONPATH=str(spark_processes.ROOT))
        command = [sys.executable, "-W", "ignore", "-c", JOB, str(profile), json.dumps(fields), str(events)]
        done = run_program(command, env=env, cwd=tmp_path)
        said = done.stdout + done.stderr
        (log,) = events.iterdir()
        kept = log.read_text()
    fronts = 3 if pyspark_version() >= (4, 0) else 1
    assert said.count("rows: 10") == fronts, said[-3000:]
    assert said.count("\nCAUGHT") == min(fronts, 2)
    assert "DataError" in said
    assert "SparkListenerSQLExecutionStart" in kept
    for text in (said, kept):
        assert TOKEN not in text
        assert "X-Amz-Signature" not in text
        for url in urls:  # the part that is signed; a new one for each listing, so only its place is the same
            assert url.split("?")[0].rpartition("/")[2] not in text


def test_what_travels_does_not_show_itself(spark: SparkSession, tables: dict[str, Path]) -> None:
    from pyspark import cloudpickle

    from delta_sharing_client.spark.code_distribution import package_loader, partition_reader
    from delta_sharing_client.spark.partition_plan import divide, encode_plan

    with SharingServer({"s.d.good": tables["good"]}, token=TOKEN) as server:
        client = ds.SharingClient(server.profile)
        plan = client.table("s.d.good").scan().plan()
        job, parts = encode_plan(client._rest, plan, divide(plan, 2), executor_credentials=True)
        off, _ = encode_plan(client._rest, plan, divide(plan, 2), executor_credentials=False)
    sent = cloudpickle.dumps(partition_reader(job, parts, package_loader()))
    assert TOKEN.encode() not in sent
    assert b"Signature" not in sent
    assert TOKEN not in repr(decode(job))
    assert "Signature" not in repr(decode(parts[0]))
    # The credential is in one field, and nowhere where that is off.
    assert TOKEN.encode() in decode(job).executor_credentials
    assert TOKEN.encode() not in pickle.dumps(decode(off))
