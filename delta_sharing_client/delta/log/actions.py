"""The actions of a Delta log, as frozen views of the JSON objects they were read from.

Serves "Actions" of the Delta transaction protocol. A view checks the fields that replay needs when it is
made; everything else stays in `raw` as the writer wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, TypeAlias

from delta_sharing_client.delta.log.paths import canonical_uri, deletion_vector_path
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.numbers import MAX_INTEGER

FileKey: TypeAlias = tuple[str, str]
"""What replay tells files apart by: the path, and the deletion vector's unique id (or "").

A relative path is taken as written, an absolute one in the one form that stands for all its spellings."""

#: The `schemaString` of a table without columns.
_NO_COLUMNS: Final = '{"type":"struct","fields":[]}'


@dataclass(frozen=True, kw_only=True)
class DeletionVector:
    """Where the deleted rows of a file are listed ("Deletion Vector Descriptor Schema").

    Attributes:
        raw: the descriptor as written.
    """

    raw: Mapping[str, Any]

    @property
    def storage_type(self) -> str:
        """`u` for a file named by a UUID, `p` for an absolute path, `i` for inline."""
        return str(self.raw["storageType"])

    @property
    def path_or_inline(self) -> str:
        """The encoded UUID, the path, or the inline vector."""
        return str(self.raw["pathOrInlineDv"])

    @property
    def offset(self) -> int | None:
        """Where the vector begins in its file, in bytes; None for an inline vector."""
        offset = self.raw.get("offset")
        return None if offset is None else int(offset)

    @property
    def cardinality(self) -> int:
        """How many rows the vector deletes."""
        return int(self.raw["cardinality"])

    @property
    def unique_id(self) -> str:
        """The id that replay tells vectors of one file apart by."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline}{suffix}"

    def resolve(self, table: Path) -> Path | None:
        """Return the local file that holds the vector, or None for an inline vector.

        Args:
            table: the table's directory.

        Raises:
            DeltaLogError: the descriptor is malformed or names another file system.
        """
        return deletion_vector_path(table, self.storage_type, self.path_or_inline)


@dataclass(frozen=True, kw_only=True)
class _FileAction:
    raw: Mapping[str, Any]

    @property
    def path(self) -> str:
        """The path as written: a URI, relative to the table's directory or absolute."""
        return str(self.raw["path"])

    @property
    def partition_values(self) -> dict[str, str | None]:
        """Partition values as text, by physical column name; empty where the writer left them out."""
        return dict(self.raw.get("partitionValues") or {})

    @property
    def size(self) -> int | None:
        """The file's size in bytes, where the writer said it."""
        size = self.raw.get("size")
        return None if size is None else int(size)

    @property
    def data_change(self) -> bool:
        """False where the action only rearranges rows that the table holds anyway."""
        return bool(self.raw.get("dataChange", True))


@dataclass(frozen=True, kw_only=True)
class _TableFile(_FileAction):
    @cached_property
    def deletion_vector(self) -> DeletionVector | None:
        """The file's deletion vector, where it has one."""
        raw = self.raw.get("deletionVector")
        return None if raw is None else DeletionVector(raw=raw)

    @property
    def key(self) -> FileKey:
        """What replay tells files apart by."""
        path = canonical_uri(self.path)
        if self.raw.get("deletionVector") is None:
            return (path, "")
        vector = self.deletion_vector
        return (path, "" if vector is None else vector.unique_id)


@dataclass(frozen=True, kw_only=True)
class AddFile(_TableFile):
    """A data file that is part of the table."""

    @property
    def modification_time(self) -> int:
        """When the file was made, in milliseconds since the epoch."""
        return int(self.raw.get("modificationTime") or 0)

    @property
    def stats(self) -> str | None:
        """The statistics of the file as JSON text, where the writer kept them."""
        stats = self.raw.get("stats")
        return None if stats is None else str(stats)


@dataclass(frozen=True, kw_only=True)
class RemoveFile(_TableFile):
    """A data file that is no longer part of the table."""


@dataclass(frozen=True, kw_only=True)
class CdcFile(_FileAction):
    """A file of changed rows ("Add CDC File")."""


