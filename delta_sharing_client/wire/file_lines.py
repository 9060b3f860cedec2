"""Typed decoding of the lines of files, in the parquet and the delta format.

A decoder that is compiled for the fields of a file checks types, skips fields that are not read, and makes no
dictionaries. Many lines are decoded at once. A line that the decoder refuses is rewritten as `lenient_file`
describes and decoded again; the second refusal is the error.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from contextlib import suppress
from io import BytesIO
from typing import Annotated, Any, ClassVar, Final, Generic, TypeAlias, TypeVar

import msgspec
from msgspec import Meta, Raw, Struct

from delta_sharing_client._version import __version__
from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.expressions.record_counts import record_counts
from delta_sharing_client.model.actions import (
    AddFile,
    CdcFile,
    DeletionVector,
    FileAction,
    RemoveFile,
)
from delta_sharing_client.model.json_fields import integer
from delta_sharing_client.model.numbers import MAX_INTEGER, MAX_MILLISECONDS
from delta_sharing_client.model.partition_values import PartitionValues
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.secrets import SecretUrl, unsigned_url
from delta_sharing_client.wire.file_block import FileBlock, StatsUse
from delta_sharing_client.wire.ndjson import Json

_Text: TypeAlias = Annotated[str, Meta(min_length=1)]
_Integer: TypeAlias = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
_Size: TypeAlias = Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
_Time: TypeAlias = Annotated[int, Meta(ge=-MAX_MILLISECONDS, le=MAX_MILLISECONDS)]


class _Vector(RedactedStruct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A "Deletion Vector Descriptor"."""

    redacted_fields: ClassVar = frozenset({"path_or_inline_dv"})

    storage_type: _Text
    path_or_inline_dv: _Text
    size_in_bytes: _Integer
    cardinality: _Integer
    offset: _Integer | None = None

    def decoded(self) -> DeletionVector:
        return DeletionVector(
            self.storage_type, SecretUrl(self.path_or_inline_dv), self.size_in_bytes, self.cardinality, self.offset
        )


#: The form in which statistics are decoded: `Raw`, or `str | None`.
_Stats = TypeVar("_Stats")


class _DeltaFile(RedactedStruct, Generic[_Stats], frozen=True, gc=False, rename="camel", kw_only=True):
    """An action of a Delta log ("Add File" and the like) with a URL as its path."""

    redacted_fields: ClassVar = frozenset({"url", "stats"})

    url: _Text = msgspec.field(name="path")
    partition_values: Raw = Raw(b"{}")
    size: _Size | None = None
    stats: _Stats = None  # type: ignore[assignment]  # absent
    data_change: bool = True
    deletion_vector: _Vector | None = None


class _DeltaAction(Struct, Generic[_Stats], gc=False):
    add: _DeltaFile[_Stats] | None = None
    cdc: _DeltaFile[_Stats] | None = None
    remove: _DeltaFile[_Stats] | None = None


class _File(RedactedStruct, Generic[_Stats], frozen=True, gc=False, rename="camel", kw_only=True):
    """A "File" of the parquet format, or the wrapper of a Delta action in the delta format."""

    redacted_fields: ClassVar = frozenset({"url", "stats"})
    data_change: ClassVar[bool] = True
    deletion_vector: ClassVar[None] = None

    url: str | None = None
    id: str | None = None
    partition_values: Raw = Raw(b"{}")
    size: _Size | None = None
    stats: _Stats = None  # type: ignore[assignment]  # absent
    version: _Integer | None = None
    timestamp: _Time | None = None
    expiration_timestamp: _Integer | None = None
    deletion_vector_file_id: str | None = None
    delta_single_action: _DeltaAction[_Stats] | None = None


class _Line(Struct, Generic[_Stats], gc=False):
    file: _File[_Stats] | None = None
    add: _File[_Stats] | None = None
    cdf: _File[_Stats] | None = None
    remove: _File[_Stats] | None = None
    # A line with another action as well is refused.
    protocol: None = None
    metadata: None = msgspec.field(default=None, name="metaData")
    end: None = msgspec.field(default=None, name="endStreamAction")


