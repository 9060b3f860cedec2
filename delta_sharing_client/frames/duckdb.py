"""Scans as DuckDB relations: datasets with pushdown, and Arrow C streams, read when DuckDB runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from delta_sharing_client.errors import ColumnError, MissingDependencyError

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

    from delta_sharing_client.frames.dataset import SharedDataset

_NO_COLUMNS: Final = (
    "a DuckDB relation needs at least one column; the scan has none: name one with columns=[...], or count the "
    "rows with count()"
)


class Rows(Protocol):
    """A source of record batch readers, such as a scan."""

    def to_record_batch_reader(self) -> pa.RecordBatchReader:
        """Return a new reader of all rows."""


def to_duckdb(source: Rows, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
    """Return a relation over a source of rows.

    Args:
        source: the rows; read once for each run of the relation.
        connection: the connection of the relation; None for DuckDB's default one.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        ColumnError: the source has no columns; DuckDB requires one.
        DeltaSharingError: `source` raised it. When the relation runs, DuckDB raises its own error with the text.
    """
    opened = _connection(connection)
    import duckdb

    stream = _Stream(source)
    try:
        relation: duckdb.DuckDBPyRelation = opened.from_arrow(stream)
    except duckdb.Error:
        # DuckDB reads the schema here, and keeps only the text of an exception.
        if stream.error is not None:
            raise stream.error from None
        if stream.without_columns:
            raise ColumnError(_NO_COLUMNS) from None
        raise
    return relation


def dataset_relation(
    dataset: SharedDataset, connection: duckdb.DuckDBPyConnection | None = None
) -> duckdb.DuckDBPyRelation:
    """Return a relation over a dataset, into which DuckDB pushes projections and filters down.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        ColumnError: the dataset has no columns; DuckDB requires one.
    """
    opened = _connection(connection)
    if not dataset.schema.names:
        raise ColumnError(_NO_COLUMNS)
    return opened.from_arrow(dataset)


def _connection(connection: duckdb.DuckDBPyConnection | None) -> duckdb.DuckDBPyConnection:
    try:
        import duckdb
    except ImportError:
        raise MissingDependencyError(package="duckdb", extra="duckdb", purpose="Loading into DuckDB") from None
    return connection or duckdb.default_connection()


class _Stream:
    """The object that DuckDB reads streams from.

    Attributes:
        error: the exception that the source raised.
        without_columns: whether the last stream has no columns.
    """

    def __init__(self, source: Rows) -> None:
        self._source = source
        self.error: Exception | None = None
        self.without_columns = False

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        try:
            reader = self._source.to_record_batch_reader()
        except Exception as error:  # DuckDB raises its own error with the text of this one
            self.error = error
            raise
        self.without_columns = not len(reader.schema)
        return reader.__arrow_c_stream__(requested_schema)
