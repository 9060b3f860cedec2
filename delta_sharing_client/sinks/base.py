"""`Sink`, the base class of all sinks, and `Incoming`, the rows of a batch to store."""

from __future__ import annotations

import html
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from delta_sharing_client.errors import SinkError, SinkKeyError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.representation import representation

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_sharing_client.cdf.batch import ChangeBatch
    from delta_sharing_client.parquet.tasks import VariantForm
    from delta_sharing_client.sinks.keys import NetChanges

#: ``append`` stores the rows of each batch; ``apply`` makes its changes to a copy of the shared table.
Mode: TypeAlias = Literal["append", "apply"]

_CHANGE_TYPE: Final = "_change_type"
_VERSION: Final = "_commit_version"
_CHANGE_COLUMNS: Final = (_CHANGE_TYPE, _VERSION, "_commit_timestamp")
#: Maximum size of the tables that rows are written in.
_CHUNK_BYTES: Final = 64 * 1024 * 1024
_CHUNK_ROWS: Final = 250_000


@dataclass(frozen=True, kw_only=True)
class WriteResult:
    """The result of writing a batch.

    Attributes:
        version: the last version of this poller in the sink.
        skipped: whether the sink had the whole batch already and wrote nothing.
        inserted: rows written; in mode ``apply`` the last state of each changed key.
        deleted: rows deleted from the target; 0 in mode ``append``.
    """

    version: int
    skipped: bool = False
    inserted: int = 0
    deleted: int = 0


class Incoming:
    """The rows of one batch that a sink stores.

    Attributes:
        poller_id: the id of the batch's poller.
        first_version, last_version: the range of versions, inclusive.
        is_snapshot: whether it is the whole table.
        replaces: whether it replaces all rows of the target.
        schema: the columns to store; change columns only if they are stored too.
        variant: the form that variants were read in.
        keys: the key columns, spelled as in `schema`.
    """

    def __init__(self, batch: ChangeBatch, sink: Sink) -> None:
        spec = batch.plan().spec
        self.poller_id = batch.poller_id
        self.first_version = batch.first_version
        self.last_version = batch.last_version
        self.is_snapshot = batch.is_snapshot
        self.replaces = sink.mode == "apply" and batch.is_snapshot
        self.variant: VariantForm = spec.variant
        self._batch = batch
        self._target = sink.target
        self._inserts_only = sink.mode == "append" and not sink.change_columns
        kept = [field for field in spec.output if sink.change_columns or field.name not in _CHANGE_COLUMNS]
        self.schema = StructType(tuple(kept))
        self.keys: tuple[str, ...] = ()
        if sink.keys:
            from delta_sharing_client.sinks.keys import key_columns

            self.keys = key_columns(self.schema, sink.keys, sink.target)

    def chunks(self, after: int) -> Iterator[pa.Table]:
        """Yield the rows of versions after `after` in order, with all columns, as tables of bounded size."""
        import pyarrow as pa

        held: list[pa.RecordBatch] = []
        rows = size = 0
        for batch in self._batch.to_record_batch_reader():
            new = self._new(batch, after)
            if new.num_rows == 0:
                continue
            held.append(new)
            rows, size = rows + new.num_rows, size + new.nbytes
            if rows >= _CHUNK_ROWS or size >= _CHUNK_BYTES:
                yield pa.Table.from_batches(held)
                held, rows, size = [], 0, 0
        if held:
            yield pa.Table.from_batches(held)

    def rows(self, after: int) -> Iterator[pa.Table]:
        """Yield the same rows with only the columns to store.

        Raises:
            SinkKeyError: a key of a snapshot that replaces the rows is null or not unique.
        """
        import pyarrow as pa

        from delta_sharing_client.sinks.keys import check_no_nulls, check_unique

        keys: list[pa.Table] = []
        for chunk in self.chunks(after):
            if self.replaces:
                check_no_nulls(chunk, self.keys, self._target)
                keys.append(chunk.select(list(self.keys)))
            yield chunk.select(self.schema.names)
        if keys:
            check_unique(pa.concat_tables(keys), self._target)

    def net(self, after: int) -> NetChanges:
        """Return the net change per key; all changes are held in memory."""
        import pyarrow as pa

        from delta_sharing_client.sinks.keys import net_changes

        chunks = list(self.chunks(after))
        changes = pa.concat_tables(chunks) if chunks else self._batch.schema.empty_table()
        return net_changes(changes, self.keys, self.schema.names, self._target)

    def _new(self, batch: pa.RecordBatch, after: int) -> pa.RecordBatch:
        """Return the rows after a version; after a damaged checkpoint, a batch may have stored ones."""
        import pyarrow.compute as pc

        if self._batch.first_version <= after:
            batch = batch.filter(pc.greater(batch.column(_VERSION), after))
        if self._inserts_only:
            other = batch.filter(pc.not_equal(batch.column(_CHANGE_TYPE), "insert"))
            if other.num_rows:
                kind, version = other.column(_CHANGE_TYPE)[0].as_py(), other.column(_VERSION)[0].as_py()
                raise SinkError(
                    f"version {version} has a row with the change type {kind!r}, and only inserts can be appended "
                    "without the change columns; use change_columns=True, or mode='apply' with keys",
                    target=self._target,
                )
        return batch


