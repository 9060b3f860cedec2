"""The lines of files as nearly all answers have them, many decoded in one go and held field by field.

What a line of JSON becomes is left to a decoder that is compiled for the fields of a file: it makes no dictionary,
passes over what is not read, and checks types as it goes. Whatever it does not take (other types, a deletion
vector, a file that is not added) goes the general way, which says what is wrong, if anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from io import BytesIO
from typing import Annotated, Any, ClassVar, Final, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from delta_sharing_client.expressions.statistics import decode_text, record_counts
from delta_sharing_client.model.actions import Action, AddFile, RedactedStruct, ResponseFormat
from delta_sharing_client.model.numbers import MAX_INTEGER, MAX_MILLISECONDS
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import SecretUrl

_Told: TypeAlias = Annotated[str, Meta(min_length=1)]
_Integer: TypeAlias = Annotated[int, Meta(ge=-MAX_INTEGER, le=MAX_INTEGER)]
_Time: TypeAlias = Annotated[int, Meta(ge=-MAX_MILLISECONDS, le=MAX_MILLISECONDS)]


class _ParquetFile(RedactedStruct, frozen=True, gc=False, rename="camel", kw_only=True):
    """A file of the parquet format ("File"): what is told of it, and of its contents."""

    redacted_fields: ClassVar = frozenset({"url", "stats"})

    url: _Told
    id: _Told
    partition_values: Raw = Raw(b"{}")
    size: Annotated[int, Meta(ge=0, le=MAX_INTEGER)]
    stats: Raw = Raw(b"null")
    version: _Integer | None = None
    timestamp: _Time | None = None
    expiration_timestamp: _Integer | None = None
    #: Of another format.
    delta_single_action: None = None


class _ParquetLine(Struct, gc=False):
    file: _ParquetFile


class _DeltaAdd(RedactedStruct, frozen=True, gc=False, rename="camel", kw_only=True):
    """What is told of the contents of a file of the delta format."""

    redacted_fields: ClassVar = frozenset({"url", "stats"})

    url: _Told = msgspec.field(name="path")
    partition_values: Raw = Raw(b"{}")
    #: Without a size in its place, this format has another place for it.
    size: Annotated[int, Meta(ge=1, le=MAX_INTEGER)]
    data_change: bool = True
    stats: Raw = Raw(b"null")
    deletion_vector: None = None


class _DeltaAction(Struct, gc=False):
    add: _DeltaAdd


class _DeltaFile(Struct, gc=False, rename="camel", kw_only=True):
    """What is told of a file of the delta format ("File in Delta Format")."""

    id: _Told
    deletion_vector_file_id: None = None
    version: _Integer | None = None
    timestamp: _Time | None = None
    expiration_timestamp: _Integer | None = None
    delta_single_action: _DeltaAction


class _DeltaLine(Struct, gc=False):
    file: _DeltaFile


_parquet_lines: Final = msgspec.json.Decoder(_ParquetLine).decode_lines
_delta_lines: Final = msgspec.json.Decoder(_DeltaLine).decode_lines
_partition_values: Final = msgspec.json.Decoder(dict[str, str | None] | None).decode
#: Not text of the expected form, for one reason or the other.
_OTHER: Final = (msgspec.DecodeError, UnicodeError, RecursionError)


class FileBlock:
    """Files added by lines that follow each other, field by field; iterated, they are actions.

    An action for each of 300,000 files costs more time than their lines do to decode, so that who looks at few of
    their fields takes these.

    Args:
        files: what is told of each.
        contents: what is told of their contents, in the same order.
        partition_values: the raw partition values of each, one mapping for all that are told the same.

    Raises:
        msgspec.DecodeError: statistics are no text. Of those that begin with their row count no more is looked at.
    """

    __slots__ = ("_contents", "_files", "ids", "partition_values", "record_counts")

    def __init__(
        self, files: list[Any], contents: list[Any], partition_values: list[Mapping[str, str | None]]
    ) -> None:
        self._files = files
        self._contents = contents
        self.ids: list[str] = [file.id for file in files]
        self.partition_values = partition_values
        #: Rows of the files, where their statistics tell.
        self.record_counts = record_counts([item.stats for item in contents])

    def __len__(self) -> int:
        return len(self._files)

    @representation
    def __repr__(self) -> str:
        return f"<FileBlock of {len(self)} files>"

    def __iter__(self) -> Iterator[AddFile]:
        for file, contents, values in zip(self._files, self._contents, self.partition_values, strict=True):
            yield AddFile(
                SecretUrl(contents.url),
                file.id,
                values,
                contents.size,
                stats_text(contents.stats),
                file.version,
                file.timestamp,
                file.expiration_timestamp,
                data_change=file is contents or contents.data_change,
            )

    @property
    def urls(self) -> list[SecretUrl]:
        """The pre-signed URLs."""
        return [SecretUrl(contents.url) for contents in self._contents]

    @property
    def sizes(self) -> list[int]:
        """The files' sizes in bytes."""
        return [contents.size for contents in self._contents]

    @property
    def versions(self) -> list[int | None]:
        """Table versions of the files, where told."""
        return [file.version for file in self._files]

    @property
    def timestamps(self) -> list[int | None]:
        """Milliseconds since the epoch of those versions, where told."""
        return [file.timestamp for file in self._files]

    @property
    def encoded_stats(self) -> list[Raw]:
        """The files' statistics, as they stand in the lines; see `stats_text`."""
        return [contents.stats for contents in self._contents]

    @property
    def expirations(self) -> list[int | None]:
        """Milliseconds since the epoch at which the URLs expire, where told."""
        return [file.expiration_timestamp for file in self._files]


