"""Columns of a table under the names that partition values and statistics have in its log.

Serves "Schema Serialization Format" and "Column Mapping".
"""

from __future__ import annotations

from delta_sharing_client.errors import DeltaLogError, ProtocolError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.column_mapping import mapping_mode
from delta_sharing_client.model.schema import StructField, StructType

PHYSICAL_NAME = "delta.columnMapping.physicalName"


def check_encoding(metadata: Metadata) -> None:
    """Raise `DeltaLogError` if the metadata has no schema, or the table's files are not Parquet files."""
    if metadata.raw.get("schemaString") is None:
        raise DeltaLogError("the metadata lacks schemaString")
    if metadata.format.provider != "parquet":
        raise DeltaLogError(
            f"the table's files have the format {metadata.format.provider!r}; this release reads and writes "
            "parquet alone"
        )


def schema_of(metadata: Metadata) -> StructType:
    """Return the columns of a table; raise `DeltaLogError` if `schemaString` is not a schema."""
    try:
        return metadata.schema
    except ProtocolError as error:
        raise DeltaLogError(f"the metadata's schemaString is not a schema: {error}") from None


def maps_columns(metadata: Metadata) -> bool:
    """Return whether the table's properties enable column mapping."""
    return mapping_mode(metadata.configuration) != "none"


def name_in_log(field: StructField, *, mapped: bool) -> str:
    """Return the name that partition values and statistics have for a field."""
    return str(field.metadata.get(PHYSICAL_NAME) or field.name) if mapped else field.name


def partition_fields(metadata: Metadata) -> dict[str, StructField]:
    """Return the partition columns by their names in the log, in the order of the metadata.

    Raises:
        DeltaLogError: one of them is not in the schema.
    """
    mapped = maps_columns(metadata)
    schema = schema_of(metadata)
    found: dict[str, StructField] = {}
    for name in metadata.partition_columns:
        field = schema.find(name)
        if field is None:
            raise DeltaLogError(f"the partition column {name!r} is not in the schema")
        found[name_in_log(field, mapped=mapped)] = field
    return found
