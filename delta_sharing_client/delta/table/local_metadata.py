"""The protocol and the metadata of a local copy of a shared table.

A copy keeps the reader features that its data needs. Features that only tell a writer what to do are dropped
with their properties: the copy is written by this package alone, which takes over what the provider wrote.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from delta_sharing_client.model.actions import Metadata, Protocol
from delta_sharing_client.model.column_mapping import mapping_mode, physical_name
from delta_sharing_client.model.reader_features import canonical_feature
from delta_sharing_client.model.schema import StructType

#: Reader features about data files and deletion vectors.
_ABOUT_DATA: Final = frozenset(
    {"columnmapping", "deletionvectors", "typewidening", "varianttype", "variantshredding", "timestampntz"}
)
#: Properties of what is dropped; others are kept.
_DROPPED: Final = tuple(
    name.lower()
    for name in (
        "delta.appendOnly",
        "delta.checkpointPolicy",
        "delta.clustering",
        "delta.constraints.",
        "delta.coordinatedCommits",
        "delta.enableChangeDataFeed",
        "enableChangeDataFeed",  # as the parquet format spells it
        "delta.enableIcebergCompat",
        "delta.enableIcebergWriterCompat",
        "delta.enableInCommitTimestamps",
        "delta.enableRowTracking",
        "delta.feature.",
        "delta.identity",
        "delta.inCommitTimestamp",
        "delta.materializedRow",
        "delta.minReaderVersion",
        "delta.minWriterVersion",
        "delta.requireCheckpointProtection",
        "delta.rowTracking",
        "delta.universalFormat",
        "io.unitycatalog.",
    )
)
_DROPPED_OF_COLUMNS: Final = ("delta.invariants", "delta.generationexpression", "delta.identity.")
_DROPPED_DEFAULTS: Final = frozenset({"CURRENT_DEFAULT", "EXISTS_DEFAULT"})


def local_protocol(protocol: Protocol, metadata: Metadata, *, change_feed: bool = False) -> dict[str, Any]:
    """Return the `protocol` action of a local copy.

    Args:
        protocol: the shared table's.
        metadata: the shared table's.
        change_feed: the copy holds change data files.
    """
    kept = {canonical_feature(f): f for f in protocol.required_features if canonical_feature(f) in _ABOUT_DATA}
    for feature, used in _types_in_use(metadata).items():
        if used:
            kept.setdefault(feature.lower(), feature)
    reader = sorted(kept.values())
    if not reader:
        return {"minReaderVersion": 1, "minWriterVersion": 4 if change_feed else 2}
    writer = sorted([*reader, *(["changeDataFeed"] if change_feed else [])])
    return {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": reader, "writerFeatures": writer}


def _types_in_use(metadata: Metadata) -> dict[str, bool]:
    """Tell which types that need a feature the schema has; in parquet format no feature is listed."""
    names = set(_type_names(json.loads(metadata.schema_string)))
    return {"timestampNtz": "timestamp_ntz" in names, "variantType": "variant" in names}


def _type_names(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key in ("type", "elementType", "keyType", "valueType"):
            yield from _type_names(value.get(key))
        for field in value.get("fields") or ():
            yield from _type_names(field)


def local_metadata(
    protocol: Protocol, metadata: Metadata, table_id: str, *, extra: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """Return the `metaData` action of a local copy.

    Args:
        protocol: the shared table's, which enables column mapping and deletion vectors.
        metadata: the shared table's.
        table_id: the id of the copy if the server sends none.
        extra: properties that the copy has besides.
    """
    features = {canonical_feature(feature) for feature in protocol.required_features}
    configuration = {
        name: value for name, value in metadata.configuration.items() if not name.lower().startswith(_DROPPED)
    }
    if not protocol.maps_columns:
        configuration = {n: v for n, v in configuration.items() if not n.startswith("delta.columnMapping.")}
    if "deletionvectors" not in features:
        configuration.pop("delta.enableDeletionVectors", None)
    described: dict[str, Any] = {
        "id": metadata.id or table_id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(_without_rules(json.loads(metadata.schema_string)), separators=(",", ":")),
        "partitionColumns": list(metadata.partition_columns),
        "configuration": configuration | dict(extra or {}),
        "createdTime": metadata.created_time,
    }
    return {name: value for name, value in described.items() if value is not None}


def _without_rules(value: Any) -> Any:
    """Copy a schema without what only binds its writers."""
    if isinstance(value, list):
        return [_without_rules(item) for item in value]
    if not isinstance(value, dict):
        return value
    copied = {key: _without_rules(item) for key, item in value.items() if key != "metadata"}
    if "metadata" in value:
        copied["metadata"] = {
            key: item
            for key, item in (value["metadata"] or {}).items()
            if not key.lower().startswith(_DROPPED_OF_COLUMNS) and key not in _DROPPED_DEFAULTS
        }
    return copied


def partition_names(protocol: Protocol, metadata: Metadata, schema: StructType) -> list[str]:
    """Return the names that the log has for the partition columns, outermost first."""
    mode = mapping_mode(metadata.configuration) if protocol.maps_columns else "none"
    names = []
    for name in metadata.partition_columns:
        column = schema.find(name)
        names.append(name if column is None else physical_name(column, mode))
    return names


def partition_values(
    values: Mapping[str, str | None], names: list[str], metadata: Metadata
) -> dict[str, str | None]:
    """Return a file's partition values by their names in the log; one that the server left out is null.

    Args:
        values: the values as the server sent them.
        names: the names in the log, in the order of the metadata's partition columns.
        metadata: the table's.
    """
    folded = {name.lower(): value for name, value in values.items()}
    found: dict[str, str | None] = {}
    for name, logical in zip(names, metadata.partition_columns, strict=True):
        found[name] = folded.get(name.lower(), folded.get(logical.lower()))
    return found
