"""`SqlSink`, the base class of sinks in SQL databases: each batch is one transaction.

The table `_delta_sharing_sinks` has the last stored version of each poller for each target.
"""

from __future__ import annotations

import string
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from delta_sharing_client.errors import SinkError, SinkKeyError
from delta_sharing_client.model.schema import DataType, StructType
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.sinks.base import Incoming, Mode, Sink, WriteResult, check_beginning, check_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.sinks.keys import NetChanges

#: The table of stored versions.
BOOKKEEPING: Final = "_delta_sharing_sinks"
#: The poller id of the row that marks targets created by a sink.
_CREATED: Final = ""
_TOUCHED: Final = "_delta_sharing_touched"
_NEW: Final = "_delta_sharing_new"
_LOWER: Final = str.maketrans(string.ascii_uppercase, string.ascii_lowercase)


def quoted(name: str) -> str:
    """Return a quoted name."""
    return '"' + name.replace('"', '""') + '"'


class SqlSink(Sink):
    """A sink in a database with transactions.

    Args:
        table: the table; created if missing.
        mode: ``append`` adds the rows of each batch; ``apply`` keeps the table equal to the shared one.
        keys: the key columns, for ``apply``.
        change_columns: whether ``append`` stores `_change_type`, `_commit_version` and `_commit_timestamp` too.
        add_columns: whether new columns of a batch are added to the table.
    """

    def __init__(
        self, table: str, *, mode: Mode, keys: Iterable[str], change_columns: bool, add_columns: bool
    ) -> None:
        super().__init__(mode, keys, change_columns=change_columns, add_columns=add_columns)
        if not isinstance(table, str) or not table or "\x00" in table:
            raise ValueError(f"table is {table!r}; it takes a name")
        if table.lower() == BOOKKEEPING:
            raise ValueError(f"the table {BOOKKEEPING} is for what sinks note down")
        self.table = table
        # Names of tables ignore case, that of the letters A to Z.
        self._folded = table.translate(_LOWER)

    # -- methods of each database

    @abstractmethod
    def _run(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement, return its rows."""

    @abstractmethod
    def _begin(self) -> None:
        """Begin a transaction that may write."""

    @abstractmethod
    def _failed(self, error: Exception) -> SinkError | None:
        """Return the `SinkError` for an error of the database; None for other errors."""

    @abstractmethod
    def _name(self, table: str) -> str:
        """Return a table's quoted name."""

    @abstractmethod
    def _columns(self) -> list[tuple[str, str]]:
        """Return the target's columns with their types; an empty list if the table does not exist."""

    @abstractmethod
    def _type(self, kind: DataType, variant: VariantForm, column: str) -> str:
        """Return the type of a column; raise `UnsupportedTypeError` if there is none."""

    @abstractmethod
    def _insert(self, into: str, rows: pa.Table, names: Sequence[str]) -> None:
        """Insert rows into a table; `names` are its columns in the order of the rows."""

    @abstractmethod
    def _stage(self, name: str, rows: pa.Table) -> None:
        """Create a temporary table of rows."""

    @abstractmethod
    def _count_deleted(self, statement: str) -> int:
        """Run a DELETE statement; return the number of deleted rows."""

    @abstractmethod
    def _unstage(self, name: str) -> None:
        """Drop a temporary table."""

    def _shown(self, types: Sequence[str]) -> list[str]:
        """Return types in the form of `_columns`."""
        return list(types)

    def _key_clause(self, keys: Sequence[str]) -> str:
        """Return the key constraint of a new table."""
        return ""

    # -- common methods

    def last_version(self, poller_id: str) -> int | None:
        """Return the last stored version of a poller; None if there is none.

        Raises:
            SinkError: the database cannot be read.
        """
        with self._transaction():
            self._create_bookkeeping()
            return self._stored_version(poller_id)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit at the end, or roll back."""
        with self._errors():
            self._begin()
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
        except Exception as error:
            ours = self._failed(error)
            if ours is None:
                raise
            raise ours from None

    def _write(self, incoming: Incoming) -> WriteResult:
        with self._transaction():
            self._create_bookkeeping()
            stored = self._stored_version(incoming.poller_id)
            after = -1 if stored is None else stored
            if after >= incoming.last_version:
                return WriteResult(version=after, skipped=True)
            replaces = self.mode == "apply" and incoming.is_snapshot
            deleted = self._count_rows() if replaces and self._columns() else 0
            names = self._fit(incoming, known=stored is not None, replaces=replaces)
            if self.mode == "append":
                inserted = self._append(incoming.rows(after), names)
            elif replaces:
                inserted = self._append(self._checked(incoming, after), names)
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
            [self._folded, poller_id],
        )
        return None if found[0][0] is None else int(found[0][0])

    def _set_version(self, poller_id: str, version: int) -> None:
        books = self._name(BOOKKEEPING)
        self._run(f"DELETE FROM {books} WHERE target = ? AND poller_id = ?", [self._folded, poller_id])
        self._run(f"INSERT INTO {books} VALUES (?, ?, ?)", [self._folded, poller_id, version])

    # -- the table

    def _fit(self, incoming: Incoming, *, known: bool, replaces: bool) -> dict[str, str]:
        """Create the target or add columns to it; return its names of the batch's columns."""
        types = [self._type(field.type, incoming.variant, field.name) for field in incoming.schema]
        held = self._columns()
        if not held:
            if known:
                raise SinkError(
                    "the table does not exist, and rows of this poller were stored in it. Restore it, or "
                    f"start over: delete the poller's checkpoint, and the rows of {BOOKKEEPING} for this table",
                    target=self.target,
                )
            check_beginning(incoming, self)
            return self._create(incoming, types)
        if replaces and not self._is_created_by_sink() and self._count_rows():
            raise SinkError(
                "it has rows, and a sink did not create it: a snapshot would replace the rows. Empty the table "
                "first, or give the sink its own table",
                target=self.target,
            )
        try:
            names, new = check_columns(incoming.schema, held, self._shown(types), self)
        except SinkError:
            if not replaces or not self._is_created_by_sink():
                raise
            self._run(f"DROP TABLE {self._name(self.table)}")
            return self._create(incoming, types)
        if replaces:
            self._run(f"DELETE FROM {self._name(self.table)}")
        lost = [key for key in incoming.keys if key in new]
        if lost and not replaces:
            raise SinkKeyError(
                f"it lacks the key columns {', '.join(map(repr, lost))}", target=self.target, columns=lost
            )
        by_name = dict(zip(incoming.schema.names, types, strict=True))
        for name in new:
            self._run(f"ALTER TABLE {self._name(self.table)} ADD COLUMN {quoted(name)} {by_name[name]}")
            names[name] = name
        return names

    def _create(self, incoming: Incoming, types: Sequence[str]) -> dict[str, str]:
        schema: StructType = incoming.schema
        if not schema.fields:
            raise SinkError("the batch has no columns, and a table needs one", target=self.target)
        columns = [f"{quoted(name)} {kind}" for name, kind in zip(schema.names, types, strict=True)]
        text = ", ".join([*columns, *filter(None, [self._key_clause(incoming.keys)])])
        self._run(f"CREATE TABLE {self._name(self.table)} ({text})")
        # Versions of a dropped table of this name do not apply.
        self._run(f"DELETE FROM {self._name(BOOKKEEPING)} WHERE target = ?", [self._folded])
        self._set_version(_CREATED, -1)
        return {name: name for name in schema.names}

    def _is_created_by_sink(self) -> bool:
        return self._stored_version(_CREATED) is not None

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

    def _checked(self, incoming: Incoming, after: int) -> Iterator[pa.Table]:
        """Yield a snapshot's rows, and check at the end that their keys are unique."""
        import pyarrow as pa

        from delta_sharing_client.sinks.keys import check_no_nulls, check_unique

        keys: list[pa.Table] = []
        for chunk in incoming.rows(after):
            check_no_nulls(chunk, incoming.keys, self.target)
            keys.append(chunk.select(list(incoming.keys)))
            check_unique(keys[-1], self.target)
            yield chunk
        if keys:
            check_unique(pa.concat_tables(keys), self.target)

    def _delete_touched(self, net: NetChanges, names: dict[str, str]) -> int:
        """Delete the rows of changed keys, after a check that the target has no inserted key."""
        if not net.touched.num_rows:
            return 0
        table = self._name(self.table)
        held = [quoted(names[key]) for key in net.touched.column_names]
        staged = [quoted(key) for key in net.touched.column_names]
        self._stage(_TOUCHED, net.touched)
        try:
            if net.new.num_rows:
                self._stage(_NEW, net.new)
                try:
                    self._refuse_present(table, held, staged)
                finally:
                    self._unstage(_NEW)
            return self._count_deleted(
                f"DELETE FROM {table} WHERE ({', '.join(held)}) IN "
                f"(SELECT {', '.join(staged)} FROM {quoted(_TOUCHED)})"
            )
        finally:
            self._unstage(_TOUCHED)

    def _refuse_present(self, table: str, held: Sequence[str], staged: Sequence[str]) -> None:
        shown = ", ".join(f"CAST({name} AS VARCHAR)" for name in held)
        found = self._run(
            f"SELECT {shown} FROM {table} WHERE ({', '.join(held)}) IN "
            f"(SELECT {', '.join(staged)} FROM {quoted(_NEW)}) LIMIT 1"
        )
        if found:
            names = [name.strip('"') for name in held]
            key = ", ".join(f"{name}={str(value)[:100]}" for name, value in zip(names, found[0], strict=True))
            raise SinkKeyError(
                f"a row with the key ({key}) is inserted, and there is one: {', '.join(names)} do not tell the "
                "rows of the shared table apart, or the target holds rows that are not the poller's",
                target=self.target,
                columns=names,
            )