_decode_lines: Final = msgspec.json.Decoder(_Line[Raw]).decode_lines
_decode_lines_with_stats: Final = msgspec.json.Decoder(_Line[str | None]).decode_lines
_NO_STATS: Final = Raw(b"null")
_partition_values: Final = msgspec.json.Decoder(dict[str, str | None] | None).decode
_encode: Final = msgspec.json.Encoder().encode


class FileLineDecoder:
    """Decodes the lines of files of one answer.

    Files with the same text of partition values share one mapping: of 300,000 files there may be a hundred.

    Args:
        is_delta: whether the answer is in the delta format.
    """

    def __init__(self, *, is_delta: bool) -> None:
        self._is_delta = is_delta
        self._known: dict[bytes, PartitionValues] = {}
        self._use = StatsUse()

    def decode(self, lines: bytes) -> FileBlock | None:
        """Return the files of whole lines: any number of added files, or one file of another kind.

        Returns:
            None if a line is of another action, malformed, or must be decoded leniently.
        """
        if self._use.as_text:
            # Decoding the text here takes half the time of decoding it after it has been skipped here.
            with suppress(ValueError, RecursionError):  # msgspec's errors are ValueErrors
                return self._block(lines, _decode_lines_with_stats(lines), None)
            if b"\n" in lines[:-1]:
                return None  # one of them may have text that is malformed; it is not looked at below
        with suppress(ValueError, RecursionError):
            return self._block(lines, _decode_lines(lines), _NO_STATS)
        return None

    def decode_leniently(self, item: Json) -> FileBlock | None:
        """Return the file of one line, with the leniency of `lenient_file`; None if it is another action.

        Raises:
            ValueError, ProtocolError: a field is missing or malformed, or the action is unknown.
        """
        for key in LINES:
            if item.get(key) is not None:
                line = _encode({key: lenient_file(_object(item, key))})
                return self._block(line, _decode_lines(line), _NO_STATS)
        return None

    def _block(self, lines: bytes, decoded: list[Any], no_stats: Raw | None) -> FileBlock:
        # The decoder accepts several objects in one line, one object in several lines, and blank lines.
        if not decoded or len(decoded) != len(BytesIO(lines).readlines()):
            raise ValueError("a line is not one object")
        kind: type[FileAction] = AddFile
        files: list[Any] = [line.file for line in decoded]
        if not all(files):
            kind, files = _one_of(decoded, (("add", AddFile), ("cdf", CdcFile), ("remove", RemoveFile)))
        elif any(line.add or line.cdf or line.remove for line in decoded):
            raise ValueError("a line has two actions")
        contents = files
        actions = [file.delta_single_action for file in files]
        if any(actions):
            if not self._is_delta:
                raise ValueError("a delta action in a parquet answer")
            if not all(actions):
                raise ValueError("files of both formats")
            contents = [action.add for action in actions]
            if not all(contents):
                kind, contents = _one_of(actions, (("cdc", CdcFile), ("remove", RemoveFile)))
            elif any(action.cdc or action.remove for action in actions):
                raise ValueError("a line has two actions")
        urls = [item.url for item in contents]
        if not all(urls):
            raise ValueError("'url' is missing")
        stats = [item.stats for item in contents]
        if no_stats is not None and None in stats:
            stats = [no_stats if each is None else each for each in stats]
        vectors = [item.deletion_vector for item in contents]
        return FileBlock(
            kind,
            list(map(SecretUrl, urls)),
            [file.id or _hash_of(url) for file, url in zip(files, urls, strict=True)],
            self._shared_values([item.partition_values for item in contents]),
            [item.size or file.size or 0 for file, item in zip(files, contents, strict=True)],
            stats,
            [file.version for file in files],
            [file.timestamp for file in files],
            [file.expiration_timestamp for file in files],
            [vector and vector.decoded() for vector in vectors] if any(vectors) else vectors,
            [file.deletion_vector_file_id or None for file in files],
            [item.data_change for item in contents],
            counts=None if no_stats is None else record_counts(stats),
            stats_use=self._use,
        )

    def _shared_values(self, texts: list[Raw]) -> list[PartitionValues]:
        first, many, joined = bytes(texts[0]), len(texts), b"".join(texts)
        # The length first: many copies of a long first text may be more than the memory holds.
        same = len(joined) == len(first) * many and joined == first * many
        distinct = [first] if same else list(map(bytes, texts))
        for text in set(distinct).difference(self._known):
            self._known[text] = _partition_values(text) or {}
        values = [self._known[text] for text in distinct]
        return values * many if same else values


