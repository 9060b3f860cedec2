"""The schema log of a streaming query: its schemas in `schemaTrackingLocation`, in the form of Delta's own source.

The folder has a subfolder for each table, ``_schema_log_<id of the table>`` (with `streamingSourceTrackingId`:
``..._<that id>``), with a file for each schema, numbered from 0. A file is written atomically and never changed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.errors import StreamError
from delta_sharing_client.log.durable_files import make_directories, put_if_absent, remove_abandoned
from delta_sharing_client.model.actions import Metadata, Protocol, ResponseFormat
from delta_sharing_client.model.column_mapping import MappingMode, mapping_mode
from delta_sharing_client.model.schema_evolution import ColumnChange, column_changes
from delta_sharing_client.wire.answers import TableInfo

#: Characters of a table's id that the name of a folder may have.
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def mode_of(info: TableInfo) -> MappingMode:
    """Return the column mapping mode that applies to a table's files."""
    return mapping_mode(info.metadata.configuration) if info.protocol.maps_columns else "none"


def changes_between(before: TableInfo, after: TableInfo) -> tuple[ColumnChange, ...]:
    """Return the changes of a table's columns from one version to another."""
    return column_changes(before.metadata, after.metadata, (mode_of(before), mode_of(after)))


@dataclass(frozen=True)
class SchemaLog:
    """The schemas of one table that a query has used.

    Attributes:
        folder: the option `schemaTrackingLocation`.
        table_id: the table's id.
        tracking_id: distinguishes the logs of two sources of one table.
        entries: the schemas, oldest first, each with its first version.
    """

    folder: Path
    table_id: str
    tracking_id: str | None = None
    entries: tuple[TableInfo, ...] = field(repr=False, default=())

    @classmethod
    def read(cls, folder: Path, table_id: str, tracking_id: str | None = None) -> SchemaLog:
        """Read the log; a missing one is empty.

        Raises:
            StreamError: a file of it is damaged, or cannot be read.
        """
        log = cls(folder, table_id, tracking_id)
        while True:
            try:
                text = log._next_file.read_text("utf-8")
            except FileNotFoundError:
                return log
            except (OSError, UnicodeDecodeError) as error:
                raise StreamError(
                    f"schemaTrackingLocation: {log._next_file} cannot be read: {type(error).__name__}"
                ) from None
            log = log._with(text)

    def add(self, info: TableInfo, version: int) -> SchemaLog:
        """Write the schema that begins with a version; return the log with it.

        Raises:
            StreamError: another query has written there, or the file cannot be written.
        """
        path, text = self._next_file, json.dumps(_entry(info, version, self.table_id))
        try:
            make_directories(path.parent)
            remove_abandoned(path.parent)
            written = put_if_absent(path, text.encode())
        except OSError as error:
            raise StreamError(
                f"schemaTrackingLocation: {path} cannot be written: {error.strerror or type(error).__name__}"
            ) from None
        if not written:
            raise StreamError(
                f"schemaTrackingLocation: {path} was written by another query meanwhile; give each query a folder "
                "of its own"
            )
        return self._with(text)

    @property
    def _next_file(self) -> Path:
        # The id comes from the server, and must not lead to another folder.
        name = "".join(c if c in _PLAIN else f"%{ord(c):02x}" for c in self.table_id)
        source = "" if self.tracking_id is None else f"_{self.tracking_id}"
        return self.folder / f"_schema_log_{name}{source}" / str(len(self.entries))

    def _with(self, text: str) -> SchemaLog:
        return replace(self, entries=(*self.entries, _parsed(text, self._next_file, self.table_id)))


def _entry(info: TableInfo, version: int, table_id: str) -> dict[str, Any]:
    metadata, protocol = info.metadata, info.protocol
    described = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
        "readerFeatures": protocol.reader_features,
        "writerFeatures": protocol.writer_features,
    }
    return {
        "tableId": table_id,
        "deltaCommitVersion": version,
        "dataSchemaJson": metadata.schema_string,
        "partitionSchemaJson": json.dumps(
            {
                "type": "struct",
                "fields": [
                    {"name": column.name, "type": str(column.type), "nullable": True, "metadata": {}}
                    for column in map(metadata.schema.find, metadata.partition_columns)
                    if column is not None
                ],
            }
        ),
        "tableConfigurations": dict(metadata.configuration),
        "protocolJson": json.dumps({"protocol": {key: value for key, value in described.items() if value}}),
        "responseFormat": protocol.response_format,
    }


def _parsed(text: str, path: Path, table_id: str) -> TableInfo:
    try:
        entry: Mapping[str, Any] = json.loads(text)
        described = json.loads(entry["protocolJson"])["protocol"]
        partitions = json.loads(entry["partitionSchemaJson"])["fields"]
        if entry["tableId"] != table_id:
            raise ValueError("it is of another table")
        answered: ResponseFormat = "delta" if entry["responseFormat"] == "delta" else "parquet"
        info = TableInfo(
            int(entry["deltaCommitVersion"]),
            replace(Protocol.from_json(described), response_format=answered),
            Metadata(
                id=table_id,
                schema_string=entry["dataSchemaJson"],
                partition_columns=tuple(field["name"] for field in partitions),
                configuration=dict(entry["tableConfigurations"]),
            ),
        )
        _ = info.metadata.schema
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise StreamError(
            f"schemaTrackingLocation: {path} is damaged ({error}); a query that starts over needs a new folder"
        ) from None
    return info
