"""Columns of a table for its log: names, physical names, Arrow types of statistics.

Serves "Schema Serialization Format", "Column Mapping" and "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.actions import Metadata

_DECIMAL: Final = re.compile(r"decimal\(\s*(\d{1,3})\s*,\s*(-?\d{1,3})\s*\)", re.ASCII)
_PHYSICAL: Final = "delta.columnMapping.physicalName"


def fields_of(metadata: Metadata) -> list[dict[str, Any]]:
    """Return the top-level fields of a table's schema as their JSON objects.

    Raises:
        DeltaLogError: `schemaString` is no schema.
    """
    try:
        schema = json.loads(metadata.schema_string)
        fields = schema["fields"]
        ok = schema["type"] == "struct" and all(isinstance(f["name"], str) and f["type"] for f in fields)
    except (ValueError, LookupError, TypeError, RecursionError):
        ok = False
    if not ok:
        raise DeltaLogError("the metadata's schemaString is not a schema")
    return list(fields)


def maps_columns(metadata: Metadata) -> bool:
    """Return whether the table's properties enable column mapping."""
    return metadata.configuration.get("delta.columnMapping.mode", "none").lower() in ("id", "name")


def name_in_log(field: dict[str, Any], *, mapped: bool) -> str:
    """Return the name that partition values and statistics have for a field."""
    if mapped:
        physical = (field.get("metadata") or {}).get(_PHYSICAL)
        if isinstance(physical, str):
            return physical
    return str(field["name"])


def partition_fields(metadata: Metadata) -> dict[str, dict[str, Any]]:
    """Return the partition columns by their names in the log, in the order of the metadata.

    Raises:
        DeltaLogError: one of them is not in the schema.
    """
    mapped = maps_columns(metadata)
    by_name = {str(field["name"]).lower(): field for field in fields_of(metadata)}
    found: dict[str, dict[str, Any]] = {}
    for name in metadata.partition_columns:
        field = by_name.get(name.lower())
        if field is None:
            raise DeltaLogError(f"the partition column {name!r} is not in the schema")
        found[name_in_log(field, mapped=mapped)] = field
    return found


def all_fields(metadata: Metadata) -> Iterator[dict[str, Any]]:
    """Yield every struct field of the schema, nested ones after the column that holds them."""
    pending: list[Any] = list(reversed(fields_of(metadata)))
    while pending:
        item = pending.pop()
        if not isinstance(item, dict):
            continue
        if "name" in item:
            yield item
        inner = [item.get(key) for key in ("elementType", "keyType", "valueType")]
        if item.get("type") == "struct":
            inner += item.get("fields") or []
        elif isinstance(item.get("type"), dict):
            inner.append(item["type"])
        pending += reversed([child for child in inner if child is not None])


def arrow_type(type_name: object) -> Any:
    """Return the Arrow type of a primitive type's values, or None for a type without an order.

    Args:
        type_name: the field's `type` in the schema: text for a primitive type.
    """
    import pyarrow as pa

    if not isinstance(type_name, str):
        return None
    decimal = _DECIMAL.fullmatch(type_name)
    if type_name == "decimal":
        return pa.decimal128(10, 0)
    if decimal is not None and 1 <= int(decimal[1]) <= 38 and 0 <= int(decimal[2]) <= int(decimal[1]):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    kinds = {
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    if type_name.startswith(("char(", "varchar(")):
        return pa.string()
    return kinds.get(type_name)
