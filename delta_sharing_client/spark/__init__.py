"""Shared tables in Spark, without a connector jar.

`load_as_spark` of the package returns a DataFrame. `register` registers ``spark.read.format("deltaSharing")`` with
a session; Spark finds it by itself if the Python that it runs has the package installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from delta_sharing_client.tracebacks import public

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from delta_sharing_client.auth.credential_provider import CredentialProvider
    from delta_sharing_client.auth.profile import ProfileSource
    from delta_sharing_client.options import TransportOptions

__all__ = ["create_views", "register"]


def create_views(
    spark: SparkSession | None = None,
    profile: ProfileSource = None,
    *,
    share: str | None = None,
    database: str | None = None,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> list[str]:
    """Create a temporary view of each shared table, named as the table, and return the names.

    Spark's own Parquet reader reads the views where it can (``engine="native"``: a classic local session of Spark
    4.2 or later), so that queries are pruned; else Python on the executors.

    The files of the tables are listed in parallel, and each view keeps the version that it then had. A table that
    cannot be loaded is logged as a warning and left out.

    Args:
        spark: the session, classic or Connect; if None the active one, or a new local one.
        profile: the profile, as for `SharingClient`.
        share: only tables of this share.
        database: only tables of the schema with this name, of the share or of all shares.
        options: as for `SharingClient`; by default those of the session's configuration.
        credential_provider: as for `SharingClient`.

    Raises:
        ValueError: two tables have the same name: choose with `share` and `database`.
        MissingDependencyError: PySpark is not installed.
        NotFoundError: there is no such share, or no share has that schema.
        DeltaSharingError: the tables cannot be listed.
    """
    from delta_sharing_client.spark.views import create_views

    return create_views(spark, profile, share, database, options, credential_provider)


@public
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
