"""`SqlSink`, the base class of sinks in SQL databases: each batch is one transaction.

The table `_delta_sharing_sinks` has the last stored version of each poller for each target.
"""

from __future__ import annotations

import os
import string
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Final

from delta_sharing_client.errors import SinkError, SinkKeyError
from delta_sharing_client.paths import local_path
from delta_sharing_client.sinks.base import Mode, Sink, WriteResult, check_beginning, fit_columns, missing_batches
from delta_sharing_client.sinks.incoming import Incoming
from delta_sharing_client.tracebacks import public_class

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.sinks.keys import NetChanges

#: The table of stored versions.
BOOKKEEPING: Final = "_delta_sharing_sinks"
#: The poller id of the row that marks targets created by a sink.
_CREATED: Final = ""
#: The temporary table of keys.
_STAGED: Final = "_delta_sharing_keys"
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def quoted(name: str) -> str:
    """Return a quoted name."""
    return '"' + name.replace('"', '""') + '"'


@public_class
class SqlSink(Sink):
    """A sink in a database with transactions; the arguments are those of the public classes."""

    #: The database's name, for messages.
    _product: ClassVar[str]
    #: The statement that begins a transaction that may write.
    _begin: ClassVar[str]
    #: The base class of the database module's errors.
    _error: type[Exception]
    _connection: Any
    #: Whether the sink opened the connection.
    _owned = False

    def __init__(
        self, table: str, schema: str, mode: Mode, keys: Iterable[str], change_columns: bool, add_columns: bool
    ) -> None:
        super().__init__(mode, keys, change_columns=change_columns, add_columns=add_columns)
        if not isinstance(table, str) or not table or "\x00" in table:
            raise ValueError(f"table is {table!r}; it takes a name")
        if table.lower() == BOOKKEEPING:
            raise ValueError(f"the table {BOOKKEEPING} has the stored versions of sinks; give another name")
        self.table = table
        self._schema = schema
        # Names of tables ignore case, that of the letters A to Z.
        self._folded = table.translate(_LOWER)

    def _open(self, path: str | os.PathLike[str], connect: Callable[[str], Any]) -> None:
        """Open the database in a file."""
        supported = "a database file of this machine, its file: URL, or a connection"
        path = local_path(path, "database", supported=supported)
        try:
            self._connection = connect(os.fspath(path))
        except self._error as error:
            raise SinkError(
                f"the {self._product} database {os.path.realpath(path)} cannot be opened: {error}; give a "
                "database's file, or the path of a new one in a directory that exists",
                target=self.target,
            ) from None
        self._owned = True
        if not self._has_file():
            self.close()
            raise SinkError(
                f"the {self._product} database {os.fspath(path)!r} would be in memory only, and its rows would be "
                "lost; give a database's file, or the path of a new one",
                target=self.target,
            )

    def close(self) -> None:
        """Close the database, unless the caller passed a connection."""
        if self._owned:
            self._connection.close()

    # -- methods of each database

    @abstractmethod
    def _has_file(self) -> bool:
        """Whether the database is stored in a file."""

    @abstractmethod
    def _columns(self) -> list[tuple[str, str]]:
        """Return the target's columns with their types; an empty list if the table does not exist."""

    @abstractmethod
    def _types(self, incoming: Incoming) -> list[str]:
        """Return the types of a batch's columns in the form of `_columns`; raise `UnsupportedTypeError`."""

    @abstractmethod
    def _insert(self, into: str, rows: pa.Table, names: Sequence[str]) -> None:
        """Insert rows into a table; `names` are its columns in the order of the rows."""

    @abstractmethod
    def _staged(self, name: str, rows: pa.Table) -> AbstractContextManager[None]:
        """Return a context in which there is a temporary table of rows."""

    @abstractmethod
    def _count_deleted(self, statement: str) -> int:
        """Run a DELETE statement; return the number of deleted rows."""

    def _key_clause(self, keys: Sequence[str]) -> str:
        """Return the key constraint of a new table."""
        return ""

    def _failed(self, error: Exception) -> SinkError:
        """Return the `SinkError` for an error of the database."""
        return SinkError(f"{self._product} returned an error: {error}", target=self.target)

    # -- common methods

    def last_version(self, poller_id: str) -> int | None:
        """Return the last stored version of a poller; None if there is none; raise `SinkError`."""
        with self._transaction():
            self._create_bookkeeping()
            return self._stored_version(poller_id)

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        done = self._connection.execute(statement, values) if values else self._connection.execute(statement)
        return list(done.fetchall()) if done.description else []

    def _name(self, table: str) -> str:
        return f"{quoted(self._schema)}.{quoted(table)}"

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit at the end, or roll back."""
        with self._errors():
            self._run(self._begin)
        try:
            with self._errors():
                yield
                self._run("COMMIT")
        except BaseException:
            # There may be no transaction after a failed commit.
            with suppress(Exception):
                self._run("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except self._error as error:
            raise self._failed(error) from None

    def _write(self, incoming: Incoming) -> WriteResult:
        with self._transaction():
            self._create_bookkeeping()
            stored = self._stored_version(incoming.poller_id)
            after = -1 if stored is None else stored
            if after >= incoming.last_version:
                return WriteResult(version=after, skipped=True)
            deleted = self._count_rows() if incoming.replaces and self._columns() else 0
            names = self._fit(incoming, known=stored is not None)
            if self.mode == "append" or incoming.replaces:
                inserted = self._append(incoming.rows(after), names)
            else:
                net = incoming.net(after)
                deleted = self._delete_touched(net, names)
                inserted = self._append([net.rows], names)
            self._set_version(incoming.poller_id, incoming.last_version)
        return WriteResult(version=incoming.last_version, inserted=inserted, deleted=deleted)

    # -- stored versions

    def _create_bookkeeping(self) -> None:
        self._run(
            f"CREATE TABLE IF NOT EXISTS {self._name(BOOKKEEPING)} "
            "(target VARCHAR NOT NULL, poller_id VARCHAR NOT NULL, last_version BIGINT NOT NULL)"
        )

    def _stored_version(self, poller_id: str) -> int | None:
        found = self._run(
            f"SELECT max(last_version) FROM {self._name(BOOKKEEPING)} WHERE target = ? AND poller_id = ?",
            self._folded,
            poller_id,
        )
        return None if found[0][0] is None else int(found[0][0])

    def _set_version(self, poller_id: str, version: int) -> None:
        books = self._name(BOOKKEEPING)
        self._run(f"DELETE FROM {books} WHERE target = ? AND poller_id = ?", self._folded, poller_id)
        self._run(f"INSERT INTO {books} VALUES (?, ?, ?)", self._folded, poller_id, version)

    # -- the table

    def _fit(self, incoming: Incoming, *, known: bool) -> dict[str, str]:
        """Create the target or add columns to it; return its names of the batch's columns."""
        types = self._types(incoming)
        held = self._columns()
        table = self._name(self.table)
        if not held:
            if known:
                raise SinkError(
                    "the table does not exist, and rows of this poller were stored in it. Restore it, or "
                    f"start over: delete the poller's checkpoint, and the rows of {BOOKKEEPING} for this table",
                    target=self.target,
                )
            check_beginning(incoming, self)
            return self._create(incoming, types)
        if incoming.continues and not known:
            raise missing_batches(self.target)
        is_own = self._stored_version(_CREATED) is not None
        fit = fit_columns(incoming, self, types, held, is_own=is_own, has_rows=lambda: self._count_rows() > 0)
        if fit is None:
            self._run(f"DROP TABLE {table}")
            return self._create(incoming, types)
        names, new = fit
        if incoming.replaces:
            self._run(f"DELETE FROM {table}")
        for field, kind in zip(incoming.schema, types, strict=True):
            if field.name in new:
                self._run(f"ALTER TABLE {table} ADD COLUMN {quoted(field.name)} {kind}")
        return names | {name: name for name in new}

    def _create(self, incoming: Incoming, types: Sequence[str]) -> dict[str, str]:
        names = incoming.schema.names
        if not names:
            raise SinkError("the batch has no columns, and a table needs one", target=self.target)
        columns = [f"{quoted(name)} {kind}" for name, kind in zip(names, types, strict=True)]
        text = ", ".join([*columns, *filter(None, [self._key_clause(incoming.keys)])])
        self._run(f"CREATE TABLE {self._name(self.table)} ({text})")
        # Versions of a dropped table of this name do not apply.
        self._run(f"DELETE FROM {self._name(BOOKKEEPING)} WHERE target = ?", self._folded)
        self._set_version(_CREATED, -1)
        return {name: name for name in names}

    def _count_rows(self) -> int:
        return int(self._run(f"SELECT count(*) FROM {self._name(self.table)}")[0][0])

    # -- the rows

    def _append(self, tables: Iterable[pa.Table], names: dict[str, str]) -> int:
        rows = 0
        for table in tables:
            if table.num_rows:
                self._insert(self._name(self.table), table, [names[name] for name in table.column_names])
                rows += table.num_rows
        return rows

    def _delete_touched(self, net: NetChanges, names: dict[str, str]) -> int:
        """Delete the rows of changed keys, after a check that the target has no inserted key."""
        keys = net.touched.column_names
        held = [names[key] for key in keys]
        from_table = f"FROM {self._name(self.table)} WHERE ({', '.join(map(quoted, held))}) IN"
        staged = f"(SELECT {', '.join(map(quoted, keys))} FROM {_STAGED})"
        if net.new.num_rows:
            shown = ", ".join(f"CAST({quoted(name)} AS VARCHAR)" for name in held)
            with self._staged(_STAGED, net.new):
                found = self._run(f"SELECT {shown} {from_table} {staged} LIMIT 1")
            if found:
                key = ", ".join(f"{name}={str(value)[:100]}" for name, value in zip(held, found[0], strict=True))
                raise SinkKeyError(
                    f"a row with the key ({key}) is inserted, and there is one: {', '.join(held)} do not identify "
                    "the rows of the shared table, or the target has rows of another source",
                    target=self.target,
                    columns=held,
                )
        if not net.touched.num_rows:
            return 0
        with self._staged(_STAGED, net.touched):
            return self._count_deleted(f"DELETE {from_table} {staged}")