def stats_text(encoded: Raw) -> str | None:
    """Return the text of statistics, which only spare work: none where it is no text."""
    try:
        return decode_text(encoded) or None
    except _OTHER:
        return None


#: What an answer is decoded into: files that follow each other and are as usual come together.
Decoded: TypeAlias = Action | FileBlock
#: Decodes whole lines that name files that are as usual, one a line; gives None where anything else is among them.
TypedFileDecoder: TypeAlias = Callable[[bytes | memoryview], FileBlock | None]


def typed_decoder(response_format: ResponseFormat) -> TypedFileDecoder:
    """Return what decodes the usual lines of one answer.

    Files with the same text of partition values share one mapping: of 300,000 there may be a hundred.
    """
    known: dict[bytes, Mapping[str, str | None]] = {}

    def shared_values(texts: list[Raw]) -> list[Mapping[str, str | None]]:
        first, many, joined = bytes(texts[0]), len(texts), b"".join(texts)
        # The length first: many times a first one that is long, and they may be more than the memory holds.
        same = len(joined) == len(first) * many and joined == first * many
        told = [first] if same else list(map(bytes, texts))
        try:
            values = [known[text] for text in told]
        except KeyError:
            known.update((text, _partition_values(text) or {}) for text in set(told).difference(known))
            values = [known[text] for text in told]
        # Files that follow each other are often of one partition, and all are where there are none.
        return values * many if same else values

    is_delta = response_format == "delta"
    decode_lines: Callable[[bytes | memoryview], list[Any]] = _delta_lines if is_delta else _parquet_lines

    def columns_of(lines: bytes | memoryview) -> FileBlock | None:
        try:
            decoded = decode_lines(lines)
            # The decoder minds neither objects in one line nor one in several, nor blank lines. As many of these
            # as of those pass here as well: their files are right.
            if not decoded or len(decoded) != len(BytesIO(lines).readlines()):
                return None
            files = [line.file for line in decoded]
            contents = [file.delta_single_action.add for file in files] if is_delta else files
            return FileBlock(files, contents, shared_values([item.partition_values for item in contents]))
        except _OTHER:
            return None

    return columns_of
