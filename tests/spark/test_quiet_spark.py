"""What a program with Spark prints: no traceback of a closed pipe, and no data source that replaces itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from loading.loading_tables import File, column, write_table
from spark_processes import JAVA_OPTIONS

from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import executor

PROGRAM = """
import sys
from pyspark.sql import SparkSession
import delta_sharing_client as ds

profile, java_options, checkpoints = sys.argv[1:]
builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.memory", "512m")
spark = builder.config("spark.driver.extraJavaOptions", java_options).getOrCreate()
for number, name in enumerate(("long", "short", "short")):
    url = f"{profile}#s.s.{name}"
    ds.load_as_spark(url).show(5)
    assert len(ds.load_as_spark(url).limit(3).collect()) == 3
    if int(spark.version.split(".")[0]) >= 4:
        ds.spark.register(spark)
        spark.read.format("deltaSharing").load(url).show(5)
        stream = spark.readStream.format("deltaSharing").load(url).writeStream.format("noop")
        stream.trigger(availableNow=True).start(checkpointLocation=f"{checkpoints}/{number}").awaitTermination()
    assert ds.load_as_spark(url).count() == {"long": 1_200_000, "short": 70_000}[name]
spark.stop()
"""


@pytest.mark.slow
def test_rows_that_spark_does_not_want_and_register_print_nothing(java: Path, tmp_path: Path) -> None:
    numbers = np.arange(1_200_000)
    rows = {"long": pa.table({"id": numbers, "half": numbers / 2}), "short": pa.table({"id": numbers[:70_000]})}
    tables = {}
    for name, table in rows.items():
        columns = [column(field, {"id": "long", "half": "double"}[field]) for field in table.column_names]
        files = [File(rows=table, name=f"{name}.parquet")]
        tables[f"s.s.{name}"] = write_table(tmp_path / name, columns, files)
    with SharingServer(tables) as server:
        profile = server.write_profile(tmp_path / "profile.share")
        result = subprocess.run(  # our own program
            [sys.executable, "-c", PROGRAM, str(profile), JAVA_OPTIONS, str(tmp_path / "checkpoints")],
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("only showing top 5 rows") >= 3
    for message in ("BrokenPipeError", "ConnectionResetError", "Traceback", "deltaSharing replaced", "INFO"):
        assert message not in result.stderr


class Task:
    """A task context."""

    def __init__(self, number: int) -> None:
        self.number = number

    def taskAttemptId(self) -> int:  # the name in PySpark
        """Return its id."""
        return self.number


def test_the_signal_ends_the_process_only_while_its_task_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[int] = []
    monkeypatch.setattr(executor.os, "_exit", ends.append)
    running = Task(1)
    handler = executor._signal_handler(1, lambda: running)
    handler(signal.SIGPIPE, None)
    assert ends == [0]
    running = Task(2)  # Spark reuses workers
    handler(signal.SIGPIPE, None)
    assert ends == [0]


def test_a_store_that_closes_a_connection_does_not_end_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """The signal of a broken pipe while a batch is read is discarded, the one while it is written is not."""
    pyspark = pytest.importorskip("pyspark")
    ends: list[int] = []
    monkeypatch.setattr(executor.os, "_exit", ends.append)
    monkeypatch.setattr(pyspark.TaskContext, "get", classmethod(lambda _: Task(1)))
    before = signal.getsignal(signal.SIGPIPE)

    def read() -> Iterator[pa.RecordBatch]:
        for _ in range(2):
            signal.raise_signal(signal.SIGPIPE)
            yield pa.record_batch({"a": np.zeros(1_000_000)})

    try:
        batches = executor._ended_by_closed_pipe(read())
        assert next(batches).num_rows == 1_000_000
        assert not ends
        signal.raise_signal(signal.SIGPIPE)
        assert ends == [0]
        assert [batch.num_rows for batch in batches] == [1_000_000]
        assert ends == [0]
    finally:
        signal.signal(signal.SIGPIPE, before)
    assert signal.SIGPIPE not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


@pytest.mark.parametrize(
    ("sizes", "written"),
    [
        ([], []),
        ([10], [10]),
        ([10, 20], [30]),
        ([600_000, 10], [600_010]),
        ([10, 600_000, 600_000, 10], [600_010, 600_010]),
        ([300_000] * 5, [600_000, 900_000]),
    ],
)
def test_the_last_batch_does_not_fit_into_the_buffers_of_a_pipe(sizes: list[int], written: list[int]) -> None:
    batches = [pa.record_batch({"a": np.arange(size)}) for size in sizes]
    found = list(executor._written_at_once(iter(batches)))
    assert [batch.num_rows for batch in found] == written
    assert pa.Table.from_batches(found, schema=pa.schema({"a": pa.int64()})).column("a").to_pylist() == [
        value for size in sizes for value in range(size)
    ]
