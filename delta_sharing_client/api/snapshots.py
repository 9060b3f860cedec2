"""Functions that load a version of a table."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Literal

from delta_sharing_client.api.opening import CatalogName, open_table, spark_variant, table_of
from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import ProfileSource
from delta_sharing_client.client import SharingClient
from delta_sharing_client.expressions.filters import Filters
from delta_sharing_client.model.names import parse_table_url
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.paths import local_path
from delta_sharing_client.tracebacks import public
from delta_sharing_client.wire.requests import Timestamp, format_for

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.frames import DtypeBackend
    from delta_sharing_client.scan.options import OnFuture
    from delta_sharing_client.spark.engine import Engine


@public
def load_as_pandas(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    jsonPredicateHints: str | None = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    dtype_backend: DtypeBackend | None = None,
    variant: VariantForm = "struct",
    mirror: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    catalog: CatalogName = "delta",
) -> pd.DataFrame:
    """Load a shared table as a pandas frame.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``; without a profile, the environment variable
            `DELTA_SHARING_PROFILE` names it.
        limit: maximum number of rows.
        version: version of the table; the latest by default.
        timestamp: time of the version, instead of `version`: ISO 8601 text, or a datetime (UTC without a zone).
        jsonPredicateHints: a JSON predicate by which the server skips files; it filters no rows.
        use_delta_format: True for delta format, False for parquet format; by default the server chooses.
        convert_in_batches: fetch less ahead, for a lower peak of memory.
        columns: names of the columns, in the order of the frame; all by default.
        filters: row filter, as for `pandas.read_parquet`, or SQL text such as
            ``"date >= '2024-01-01' AND amount > 5"``.
        dtype_backend: ``numpy_nullable`` or ``pyarrow``, as in pandas; by default the dtypes of
            `pandas.read_parquet`, but nullable ones for integers and booleans with nulls.
        variant: ``struct`` for variants as structs of two binaries, ``json`` for JSON text.
        mirror: directory of a local Delta table that follows the shared one, so that only new files are fetched;
            not together with `timestamp`.
        progress: show a progress bar; by default only in a terminal or notebook.
        on_future: ``raise`` an error for a `timestamp` after the last commit, or read the ``latest`` version.
        options: time-outs, retries, connections, memory; as for `SharingClient`, like `credential_provider`.
        credential_provider: a function that returns a bearer token and its expiration.
        catalog: ``iceberg`` reads the table through the Iceberg catalog of the provider, at the profile's
            `icebergEndpoint` (extra ``iceberg``); see `SharingClient.iceberg`. A `version` is the id of a snapshot
            then, and a mirror, a format or `jsonPredicateHints` raise `IcebergError`.

    Returns:
        The rows, in the server's order.
    """
    directory = None if mirror is None else local_path(mirror, "mirror")
    with open_table(url, options, credential_provider, catalog=catalog) as table:
        given = columns, filters, limit, version, timestamp, format_for(use_delta_format)
        scan = table.scan(*given, json_predicate_hints=jsonPredicateHints, variant=variant, on_future=on_future)
        rows = scan if directory is None else scan.mirrored(directory, progress=progress)
        return rows.to_pandas(
            dtype_backend=dtype_backend, convert_in_batches=convert_in_batches, progress=progress
        )


@public
def load_as_arrow(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    jsonPredicateHints: str | None = None,
    use_delta_format: bool | None = None,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    variant: VariantForm = "struct",
    mirror: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    catalog: CatalogName = "delta",
) -> pa.Table:
    """Load a shared table as an Arrow table with the types of its schema; arguments as for `load_as_pandas`."""
    directory = None if mirror is None else local_path(mirror, "mirror")
    with open_table(url, options, credential_provider, catalog=catalog) as table:
        given = columns, filters, limit, version, timestamp, format_for(use_delta_format)
        scan = table.scan(*given, json_predicate_hints=jsonPredicateHints, variant=variant, on_future=on_future)
        rows = scan if directory is None else scan.mirrored(directory, progress=progress)
        return rows.to_arrow(progress=progress)


@public
def load_as_polars(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    variant: VariantForm = "struct",
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    catalog: CatalogName = "delta",
) -> pl.DataFrame:
    """Load a shared table as a polars frame (extra ``polars``); arguments as for `load_as_pandas`."""
    with open_table(url, options, credential_provider, catalog=catalog) as table:
        return table.scan(
            columns, filters, limit, version, timestamp, variant=variant, on_future=on_future
        ).to_polars()


@public
def scan_polars(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    variant: VariantForm = "struct",
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    catalog: CatalogName = "delta",
) -> pl.LazyFrame:
    """Return a shared table as a polars `LazyFrame` (extra ``polars``), which reads what a query needs.

    polars pushes projections, filters and limits down to the scan. Each query requests the files again. Arguments
    are as for `load_as_pandas`.
    """
    profile, name = parse_table_url(url)
    client = SharingClient(profile, options=options, credential_provider=credential_provider)
    table = table_of(client, name, catalog)
    return table.scan(
        columns, filters, limit, version, timestamp, variant=variant, on_future=on_future
    ).to_polars_lazy()


@public
def load_as_duckdb(
    url: str,
    connection: duckdb.DuckDBPyConnection | None = None,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    variant: VariantForm = "struct",
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    catalog: CatalogName = "delta",
) -> duckdb.DuckDBPyRelation:
    """Return a shared table as a DuckDB relation (extra ``duckdb``), which fetches the rows each time it runs.

    The relation belongs to `connection`, by default DuckDB's default connection. DuckDB pushes its projections and
    filters down to the scan. The other arguments are as for `load_as_pandas`.
    """
    profile, name = parse_table_url(url)
    client = SharingClient(profile, options=options, credential_provider=credential_provider)
    table = table_of(client, name, catalog)
    return table.scan(columns, filters, limit, version, timestamp, variant=variant, on_future=on_future).to_duckdb(
        connection
    )


@public
def load_as_spark(
    url: str,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    spark: SparkSession | None = None,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    limit: int | None = None,
    use_delta_format: bool | None = None,
    variant: Literal["variant", "json"] = "variant",
    executor_credentials: bool = True,
    partition_size: int | None = None,
    mirror: str | os.PathLike[str] | None = None,
    on_future: OnFuture = "raise",
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    engine: Engine = "auto",
) -> SparkDataFrame:
    """Return a shared table as a Spark DataFrame (extra ``spark``); needs no connector jar.

    This function lists the files, so it raises the errors of the query; the executors fetch them each time Spark
    runs the DataFrame. Supports PySpark 3.5 and 4, classic and Connect. All columns are nullable.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``, or ``<share>.<schema>.<table>`` with `delta_sharing_profile`.
        version: version of the table; the latest by default.
        timestamp: time of the version, instead of `version`.
        delta_sharing_profile: the profile, as for `SharingClient`.
        spark: the session; by default the active one, or a new local one.
        columns: names of the columns; Spark does not push its own projection down.
        filters: row filter, as for `load_as_pandas`; Spark does not push its own filters down.
        limit: maximum number of rows.
        use_delta_format: as for `load_as_pandas`.
        variant: ``variant`` for Spark's own type (Spark 4), ``json`` for JSON text.
        executor_credentials: send the profile's credential with the job, so that executors can renew expired URLs.
        partition_size: bytes of files per partition; 128 MB by default.
        mirror: directory, visible to the executors, of a local Delta table that follows the shared one. Only new
            files are fetched, by this function, and Spark's Parquet reader reads them, with projection and filter
            pushdown. Not together with `filters`, `limit` or `timestamp`.
        on_future: as for `load_as_pandas`.
        options: as for `SharingClient`; by default those of the session's configuration,
            ``spark.delta.sharing.*``.
        credential_provider: as for `SharingClient`. The job has its token, and not the function.
        engine: ``arrow`` reads the files in Python on the executors, ``native`` by Spark's own Parquet reader,
            with projection and filter pushdown, ``auto`` the faster of both; see `TableScan.to_spark`. A mirror
            needs neither.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark cannot be started, is too old, or the table has too many files for one plan.
    """
    from delta_sharing_client.spark.configuration import configured_options

    directory = None if mirror is None else local_path(mirror, "mirror")
    options = options or configured_options(spark)
    with open_table(url, options, credential_provider, delta_sharing_profile) as table:
        given = columns, filters, limit, version, timestamp, format_for(use_delta_format)
        scan = table.scan(*given, variant=spark_variant(variant), on_future=on_future)
        if directory is not None:
            from delta_sharing_client.spark.local_dataframe import mirror_dataframe

            return mirror_dataframe(scan.mirrored(directory), spark)
        return scan.to_spark(
            spark, engine=engine, executor_credentials=executor_credentials, partition_size=partition_size
        )
