"""The lines of files as nearly all answers have them, many decoded in one go.

What a line of JSON becomes is left to a decoder that is compiled for the fields of a file: it makes no dictionary,
passes over what is not read, and checks types as it goes. Whatever it does not take (other types, a deletion
vector, a file that is not added) goes the general way, which says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from delta_sharing_client.protocol.actions import AddFile, ResponseFormat

#: Decodes whole lines that all name files that are as usual; gives None if one of them is anything else.
UsualFiles: TypeAlias = Callable[[bytes], list[AddFile] | None]


class _ParquetFile(Struct, gc=False, rename="camel"):
    """A file of the parquet format ("File")."""

    url: str
    id: str
    size: int
    partition_values: Raw = Raw(b"{}")
    stats: str | None = None
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    delta_single_action: Any = None


class _ParquetLine(Struct, gc=False):
    file: _ParquetFile


class _DeltaAdd(Struct, gc=False, rename="camel"):
    path: str
    size: int
    partition_values: Raw = Raw(b"{}")
    stats: str | None = None
    data_change: bool = True
    deletion_vector: Any = None


class _DeltaAction(Struct, gc=False):
    add: _DeltaAdd


class _DeltaFile(Struct, gc=False, rename="camel"):
    """A file of the delta format ("File in Delta Format")."""

    id: str
    delta_single_action: _DeltaAction
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    deletion_vector_file_id: str | None = None


class _DeltaLine(Struct, gc=False):
    file: _DeltaFile


_parquet_lines: Final = msgspec.json.Decoder(_ParquetLine).decode_lines
_delta_lines: Final = msgspec.json.Decoder(_DeltaLine).decode_lines
_partition_values: Final = msgspec.json.Decoder(dict[str, str | None] | None).decode
#: Not text of the expected form, for one reason or the other.
_OTHER: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


def usual_decoder(response_format: ResponseFormat) -> UsualFiles:
    """Return what decodes the usual lines of one answer.

    Files with the same text of partition values share one mapping: of 300,000 there may be a hundred.
    """
    known: dict[bytes, Mapping[str, str | None]] = {}

    def learn(text: bytes) -> Mapping[str, str | None]:
        values = known[text] = _partition_values(text) or {}
        return values

    def parquet_files(lines: bytes) -> list[AddFile] | None:
        files: list[AddFile] = []
        try:
            for line in _parquet_lines(lines):
                file = line.file
                url, size = file.url, file.size
                if not url or not file.id or size < 0 or file.delta_single_action is not None:
                    return None
                values = known.get(text := bytes(file.partition_values))
                files.append(
                    AddFile(
                        url,
                        file.id,
                        learn(text) if values is None else values,
                        size,
                        file.stats or None,
                        file.version,
                        file.timestamp,
                        file.expiration_timestamp,
                    )
                )
        except _OTHER:
            return None
        return files if len(files) == _line_count(lines) else None

    def delta_files(lines: bytes) -> list[AddFile] | None:
        files: list[AddFile] = []
        try:
            for line in _delta_lines(lines):
                file = line.file
                add = file.delta_single_action.add
                url, size = add.path, add.size
                if not url or not file.id or size <= 0 or add.deletion_vector is not None:
                    return None
                values = known.get(text := bytes(add.partition_values))
                files.append(
                    AddFile(
                        url,
                        file.id,
                        learn(text) if values is None else values,
                        size,
                        add.stats or None,
                        file.version,
                        file.timestamp,
                        file.expiration_timestamp,
                        None,
                        file.deletion_vector_file_id or None,
                        add.data_change,
                    )
                )
        except _OTHER:
            return None
        return files if len(files) == _line_count(lines) else None

    return delta_files if response_format == "delta" else parquet_files


def _line_count(lines: bytes) -> int:
    return lines.count(b"\n") + (not lines.endswith(b"\n"))
