"""Protocol and metadata of a local table.

A local table has the reader features of the shared table that its data needs. Features for writers are dropped
with their properties, because this package alone writes to a local table, and writes no rows of its own.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any, Final

from delta_sharing_client.log.features_in_use import features_of_schema
from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import mapping_mode, physical_name
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.partition_values import MISSING, PartitionValues, partition_text
from delta_sharing_client.model.reader_features import canonical_feature
from delta_sharing_client.model.schema import parse_schema

#: Reader features about data files and deletion vectors.
_ABOUT_DATA: Final = frozenset(
    {
        "columnmapping",
        "deletionvectors",
        "geospatial",
        "timestampnanos",
        "timestampntz",
        "typewidening",
        "variantshredding",
        "varianttype",
    }
)
#: Prefixes of the properties that are dropped.
_DROPPED: Final = (
    "delta.appendonly",
    "delta.checkpointpolicy",
    "delta.clustering",
    "delta.constraints.",
    "delta.coordinatedcommits",
    "delta.enablechangedatafeed",
    "enablechangedatafeed",  # as the parquet format spells it
    "delta.enableiceberg",
    "delta.enableincommittimestamps",
    "delta.enablerowtracking",
    "delta.feature.",
    "delta.identity",
    "delta.incommittimestamp",
    "delta.materializedrow",
    "delta.minreaderversion",
    "delta.minwriterversion",
    "delta.requirecheckpointprotection",
    "delta.rowtracking",
    "delta.universalformat",
    "io.unitycatalog.",
)
_DROPPED_OF_COLUMNS: Final = (
    "delta.invariants",
    "delta.generationexpression",
    "delta.identity.",
    "current_default",
    "exists_default",
)


def local_protocol(protocol: Protocol, metadata: Metadata, *, change_feed: bool = False) -> dict[str, Any]:
    """Return the `protocol` action of a local table.

    Args:
        protocol: the shared table's protocol.
        metadata: the shared table's metadata.
        change_feed: whether the local table has change data files.
    """
    kept = {canonical_feature(f): f for f in protocol.required_features if canonical_feature(f) in _ABOUT_DATA}
    for feature in features_of_schema(metadata.schema):  # the parquet format lists no features
        kept.setdefault(canonical_feature(feature), feature)
    reader = sorted(kept.values())
    if not reader:
        return {"minReaderVersion": 1, "minWriterVersion": 4 if change_feed else 2}
    writer = sorted([*reader, *(["changeDataFeed"] if change_feed else [])])
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}


def local_metadata(
    protocol: Protocol, metadata: Metadata, table: Table, properties: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the `metaData` action of a local table.

    Args:
        protocol: the shared table's protocol.
        metadata: the shared table's metadata.
        table: the shared table; its name gives the local table an id if the server sends none.
        properties: additional properties of the local table.

    Raises:
        ProtocolError: the schema is malformed.
    """
    parse_schema(metadata.schema_string)
    dropped = list(_DROPPED)
    if not protocol.maps_columns:
        dropped.append("delta.columnmapping.")
    if "deletionvectors" not in map(canonical_feature, protocol.required_features):
        dropped.append("delta.enabledeletionvectors")
    kept = {n: v for n, v in metadata.configuration.items() if not n.lower().startswith(tuple(dropped))}
    described: dict[str, Any] = {
        "id": metadata.id or str(uuid.uuid5(uuid.NAMESPACE_URL, f"delta-sharing:{table.full_name.lower()}")),
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_without_rules(json.loads(metadata.schema_string)), separators=(",", ":")),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": {**kept, **(properties or {})},
        "createdTime": metadata.created_time,
    }
    return {name: value for name, value in described.items() if value is not None}


def _without_rules(value: Any) -> Any:
    """Copy a schema without the metadata of columns that concerns writers alone."""
    if isinstance(value, list):
        return [_without_rules(item) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _without_rules(item) for key, item in value.items() if key != "metadata"}
    if "metadata" in value:
        copied["metadata"] = {
            key: item
            for key, item in (value["metadata"] or {}).items()
            if not key.lower().startswith(_DROPPED_OF_COLUMNS)
        }
    return copied


def partition_names(protocol: Protocol, metadata: Metadata) -> list[str]:
    """Return the names of the partition columns in the log, outermost first."""
    mode = mapping_mode(metadata.configuration) if protocol.maps_columns else "none"
    columns = [(name, metadata.schema.find(name)) for name in metadata.partition_columns]
    return [name if column is None else physical_name(column, mode) for name, column in columns]


def partition_values(values: PartitionValues, names: list[str], metadata: Metadata) -> dict[str, str | None]:
    """Return a file's partition values by their names in the log; a missing value is null.

    Args:
        values: the values as the server sent them.
        names: the names in the log, in the order of the metadata's partition columns.
        metadata: the table's metadata.
    """
    columns = zip(names, metadata.partition_columns, strict=True)
    texts = ((name, partition_text(values, name, logical)) for name, logical in columns)
    return {name: None if text is MISSING else text for name, text in texts}
