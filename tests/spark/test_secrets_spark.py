"""No token and no signature in Spark's plans, event log, errors and output."""

from __future__ import annotations

import json
import os
import pickle
import sys
from dataclasses import dataclass
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
if hasattr(spark, "dataSource"):  # registered nowhere, as it is installed
    print("found:", spark.read.format("deltaSharing").load(profile + "#s.d.good").count())
good = [ds.load_as_spark(profile + "#s.d.good", spark=spark)]
bad = [ds.load_as_spark(profile + "#s.d.bad", spark=spark)]
if hasattr(spark, "dataSource"):
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


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A table that can be read, and one whose file is no Parquet."""
    folder = tmp_path_factory.mktemp("tables")
    rows = pa.table({"id": range(10)})
    tables = {
        name: write_table(folder / name, [column("id", "long")], [File(rows=rows, name="a.parquet")])
        for name in ("good", "bad")
    }
    (tables["bad"] / "a.parquet").write_bytes(b"PAR1" * 100)
    return tables


@dataclass(frozen=True)
class Run:
    """A run of the job.

    printed: its output, with what Spark logs.
    kept: Spark's event log.
    urls: what the server signed.
    """

    printed: str
    kept: str
    urls: list[str]


@pytest.fixture(scope="module")
def run(java: Path, tables: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The job in a process of its own, in an environment that has the package as a wheel installs it."""
    folder = tmp_path_factory.mktemp("job")
    shared = {f"s.d.{name}": path for name, path in tables.items()}
    with SharingServer(shared, token=TOKEN) as server:
        profile = server.write_profile(folder / "tables.share")
        client = ds.SharingClient(server.profile)
        urls = [task.url.reveal() for name in shared for task in client.table(name).scan().files()]
        fields = {name: str(value) for name, value in server.profile.items()}
        events = folder / "events"
        events.mkdir()
        root = spark_processes.ROOT
        path = os.pathsep.join([str(root), str(root / "delta_sharing_client" / "spark" / "toplevel")])
        command = [sys.executable, "-W", "ignore", "-c", JOB, profile, json.dumps(fields), events]
        done = run_program(command, env=spark_processes.environment(PYTHONPATH=path), cwd=folder)
    (log,) = events.iterdir()
    return Run(done.stdout + done.stderr, log.read_text(), urls)


@pytest.mark.slow
def test_the_data_source_is_found_where_it_is_installed(run: Run) -> None:
    if pyspark_version() < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    assert "found: 10" in run.printed, run.printed[-3000:]


@pytest.mark.slow
def test_nothing_that_spark_keeps_or_prints_holds_a_secret(run: Run) -> None:
    fronts = 3 if pyspark_version() >= (4, 0) else 1
    assert run.printed.count("rows: 10") == fronts, run.printed[-3000:]
    assert run.printed.count("\nCAUGHT") == min(fronts, 2)
    assert "DataError" in run.printed
    assert "SparkListenerSQLExecutionStart" in run.kept
    for text in (run.printed, run.kept):
        assert TOKEN not in text
        assert "X-Amz-Signature" not in text
        for url in run.urls:  # the part that is signed; a new one for each listing, so only its place is the same
            assert url.split("?")[0].rpartition("/")[2] not in text


def test_jobs_and_partitions_contain_no_secret_as_text(spark: SparkSession, tables: dict[str, Path]) -> None:
    from pyspark import cloudpickle

    from delta_sharing_client.spark.entry_points import partition_reader
    from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

    with SharingServer({"s.d.good": tables["good"]}, token=TOKEN) as server:
        client = ds.SharingClient(server.profile)
        plan = client.table("s.d.good").scan().plan()
        job, parts = encode_plan(client._rest, plan, ExecutorOptions())
        off, _ = encode_plan(client._rest, plan, ExecutorOptions(credentials=False))
    sent = cloudpickle.dumps(partition_reader(job, parts))
    assert TOKEN.encode() not in sent
    assert b"Signature" not in sent
    assert TOKEN not in repr(decode(job))
    assert "Signature" not in repr(decode(parts[0]))
    # The credential is in one field, and nowhere where that is off.
    assert TOKEN.encode() in decode(job).executor_credentials
    assert TOKEN.encode() not in pickle.dumps(decode(off))
