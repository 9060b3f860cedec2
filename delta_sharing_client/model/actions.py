"""Typed actions of answers to /metadata, /query and /changes, and of the transaction log of a Delta table.

One set of classes serves both response formats. Fields of the delta format (deletion vectors, reader features) are
absent in the parquet format. `Protocol`, `Metadata` and `DeletionVector` serve the log too: the delta format wraps
the actions of a log. URLs are signed and never part of a repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias

import msgspec

from delta_sharing_client.errors import UnsupportedFeatureError, UnsupportedTableError
from delta_sharing_client.model.json_fields import integer, names, optional_integer, optional_text, text, text_map
from delta_sharing_client.model.partition_values import PartitionValues
from delta_sharing_client.model.reader_features import NEWEST_READER, SUPPORTED_FEATURES, canonical_feature
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.model.schema import NO_COLUMNS, StructType, parse_schema
from delta_sharing_client.representation import representation, short_repr
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.views import html_view

ResponseFormat: TypeAlias = Literal["parquet", "delta"]


@short_repr
@dataclass(frozen=True, slots=True)
class Protocol:
    """The features that a reader of the table must support ("Protocol", "Protocol in Delta Format").

    Attributes:
        min_reader_version: the least reader version; of the response format itself in parquet format.
        min_writer_version: the least writer version; 1 in the parquet format, which has none.
        reader_features: the reader features that the protocol lists (reader version 3).
        writer_features: the writer features that the protocol lists (writer version 7).
        response_format: the format of the answer that held it; `delta` for the protocol of a log.
        raw: the action as written in a log; empty for an answer.
        version: the version that a protocol in an answer with changes is for, if given.
    """

    min_reader_version: int
    min_writer_version: int = 1
    reader_features: tuple[str, ...] = ()
    writer_features: tuple[str, ...] = ()
    response_format: ResponseFormat = "parquet"
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    version: int | None = field(default=None, compare=False)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Protocol:
        """Return the protocol that the `protocol` action of a log describes; `raw` stays empty.

        Raises:
            ValueError: a field is missing or malformed.
        """
        return cls(
            integer(item, "minReaderVersion"),
            optional_integer(item, "minWriterVersion") or 1,
            names(item, "readerFeatures"),
            names(item, "writerFeatures"),
            "delta",
        )

    @property
    def required_features(self) -> tuple[str, ...]:
        """The reader features in use, with the feature that the legacy reader version 2 implies."""
        if self.response_format == "delta" and self.min_reader_version == 2:
            return ("columnMapping",)
        return self.reader_features

    @property
    def maps_columns(self) -> bool:
        """Whether column mapping is in force; the property `delta.columnMapping.mode` has no effect otherwise."""
        return any(canonical_feature(feature) == "columnmapping" for feature in self.required_features)

    def check_readable(self, subject: str) -> None:
        """Raise if this release cannot read the table, named by `subject`.

        Raises:
            UnsupportedFeatureError: it needs reader features that are not supported; all are named.
            UnsupportedTableError: it needs a newer reader version.
        """
        newest = NEWEST_READER[self.response_format]
        if self.min_reader_version > newest:
            raise UnsupportedTableError(
                f"{subject} needs reader version {self.min_reader_version} of the {self.response_format} format; "
                f"this release reads up to {newest}: upgrade delta-sharing-client"
            )
        missing = [f for f in self.required_features if canonical_feature(f) not in SUPPORTED_FEATURES]
        if missing:
            raise UnsupportedFeatureError(
                f"{subject} needs reader features that this release does not support: {', '.join(missing)}; "
                "upgrade delta-sharing-client, or ask the provider to share the table without them",
                features=missing,
            )


@short_repr
@dataclass(frozen=True, slots=True)
class Format:
    """The encoding of the data files; only `parquet` is defined."""

    provider: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict, hash=False)


@short_repr
@dataclass(frozen=True, slots=True)
class Metadata:
    """A table's metadata ("Metadata", "Metadata in Delta Format").

    Attributes:
        id: the table's unique id.
        name, description: the provider's name and description of the table, if given.
        format: the encoding of its files.
        schema_string: the schema as JSON text; `schema` is the same, decoded.
        partition_columns: names of the columns it is partitioned by.
        configuration: the table's properties.
        version: the version this metadata is for, if given.
        size, num_files: bytes and number of the table's files, if given.
        created_time: milliseconds since the epoch, if given.
        location, auxiliary_locations, access_modes: as of a listed `Table`; only in an answer.
        raw: the action as written in a log; empty for an answer.
    """

    id: str
    schema_string: str = field(repr=False)
    name: str | None = None
    description: str | None = None
    format: Format = field(default_factory=Format, repr=False)
    partition_columns: tuple[str, ...] = ()
    configuration: Mapping[str, str] = field(default_factory=dict, hash=False, repr=False)
    version: int | None = None
    size: int | None = None
    num_files: int | None = None
    created_time: int | None = None
    location: str | None = field(default=None, repr=False)
    auxiliary_locations: tuple[str, ...] = field(default=(), repr=False)
    access_modes: tuple[str, ...] = field(default=(), repr=False)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_json(cls, item: Mapping[str, Any]) -> Metadata:
        """Return the metadata that the `metaData` action of a log describes; `raw` stays empty.

        A log may leave out the schema of a table without columns.

        Raises:
            ValueError: a field is malformed.
        """
        encoding = item.get("format") or {}
        is_object = isinstance(encoding, dict)
        return cls(
            id=str(item.get("id") or ""),
            schema_string=NO_COLUMNS if item.get("schemaString") is None else text(item, "schemaString"),
            name=optional_text(item, "name"),
            description=optional_text(item, "description"),
            format=Format(
                str(encoding.get("provider", "parquet") if is_object else encoding),
                text_map(encoding, "options") if is_object else {},
            ),
            partition_columns=names(item, "partitionColumns"),
            configuration=text_map(item, "configuration"),
            created_time=optional_integer(item, "createdTime"),
        )

    @property
    def schema(self) -> StructType:
        """The table's columns, decoded from `schema_string`."""
        return parse_schema(self.schema_string)

    @representation
    def _repr_html_(self) -> str:
        facts = {"description": self.description, "version": self.version, "files": self.num_files}
        columns = replace(self.schema, partition_columns=self.partition_columns)._repr_html_()
        return html_view(self, self.name or self.id, {**facts, **self.configuration}, columns)


