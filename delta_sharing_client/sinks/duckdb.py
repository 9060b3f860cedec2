"""`DuckDBSink`: batches stored in a DuckDB table, in one transaction with the poller's version."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import MissingDependencyError, UnsupportedTypeError
from delta_sharing_client.sinks.base import Mode
from delta_sharing_client.sinks.incoming import Incoming
from delta_sharing_client.sinks.sql import SqlSink, quoted
from delta_sharing_client.tracebacks import public_class

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

#: Texts of Arrow types without a type of DuckDB: null, and structs without fields.
_NO_TYPE: Final = re.compile(r"(?<!not )\bnull(?=[>,]|$)|struct<>")
#: A prefix of a database's name, as in `md:sales`, for which DuckDB loads an extension.
_SERVICE: Final = re.compile(r"\w{2,}:(?![:/\\])")
_CHUNK: Final = "_delta_sharing_chunk"


@public_class
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

    _product = "DuckDB"
    _begin = "BEGIN TRANSACTION"

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
        super().__init__(table, schema, mode, keys, change_columns, add_columns)
        try:
            import duckdb
        except ImportError:
            raise MissingDependencyError(package="duckdb", extra="duckdb", purpose="DuckDBSink") from None
        self._error = duckdb.Error
        if isinstance(database, duckdb.DuckDBPyConnection):
            self._connection = database
        else:
            if isinstance(database, str | os.PathLike) and (service := _SERVICE.match(str(database))):
                raise ValueError(
                    f"database has the prefix {service[0]}, which names an extension of DuckDB; it takes a "
                    "database file of this machine, or a connection from duckdb.connect"
                )
            self._open(database, duckdb.connect)

    @property
    def target(self) -> str:
        """A description of the target, for messages."""
        return f"DuckDB table {self._schema}.{self.table}"

    def _create_bookkeeping(self) -> None:
        self._run(f"CREATE SCHEMA IF NOT EXISTS {quoted(self._schema)}")
        super()._create_bookkeeping()

    def _has_file(self) -> bool:
        # DuckDB opens a file of another format, such as Parquet, as a view in a database in memory.
        found = self._run("SELECT path FROM duckdb_databases() WHERE database_name = current_database()")
        return bool(found[0][0])

    def _columns(self) -> list[tuple[str, str]]:
        found = self._run(
            "SELECT column_name, data_type FROM duckdb_columns() WHERE database_name = current_database() "
            "AND lower(schema_name) = lower(?) AND lower(table_name) = lower(?) ORDER BY column_index",
            self._schema,
            self.table,
        )
        return [(name, kind) for name, kind in found]

    def _types(self, incoming: Incoming) -> list[str]:
        rows = incoming.no_rows()
        for field in rows.schema:
            if _NO_TYPE.search(str(field.type)):
                raise UnsupportedTypeError(
                    f"{self.target}: DuckDB has no type for the column {field.name!r}, which is {field.type}; "
                    "leave it out with columns=[...] of the poller",
                    type_name=str(field.type),
                )
        with self._staged(_CHUNK, rows):
            return [row[1] for row in self._run(f"DESCRIBE SELECT * FROM {_CHUNK}")]

    def _insert(self, into: str, rows: pa.Table, names: Sequence[str]) -> None:
        columns, given = (", ".join(map(quoted, part)) for part in (names, rows.column_names))
        with self._staged(_CHUNK, rows):
            self._run(f"INSERT INTO {into} ({columns}) SELECT {given} FROM {_CHUNK}")

    @contextmanager
    def _staged(self, name: str, rows: pa.Table) -> Iterator[None]:
        self._connection.register(name, rows)
        try:
            yield
        finally:
            self._connection.unregister(name)

    def _count_deleted(self, statement: str) -> int:
        return int(self._run(statement)[0][0])