class Sink(ABC):
    """Stores the batches of a poller, each exactly once.

    Write a batch, then commit it::

        sink.write(batch)
        batch.commit()

    If the process ends between the two calls, the poller returns the batch again, and `write` skips it. This
    requires a poller with a checkpoint. A sink is not thread-safe.

    Attributes:
        mode: ``append`` or ``apply``.
        keys: the key columns (``apply``).
        change_columns: whether ``append`` stores the three change columns too.
        add_columns: whether new columns of a batch are added to the target.
    """

    def __init__(
        self, mode: Mode, keys: Iterable[str], *, change_columns: bool = True, add_columns: bool = True
    ) -> None:
        if mode not in ("append", "apply"):
            raise ValueError(f"mode is {mode!r}; it takes 'append' or 'apply'")
        if isinstance(keys, str | bytes):
            raise TypeError(f"keys takes a list of names; for one column write [{keys!r}]")
        if isinstance(keys, Set):
            raise TypeError("keys takes a list of names: a set has no order")
        names = tuple(keys)
        if not all(isinstance(name, str) for name in names):
            raise TypeError("keys takes names of columns")
        if (mode == "apply") != bool(names):
            raise ValueError("mode='apply' needs keys, the columns that identify a row; mode='append' takes none")
        if len({name.lower() for name in names}) != len(names):
            raise ValueError(f"keys names a column twice: {', '.join(names)}")
        self.mode = mode
        self.keys = names
        self.change_columns = change_columns and mode == "append"
        self.add_columns = add_columns

    def write(self, batch: ChangeBatch) -> WriteResult:
        """Store a batch durably in one transaction, unless it is stored already. Commit the batch afterwards.

        In mode ``apply`` a snapshot replaces all rows of the target. Changes are applied in the order of their
        versions; within a version, deletions first.

        Args:
            batch: a batch of a poller; batches of one poller must be written in order.

        Returns:
            The result.

        Raises:
            TypeError: `batch` is no batch of a poller.
            SinkError: the batch does not fit the target, or the target cannot be written.
            SinkKeyError: a key is null or not unique (``apply``).
            DeltaLogError: the Delta table cannot be written.
            UnsupportedFeatureError: the Delta table requires a feature of its writers that is not supported.
            UnsupportedTypeError: the target has no type for a column.
            DeltaSharingError: the batch cannot be read.
        """
        from delta_sharing_client.cdf.batch import ChangeBatch

        if not isinstance(batch, ChangeBatch):
            raise TypeError(f"a sink takes the batches of a poller, not {type(batch).__name__}")
        return self._write(Incoming(batch, self))

    @property
    @abstractmethod
    def target(self) -> str:
        """A description of the target, for messages."""

    @abstractmethod
    def last_version(self, poller_id: str) -> int | None:
        """Return the last stored version of a poller; None if there is none."""

    @abstractmethod
    def _write(self, incoming: Incoming) -> WriteResult:
        """Store a batch, unless it is stored already."""

    def close(self) -> None:
        """Close what the sink opened."""
        return

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @representation
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.target!r}, {self._settings()})"

    @representation
    def _repr_html_(self) -> str:
        settings = html.escape(self._settings(), quote=False)
        return f"<code>{type(self).__name__}</code> <b>{html.escape(self.target)}</b> {settings}"

    def _settings(self) -> str:
        keys = f", keys={list(self.keys)!r}" if self.keys else ""
        return f"mode={self.mode!r}{keys}"


