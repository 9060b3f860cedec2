"""`DuckDBSink`: batches stored in a DuckDB table, in one transaction with the poller's version."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import MissingDependencyError, SinkError, UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    UnknownType,
)
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.sinks.base import Mode
from delta_sharing_client.sinks.sql import SqlSink, quoted

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

_TYPES: Final = {
    "string": "VARCHAR",
    "long": "BIGINT",
    "integer": "INTEGER",
    "short": "SMALLINT",
    "byte": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "boolean": "BOOLEAN",
    "binary": "BLOB",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}
_CHUNK: Final = "_delta_sharing_chunk"


class DuckDBSink(SqlSink):
    """Stores batches in a table of a DuckDB database (extra ``duckdb``); creates a missing table.

    Columns have DuckDB's types: a `timestamp` is `TIMESTAMP WITH TIME ZONE`, nested types are nested types. The
    changes of a batch are held in memory in mode ``apply``.

    Args:
        database: the database's file; or a connection without a transaction, which the sink does not close.
        table: the table's name.
        schema: the table's schema; created if missing.
        mode: ``append`` adds the rows of each batch; ``apply`` keeps the table equal to the shared one.
        keys: the key columns, for ``apply``.
        change_columns: whether ``append`` stores `_change_type`, `_commit_version` and `_commit_timestamp` too;
            False accepts only batches of inserts.
        add_columns: whether new columns of a batch are added to the table.

    Raises:
        MissingDependencyError: DuckDB is not installed.
        SinkError: the database cannot be opened.
        ValueError, TypeError: the arguments contradict each other.
    """

    def __init__(
        self,
        database: str | os.PathLike[str] | duckdb.DuckDBPyConnection,
        table: str,
        *,
        schema: str = "main",
        mode: Mode = "append",
        keys: Iterable[str] = (),
        change_columns: bool = True,
        add_columns: bool = True,
    ) -> None:
        self._owned = False
        super().__init__(table, mode=mode, keys=keys, change_columns=change_columns, add_columns=add_columns)
        try:
            import duckdb
        except ImportError:
            raise MissingDependencyError(package="duckdb", extra="duckdb", purpose="DuckDBSink") from None
        self.schema = schema
        self._error = duckdb.Error
        self._connection: duckdb.DuckDBPyConnection
        if isinstance(database, duckdb.DuckDBPyConnection):
            self._connection = database
        else:
            with self._errors():
                self._connection = duckdb.connect(os.fspath(database))
            self._owned = True

    @property
    def target(self) -> str:
        """A description of the target, for messages."""
        return f"DuckDB table {self.schema}.{self.table}"

    def close(self) -> None:
        """Close the database, unless it was given as a connection."""
        if self._owned:
            self._connection.close()

    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        done = self._connection.execute(statement, list(values) or None)
        return done.fetchall() if done.description else []

    def _begin(self) -> None:
        self._run("BEGIN TRANSACTION")

    def _create_bookkeeping(self) -> None:
        self._run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self.schema)}")
        super()._create_bookkeeping()

    def _failed(self, error: Exception) -> SinkError | None:
        if not isinstance(error, self._error):
            return None
        return SinkError(f"DuckDB refuses: {error}", target=self.target)

    def _name(self, table: str) -> str:
        return f"{quoted(self.schema)}.{quoted(table)}"

    def _columns(self) -> list[tuple[str, str]]:
        there = self._run(
            "SELECT count(*) FROM duckdb_tables() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?)",
            [self.schema, self.table],
        )
        if not there[0][0]:
            return []
        return [(row[0], row[1]) for row in self._run(f"DESCRIBE {self._name(self.table)}")]

    def _type(self, kind: DataType, variant: VariantForm, column: str) -> str:
        if isinstance(kind, DecimalType):
            return f"DECIMAL({kind.precision},{kind.scale})"
        if isinstance(kind, ArrayType):
            return f"{self._type(kind.element, variant, column)}[]"
        if isinstance(kind, MapType):
            inner = (self._type(part, variant, column) for part in (kind.key, kind.value))
            return f"MAP({', '.join(inner)})"
        if isinstance(kind, StructType):
            if not kind.fields:
                raise self._no_type(kind, column)
            fields = (f"{quoted(f.name)} {self._type(f.type, variant, column)}" for f in kind)
            return f"STRUCT({', '.join(fields)})"
        if isinstance(kind, UnknownType):
            raise kind.error()
        name = kind.name if isinstance(kind, PrimitiveType) else ""
        if name == "variant":
            return "VARCHAR" if variant == "json" else 'STRUCT(metadata BLOB, "value" BLOB)'
        if name not in _TYPES:
            raise self._no_type(kind, column)
        return _TYPES[name]

    def _no_type(self, kind: DataType, column: str) -> UnsupportedTypeError:
        return UnsupportedTypeError(
            f"{self.target}: DuckDB has no type for the column {column!r}, which is {kind}; leave it out with "
            "columns=[...] of the poller",
            type_name=str(kind),
        )

    def _shown(self, types: Sequence[str]) -> list[str]:
        # DuckDB's text of a type; its quotes depend on the release.
        return [str(self._run(f"SELECT typeof(CAST(NULL AS {kind}))")[0][0]) for kind in types]

    def _insert(self, into: str, rows: pa.Table, names: Sequence[str]) -> None:
        self._connection.register(_CHUNK, rows)
        try:
            columns = ", ".join(map(quoted, names))
            given = ", ".join(map(quoted, rows.column_names))
            self._run(f"INSERT INTO {into} ({columns}) SELECT {given} FROM {_CHUNK}")
        finally:
            self._connection.unregister(_CHUNK)

    def _stage(self, name: str, rows: pa.Table) -> None:
        self._connection.register(name, rows)

    def _unstage(self, name: str) -> None:
        self._connection.unregister(name)

    def _count_deleted(self, statement: str) -> int:
        return int(self._run(statement)[0][0])
