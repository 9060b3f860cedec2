"""Streaming queries in a process of their own, which is killed: `python stream_worker.py '{...}'`.

Each follows a shared table into Parquet files, and starts again when the table's columns change. Prints "started"
when all of them run, "stopped" and the error when columns changed, and ends with any other error.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery
from spark_jobs import open_session

import delta_sharing_client as ds


def main(fields: dict[str, str], table: str, queries: dict[str, dict[str, Any]], memory: str = "512m") -> None:
    spark = open_session({"master": "local[2]", "conf": {"spark.driver.memory": memory}})
    ds.spark.register(spark)

    def start(name: str) -> StreamingQuery:
        query = queries[name]
        return begin(spark, fields | query["options"], table, query["checkpoint"], query["out"])

    running = {name: start(name) for name in queries}
    print("started", flush=True)
    while True:
        for name, query in running.items():
            if query.isActive:
                continue
            text = str(query.exception())
            if "SchemaChangedError: " not in text:
                raise SystemExit(f"{name}: {text}")
            print("stopped " + json.dumps([name, text]), flush=True)
            running[name] = start(name)
        time.sleep(0.02)


def begin(spark: SparkSession, options: dict[str, str], table: str, checkpoint: str, out: str) -> StreamingQuery:
    stream = spark.readStream.format("deltaSharing").options(**options).load(table)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime="0 seconds").start(out)


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
