"""Shared tables in Spark, without a connector jar.

`load_as_spark` of the package returns a DataFrame. `register` registers ``spark.read.format("deltaSharing")`` with
a session; Spark finds it by itself if the Python that it runs has the package installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]


def register(spark: SparkSession | None = None) -> None:
    """Register the data source ``deltaSharing`` with a session.

    Args:
        spark: the session, classic or Connect; if None the active one, or a new local one.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark is older than 4.0, which has no Python data sources.
    """
    from delta_sharing_client.spark.data_source import register

    register(spark)
