"""What the tests run in a process of its own, on a cluster or through Spark Connect; see `Jobs`.

    echo '[{"job": "totals", "url": ...}, ...]' | python spark_jobs.py '{"master": ..., "conf": {...}}'

Each line of the input is a list of jobs. The line of the output that answers it holds a list of their results.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_processes import JAVA_OPTIONS, RESULTS

import delta_sharing_client as ds


def main(session: dict[str, Any]) -> None:
    """Make a session, and run jobs in it until the input ends."""
    spark = open_session(session)
    try:
        for line in sys.stdin:
            results = [JOBS[job.pop("job")](spark, **job) for job in json.loads(line)]
            print(RESULTS + json.dumps(results, default=str), flush=True)
    finally:
        spark.stop()


def open_session(session: dict[str, Any]) -> SparkSession:
    """Open a session on a master, or on a Connect server."""
    if "remote" in session:
        return SparkSession.builder.remote(session["remote"]).getOrCreate()
    builder = SparkSession.builder.master(session["master"]).appName("jobs")
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.memory": "512m",
        "spark.executor.extraJavaOptions": JAVA_OPTIONS,
        **session.get("conf", {}),
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    return spark


def frame(spark: SparkSession, url: str, front: str, options: dict[str, Any]) -> DataFrame:
    """Load a table, through one of the two fronts."""
    if front == "load_as_spark":
        return ds.load_as_spark(url, spark=spark, **options)
    ds.spark.register(spark)
    reader = spark.read.format("deltaSharing")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(url)


def totals(spark: SparkSession, url: str, front: str = "load_as_spark", **options: Any) -> dict[str, Any]:
    """Count and sum the orders."""
    return summed(frame(spark, url, front, options))


def summed(orders: DataFrame) -> dict[str, Any]:
    """Totals that show that every order was read once."""
    row = orders.agg(
        f.count(f.lit(1)).alias("rows"),
        f.countDistinct("order_id").alias("distinct"),
        f.sum("order_id").alias("ids"),
        f.sum("amount").alias("amount"),
        f.sum("quantity").alias("quantity"),
    ).first()
    assert row is not None
    return {**row.asDict(), "amount": str(row["amount"])}


def joined(spark: SparkSession, orders: str, customers: str) -> list[list[Any]]:
    """Join two shared tables in SQL."""
    ds.load_as_spark(orders, spark=spark).createOrReplaceTempView("orders")
    ds.load_as_spark(customers, spark=spark).createOrReplaceTempView("customers")
    rows = spark.sql(
        "SELECT c.address.city AS city, count(*) AS orders, sum(o.amount) AS turnover "
        "FROM orders o JOIN customers c USING (customer_id) WHERE c.address IS NOT NULL "
        "GROUP BY city ORDER BY city"
    ).collect()
    return [[row["city"], row["orders"], str(row["turnover"])] for row in rows]


def fails(spark: SparkSession, url: str, front: str = "load_as_spark", **options: Any) -> dict[str, Any]:
    """Return the error of a load."""
    try:
        frame(spark, url, front, options).collect()
    except Exception as error:  # noqa: BLE001 - returned to the test
        return {"type": type(error).__name__, "ours": isinstance(error, ds.DeltaSharingError), "text": str(error)}
    return {"type": None, "ours": False, "text": ""}


def where(spark: SparkSession, marks: str) -> dict[str, Any]:
    """Return whether the workers have the package, other than in the zip of the session, and their Python.

    Args:
        spark: the session.
        marks: an empty folder, in which both tasks leave a mark: each waits for the other.
    """

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import importlib.util

        for batch in batches:
            (Path(marks) / str(batch["id"][0])).touch()
            while len(list(Path(marks).iterdir())) < 2:
                time.sleep(0.05)
            package = importlib.util.find_spec("delta_sharing_client")
            found = package is not None and ".zip" not in str(package.origin)
            yield pa.RecordBatch.from_pydict({"found": [found], "pid": [os.getppid()]})

    rows = spark.range(0, 2, 1, 2).mapInArrow(look, "found boolean, pid long").collect()
    return {"found": [row["found"] for row in rows], "processes": len({row["pid"] for row in rows})}


def interrupted(spark: SparkSession, url: str, marks: str, how: str, **options: Any) -> dict[str, Any]:
    """Sum the orders while one task is broken off in the middle of its rows, the first time that it runs.

    Args:
        spark: the session.
        url: the table.
        marks: a folder, in which the first task to come leaves a mark.
        how: `executor` kills the process that the task runs in, `task` raises in it.
        **options: for the load.
    """

    def break_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            with contextlib.suppress(FileExistsError):
                (Path(marks) / how).touch(exist_ok=False)
                if how == "task":
                    raise RuntimeError("broken off by the test")
                os.kill(executor(), signal.SIGKILL)
                time.sleep(30)  # the rest of the task ends with its executor
            yield batch.slice(batch.num_rows // 2)

    def executor() -> int:
        """The JVM that this worker belongs to: the nearest ancestor that is no Python."""
        pid = os.getppid()
        while "java" not in Path(f"/proc/{pid}/comm").read_text():
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return pid

    orders = frame(spark, url, "load_as_spark", options)
    result = summed(orders.mapInArrow(break_once, orders.schema))
    return {**result, "partitions": orders.rdd.getNumPartitions(), "broken": (Path(marks) / how).exists()}


def followed(spark: SparkSession, url: str, folder: str, **options: Any) -> list[dict[str, Any]]:
    """Stream orders into files until all are read, twice; count and sum what is there after each run."""
    ds.spark.register(spark)
    found = []
    for _ in range(2):
        stream = spark.readStream.format("deltaSharing").options(**options).load(url)
        writer = stream.writeStream.format("parquet").option("checkpointLocation", f"{folder}/checkpoint")
        writer.trigger(availableNow=True).start(f"{folder}/out").awaitTermination()
        found.append(summed(spark.read.parquet(f"{folder}/out")))
    return found


def natively(spark: SparkSession, url: str, wrong: str) -> dict[str, Any]:
    """Sum the orders by Spark's own reader, through a gateway of the driver at an address that executors reach.

    Args:
        spark: the session, which has not read by a gateway.
        url: the table.
        wrong: text that executors must not show: a part of the address of the store.
    """
    from delta_sharing_client.spark import native_dataframe

    native_dataframe.SMALLEST = 0
    spark.conf.set("spark.delta.sharing.gateway.host", "127.0.0.1")
    orders = ds.load_as_spark(url, spark=spark, engine="native")
    plan = orders._jdf.queryExecution().toString()  # type: ignore[operator]
    some = orders.where("region = 'Asia' AND order_date >= '2024-01-03'")
    names = [row[0] for row in orders.select(f.input_file_name()).distinct().collect()]
    return {
        "all": summed(orders),
        "some": summed(some),
        "by Spark": plan.count("FileScan parquet"),
        "hidden": wrong not in plan and not any(wrong in name for name in names),
    }


def views(spark: SparkSession, profile: str) -> list[Any]:
    """Create views of the sample tables, and count the rows of one."""
    names = ds.spark.create_views(spark, profile, share="retail", database="sales")
    columns = [len(spark.sql(f"DESCRIBE {name}").collect()) for name in names]
    return [names, min(columns) > 0, spark.sql("SELECT count(*) FROM orders").collect()[0][0]]


JOBS = {job.__name__: job for job in (totals, joined, fails, where, interrupted, followed, natively, views)}

if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
