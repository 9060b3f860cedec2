"""Functions that take a table URL, under the names of the reference client."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from delta_sharing_client.auth.profile import ProfileSource
from delta_sharing_client.client import SharingClient
from delta_sharing_client.expressions.predicates import Filters
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.names import parse_bare_table, parse_table_url
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.table.shared_table import SharedTable
from delta_sharing_client.wire.requests import RequestedFormat, Timestamp

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa
    from pyspark.sql import DataFrame as SparkDataFrame
    from pyspark.sql import SparkSession

    from delta_sharing_client.cdf.options import CommitTimestamp
    from delta_sharing_client.frames.pandas import DtypeBackend


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
) -> pd.DataFrame:
    """Load a shared table as a pandas frame.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``; the profile of the environment variable
            `DELTA_SHARING_PROFILE` where nothing stands before the ``#``.
        limit: rows to load at the most.
        version: load the table as of this version.
        timestamp: load the table as of this time: ISO 8601 text, or a datetime (UTC without a zone).
        jsonPredicateHints: a JSON predicate for the server: it prunes files and filters no rows.
        use_delta_format: True for delta format, False for parquet; by default what the server prefers.
        convert_in_batches: keep less on its way at a time, for the lowest peak of memory.
        columns: names of the columns to load, in that order; all without.
        filters: rows to load, as `pandas.read_parquet` takes them, or SQL text such as
            ``"date >= '2024-01-01' AND amount > 5"``; the answer is exactly filtered.
        dtype_backend: None for dtypes as `pandas.read_parquet` gives them, nullable where integers or
            booleans are null; ``numpy_nullable`` or ``pyarrow`` as in pandas.
        variant: ``struct`` for variants as structs of two binaries, ``json`` for the text of their JSON.
        mirror: a directory to keep the table in, as a local Delta table: only files that are new are fetched,
            and the rows are read from disk. Not together with `timestamp`.
        progress: show a progress bar; by default in a terminal or notebook only.

    Returns:
        The rows, in the server's order.

    Raises:
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or version and timestamp are both given.
    """
    with _table(url) as table:
        scan = table.scan(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            response_format=_response_format(use_delta_format),
            json_predicate_hints=jsonPredicateHints,
            variant=variant,
        )
        rows = scan if mirror is None else scan.mirrored(mirror, progress=progress)
        return rows.to_pandas(
            dtype_backend=dtype_backend, convert_in_batches=convert_in_batches, progress=progress
        )


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
) -> pa.Table:
    """Load a shared table as an Arrow table; the arguments are those of `load_as_pandas`.

    Returns:
        The rows, in the server's order, with the types of the table's schema.

    Raises:
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or version and timestamp are both given.
    """
    with _table(url) as table:
        scan = table.scan(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            response_format=_response_format(use_delta_format),
            json_predicate_hints=jsonPredicateHints,
            variant=variant,
        )
        rows = scan if mirror is None else scan.mirrored(mirror, progress=progress)
        return rows.to_arrow(progress=progress)


def load_as_polars(
    url: str,
    limit: int | None = None,
    version: int | None = None,
    timestamp: Timestamp | None = None,
    *,
    columns: Iterable[str] | None = None,
    filters: Filters | None = None,
    variant: VariantForm = "struct",
) -> pl.DataFrame:
    """Load a shared table as a polars frame (extra ``polars``); the arguments are those of `load_as_pandas`.

    Raises:
        MissingDependencyError: polars is not installed.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
    """
    with _table(url) as table:
        scan = table.scan(
            columns=columns, filters=filters, limit=limit, version=version, timestamp=timestamp, variant=variant
        )
        return scan.to_polars()


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
) -> duckdb.DuckDBPyRelation:
    """Return a shared table as a DuckDB relation (extra ``duckdb``), fetched each time DuckDB runs it.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        connection: the connection to make the relation in; DuckDB's default one without.
        limit: rows to load at the most.
        version: load the table as of this version.
        timestamp: load the table as of this time.
        columns: names of the columns to load; DuckDB does not push its own projection down.
        filters: rows to load; DuckDB does not push its own filters down.
        variant: ``struct`` for variants as structs of two binaries, ``json`` for the text of their JSON.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
    """
    profile, table = parse_table_url(url)
    scan = (
        SharingClient(profile)
        .table(table)
        .scan(columns=columns, filters=filters, limit=limit, version=version, timestamp=timestamp, variant=variant)
    )
    return scan.to_duckdb(connection)


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
) -> SparkDataFrame:
    """Return a shared table as a Spark DataFrame (extra ``spark``); needs no connector jar.

    The files are listed here, so that errors of the query are raised here, and fetched by the executors each
    time Spark runs the DataFrame. Works on PySpark 3.5 and 4, classic and Connect.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``, or ``<share>.<schema>.<table>`` where
            `delta_sharing_profile` is given.
        version: load the table as of this version.
        timestamp: load the table as of this time: ISO 8601 text, or a datetime (UTC without a zone).
        delta_sharing_profile: the profile, as `SharingClient` takes it, instead of one in the URL.
        spark: the session; without it the active one, or a new local one.
        columns: names of the columns to load, in that order; Spark itself leaves none out.
        filters: rows to load, as `load_as_pandas` takes them; Spark itself pushes none down.
        limit: rows to load at the most.
        use_delta_format: True for delta format, False for parquet; by default what the server prefers.
        variant: ``variant`` for Spark's own type (Spark 4), ``json`` for the text of the variants' JSON.
        executor_credentials: let executors renew URLs that expire before they are used; the profile's
            credential then travels with the job.
        partition_size: bytes of files that make one partition; 128 MB without.
        mirror: a directory that the executors see too, to keep the table in as a local Delta table: only files
            that are new are fetched, here and once, and Spark reads them with its own Parquet reader, which
            prunes columns and pushes filters down. Takes no `filters`, `limit` or `timestamp`.

    Returns:
        A DataFrame whose columns may all be null.

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark cannot be started, is too old, or the table has too many files for one plan.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or version and timestamp are both given.
    """
    with _table(url, delta_sharing_profile) as table:
        scan = table.scan(
            columns=columns,
            filters=filters,
            limit=limit,
            version=version,
            timestamp=timestamp,
            response_format=_response_format(use_delta_format),
            variant=_spark_variant(variant),
        )
        if mirror is not None:
            from delta_sharing_client.spark.mirror import mirror_dataframe

            return mirror_dataframe(scan.mirrored(mirror), spark)
        return scan.to_spark(spark, executor_credentials=executor_credentials, partition_size=partition_size)


def load_table_changes_as_pandas(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    use_delta_format: bool | None = None,
    convert_in_batches: bool = False,
    *,
    columns: Iterable[str] | None = None,
    commit_timestamp: CommitTimestamp = "long",
    dtype_backend: DtypeBackend | None = None,
    variant: VariantForm = "struct",
    progress: bool | None = None,
) -> pd.DataFrame:
    """Load the changes of a shared table as a pandas frame.

    The range includes both its ends. The table needs its change data feed on, and to be shared with its history.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        starting_version: the first version; either this or `starting_timestamp` is needed.
        ending_version: the last version; the latest without.
        starting_timestamp: start with the first version at or after this time: ISO 8601 text, or a datetime
            (UTC without a zone).
        ending_timestamp: end with the last version at or before this time.
        use_delta_format: True for delta format, False for parquet; by default what the server prefers.
        convert_in_batches: keep less on its way at a time, for the lowest peak of memory.
        columns: names of the table's columns to load, in that order; all without.
        commit_timestamp: ``long`` gives `_commit_timestamp` as milliseconds since the epoch (int64),
            ``timestamp`` as a time (UTC).
        dtype_backend: as for `load_as_pandas`.
        variant: as for `load_as_pandas`.
        progress: show a progress bar; by default in a terminal or notebook only.

    Returns:
        The change rows, version by version: the table's columns as they are at the end of the range, then
        `_change_type`, `_commit_version` and `_commit_timestamp`.

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or arguments do not go together.
    """
    with _table(url) as table:
        changes = table.changes(
            starting_version,
            ending_version,
            starting_timestamp,
            ending_timestamp,
            columns,
            _response_format(use_delta_format),
            commit_timestamp=commit_timestamp,
            variant=variant,
        )
        return changes.to_pandas(
            dtype_backend=dtype_backend, convert_in_batches=convert_in_batches, progress=progress
        )


def load_table_changes_as_arrow(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    use_delta_format: bool | None = None,
    *,
    columns: Iterable[str] | None = None,
    commit_timestamp: CommitTimestamp = "long",
    variant: VariantForm = "struct",
    progress: bool | None = None,
) -> pa.Table:
    """Load the changes of a shared table as an Arrow table; see `load_table_changes_as_pandas`.

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or arguments do not go together.
    """
    with _table(url) as table:
        changes = table.changes(
            starting_version,
            ending_version,
            starting_timestamp,
            ending_timestamp,
            columns,
            _response_format(use_delta_format),
            commit_timestamp=commit_timestamp,
            variant=variant,
        )
        return changes.to_arrow(progress=progress)


def load_table_changes_as_spark(
    url: str,
    starting_version: int | None = None,
    ending_version: int | None = None,
    starting_timestamp: Timestamp | None = None,
    ending_timestamp: Timestamp | None = None,
    delta_sharing_profile: ProfileSource = None,
    *,
    spark: SparkSession | None = None,
    columns: Iterable[str] | None = None,
    use_delta_format: bool | None = None,
    commit_timestamp: CommitTimestamp = "timestamp",
    variant: Literal["variant", "json"] = "variant",
    executor_credentials: bool = True,
    partition_size: int | None = None,
) -> SparkDataFrame:
    """Return the changes of a shared table as a Spark DataFrame (extra ``spark``).

    The range of versions is as for `load_table_changes_as_pandas`, the rest as for `load_as_spark`.
    `_commit_timestamp` is a timestamp, or with ``commit_timestamp="long"`` milliseconds since the epoch.

    Raises:
        SchemaChangedError: within the range a column was renamed or dropped, or changed its type.
        DeltaSharingError: see the error tree in `delta_sharing_client.errors`.
        ValueError: an argument is out of range, or arguments do not go together.
    """
    with _table(url, delta_sharing_profile) as table:
        changes = table.changes(
            starting_version,
            ending_version,
            starting_timestamp,
            ending_timestamp,
            columns,
            _response_format(use_delta_format),
            commit_timestamp=commit_timestamp,
            variant=_spark_variant(variant),
        )
        return changes.to_spark(spark, executor_credentials=executor_credentials, partition_size=partition_size)


def get_table_version(url: str, starting_timestamp: Timestamp | None = None) -> int:
    """Return a shared table's version.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        starting_timestamp: for the first version at or after that time instead of the latest.
    """
    with _table(url) as table:
        return table.version(starting_timestamp)


def get_table_metadata(url: str, use_delta_format: bool = True) -> Metadata:
    """Return a shared table's metadata: id, schema, partition columns, properties.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        use_delta_format: accept the delta format too, which tells more; False asks for parquet format.
    """
    with _table(url) as table:
        return table.metadata(response_format="auto" if _checked(use_delta_format) else "parquet")


def get_table_protocol(url: str, use_delta_format: bool = True) -> Protocol:
    """Return what a reader must support to read a shared table.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        use_delta_format: accept the delta format too, which tells more; False asks for parquet format.
    """
    with _table(url) as table:
        return table.protocol(response_format="auto" if _checked(use_delta_format) else "parquet")


@contextmanager
def _table(url: str, given: ProfileSource = None) -> Iterator[SharedTable]:
    """Open the table of a URL, and close its connections afterwards."""
    profile: ProfileSource = given
    if given is None:
        profile, name = parse_table_url(url)
    else:
        name = parse_bare_table(url)
    with SharingClient(profile) as client:
        yield client.table(name)


def _response_format(use_delta_format: bool | None) -> RequestedFormat:
    if use_delta_format is None:
        return "auto"
    return "delta" if _checked(use_delta_format) else "parquet"


def _checked(use_delta_format: bool) -> bool:
    if not isinstance(use_delta_format, bool):
        raise TypeError(f"use_delta_format is True, False or None, not {use_delta_format!r}")
    return use_delta_format


def _spark_variant(variant: str) -> VariantForm:
    """What to read variants as, for Spark: their binaries make its own type."""
    if variant not in ("variant", "json"):
        raise ValueError(f"variant is {variant!r}; it takes 'variant' or 'json'")
    return "json" if variant == "json" else "struct"
