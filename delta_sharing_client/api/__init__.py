"""Functions that take a table URL, under the names of the official client.

They raise `ValueError` or `TypeError` for an invalid argument, and else errors of `delta_sharing_client.errors`.
"""

from delta_sharing_client.api.changes import (
    load_table_changes_as_arrow,
    load_table_changes_as_pandas,
    load_table_changes_as_spark,
)
from delta_sharing_client.api.metadata import (
    get_table_metadata,
    get_table_protocol,
    get_table_version,
)
from delta_sharing_client.api.snapshots import (
    load_as_arrow,
    load_as_duckdb,
    load_as_pandas,
    load_as_polars,
    load_as_spark,
    scan_polars,
)

__all__ = [
    "get_table_metadata",
    "get_table_protocol",
    "get_table_version",
    "load_as_arrow",
    "load_as_duckdb",
    "load_as_pandas",
    "load_as_polars",
    "load_as_spark",
    "load_table_changes_as_arrow",
    "load_table_changes_as_pandas",
    "load_table_changes_as_spark",
    "scan_polars",
]
