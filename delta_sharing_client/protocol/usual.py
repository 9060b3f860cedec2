"""The lines of files as nearly all answers have them, many decoded in one go.

What a line of JSON becomes is left to a decoder that is compiled for the fields of a file: it makes no dictionary,
passes over what is not read, and checks types as it goes. Whatever it does not take (other types, a deletion
vector, a file that is not added) goes the general way, which says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Raw, Struct

from delta_sharing_client.protocol.actions import AddFile, ResponseFormat

#: Decodes whole lines that all name files that are as usual; gives None if one of them is anything else.
UsualFiles: TypeAlias = Callable[[bytes], list[AddFile] | None]


class _Contents(Struct, gc=False, rename="camel", kw_only=True):
    """What both formats tell of a file's contents."""

    size: int
    partition_values: Raw = Raw(b"{}")
    stats: str | None = None


class _ParquetFile(_Contents, gc=False, rename="camel", kw_only=True):
    """A file of the parquet format ("File"): what is told of it, and its contents."""

    url: str
    id: str
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    deletion_vector_file_id: ClassVar[str | None] = None
    data_change: ClassVar[bool] = True
    #: Of another format.
    unusual: Any = msgspec.field(default=None, name="deltaSingleAction")


class _ParquetLine(Struct, gc=False):
    file: _ParquetFile


class _DeltaAdd(_Contents, gc=False, rename="camel", kw_only=True):
    url: str = msgspec.field(name="path")
    data_change: bool = True
    unusual: Any = msgspec.field(default=None, name="deletionVector")


class _DeltaAction(Struct, gc=False):
    add: _DeltaAdd


class _DeltaFile(Struct, gc=False, rename="camel"):
    """What is told of a file of the delta format ("File in Delta Format")."""

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

    is_delta = response_format == "delta"
    decode_lines: Callable[[bytes], list[Any]] = _delta_lines if is_delta else _parquet_lines
    # Without a size in its place, the delta format has another place for it.
    least = 1 if is_delta else 0

    def files_of(lines: bytes) -> list[AddFile] | None:
        files: list[AddFile] = []
        try:
            for line in decode_lines(lines):
                file = line.file
                contents = file.delta_single_action.add if is_delta else file
                url, size = contents.url, contents.size
                if not url or not file.id or size < least or contents.unusual is not None:
                    return None
                values = known.get(text := bytes(contents.partition_values))
                files.append(
                    AddFile(
                        url,
                        file.id,
                        learn(text) if values is None else values,
                        size,
                        contents.stats or None,
                        file.version,
                        file.timestamp,
                        file.expiration_timestamp,
                        None,
                        file.deletion_vector_file_id or None,
                        contents.data_change,
                    )
                )
        except _OTHER:
            return None
        return files if len(files) == _line_count(lines) else None

    return files_of


def _line_count(lines: bytes) -> int:
    return lines.count(b"\n") + (not lines.endswith(b"\n"))
