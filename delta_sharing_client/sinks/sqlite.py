"""`SQLiteSink`: batches stored in a SQLite table, in one transaction with the poller's version."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import SinkError, SinkKeyError, UnsupportedTypeError
from delta_sharing_client.model.schema import GeospatialType, UnknownType
from delta_sharing_client.sinks.base import Mode
from delta_sharing_client.sinks.incoming import Incoming
from delta_sharing_client.sinks.sql import SqlSink, quoted
from delta_sharing_client.tracebacks import public_class

if TYPE_CHECKING:
    import pyarrow as pa

#: Types with a type of SQLite; all others are stored as text.
_TYPES: Final = {
    "long": "INTEGER",
    "integer": "INTEGER",
    "short": "INTEGER",
    "byte": "INTEGER",
    "boolean": "INTEGER",
    "float": "REAL",
    "double": "REAL",
    "binary": "BLOB",
}
_ROWS: Final = 10_000
_WAIT_SECONDS: Final = 60.0


@public_class
class SQLiteSink(SqlSink):
    """Stores batches in a table of a SQLite database; creates a missing table.

    Types that SQLite lacks are stored as exact text: decimals with all digits of their scale, dates and times in
    ISO 8601 (a `timestamp` in UTC, with microseconds and ``+00:00``), structs, arrays and maps as JSON. Booleans
    are 0 and 1. NaN is the text ``NaN``, because SQLite converts it to null.

    Args:
        database: the database's file; or a connection without a transaction, which the sink does not close.
        table: the table's name.
        mode: ``append`` adds the rows of each batch; ``apply`` keeps the table equal to the shared one.
        keys: the key columns, for ``apply``; they are the primary key of a created table.
        change_columns: whether ``append`` stores `_change_type`, `_commit_version` and `_commit_timestamp` too;
            False accepts only batches of inserts.
        add_columns: whether new columns of a batch are added to the table.

    Raises:
        SinkError: the database cannot be opened.
        ValueError, TypeError: the arguments contradict each other.
    """

    _product = "SQLite"
    _begin = "BEGIN IMMEDIATE"
    _error = sqlite3.Error

    def __init__(
        self,
        database: str | os.PathLike[str] | sqlite3.Connection,
        table: str,
        *,
        mode: Mode = "append",
        keys: Iterable[str] = (),
        change_columns: bool = True,
        add_columns: bool = True,
    ) -> None:
        super().__init__(table, "main", mode, keys, change_columns, add_columns)
        if isinstance(database, sqlite3.Connection):
            self._connection = database
        else:
            # The sink controls transactions, not the module.
            self._open(
                database,
                lambda path: sqlite3.connect(path, timeout=_WAIT_SECONDS, isolation_level=None),
            )

    @property
    def target(self) -> str:
        """A description of the target, for messages."""
        return f"SQLite table {self.table}"

    def _failed(self, error: Exception) -> SinkError:
        if isinstance(error, sqlite3.IntegrityError) and self.keys and "UNIQUE" in str(error):
            return SinkKeyError(
                f"two rows have the same key ({error}): {', '.join(self.keys)} do not identify the "
                "rows of the shared table",
                target=self.target,
                columns=self.keys,
            )
        return super()._failed(error)

    def _has_file(self) -> bool:
        return any(file for _, name, file in self._run("PRAGMA database_list") if name == "main")

    def _columns(self) -> list[tuple[str, str]]:
        return [(row[1], row[2].upper()) for row in self._run(f"PRAGMA main.table_info({quoted(self.table)})")]

    def _key_clause(self, keys: Sequence[str]) -> str:
        return f"PRIMARY KEY ({', '.join(map(quoted, keys))})" if keys else ""

    def _types(self, incoming: Incoming) -> list[str]:
        for field in incoming.schema:
            if isinstance(field.type, UnknownType):
                raise field.type.error()
            if str(field.type) == "void":
                raise UnsupportedTypeError(
                    f"{self.target}: the column {field.name!r} is void, which has no type to store; leave it out "
                    "with columns=[...] of the poller",
                    type_name="void",
                )
        kinds = (
            "binary" if isinstance(field.type, GeospatialType) else str(field.type) for field in incoming.schema
        )
        return [_TYPES.get(kind, "TEXT") for kind in kinds]

    def _insert(self, into: str, rows: pa.Table, names: Sequence[str]) -> None:
        from delta_sharing_client.sinks.sqlite_values import sqlite_values

        places = ", ".join("?" * len(names))
        statement = f"INSERT INTO {into} ({', '.join(map(quoted, names))}) VALUES ({places})"
        for batch in rows.to_batches(max_chunksize=_ROWS):
            columns = [
                sqlite_values(batch.column(place), batch.schema.names[place], self.target)
                for place in range(batch.num_columns)
            ]
            self._connection.executemany(statement, zip(*columns, strict=True))

    @contextmanager
    def _staged(self, name: str, rows: pa.Table) -> Iterator[None]:
        held = {column.lower(): kind for column, kind in self._columns()}
        columns = ", ".join(f"{quoted(column)} {held.get(column.lower(), '')}" for column in rows.column_names)
        self._run(f"CREATE TEMP TABLE {quoted(name)} ({columns})")
        try:
            self._insert(f"temp.{quoted(name)}", rows, rows.column_names)
            yield
        finally:
            self._run(f"DROP TABLE temp.{quoted(name)}")

    def _count_deleted(self, statement: str) -> int:
        return int(self._connection.execute(statement).rowcount)