class DeletionVector(msgspec.Struct, frozen=True):
    """The descriptor of a deletion vector ("Deletion Vector Descriptor Schema").

    Attributes:
        storage_type: `i` inline, `u` a file named by its UUID, `p` a URL or an absolute path.
        path_or_inline: the text, name, URL or path; masked, since a URL may be signed.
        size_in_bytes: length of the serialized bitmap.
        cardinality: how many rows it deletes.
        offset: where the bitmap starts in its file, in bytes.
    """

    storage_type: str
    path_or_inline: SecretUrl
    size_in_bytes: int
    cardinality: int
    offset: int | None = None

    @classmethod
    def from_json(cls, item: object) -> DeletionVector:
        """Return the deletion vector that a descriptor in an action of a log describes.

        Raises:
            ValueError: it is not an object, or a field is missing or malformed.
        """
        if not isinstance(item, dict):
            raise ValueError("'deletionVector' is not an object")
        return cls(
            text(item, "storageType"),
            SecretUrl(text(item, "pathOrInlineDv")),
            integer(item, "sizeInBytes"),
            integer(item, "cardinality"),
            optional_integer(item, "offset"),
        )

    @property
    def is_inline(self) -> bool:
        """Whether the descriptor contains the bitmap itself, and names no file."""
        return self.storage_type == "i"

    @property
    def is_absolute(self) -> bool:
        """Whether the descriptor contains the URL or absolute path of the vector's file."""
        return self.storage_type == "p"

    def at(self, url: SecretUrl) -> DeletionVector:
        """Return the descriptor of the same vector in the file at a URL."""
        return msgspec.structs.replace(self, storage_type="p", path_or_inline=url)

    @property
    def unique_id(self) -> str:
        """The id that distinguishes the vectors of one file in replay."""
        suffix = "" if self.offset is None else f"@{self.offset}"
        return f"{self.storage_type}{self.path_or_inline.reveal()}{suffix}"


