"""The actions of a Delta log, decoded from the JSON objects of commits and checkpoints.

Serves "Actions" of the Delta transaction protocol. Fields that replay needs are checked when an action is decoded.
Every action keeps its JSON object in `raw`, so that a checkpoint or a commit can write it again, with the fields
that this release does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log.action_fields import check_fields
from delta_sharing_client.log.paths import canonical_uri
from delta_sharing_client.model.actions import AddFile, CdcFile, Metadata, Protocol, RemoveFile
from delta_sharing_client.model.json_fields import optional_integer

FileKey: TypeAlias = tuple[str, str]
"""The identity of a file in replay: its path, and the unique id of its deletion vector or "".

A relative path is compared as written, an absolute one in the form that `canonical_uri` returns."""


def file_key(file: AddFile | RemoveFile) -> FileKey:
    """Return the identity of a file in replay."""
    vector = file.deletion_vector
    return canonical_uri(file.path), "" if vector is None else vector.unique_id


@dataclass(frozen=True, kw_only=True)
class Transaction:
    """The last version of an application in the table ("Transaction Identifiers").

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
#: The actions that change the state of a table; of others an object may have more than one.
REPLAYED: Final = frozenset({*_REQUIRED, "domainMetadata"})
_FILES: Final[Mapping[str, type[AddFile | RemoveFile | CdcFile]]] = {
    "add": AddFile,
    "remove": RemoveFile,
    "cdc": CdcFile,
}
_NAMES: Final[Mapping[type, str]] = {
    **{kind: name for name, kind in _FILES.items()},
    Metadata: "metaData",
    Protocol: "protocol",
    Transaction: "txn",
}


def name_of(action: Action) -> str:
    """Return the name of an action in the log."""
    return action.name if isinstance(action, OtherAction) else _NAMES[type(action)]


def make_action(name: str, raw: object, *, where: str, strict: bool = False) -> Action:
    """Decode one action.

    Args:
        name: the action's name in the log, such as ``add``.
        raw: the action's JSON value.
        where: its file, for the error.
        strict: refuse unknown actions, and fields of other types than the protocol's, as for writing.

    Raises:
        DeltaLogError: an action that replay needs is not an object, or a field of it is missing or malformed.
    """
    if strict:
        try:
            check_fields(name, raw)
        except ValueError as error:
            raise DeltaLogError(f"{where}: the action {name!r}: {error}") from None
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
    if name == "remove":
        optional_integer(raw, "deletionTimestamp")
    if name in _FILES:
        return _FILES[name].from_log(raw)
    match name:
        case "metaData":
            return replace(Metadata.from_json(raw), raw=raw)
        case "protocol":
            return replace(Protocol.from_json(raw), raw=raw)
        case "txn":
            optional_integer(raw, "version")
            return Transaction(raw=raw)
        case _:
            return OtherAction(name=name, raw=raw)
