"""Shared tables in Spark, without a connector jar.

`load_as_spark` of the package returns a DataFrame. `register` registers ``spark.read.format("deltaSharing")`` with
a session; Spark finds it by itself if the Python that it runs has the package installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_sharing_client.auth.credential_provider import CredentialProvider
    from delta_sharing_client.options import TransportOptions

__all__ = ["register"]


def register(
    spark: SparkSession | None = None,
    *,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> None:
    """Register the data source ``deltaSharing`` with a session.

    Args:
        spark: the session, classic or Connect; if None the active one, or a new local one.
        options: as for `SharingClient`; by default those of the session's present configuration,
            ``spark.delta.sharing.*``.
        credential_provider: as for `SharingClient`. Spark pickles it and calls it in processes of the driver.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark is older than 4.0, which has no Python data sources.
    """
    from delta_sharing_client.spark.data_source import register

    register(spark, options, credential_provider)
