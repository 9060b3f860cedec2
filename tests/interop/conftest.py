"""Other engines: delta-spark, deltalake and DuckDB, in the environment of `make interop`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here not in item.path.parents:
            continue
        # Spark warns of releases of its dependencies.
        item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="session")
def delta_settings() -> dict[str, str]:
    """Settings of a Spark session with the delta-spark of this environment, whose jars come from Maven Central."""
    from spark_processes import VERSION, java_home

    assert java_home() is not None, "there is no Java 17 or later: `make interop` sets one up"
    release = ".".join(map(str, VERSION))
    return {
        "spark.jars.packages": f"io.delta:delta-spark_{release}_2.13:{version('delta-spark')}",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        # The jars are kept in the environment. Spark would also look into ~/.m2, and it fails if that has the POM
        # of an artifact and not its jar.
        "spark.driver.extraJavaOptions": f'"-Duser.home={sys.prefix}" -Ddelta.log.cacheSize=4',
    }


@pytest.fixture(scope="session")
def spark(delta_settings: dict[str, str]) -> Iterator[Any]:
    """A Spark session with delta-spark. It is never skipped: without it `make interop` would test nothing."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("interop")
    settings = {
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        # Hundreds of tables in one session: what Spark and Delta would keep of each fills the memory.
        "spark.driver.memory": "2g",
        "spark.sql.ui.retainedExecutions": "1",
        "spark.ui.retainedJobs": "1",
        "spark.ui.retainedStages": "1",
        "spark.ui.retainedTasks": "1",
    }
    for name, value in (delta_settings | settings).items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
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
