"""The actions of a Delta log, decoded from the JSON objects of commits and checkpoints.

Serves "Actions" of the Delta transaction protocol. Fields that replay needs are checked when an action is decoded.
Every action keeps its JSON object in `raw`, so that a checkpoint or a commit can write it again, with the fields
that this release does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from delta_sharing_client.delta.log.paths import canonical_uri
from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.actions import DeletionVector, Metadata, Protocol
from delta_sharing_client.model.json_fields import optional_integer

FileKey: TypeAlias = tuple[str, str]
"""The identity of a file in replay: its path, and the unique id of its deletion vector or "".

A relative path is compared as written, an absolute one in the form that `canonical_uri` returns."""


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
        """The file's size in bytes; None if the writer left it out."""
        size = self.raw.get("size")
        return None if size is None else int(size)

    @property
    def data_change(self) -> bool:
        """Whether the action changes rows; False if it only rearranges them."""
        return bool(self.raw.get("dataChange", True))


@dataclass(frozen=True, kw_only=True)
class _TableFile(_FileAction):
    deletion_vector: DeletionVector | None = None

    @property
    def key(self) -> FileKey:
        """The identity of the file in replay."""
        vector = self.deletion_vector
        return (canonical_uri(self.path), "" if vector is None else vector.unique_id)


@dataclass(frozen=True, kw_only=True)
class AddFile(_TableFile):
    """A data file that is part of the table.

    Attributes:
        raw: the action as written.
        deletion_vector: the file's deletion vector; None if it has none.
    """

    @property
    def modification_time(self) -> int:
        """The time at which the file was written, in milliseconds since the epoch."""
        return int(self.raw.get("modificationTime") or 0)

    @property
    def stats(self) -> str | None:
        """The statistics of the file as JSON text; None if the writer left them out."""
        stats = self.raw.get("stats")
        return None if stats is None else str(stats)


@dataclass(frozen=True, kw_only=True)
class RemoveFile(_TableFile):
    """A data file that is no longer part of the table.

    Attributes:
        raw: the action as written.
        deletion_vector: the deletion vector that the file had; None if it had none.
    """


@dataclass(frozen=True, kw_only=True)
class CdcFile(_FileAction):
    """A file of changed rows ("Add CDC File").

    Attributes:
        raw: the action as written.
    """


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """The last version of an application that the table holds ("Transaction Identifiers").

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
#: Fields of views that are integers of 64 bits.
_INTEGERS: dict[str, tuple[str, ...]] = {
    "add": ("size", "modificationTime"),
    "remove": ("size", "deletionTimestamp"),
    "cdc": ("size",),
    "txn": ("version",),
}


def make_action(name: str, raw: object, *, where: str) -> Action:
    """Decode one action.

    Args:
        name: the action's name in the log, such as ``add``.
        raw: the action's JSON value.
        where: the file that holds it, for the error.

    Raises:
        DeltaLogError: the value of an action that replay needs is no object, or a field is missing or malformed.
    """
    if not isinstance(raw, dict):
        if name not in _REQUIRED:
            # Unknown actions and `commitInfo` may have any value.
            return OtherAction(name=name, raw={})
        raise DeltaLogError(f"{where}: the action {name!r} is not a JSON object")
    missing = [field for field in _REQUIRED.get(name, ()) if raw.get(field) is None]
    if missing:
        raise DeltaLogError(f"{where}: the action {name!r} lacks {', '.join(missing)}")
    try:
        return _decoded(name, raw)
    except ValueError as error:
        raise DeltaLogError(f"{where}: the action {name!r}: {error}") from None


def _decoded(name: str, raw: dict[str, Any]) -> Action:
    for field in _INTEGERS.get(name, ()):
        optional_integer(raw, field)
    match name:
        case "add":
            return AddFile(raw=raw, deletion_vector=_deletion_vector(raw))
        case "remove":
            return RemoveFile(raw=raw, deletion_vector=_deletion_vector(raw))
        case "cdc":
            return CdcFile(raw=raw)
        case "metaData":
            return replace(Metadata.from_json(raw), raw=raw)
        case "protocol":
            return replace(Protocol.from_json(raw), raw=raw)
        case "txn":
            return Transaction(raw=raw)
        case _:
            return OtherAction(name=name, raw=raw)


def _deletion_vector(raw: dict[str, Any]) -> DeletionVector | None:
    vector = raw.get("deletionVector")
    return None if vector is None else DeletionVector.from_json(vector)
