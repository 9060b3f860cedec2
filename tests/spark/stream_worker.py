"""A streaming query in a process of its own, which a test kills: `python stream_worker.py '{...}'`.

Follows the changes of a shared table into Parquet files; says "started" when the query runs.
"""

from __future__ import annotations

import json
import sys

from spark_jobs import open_session

import delta_sharing_client as ds


def main(fields: dict[str, str], table: str, checkpoint: str, out: str, options: dict[str, str]) -> None:
    spark = open_session({"master": "local[2]"})
    ds.spark.register(spark)
    stream = spark.readStream.format("deltaSharing").options(**fields).options(**options).load(table)
    writer = stream.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="0 seconds").start(out)
    print("started", flush=True)
    query.awaitTermination()


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