def _one_of(
    items: list[Any], kinds: tuple[tuple[str, type[FileAction]], ...]
) -> tuple[type[FileAction], list[Any]]:
    """Return the kind and the contents of a single item, which has one kind."""
    if len(items) == 1:
        found = [(kind, [item]) for name, kind in kinds if (item := getattr(items[0], name)) is not None]
        if len(found) == 1:
            return found[0]
    raise ValueError("no file")


def _hash_of(url: str) -> str:
    """Return the id of a file for which the server sends none: a hash of the URL's unsigned part."""
    return hashlib.sha256(unsigned_url(SecretUrl(url)).encode()).hexdigest()[:32]


_INTEGERS: Final = frozenset(
    {"size", "version", "timestamp", "expirationTimestamp", "sizeInBytes", "cardinality", "offset"}
)
_OBJECTS: Final = frozenset({"deltaSingleAction", "add", "cdc", "remove", "deletionVector"})
#: The actions of files: of a line, and of the Delta action in a line.
LINES: Final = ("file", "add", "cdf", "remove")
_DELTA_ACTIONS: Final = ("add", "cdc", "remove")
_KEPT: Final = frozenset({"url", "path", "storageType", "pathOrInlineDv"})


def lenient_file(item: Json) -> Json:
    """Return a file with departures from the protocol that servers make corrected, and unknown fields removed.

    Integers may be text or whole floats, ids may be numbers, partition values may be numbers or booleans,
    statistics may be an object instead of its text, and `dataChange` is true unless it is false.

    Raises:
        ValueError: a value cannot be corrected.
        ProtocolError: a partition value cannot be corrected, or the Delta action is unknown.
    """
    known: Json = {}
    for name, value in item.items():
        if value is None:
            continue
        if name in _INTEGERS:
            known[name] = integer(item, name)
        elif name in _OBJECTS:
            known[name] = lenient_file(_object(item, name))
        elif name in _KEPT:
            known[name] = value
        elif name in ("id", "deletionVectorFileId"):
            known[name] = str(value)
        elif name == "partitionValues" and value:
            known[name] = {key: _partition_text(text) for key, text in _object(item, name).items()}
        elif name == "stats":
            known[name] = value if isinstance(value, str) else json.dumps(value)
        elif name == "dataChange":
            known[name] = value is not False
    single = item.get("deltaSingleAction")
    actions = known["deltaSingleAction"].keys() & {*_DELTA_ACTIONS} if single is not None else set()
    if len(actions) > 1:
        raise ProtocolError(f"it has {len(actions)} delta actions ({', '.join(sorted(actions))}) instead of one")
    if single is not None and not actions:
        kinds = ", ".join(sorted(map(repr, single)))[:200]
        raise ProtocolError(f"unknown delta action {kinds}; {known_actions(_DELTA_ACTIONS)}")
    return known


def known_actions(names: Iterable[str]) -> str:
    """Return, for an error about an unknown action, the actions that this release knows."""
    return (
        f"this release, delta-sharing-client {__version__}, knows {', '.join(sorted(names))}; a later one may "
        "know it: upgrade, or ask the provider which feature of the table needs it"
    )


def _object(item: Json, name: str) -> Json:
    if not isinstance(item[name], dict):
        raise ProtocolError(f"{name!r} is not an object")
    return dict(item[name])


def _partition_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and abs(value) >= 2**63:
        raise ProtocolError("a partition value is a number of too many digits; it must be a string")
    if isinstance(value, int | float):
        return str(value)
    raise ProtocolError(f"a partition value is a {type(value).__name__}")
