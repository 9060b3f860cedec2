"""Functions that take a table URL, under the names of the official client.

They raise `ValueError` or `TypeError` for an invalid argument, and else errors of `delta_sharing_client.errors`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

from delta_sharing_client.auth.profile import ProfileSource
from delta_sharing_client.client import SharingClient
from delta_sharing_client.expressions.binding import Filters
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
    from delta_sharing_client.frames.dtype_backend import DtypeBackend


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

    Returns:
        The rows, in the server's order.
    """
    with _table(url) as table:
        given = columns, filters, limit, version, timestamp, _response_format(use_delta_format)
        scan = table.scan(*given, json_predicate_hints=jsonPredicateHints, variant=variant)
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
    """Load a shared table as an Arrow table with the types of its schema; arguments as for `load_as_pandas`."""
    with _table(url) as table:
        given = columns, filters, limit, version, timestamp, _response_format(use_delta_format)
        scan = table.scan(*given, json_predicate_hints=jsonPredicateHints, variant=variant)
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
    """Load a shared table as a polars frame (extra ``polars``); arguments as for `load_as_pandas`."""
    with _table(url) as table:
        return table.scan(columns, filters, limit, version, timestamp, variant=variant).to_polars()


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
    """Return a shared table as a DuckDB relation (extra ``duckdb``), which fetches the rows each time it runs.

    The relation belongs to `connection`, by default DuckDB's default connection. DuckDB pushes neither its
    projection nor its filters down; pass `columns` and `filters`. The other arguments are as for `load_as_pandas`.
    """
    profile, name = parse_table_url(url)
    table = SharingClient(profile).table(name)
    return table.scan(columns, filters, limit, version, timestamp, variant=variant).to_duckdb(connection)


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

    Raises:
        MissingDependencyError: PySpark is not installed.
        SparkError: Spark cannot be started, is too old, or the table has too many files for one plan.
    """
    with _table(url, delta_sharing_profile) as table:
        given = columns, filters, limit, version, timestamp, _response_format(use_delta_format)
        scan = table.scan(*given, variant=_spark_variant(variant))
        if mirror is not None:
            from delta_sharing_client.spark.mirror_dataframe import mirror_dataframe

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

    The range includes both ends. The table must be shared with its history and have a change data feed.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        starting_version: the first version; either this or `starting_timestamp` is required.
        ending_version: the last version; the latest by default.
        starting_timestamp: selects the first version at or after this time: ISO 8601 text, or a datetime (UTC
            without a zone).
        ending_timestamp: selects the last version at or before this time.
        use_delta_format: as for `load_as_pandas`, like `convert_in_batches`, `dtype_backend`, `variant` and
            `progress`.
        convert_in_batches: fetch less ahead.
        columns: names of the table's columns, in the order of the frame; all by default.
        commit_timestamp: ``long`` for `_commit_timestamp` in milliseconds since the epoch (int64), ``timestamp``
            for a time (UTC).
        dtype_backend: ``numpy_nullable`` or ``pyarrow``.
        variant: ``struct`` or ``json``.
        progress: show a progress bar.

    Returns:
        The change rows, ordered by version: the table's columns as at the end of the range, then `_change_type`,
        `_commit_version` and `_commit_timestamp`.

    Raises:
        SchemaChangedError: a column was renamed or dropped, or its type changed, within the range.
    """
    with _table(url) as table:
        response_format = _response_format(use_delta_format)
        given = starting_version, ending_version, starting_timestamp, ending_timestamp, columns, response_format
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=variant)
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
    """Load the changes of a shared table as an Arrow table; arguments as for `load_table_changes_as_pandas`."""
    with _table(url) as table:
        response_format = _response_format(use_delta_format)
        given = starting_version, ending_version, starting_timestamp, ending_timestamp, columns, response_format
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=variant)
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

    Range and columns as for `load_table_changes_as_pandas`, the other arguments as for `load_as_spark`.
    `_commit_timestamp` is a timestamp, or with ``commit_timestamp="long"`` milliseconds since the epoch.
    """
    with _table(url, delta_sharing_profile) as table:
        response_format = _response_format(use_delta_format)
        given = starting_version, ending_version, starting_timestamp, ending_timestamp, columns, response_format
        changes = table.changes(*given, commit_timestamp=commit_timestamp, variant=_spark_variant(variant))
        return changes.to_spark(spark, executor_credentials=executor_credentials, partition_size=partition_size)


def get_table_version(url: str, starting_timestamp: Timestamp | None = None) -> int:
    """Return a shared table's latest version, or the first one at or after `starting_timestamp`."""
    with _table(url) as table:
        return table.version(starting_timestamp)


def get_table_metadata(url: str, use_delta_format: bool = True) -> Metadata:
    """Return a shared table's metadata: id, schema, partition columns, properties.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        use_delta_format: accept delta format, which has more fields; False requests parquet format.
    """
    with _table(url) as table:
        return table.metadata(response_format="auto" if _checked(use_delta_format) else "parquet")


def get_table_protocol(url: str, use_delta_format: bool = True) -> Protocol:
    """Return a shared table's protocol: reader version and features; arguments as for `get_table_metadata`."""
    with _table(url) as table:
        return table.protocol(response_format="auto" if _checked(use_delta_format) else "parquet")


@contextmanager
def _table(url: str, given: ProfileSource = None) -> Iterator[SharedTable]:
    """Open the table of a URL; closes its connections at the end."""
    profile, name = parse_table_url(url) if given is None else (given, parse_bare_table(url))
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
    if variant not in ("variant", "json"):
        raise ValueError(f"variant is {variant!r}; it takes 'variant' or 'json'")
    return "json" if variant == "json" else "struct"
