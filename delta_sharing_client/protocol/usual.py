"""The line of a file as nearly all answers have it, decoded in one go.

What a line of JSON becomes is left to a decoder that is compiled for the fields of a file: it makes no dictionary,
passes over what is not read, and checks types as it goes. Whatever it does not take (other types, a deletion
vector, a file that is not added) goes the general way, which says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Struct

from delta_sharing_client.protocol.actions import AddFile, ResponseFormat

_Values: TypeAlias = dict[str, str | None]


class _ParquetFile(Struct, gc=False, rename="camel"):
    """A file of the parquet format ("File")."""

    url: str
    id: str
    size: int
    partition_values: _Values | None = None
    stats: str | None = None
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    delta_single_action: Any = None


class _ParquetLine(Struct, gc=False, rename="camel"):
    file: _ParquetFile


class _DeltaAdd(Struct, gc=False, rename="camel"):
    path: str
    size: int
    partition_values: _Values | None = None
    stats: str | None = None
    data_change: bool = True
    deletion_vector: Any = None


class _DeltaAction(Struct, gc=False, rename="camel"):
    add: _DeltaAdd


class _DeltaFile(Struct, gc=False, rename="camel"):
    """A file of the delta format ("File in Delta Format")."""

    id: str
    delta_single_action: _DeltaAction
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    deletion_vector_file_id: str | None = None


class _DeltaLine(Struct, gc=False, rename="camel"):
    file: _DeltaFile


_parquet_line: Final = msgspec.json.Decoder(_ParquetLine).decode
_delta_line: Final = msgspec.json.Decoder(_DeltaLine).decode
#: Not text of the expected form, for one reason or the other.
_OTHER: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def _parquet_file(line: bytes) -> AddFile | None:
    try:
        file = _parquet_line(line).file
    except _OTHER:
        return None
    url, size = file.url, file.size
    if not url or not file.id or size < 0 or file.delta_single_action is not None:
        return None
    return AddFile(
        url,
        file.id,
        file.partition_values or {},
        size,
        file.stats or None,
        file.version,
        file.timestamp,
        file.expiration_timestamp,
    )


def _delta_file(line: bytes) -> AddFile | None:
    try:
        file = _delta_line(line).file
    except _OTHER:
        return None
    add = file.delta_single_action.add
    url, size = add.path, add.size
    if not url or not file.id or size <= 0 or add.deletion_vector is not None:
        return None
    return AddFile(
        url,
        file.id,
        add.partition_values or {},
        size,
        add.stats or None,
        file.version,
        file.timestamp,
        file.expiration_timestamp,
        None,
        file.deletion_vector_file_id or None,
        add.data_change,
    )


#: By the format of an answer: decodes the line of an added file, or returns None for one that it does not take.
USUAL_FILE: Final[Mapping[ResponseFormat, Callable[[bytes], AddFile | None]]] = {
    "parquet": _parquet_file,
    "delta": _delta_file,
}
