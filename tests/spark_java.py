"""Options of the JVMs that tests start, and the archive of their classes: `python tests/spark_java.py` makes it.

With the archive (class data sharing) a JVM loads Spark's classes in half the processor time. It belongs to the
environment, its PySpark and its Java. Without it, or with another Java, the JVM loads the classes from the jars.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from script_modules import load_script

#: A JVM that lives for seconds does better without the second compiler.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def _archive() -> Path | None:
    """Return the path of the archive; None without PySpark, and where options would be split at a space."""
    try:
        path = Path(sys.prefix) / f"spark-{version('pyspark')}.jsa"
    except PackageNotFoundError:
        return None
    return None if " " in str(path) else path


ARCHIVE = _archive()
JAVA_OPTIONS = _SHORT_LIVED
if ARCHIVE is not None and ARCHIVE.exists():
    JAVA_OPTIONS += f" -XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off"

#: Loads the classes that most tests need.
PROGRAM = """
import sys, tempfile
from pyspark.sql import SparkSession

builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
with tempfile.TemporaryDirectory() as folder:
    frame = spark.range(100).mapInArrow(lambda batches: batches, "id long").groupBy("id").count()
    frame.write.parquet(f"{folder}/t")
    read = spark.read.parquet(f"{folder}/t").where("id > 5").selectExpr("sum(count)")
    stream = spark.readStream.schema("id long, count long").parquet(f"{folder}/t").writeStream.format("parquet")
    stream = stream.option("checkpointLocation", f"{folder}/c").trigger(availableNow=True).start(f"{folder}/o")
    stream.awaitTermination()
    assert read.collect()[0][0] == 94
    spark.stop()
"""


def main() -> int:
    """Make the archive if there is none; return 0, because the tests run without it, too."""
    if ARCHIVE is None or ARCHIVE.exists() or load_script("scripts/java.py").use() is None:
        return 0
    made = ARCHIVE.with_suffix(f".{os.getpid()}")
    options = f"{_SHORT_LIVED} -XX:ArchiveClassesAtExit={made}"
    environment = {**os.environ, "SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1"}
    subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment | {"PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        check=False,
    )
    if made.exists():
        made.replace(ARCHIVE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
