"""A local Spark session for the demo: small, silent, and gone when it is closed.

Spark's start-up talks on stderr whatever its log level is, so what its JVM and its workers write goes to a file.
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
    """The home of a Java that Spark can use, for this process and what it starts; None if there is none."""
    home: Path | None = runpy.run_path(str(JAVA))["use"]()
    return home


@contextlib.contextmanager
def local_session(folder: Path) -> Iterator[SparkSession]:
    """A session on two cores of this machine, which listens on loopback only.

    Args:
        folder: where Spark writes what it has to write.
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
    with _errors_to(folder / "spark.log"):
        spark = builder.getOrCreate()
    try:
        spark.sparkContext.setLogLevel("OFF")
        yield spark
    finally:
        spark.stop()
        gateway = SparkContext._gateway
        if gateway is not None:  # the JVM would end some time after this process
            gateway.shutdown()
            SparkContext._gateway = SparkContext._jvm = None
            _end(gateway.proc)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the JVM, which does so by itself when its input ends."""
    if process.stdin is not None:
        process.stdin.close()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(10)
    process.kill()
    process.wait(10)


@contextlib.contextmanager
def _errors_to(path: Path) -> Iterator[None]:
    """Have the processes that are started meanwhile write their errors to a file."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("wb") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
