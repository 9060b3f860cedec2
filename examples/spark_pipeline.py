"""Follow the change feed of a shared table into a Parquet or Delta table, exactly once: a Spark job to copy.

    spark-submit spark_pipeline.py config.share#retail.sales.orders lake/orders --checkpoint lake/checkpoint

stores each change since the last run as a row, and ends: for cron. `--follow` runs on, with a batch per
`--interval`. The first run stores the changes from version `--start` on; without it, the whole table first. It
needs PySpark 4.0 or later, and `delta-sharing-client[spark]` on the driver.

- **Exactly once.** A batch that is repeated after a crash has the same rows. Spark's Parquet and Delta sinks store
  each batch once: read the Parquet folder with Spark, which skips the files of batches that were broken off.
- **Schema changes.** A new column is reported, and the query goes on with it. A column that was renamed or
  dropped, or whose type changed, ends the job with exit code 3, after the rows before it were stored. `alert` is
  the place for a pager.
- **Back-fill.** `--backfill FIRST LAST` writes the changes of these versions into a folder of their own beside the
  target, `<target>_backfill_<FIRST>_<LAST>`, and replaces it if it is run again. The checkpoint stays as it is.
"""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import PurePosixPath

from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession

import delta_sharing_client as ds

logger = logging.getLogger("spark_pipeline")
SCHEMA_CHANGED = 3


def alert(message: str) -> None:
    """Report what a person has to look at; replace this by your pager or chat."""
    logger.error("ALERT: %s", message)


def follow(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Run the query: up to the present version, or with `--follow` until the job is stopped."""
    stream = spark.readStream.format("deltaSharing").option("readChangeFeed", "true")
    # Before Spark 4.2 a run for cron ends after one batch, which therefore holds all changes.
    if arguments.follow or tuple(map(int, spark.version.split(".")[:2])) >= (4, 2):
        stream = stream.option("maxFilesPerTrigger", arguments.max_files)
    if arguments.start is not None:
        stream = stream.option("startingVersion", arguments.start)
    changes = stream.load(arguments.url)
    known = stored_columns(spark, arguments)
    if known and (added := [name for name in changes.columns if name not in known]):
        alert(f"{arguments.url.rpartition('#')[2]} has new columns: {', '.join(added)}")
    writer = changes.writeStream.format(arguments.format)
    writer = writer.option("checkpointLocation", arguments.checkpoint)
    if arguments.format == "delta":
        writer = writer.option("mergeSchema", "true")
    if arguments.follow:
        writer = writer.trigger(processingTime=f"{arguments.interval} seconds")
    else:
        writer = writer.trigger(availableNow=True)
    writer.start(arguments.target).awaitTermination()


def stored_columns(spark: SparkSession, arguments: argparse.Namespace) -> list[str]:
    """Return the columns of the target; none before the first run."""
    try:
        stored = spark.read.format(arguments.format).option("mergeSchema", "true").load(arguments.target)
    except AnalysisException:
        return []
    return stored.columns


def can_write(spark: SparkSession, arguments: argparse.Namespace) -> bool:
    """Whether the session has the data source of the format: that of Delta comes with delta-spark."""
    try:
        spark.read.format(arguments.format).load(arguments.target)
    except Exception as error:  # noqa: BLE001  # PySpark does not translate this one of Java
        return "DATA_SOURCE_NOT_FOUND" not in str(error)
    return True


def follow_schema(spark: SparkSession, arguments: argparse.Namespace) -> int:
    """Run the query, and again after a column that is added while it runs; returns the exit code."""
    while True:
        try:
            follow(spark, arguments)
        except StreamingQueryException as error:
            lines = [line for line in str(error).splitlines() if "SchemaChangedError" in line]
            if not lines:
                raise
            if "it continues with the new columns" not in lines[-1]:
                alert(lines[-1])
                return SCHEMA_CHANGED
        else:
            return 0


def backfill(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """Write the changes of some versions into their own folder; a second run replaces it."""
    first, last = arguments.backfill
    path = PurePosixPath(arguments.target)
    folder = str(path.with_name(f"{path.name}_backfill_{first}_{last}"))
    changes = ds.load_table_changes_as_spark(arguments.url, first, last, spark=spark)
    changes.write.format(arguments.format).mode("overwrite").save(folder)
    logger.info("versions %d to %d: %s", first, last, folder)


def main() -> int:
    """Run the job; returns its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", help="PROFILE#SHARE.SCHEMA.TABLE")
    parser.add_argument("target", help="folder of the table to write")
    parser.add_argument("--checkpoint", required=True, help="folder with the position; one per pipeline")
    parser.add_argument(
        "--format", choices=["parquet", "delta"], default="parquet", help="delta needs delta-spark"
    )
    parser.add_argument("--start", type=int, help="version at which the first run starts")
    parser.add_argument("--follow", action="store_true", help="run until stopped")
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between two batches of --follow")
    parser.add_argument("--max-files", type=int, default=1000, help="files of a batch (before 4.2: of --follow)")
    parser.add_argument("--backfill", type=int, nargs=2, metavar=("FIRST", "LAST"))
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    spark = SparkSession.builder.appName("follow a shared table").getOrCreate()
    ds.spark.register(spark)
    try:
        if not can_write(spark, arguments):
            parser.error(
                f"this Spark {spark.version} cannot write {arguments.format}: submit the job with the delta-spark "
                "of this release of Spark (--packages io.delta:delta-spark_2.13:VERSION), or use --format parquet"
            )
        if arguments.backfill:
            backfill(spark, arguments)
            return 0
        return follow_schema(spark, arguments)
    finally:
        spark.stop()


if __name__ == "__main__":
    sys.exit(main())
