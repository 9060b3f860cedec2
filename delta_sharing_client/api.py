"""Functions that take a table URL, under the names of the reference client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from delta_sharing_client.client import SharingClient
from delta_sharing_client.protocol.actions import Metadata, Protocol
from delta_sharing_client.protocol.names import parse_table_url
from delta_sharing_client.protocol.predicates import Filters
from delta_sharing_client.scan.tasks import VariantForm
from delta_sharing_client.table import RequestedFormat, SharedTable, Timestamp

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
    import polars as pl
    import pyarrow as pa

    from delta_sharing_client.load.pandas import DtypeBackend


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
        return scan.to_pandas(
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
        return scan.to_arrow(progress=progress)


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
        return table.metadata(response_format="auto" if use_delta_format else "parquet")


def get_table_protocol(url: str, use_delta_format: bool = True) -> Protocol:
    """Return what a reader must support to read a shared table.

    Args:
        url: ``<profile>#<share>.<schema>.<table>``.
        use_delta_format: accept the delta format too, which tells more; False asks for parquet format.
    """
    with _table(url) as table:
        return table.protocol(response_format="auto" if use_delta_format else "parquet")


@contextmanager
def _table(url: str) -> Iterator[SharedTable]:
    """Open the table of a URL, and close its connections afterwards."""
    profile, name = parse_table_url(url)
    with SharingClient(profile) as client:
        yield client.table(name)


def _response_format(use_delta_format: bool | None) -> RequestedFormat:
    if use_delta_format is None:
        return "auto"
    return "delta" if use_delta_format else "parquet"
