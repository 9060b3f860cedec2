"""Differences between the columns of two versions of a table's metadata.

A new column is null in earlier rows. After any other change (rename, drop, another type), one schema cannot hold
the rows before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.schema import ArrayType, DataType, MapType, StructType
from delta_sharing_client.representation import short_repr

ChangeKind: TypeAlias = Literal["added", "renamed", "dropped", "type"]


@short_repr
@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The change of one column, or of one field within it.

    Attributes:
        kind: the kind of change.
        column: its path, in the names before the change; of a new column, in the names after it.
        top: the name of the top-level column, after the change if it still exists.
        before, after: its name or its type before and after the change; empty otherwise.
    """

    kind: ChangeKind
    column: str
    top: str
    before: str = ""
    after: str = ""

    @property
    def additive(self) -> bool:
        """Whether the rows before the change fit the schema after it."""
        return self.kind == "added"

    def __str__(self) -> str:
        if self.kind == "renamed":
            return f"column {self.column!r} was renamed to {self.after!r}"
        if self.kind == "type":
            return f"column {self.column!r} changed its type from {self.before} to {self.after}"
        return f"column {self.column!r} was {self.kind}"


def column_changes(
    before: Metadata, after: Metadata, modes: tuple[MappingMode, MappingMode]
) -> tuple[ColumnChange, ...]:
    """Return the changes of a table's columns between two versions, in the order of the columns.

    Columns are identified by their physical names. Without column mapping a rename is a drop and an addition.

    Args:
        before: the metadata of one version.
        after: the metadata of a later version.
        modes: the column mapping modes before and after.
    """
    if before.schema_string == after.schema_string and modes[0] == modes[1]:
        return ()
    return tuple(_fields(before.schema, after.schema, modes, "", ""))


def _fields(
    before: StructType, after: StructType, modes: tuple[MappingMode, MappingMode], path: str, top: str
) -> Iterator[ColumnChange]:
    now = {physical_name(f, modes[1]): f for f in after.fields}
    known = set()
    for old in before.fields:
        key = physical_name(old, modes[0])
        known.add(key)
        new = now.get(key)
        where = f"{path}{old.name}"
        column = top or (old.name if new is None else new.name)
        if new is None:
            yield ColumnChange("dropped", where, column)
            continue
        if new.name != old.name:
            yield ColumnChange("renamed", where, column, old.name, new.name)
        yield from _types(old.type, new.type, modes, where, column)
    for key, field in now.items():
        if key not in known:
            yield ColumnChange("added", f"{path}{field.name}", top or field.name)


def _types(
    before: DataType, after: DataType, modes: tuple[MappingMode, MappingMode], path: str, top: str
) -> Iterator[ColumnChange]:
    if isinstance(before, StructType) and isinstance(after, StructType):
        yield from _fields(before, after, modes, f"{path}.", top)
    elif isinstance(before, ArrayType) and isinstance(after, ArrayType):
        yield from _types(before.element, after.element, modes, f"{path}.element", top)
    elif isinstance(before, MapType) and isinstance(after, MapType):
        yield from _types(before.key, after.key, modes, f"{path}.key", top)
        yield from _types(before.value, after.value, modes, f"{path}.value", top)
    elif before != after:
        yield ColumnChange("type", path, top, str(before), str(after))
