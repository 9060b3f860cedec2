"""A scan as a DuckDB relation, through the Arrow C stream: read when DuckDB runs it, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from delta_sharing_client.load.guard import missing

if TYPE_CHECKING:
    import duckdb


class ArrowStream(Protocol):
    """Anything that hands out an Arrow C stream, as often as it is asked."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return a capsule with the stream."""


def to_duckdb(source: ArrowStream, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a source of rows.

    Args:
        source: gives the rows anew each time the relation is run.
        connection: the connection to make the relation in; DuckDB's default one without.

    Raises:
        MissingDependencyError: DuckDB is not installed.
    """
    try:
        import duckdb
    except ImportError:
        raise missing("duckdb") from None
    relation: duckdb.DuckDBPyRelation = (connection or duckdb.default_connection()).from_arrow(source)
    return relation