#: Shared by all actions of answers.
_NO_FIELDS: Final[Mapping[str, Any]] = {}


class FileAction(RedactedStruct, frozen=True, gc=False):
    """A data file of an answer or of a log; `AddFile`, `CdcFile` or `RemoveFile`.

    A `Struct` that the garbage collector skips: there may be 300,000 of them. Use `msgspec.structs.replace`
    for a modified copy. Equality ignores `expiration_timestamp`.

    Attributes:
        url: the pre-signed URL; in a log the path as written, a URI relative to the table's directory or absolute.
        id: the file's id, the same in every answer; empty in a log.
        partition_values: the raw partition values; `partition_text` looks a column up.
        size: the file's size in bytes; 0 if unknown.
        stats: the statistics' JSON text, if known.
        version: the table version of the file, if known.
        timestamp: the time of that version in milliseconds since the epoch, if known.
        expiration_timestamp: the time at which the URL expires in milliseconds since the epoch, if known.
        deletion_vector: the deleted rows of the file (delta format).
        deletion_vector_file_id: the id of the deletion vector's file.
        data_change: false for files that rearrange rows without changing any.
        modification_time: the time at which the file was written in milliseconds since the epoch; only in a log.
        raw: the action as written in a log; empty for an answer.
    """

    redacted_fields: ClassVar = frozenset({"url", "stats", "raw"})

    url: SecretUrl
    id: str
    partition_values: PartitionValues
    size: int
    stats: str | None = None
    version: int | None = None
    timestamp: int | None = None
    expiration_timestamp: int | None = None
    deletion_vector: DeletionVector | None = None
    deletion_vector_file_id: str | None = None
    data_change: bool = True
    modification_time: int = 0
    raw: Mapping[str, Any] = msgspec.field(default_factory=lambda: _NO_FIELDS)

    @classmethod
    def from_log(cls, raw: Mapping[str, Any]) -> Self:
        """Return the file that an action of a log describes.

        Raises:
            ValueError: a field is missing or malformed.
        """
        values = raw.get("partitionValues") or {}
        if not isinstance(values, dict):
            raise ValueError("'partitionValues' is not an object")
        vector, stats = raw.get("deletionVector"), raw.get("stats")
        return cls(
            SecretUrl(str(raw["path"])),
            "",
            values,
            optional_integer(raw, "size") or 0,
            None if stats is None else str(stats),
            deletion_vector=None if vector is None else DeletionVector.from_json(vector),
            data_change=bool(raw.get("dataChange", True)),
            modification_time=optional_integer(raw, "modificationTime") or 0,
            raw=raw,
        )

    @property
    def path(self) -> str:
        """The path of a file of a log, in clear."""
        return self.url.reveal()

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        names = (name for name in self.__struct_fields__ if name != "expiration_timestamp")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def __hash__(self) -> int:
        return hash((type(self), self.url, self.id, self.size, self.version, self.deletion_vector_file_id))


class AddFile(FileAction, frozen=True, gc=False):
    """A file of the table, or rows that a change inserted ("File", "Add File")."""


class CdcFile(FileAction, frozen=True, gc=False):
    """A file of change rows with their `_change_type` ("CDF File", "Add CDC File")."""


class RemoveFile(FileAction, frozen=True, gc=False):
    """A file whose rows a change deleted ("Remove File")."""


class EndStreamAction(RedactedStruct, frozen=True):
    """The last line of a complete answer.

    Attributes:
        refresh_token: requests the same snapshot with fresh URLs.
        next_page_token: requests the next page.
        min_url_expiration_timestamp: the first expiration of a URL in milliseconds since the epoch.
        error_message: the reason if the query failed after the answer had begun.
        http_status_error_code: the status of that failure.
    """

    redacted_fields: ClassVar = frozenset({"refresh_token", "next_page_token"})

    refresh_token: str | None = None
    next_page_token: str | None = None
    min_url_expiration_timestamp: int | None = None
    error_message: str | None = None
    http_status_error_code: int | None = None