def check_beginning(incoming: Incoming, sink: Sink) -> None:
    """Raise `SinkError` if a batch of changes cannot be the first one of a new target (``apply``)."""
    if sink.mode == "apply" and not incoming.is_snapshot and incoming.first_version > 0:
        raise SinkError(
            f"there is no table for mode='apply' yet, and the batch begins at version {incoming.first_version}: "
            "earlier rows would be missing. Use a new poller with its own checkpoint that starts with "
            "starting_version='snapshot'",
            target=sink.target,
        )


def fit_columns(
    incoming: Incoming,
    sink: Sink,
    types: Sequence[str],
    held: Sequence[tuple[str, str]],
    *,
    is_own: bool,
    has_rows: Callable[[], bool],
) -> tuple[dict[str, str], list[str]] | None:
    """Compare a batch's columns with those of a target; names ignore case.

    Args:
        incoming: the batch.
        sink: the sink.
        types: the types of the batch's columns, in the form of `held`.
        held: the target's columns with their types.
        is_own: whether a sink created the target; a snapshot may then replace its rows and columns.
        has_rows: returns whether the target has rows.

    Returns:
        The target's names of the batch's columns, and the columns that the target lacks; None if the target must
        be created again.

    Raises:
        SinkError: a type differs, one side lacks required columns, or a snapshot would replace rows of others.
        SinkKeyError: the target has rows and lacks a key column.
    """
    if incoming.replaces and not is_own and has_rows():
        raise SinkError(
            "it has rows, and no sink created it for mode='apply': a snapshot would replace the rows. Empty the "
            "table first, or give the sink its own table",
            target=sink.target,
        )
    try:
        names, new = _matched(incoming.schema, types, held, sink)
    except SinkError:
        if not incoming.replaces or not is_own:
            raise
        return None
    lost = [key for key in incoming.keys if key in new]
    if lost and not incoming.replaces and has_rows():
        raise SinkKeyError(
            f"it lacks the key columns {', '.join(map(repr, lost))}, and has rows",
            target=sink.target,
            columns=lost,
        )
    return names, new


def _matched(
    schema: StructType, types: Sequence[str], held: Sequence[tuple[str, str]], sink: Sink
) -> tuple[dict[str, str], list[str]]:
    rest = {name.lower(): (name, kind) for name, kind in held}
    names: dict[str, str] = {}
    new: list[str] = []
    for field, kind in zip(schema, types, strict=True):
        found = rest.pop(field.name.lower(), None)
        if found is None:
            new.append(field.name)
        elif found[1] != kind:
            raise SinkError(
                f"the column {found[0]!r} is {found[1]}, and the batch has {kind}; change the column, or leave it "
                "out of the batch with columns=[...] of the poller",
                target=sink.target,
                columns=[found[0]],
            )
        else:
            names[field.name] = found[0]
    _check_names(new, [name for name, _ in rest.values()], bool(held), sink)
    return names, new


def _check_names(new: Sequence[str], lost: Sequence[str], exists: bool, sink: Sink) -> None:
    """Raise `SinkError` if the target may not lack `new` columns, or the batch `lost` ones."""
    if sink.mode == "append" and exists and _CHANGE_TYPE in new:
        raise SinkError(
            f"it has no column {_CHANGE_TYPE!r}, which mode='append' requires to store changes: use mode='apply' "
            "if the table was written with it; else name another table, or use change_columns=False to store the "
            "rows alone",
            target=sink.target,
            columns=[_CHANGE_TYPE],
        )
    if sink.mode == "apply" and _CHANGE_TYPE in [name.lower() for name in lost]:
        raise SinkError(
            "it was written with mode='append' and has changes, not rows: for mode='apply' name another table, "
            "and use a new poller that starts with starting_version='snapshot'",
            target=sink.target,
            columns=[_CHANGE_TYPE],
        )
    if new and not sink.add_columns:
        raise SinkError(
            f"it lacks the columns {', '.join(map(repr, new))}; add them, or use add_columns=True",
            target=sink.target,
            columns=new,
        )
    if sink.mode == "apply" and lost:
        raise SinkError(
            f"the batch lacks the columns {', '.join(map(repr, lost))}, so that mode='apply' cannot fill them; "
            "drop them in the target, or request them with columns=[...] of the poller",
            target=sink.target,
            columns=lost,
        )