@dataclass(frozen=True, kw_only=True)
class Metadata:
    """The table's metadata ("Change Metadata").

    Attributes:
        raw: the action as written.
    """

    raw: Mapping[str, Any]

    @property
    def id(self) -> str:
        """The table's id."""
        return str(self.raw["id"])

    @property
    def schema_string(self) -> str:
        """The table's schema as JSON text; one without columns where the writer left it out, as Spark may."""
        return str(self.raw.get("schemaString") or _NO_COLUMNS)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The names of the partition columns."""
        return tuple(self.raw.get("partitionColumns") or ())

    @property
    def configuration(self) -> dict[str, str]:
        """The table's properties."""
        return dict(self.raw.get("configuration") or {})


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """What a reader and a writer must be able to do ("Protocol Evolution").

    Attributes:
        raw: the action as written.
    """

    raw: Mapping[str, Any]

    @property
    def min_reader_version(self) -> int:
        """The reader version needed."""
        return int(self.raw["minReaderVersion"])

    @property
    def min_writer_version(self) -> int:
        """The writer version needed."""
        return int(self.raw.get("minWriterVersion", 1))

    @property
    def reader_features(self) -> tuple[str, ...]:
        """The reader features listed, sorted; empty below reader version 3."""
        return tuple(sorted(self.raw.get("readerFeatures") or ()))

    @property
    def writer_features(self) -> tuple[str, ...]:
        """The writer features listed, sorted; empty below writer version 7."""
        return tuple(sorted(self.raw.get("writerFeatures") or ()))


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """How far an application has come in writing to the table ("Transaction Identifiers").

    Attributes:
        raw: the action as written.
    """

    raw: Mapping[str, Any]

    @property
    def app_id(self) -> str:
        """The application's id."""
        return str(self.raw["appId"])

    @property
    def version(self) -> int:
        """The application's own version."""
        return int(self.raw["version"])


@dataclass(frozen=True, kw_only=True)
class OtherAction:
    """An action that a snapshot's files do not depend on, such as `commitInfo` or `domainMetadata`.

    Attributes:
        name: the action's name in the log.
        raw: the action as written.
    """

    name: str
    raw: Mapping[str, Any]


Action: TypeAlias = AddFile | RemoveFile | CdcFile | Metadata | Protocol | Transaction | OtherAction

_REQUIRED: dict[str, tuple[str, ...]] = {
    "add": ("path",),
    "remove": ("path",),
    "cdc": ("path",),
    "metaData": ("id",),
    "protocol": ("minReaderVersion",),
    "txn": ("appId", "version"),
}
#: Fields that are integers of 64 bits.
_INTEGERS: dict[str, tuple[str, ...]] = {
    "add": ("size", "modificationTime"),
    "remove": ("size", "deletionTimestamp"),
    "cdc": ("size",),
    "protocol": ("minReaderVersion", "minWriterVersion"),
    "txn": ("version",),
}
_VECTOR_INTEGERS: Final = ("cardinality", "offset", "sizeInBytes")
_TYPES: dict[str, type[AddFile | RemoveFile | CdcFile | Metadata | Protocol | Transaction]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "cdc": CdcFile,
    "metaData": Metadata,
    "protocol": Protocol,
    "txn": Transaction,
}


def make_action(name: str, raw: object, *, where: str) -> Action:
    """Return the typed view of one action.

    Args:
        name: the action's name in the log, such as ``add``.
        raw: the action's JSON value.
        where: the file it stands in, for the error.

    Raises:
        DeltaLogError: the value of an action that replay needs is no object, lacks a field, or has a number that
            is none of 64 bits.
    """
    if not isinstance(raw, dict):
        if name not in _TYPES:
            # Unrecognized actions may be anything, and so may what a commit says of itself.
            return OtherAction(name=name, raw={})
        raise DeltaLogError(f"{where}: the action {name!r} is not a JSON object")
    missing = [field for field in _REQUIRED.get(name, ()) if raw.get(field) is None]
    if missing:
        raise DeltaLogError(f"{where}: the action {name!r} lacks {', '.join(missing)}")
    kind = _TYPES.get(name)
    if kind is None:
        return OtherAction(name=name, raw=raw)
    vector = raw.get("deletionVector") if name in ("add", "remove") else None
    named = vector.keys() if isinstance(vector, dict) else set()
    if vector is not None and not {"storageType", "pathOrInlineDv", "cardinality"} <= named:
        raise DeltaLogError(f"{where}: a deletion vector lacks its type, its place or its cardinality")
    _check_integers(raw, _INTEGERS.get(name, ()), where)
    if vector is not None:
        _check_integers(vector, _VECTOR_INTEGERS, where)
    return kind(raw=raw)


def _check_integers(raw: Mapping[str, Any], names: tuple[str, ...], where: str) -> None:
    for name in names:
        value = raw.get(name)
        if value is None:
            continue
        try:
            number = int(value)
        except (TypeError, ValueError, OverflowError):
            number = None
        if number is None or not -MAX_INTEGER <= number <= MAX_INTEGER:
            raise DeltaLogError(f"{where}: {name!r} is no integer of 64 bits")
