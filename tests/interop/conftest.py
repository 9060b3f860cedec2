"""Other engines: delta-spark, deltalake and DuckDB, in the environment of `make interop`."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "delta" / "log"))

#: The release of delta-spark that fits the Spark of the environment.
ARTIFACT = "io.delta:delta-spark_4.2_2.13:4.4.0"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    wanted = os.environ.get("DELTA_SHARING_INTEROP") == "1"
    for item in items:
        if here not in item.path.parents:
            continue
        if not wanted:
            item.add_marker(pytest.mark.skip(reason="other engines; `make interop` runs this"))
        # Spark warns of releases of its dependencies.
        item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session with delta-spark, fetched from Maven Central."""
    pyspark = pytest.importorskip("pyspark", reason="PySpark is not installed")
    pytest.importorskip("delta", reason="delta-spark is not installed")
    builder = (
        pyspark.sql.SparkSession.builder.master("local[2]")
        .appName("interop")
        .config("spark.jars.packages", ARTIFACT)
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.ui.enabled", "false")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.databricks.delta.snapshotPartitions", "1")
        # Hundreds of tables in one session: what Spark and Delta would keep of each fills the memory.
        .config("spark.driver.memory", "2g")
        .config("spark.driver.extraJavaOptions", "-Ddelta.log.cacheSize=4")
        .config("spark.sql.ui.retainedExecutions", "1")
        .config("spark.ui.retainedJobs", "1")
        .config("spark.ui.retainedStages", "1")
        .config("spark.ui.retainedTasks", "1")
    )
    try:
        session = builder.getOrCreate()
    except Exception as error:  # noqa: BLE001  # whatever Spark's launcher makes of a missing jar or Java
        pytest.skip(f"Spark with {ARTIFACT} cannot be started: {type(error).__name__}")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def duck() -> Iterator[Any]:
    """A DuckDB connection with its delta reader, where that is to be had."""
    duckdb = pytest.importorskip("duckdb")
    connection = duckdb.connect()
    try:
        connection.execute("INSTALL delta")
        connection.execute("LOAD delta")
    except duckdb.Error as error:
        pytest.skip(f"DuckDB's delta extension is not to be had: {type(error).__name__}")
    yield connection
    connection.close()
