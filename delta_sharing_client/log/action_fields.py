"""Types of the fields of actions, checked before an action is written ("Actions" of the protocol).

Other engines refuse a whole table for a field of another type. Replay accepts more, such as numbers in texts.
Fields that are not listed here may have any value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

import msgspec

_Name: TypeAlias = Annotated[str, msgspec.Meta(min_length=1)]
_Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Long: TypeAlias = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
_Texts: TypeAlias = dict[str, str | None]


class _Vector(msgspec.Struct, rename="camel"):
    storage_type: _Name
    path_or_inline_dv: _Name
    size_in_bytes: _Count
    cardinality: _Count
    offset: _Count | None = None


class _File(msgspec.Struct, rename="camel"):
    path: _Name
    partition_values: _Texts | None = None
    size: _Count | None = None
    modification_time: _Long | None = None
    deletion_timestamp: _Long | None = None
    data_change: bool | None = None
    extended_file_metadata: bool | None = None
    stats: str | None = None
    tags: _Texts | None = None
    deletion_vector: _Vector | None = None
    base_row_id: _Long | None = None
    default_row_commit_version: _Long | None = None
    clustering_provider: str | None = None


class _Format(msgspec.Struct):
    provider: _Name
    options: _Texts | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    id: _Name
    name: str | None = None
    description: str | None = None
    format: _Format | None = None
    schema_string: str | None = None
    partition_columns: list[str] | None = None
    configuration: _Texts | None = None
    created_time: _Long | None = None


class _Protocol(msgspec.Struct, rename="camel"):
    min_reader_version: int
    min_writer_version: int
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class _Transaction(msgspec.Struct, rename="camel"):
    app_id: _Name
    version: _Long
    last_updated: _Long | None = None


class _Domain(msgspec.Struct):
    domain: _Name
    configuration: str | None = None
    removed: bool | None = None


class _Info(msgspec.Struct, rename="camel"):
    timestamp: _Long | None = None
    in_commit_timestamp: _Long | None = None
    operation: str | None = None


_TYPES: Final[Mapping[str, type[msgspec.Struct]]] = {
    **dict.fromkeys(("add", "remove", "cdc"), _File),
    "metaData": _Metadata,
    "protocol": _Protocol,
    "txn": _Transaction,
    "domainMetadata": _Domain,
    "commitInfo": _Info,
}
_STATS: Final = msgspec.json.Decoder(dict[str, Any])
#: What msgspec writes between the reason and the path of a field.
_AT: Final = " - at `$"


def check_fields(name: str, raw: object) -> None:
    """Check the type of each field of an action of a commit.

    Args:
        name: the action's name in the log, such as ``add``.
        raw: its JSON value.

    Raises:
        ValueError: the action is unknown, or a field is missing or of another type; the message has the field and
            what it takes.
    """
    if name not in _TYPES:
        raise ValueError(f"no such action; a commit has {', '.join(_TYPES)}")
    try:
        action = msgspec.convert(raw, _TYPES[name])
    except msgspec.ValidationError as error:
        reason, at, path = str(error).partition(_AT)
        raise ValueError(f"field {path[:-1].removeprefix('.')!r}: {reason}" if at else reason) from None
    if isinstance(action, _File) and not are_stats(action.stats):
        raise ValueError("field 'stats': Expected the text of a JSON object")


def are_stats(stats: str | None) -> bool:
    """Return whether a text of statistics is a JSON object, or absent."""
    try:
        return stats is None or isinstance(_STATS.decode(stats), dict)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
