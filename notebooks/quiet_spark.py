"""Local Spark session for the demo, without output of Spark, and without processes after it is closed.

Spark writes to stderr during its start at any log level, so stderr of its JVM and of its workers goes to a file.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

JAVA = Path(__file__).resolve().parents[1] / "scripts" / "java.py"


def java() -> Path | None:
    """Set `JAVA_HOME` to a Java for Spark; return it, or None if there is none."""
    home: Path | None = runpy.run_path(str(JAVA))["use"]()
    return home


@contextlib.contextmanager
def local_session(folder: Path) -> Iterator[SparkSession]:
    """Start a session on two cores that listens on loopback only.

    Args:
        folder: directory of Spark's files.
    """
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1",
        "spark.local.dir": str(folder),
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }
    builder = SparkSession.builder.master("local[2]").appName("demo")
    for name, value in settings.items():
        builder = builder.config(name, value)
    with _redirect_stderr(folder / "spark.log"):
        spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()
        gateway = SparkContext._gateway
        if gateway is not None:  # or the JVM ends after this process
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
            _end(gateway.proc)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for the end of the JVM, which ends when its standard input is closed."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait(10)


@contextlib.contextmanager
def _redirect_stderr(path: Path) -> Iterator[None]:
    """Redirect stderr of the processes that are started in this context to a file."""
    sys.stderr.flush()
    saved = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(saved, 2)
        os.close(saved)
