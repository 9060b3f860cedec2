"""A scan as a DuckDB relation, through the Arrow C stream: read when DuckDB runs it, in bounded memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from delta_sharing_client.errors import ColumnError
from delta_sharing_client.frames.stream_errors import missing

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa


class Rows(Protocol):
    """Anything that gives a record batch reader, as often as it is asked."""

    def to_record_batch_reader(self) -> pa.RecordBatchReader:
        """Return a reader of the rows."""


def to_duckdb(source: Rows, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a source of rows.

    Args:
        source: gives the rows anew each time the relation is run.
        connection: the connection to make the relation in; DuckDB's default one without.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        ColumnError: there are no columns, which DuckDB has no relations for.
        DeltaSharingError: what `source` raised; once there is a relation, DuckDB reports it in its own error.
    """
    try:
        import duckdb
    except ImportError:
        raise missing("duckdb") from None
    stream = _Stream(source)
    try:
        relation: duckdb.DuckDBPyRelation = (connection or duckdb.default_connection()).from_arrow(stream)
    except duckdb.Error:
        # DuckDB asks for the columns first, and reports what goes wrong with the text alone.
        if stream.error is not None:
            raise stream.error from None
        if stream.without_columns:
            raise ColumnError(
                "a DuckDB relation needs at least one column, and there is none: name one with columns=[...], or "
                "count the rows with count()"
            ) from None
        raise
    return relation


class _Stream:
    """What DuckDB is given: streams of the rows, and what became of the last one.

    error: what the source raised.
    without_columns: whether it has no columns.
    """

    def __init__(self, source: Rows) -> None:
        self._source = source
        self.error: Exception | None = None
        self.without_columns = False

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        try:
            reader = self._source.to_record_batch_reader()
        except Exception as error:
            self.error = error
            raise
        self.without_columns = not len(reader.schema)
        return reader.__arrow_c_stream__(requested_schema)
