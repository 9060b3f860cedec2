"""The protocol and the metadata of a Delta table that a sink makes, or adds columns to.

Serves "Schema Serialization Format", "Column Mapping" and "Table Features" of the Delta protocol.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from delta_sharing_client.delta.log import Metadata, Protocol
from delta_sharing_client.delta.log.log_schema import fields_of, maps_columns
from delta_sharing_client.delta.log.table_features import WRITER_WITH_FEATURES, canonical, writer_features
from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.parquet.cast import holds_variant
from delta_sharing_client.parquet.tasks import VariantForm

#: A property of the tables that a sink made to be copies; a new snapshot may take the place of their rows.
MADE_BY_SINK: Final = "deltaSharing.sink"

_MODE: Final = "delta.columnMapping.mode"
_LAST_ID: Final = "delta.columnMapping.maxColumnId"
_ID: Final = "delta.columnMapping.id"
_PHYSICAL: Final = "delta.columnMapping.physicalName"
#: Properties that are about the columns that a table had.
_OF_COLUMNS: Final = ("delta.columnMapping.", "delta.dataSkippingStatsColumns")
#: What Delta allows in a column's name only where columns are mapped.
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")


def stored_schema(schema: StructType, variant: VariantForm, target: str) -> StructType:
    """Return the columns as a Delta table has them: variants that were read as JSON are texts.

    Args:
        schema: the batch's columns.
        variant: what variants were read as.
        target: the table, for messages.

    Raises:
        UnsupportedTypeError: a variant is inside another type; or a type is unknown.
    """
    fields = []
    for field in schema:
        kind = field.type
        if variant == "json":
            kind = _as_text(kind)
        elif holds_variant(kind) and not isinstance(kind, PrimitiveType):
            raise UnsupportedTypeError(
                f"{target}: the column {field.name!r} holds variants inside {kind}, which this release does not "
                "write; poll with variant='json', or leave the column out",
                type_name=str(kind),
            )
        comment = {key: value for key, value in field.metadata.items() if key == "comment"}
        fields.append(StructField(field.name, kind, True, comment))
    return StructType(tuple(fields))


def _as_text(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(tuple(StructField(f.name, _as_text(f.type), f.nullable) for f in kind))
    if isinstance(kind, ArrayType):
        return ArrayType(_as_text(kind.element), kind.contains_null)
    if isinstance(kind, MapType):
        return MapType(_as_text(kind.key), _as_text(kind.value), kind.value_contains_null)
    is_variant = isinstance(kind, PrimitiveType) and kind.name == "variant"
    return PrimitiveType("string") if is_variant else kind


def new_table(schema: StructType, *, copy: bool, before: Metadata | None = None) -> list[dict[str, Any]]:
    """Return the actions that make a table.

    Names that Delta takes only where columns are mapped make it one that maps them.

    Args:
        schema: its columns.
        copy: whether it is a copy of a shared table.
        before: what it was before, if it is made anew: its id and its properties are kept.
    """
    known = {} if before is None else before.configuration
    configuration = {name: value for name, value in known.items() if not name.startswith(_OF_COLUMNS)}
    configuration[MADE_BY_SINK] = "apply" if copy else "append"
    fields = [_field(field) for field in schema]
    features = _features(schema)
    if any(_NEEDS_MAPPING.search(name) for name in _names(fields)):
        # Ids are never given twice.
        configuration |= {_MODE: "name", _LAST_ID: str(_number(fields, int(known.get(_LAST_ID, 0))))}
        features.append("columnMapping")
    if features:
        listed = sorted(features)
        protocol: dict[str, Any] = {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": listed,
            "writerFeatures": listed,
        }
    else:
        protocol = {"minReaderVersion": 1, "minWriterVersion": 2}
    described = {
        "id": str(uuid.uuid4()) if before is None else before.id,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": _text(fields),
        "partitionColumns": [],
        "configuration": configuration,
        "createdTime": int(time.time() * 1000),
    }
    return [{"protocol": protocol}, {"metaData": described}]


def with_columns(protocol: Protocol, metadata: Metadata, added: StructType) -> list[dict[str, Any]]:
    """Return the actions that add columns to a table.

    Args:
        protocol: the table's.
        metadata: the table's.
        added: the new columns; every row that the table has is null there.
    """
    fields = [_field(field) for field in added]
    described = dict(metadata.raw)
    if maps_columns(metadata):
        configuration = metadata.configuration
        last = int(configuration.get(_LAST_ID, 0))
        described["configuration"] = configuration | {_LAST_ID: str(_number(fields, last))}
    described["schemaString"] = _text([*fields_of(metadata), *fields])
    upgraded = _upgraded(protocol, _features(added))
    return [*([{"protocol": upgraded}] if upgraded else []), {"metaData": described}]


def replaced_table(
    protocol: Protocol, metadata: Metadata, schema: StructType, *, copy: bool
) -> list[dict[str, Any]]:
    """Return the actions that give a table other columns, once all of its files go."""
    made = new_table(schema, copy=copy, before=metadata)
    wanted = made[0]["protocol"].get("readerFeatures", ())
    upgraded = _upgraded(protocol, wanted)
    return [*([{"protocol": upgraded}] if upgraded else []), made[1]]


def _upgraded(protocol: Protocol, features: Sequence[str]) -> dict[str, Any] | None:
    """Return the protocol with features besides; None where it has them."""
    in_force = writer_features(protocol)
    known = {canonical(name) for name in in_force}
    new = [name for name in features if canonical(name) not in known]
    if not new:
        return None
    reading = list(protocol.reader_features)
    if protocol.min_reader_version == 2:
        reading.append("columnMapping")
    described = dict(protocol.raw)
    described |= {
        "minReaderVersion": 3,
        "minWriterVersion": WRITER_WITH_FEATURES,
        "readerFeatures": sorted({*reading, *new}),
        "writerFeatures": sorted({*in_force, *new}),
    }
    return described


def _features(schema: StructType) -> list[str]:
    names = set(_type_names(schema))
    return [
        feature
        for feature, name in (("timestampNtz", "timestamp_ntz"), ("variantType", "variant"))
        if name in names
    ]


def _type_names(kind: DataType) -> Iterator[str]:
    if isinstance(kind, StructType):
        for field in kind:
            yield from _type_names(field.type)
    elif isinstance(kind, ArrayType):
        yield from _type_names(kind.element)
    elif isinstance(kind, MapType):
        yield from _type_names(kind.key)
        yield from _type_names(kind.value)
    else:
        yield str(kind)


def _text(fields: Iterable[Mapping[str, Any]]) -> str:
    return json.dumps({"type": "struct", "fields": list(fields)}, separators=(",", ":"), ensure_ascii=False)


def _field(field: StructField) -> dict[str, Any]:
    return {
        "name": field.name,
        "type": _type(field.type),
        "nullable": field.nullable,
        "metadata": {key: value for key, value in field.metadata.items() if key == "comment"},
    }


def _type(kind: DataType) -> Any:
    if isinstance(kind, StructType):
        return {"type": "struct", "fields": [_field(field) for field in kind]}
    if isinstance(kind, ArrayType):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": kind.contains_null}
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _type(kind.key),
            "valueType": _type(kind.value),
            "valueContainsNull": kind.value_contains_null,
        }
    return str(kind)


def _inner_fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the struct fields inside a type, outer ones first."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        yield field
        yield from _inner_fields(field["type"])
    for key in ("elementType", "keyType", "valueType"):
        yield from _inner_fields(kind.get(key))


def _all(fields: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for field in fields:
        yield field
        yield from _inner_fields(field["type"])


def _names(fields: Iterable[dict[str, Any]]) -> Iterator[str]:
    return (str(field["name"]) for field in _all(fields))


def _number(fields: Iterable[dict[str, Any]], last: int) -> int:
    """Give fields, and those inside them, ids and physical names; return the last id."""
    for field in _all(fields):
        last += 1
        field["metadata"] |= {_ID: last, _PHYSICAL: f"col-{uuid.uuid4()}"}
    return last
