"""`Sink`, the base class of all sinks, and the comparison of a batch with its target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from delta_sharing_client.errors import SinkError, SinkKeyError
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.representation import representation
from delta_sharing_client.sinks.incoming import CHANGE_TYPE, Incoming
from delta_sharing_client.tracebacks import public_class
from delta_sharing_client.views import html_view

if TYPE_CHECKING:
    from delta_sharing_client.cdf.batch import ChangeBatch

#: ``append`` stores the rows of each batch; ``apply`` makes its changes to a copy of the shared table.
Mode: TypeAlias = Literal["append", "apply"]


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


@public_class
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
            SinkKeyColumnError: a key column is unknown, or of a type that is no key.
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
        return html_view(self, self.target, {"mode": self.mode, "keys": ", ".join(self.keys)})

    def _settings(self) -> str:
        keys = f", keys={list(self.keys)!r}" if self.keys else ""
        return f"mode={self.mode!r}{keys}"


def check_beginning(incoming: Incoming, sink: Sink) -> None:
    """Raise `SinkError` if a batch cannot be the first one of a new target."""
    if sink.mode == "apply" and not incoming.is_snapshot and incoming.first_version > 0:
        raise SinkError(
            f"there is no table for mode='apply' yet, and the batch begins at version {incoming.first_version}: "
            "earlier rows would be missing. Use a new poller with its own checkpoint that starts with "
            "starting_version='snapshot'",
            target=sink.target,
        )
    if incoming.continues:
        raise missing_batches(sink.target)


def missing_batches(target: str) -> SinkError:
    """Return the error for a target without the batches before."""
    return SinkError(
        "it has no batch of this poller, and earlier batches were committed: their rows would be missing. Restore "
        "the target; or start over: delete the poller's checkpoint; or poll with rebind=True, to go on without "
        "them",
        target=target,
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
    """Compare a batch's columns, of the given types, with those of a target; names ignore case.

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
    if sink.mode == "append" and exists and CHANGE_TYPE in new:
        raise SinkError(
            f"it has no column {CHANGE_TYPE!r}, which mode='append' requires to store changes: use mode='apply' "
            "if the table was written with it; else name another table, or use change_columns=False to store the "
            "rows alone",
            target=sink.target,
            columns=[CHANGE_TYPE],
        )
    if sink.mode == "apply" and CHANGE_TYPE in [name.lower() for name in lost]:
        raise SinkError(
            "it was written with mode='append' and has changes, not rows: for mode='apply' name another table, "
            "and use a new poller that starts with starting_version='snapshot'",
            target=sink.target,
            columns=[CHANGE_TYPE],
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
