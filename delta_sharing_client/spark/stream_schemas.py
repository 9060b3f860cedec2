"""The schemas that a streaming query has gone through, kept in a folder of the driver as Delta's own source does.

The folder has one of its own for each table, ``_schema_log_<id of the table>``, and in it one file per schema,
named by number from 0. A file is written whole or not at all, and never changed.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.errors import SchemaChangedError, StreamError
from delta_sharing_client.model.actions import Metadata, Protocol, ResponseFormat
from delta_sharing_client.model.column_mapping import MappingMode, mapping_mode
from delta_sharing_client.model.schema_evolution import ColumnChange, column_changes
from delta_sharing_client.wire.answers import TableInfo

#: Characters of a table's id that may stand in the name of a folder.
_PLAIN: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def mode_of(info: TableInfo) -> MappingMode:
    """Return how a table's columns are found in its files."""
    return mapping_mode(info.metadata.configuration) if info.protocol.maps_columns else "none"


def changes_between(before: TableInfo, after: TableInfo) -> tuple[ColumnChange, ...]:
    """Return what became of a table's columns from one version to another."""
    return column_changes(before.metadata, after.metadata, (mode_of(before), mode_of(after)))


def schema_error(
    what: str, version: int | None, changed: Sequence[ColumnChange], *, late: bool, tracked: bool
) -> SchemaChangedError:
    """The error for columns that changed where one schema has to hold the rows before and after.

    Args:
        what: the table, for messages.
        version: the version that changed them, where it is known.
        changed: what it changed.
        late: whether the query has the columns after the change already, and rows before it still to read.
        tracked: whether the columns after it were written down for a restart.
    """
    where = "meanwhile" if version is None else f"in version {version}"
    said = f"{what}: {where} {'; '.join(map(str, changed))}."
    number = "the version" if version is None else str(version)
    if late:
        advice = (
            "A stream reads one schema, and this one has the columns from there on, while the query was before "
            f"that. Start it with a new checkpoint location and startingVersion={number}, or follow such changes "
            "with schemaTrackingLocation; or leave the column out with the option columns"
        )
    elif tracked:
        advice = (
            "The rows before it were read, and the columns from it on are written down in schemaTrackingLocation: "
            "restart the query"
        )
        if not all(item.additive for item in changed):
            advice += f", with allowSourceColumnRenameAndDrop={number} (or 'always')"
    elif all(item.additive for item in changed):
        advice = "Restart the query, load() included, and it goes on with the columns as they are now"
    else:
        advice = (
            "The rows before it were read. To go on past it, start a query with a new checkpoint location and "
            f"startingVersion={number}, or follow such changes with schemaTrackingLocation; or leave the column "
            "out with the option columns"
        )
    return SchemaChangedError(
        f"{said} {advice}", version=version, columns=list(dict.fromkeys(item.column for item in changed))
    )


@dataclass(frozen=True)
class SchemaLog:
    """The schemas of one table that a query has gone through.

    Attributes:
        folder: what `schemaTrackingLocation` says.
        table_id: the table's id.
        entries: the schemas, oldest first, each with the version that it holds from.
    """

    folder: Path
    table_id: str
    entries: tuple[TableInfo, ...] = field(repr=False)

    @classmethod
    def read(cls, folder: Path, table_id: str) -> SchemaLog:
        """Read what is there.

        Raises:
            StreamError: a file of it is damaged, or cannot be read.
        """
        entries: list[TableInfo] = []
        while True:
            path = _place(folder, table_id) / str(len(entries))
            try:
                text = path.read_text("utf-8")
            except FileNotFoundError:
                return cls(folder, table_id, tuple(entries))
            except (OSError, UnicodeDecodeError) as error:
                raise StreamError(
                    f"schemaTrackingLocation: {path} cannot be read: {type(error).__name__}"
                ) from None
            entries.append(_parsed(text, path, table_id))

    def add(self, info: TableInfo, version: int) -> SchemaLog:
        """Write down the schema that holds from a version on; return the log with it.

        Raises:
            StreamError: another query wrote there meanwhile, or it cannot be written.
        """
        place = _place(self.folder, self.table_id)
        path = place / str(len(self.entries))
        text = json.dumps(_entry(info, version, self.table_id))
        try:
            place.mkdir(parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(dir=place, prefix=".")
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    file.write(text)
                    file.flush()
                    os.fsync(file.fileno())
                os.link(name, path)
            finally:
                Path(name).unlink()
            _sync(place)
        except FileExistsError:
            raise StreamError(
                f"schemaTrackingLocation: {path} was written by another query meanwhile; give each query a folder "
                "of its own"
            ) from None
        except OSError as error:
            raise StreamError(
                f"schemaTrackingLocation: {path} cannot be written: {error.strerror or type(error).__name__}"
            ) from None
        return SchemaLog(self.folder, self.table_id, (*self.entries, _parsed(text, path, self.table_id)))


def _place(folder: Path, table_id: str) -> Path:
    # The id is the server's word, and must not lead anywhere else.
    name = "".join(c if c in _PLAIN else f"%{ord(c):02x}" for c in table_id)
    return folder / f"_schema_log_{name}"


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _entry(info: TableInfo, version: int, table_id: str) -> dict[str, Any]:
    metadata, protocol = info.metadata, info.protocol
    partitions = [metadata.schema.find(name) for name in metadata.partition_columns]
    described: dict[str, Any] = {
        "minReaderVersion": protocol.min_reader_version,
        "minWriterVersion": protocol.min_writer_version,
    }
    if protocol.reader_features:
        described["readerFeatures"] = list(protocol.reader_features)
    if protocol.writer_features:
        described["writerFeatures"] = list(protocol.writer_features)
    return {
        "tableId": table_id,
        "deltaCommitVersion": version,
        "dataSchemaJson": metadata.schema_string,
        "partitionSchemaJson": json.dumps(
            {
                "type": "struct",
                "fields": [
                    {"name": column.name, "type": str(column.type), "nullable": True, "metadata": {}}
                    for column in partitions
                    if column is not None
                ],
            }
        ),
        "tableConfigurations": dict(metadata.configuration),
        "protocolJson": json.dumps({"protocol": described}),
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
