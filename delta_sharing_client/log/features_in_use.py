"""Table features that a table's properties, schema, files and domains use, each with what uses it.

Serves "Table Features", "Type Widening", "Variant Shredding" and "Column Mapping". A protocol that lacks a reader
feature in use makes other engines read wrong rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from delta_sharing_client.log.log_schema import maps_columns, name_in_log, schema_of
from delta_sharing_client.log.snapshot import LogState
from delta_sharing_client.log.table_features import feature_name
from delta_sharing_client.log.table_properties import flag_property
from delta_sharing_client.model.actions import AddFile, Metadata, Protocol
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructType,
    UnknownType,
    nested_fields,
    nested_types,
)

TYPE_CHANGES: Final = "delta.typeChanges"
#: The properties that are ``true`` if a feature is in use.
_FLAGS: Final = {
    "delta.appendOnly": "appendOnly",
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.enableDeletionVectors": "deletionVectors",
    "delta.enableInCommitTimestamps": "inCommitTimestamp",
    "delta.enableRowTracking": "rowTracking",
    "delta.enableTypeWidening": "typeWidening",
    "delta.enableVariantShredding": "variantShredding",
}
#: Prefixes of the keys in a field's metadata that a feature writes there.
_FIELD_KEYS: Final = {
    "delta.invariants": "invariants",
    "delta.generationExpression": "generatedColumns",
    "delta.identity.": "identityColumns",
    "CURRENT_DEFAULT": "allowColumnDefaults",
}
_TYPES: Final = {"timestamp_ntz": "timestampNtz", "variant": "variantType"}
_PROPERTIES: Final = "the table's properties require"


def features_of_schema(schema: StructType) -> dict[str, str]:
    """Return the reader features that a schema needs: by name, a clause such as ``the column 'a' requires``."""
    found: dict[str, str] = {}
    for column in schema:
        for kind in nested_types(column.type):
            feature = _TYPES.get(kind.name) if isinstance(kind, PrimitiveType) else None
            if isinstance(kind, GeospatialType):
                feature = "geospatial"
            if feature is not None:
                found.setdefault(feature, f"the column {column.name!r} ({kind}) requires")
    for field in nested_fields(schema):
        if field.metadata.get(TYPE_CHANGES) not in (None, [], "[]"):
            found.setdefault("typeWidening", f"the type changes that the field {field.name!r} lists require")
    return found


def features_in_use(metadata: Metadata, state: LogState) -> dict[str, str]:
    """Return the features that a table uses, except in its files: by name, with a clause as `features_of_schema`.

    Args:
        metadata: the table's metadata.
        state: the table's domains.
    """
    schema = schema_of(metadata)
    found = features_of_schema(schema)
    found |= dict.fromkeys(_of_properties(metadata.configuration), _PROPERTIES)
    if maps_columns(metadata):
        found["columnMapping"] = _PROPERTIES
    for field in nested_fields(schema):
        for key in field.metadata:
            for prefix, feature in _FIELD_KEYS.items():
                if key.startswith(prefix):
                    found.setdefault(feature, f"the column {field.name!r} requires")
    for domain in state.domains:
        found.setdefault("domainMetadata", f"the domain {domain!r} requires")
        if domain == "delta.clustering":
            found["clustering"] = f"the domain {domain!r} requires"
    return found


def _of_properties(configuration: Mapping[str, str]) -> Iterator[str]:
    for name in configuration:
        folded = name.lower()
        if folded.startswith("delta.constraints."):
            yield "checkConstraints"
        elif folded.startswith("delta.enableicebergcompat") and flag_property(configuration, name):
            yield feature_name(folded.removeprefix("delta.enable"))
    yield from (feature for name, feature in _FLAGS.items() if flag_property(configuration, name))
    if configuration.get("delta.checkpointPolicy", "classic").lower() == "v2":
        yield "v2Checkpoint"


def vectors_in_use(files: Iterable[AddFile]) -> str | None:
    """Return a clause as `features_of_schema` if one of the files has a deletion vector."""
    for file in files:
        if file.deletion_vector is not None:
            return f"the deletion vector of the file {file.path!r} requires"
    return None


def renamed_in_files(before: tuple[Protocol, Metadata], after: tuple[Protocol, Metadata]) -> str | None:
    """Return a column that has another name in the files, if column mapping ends; None if there is none.

    If mapping begins, a column may have been renamed in the same commit, to any name.

    Args:
        before: protocol and metadata under which the files were written.
        after: protocol and metadata under which the files are read.
    """
    was_mapped, is_mapped = (protocol.maps_columns and maps_columns(data) for protocol, data in (before, after))
    if not was_mapped or is_mapped:
        return None
    old, new = (
        _names_in_files(schema_of(before[1]), mapped=True),
        _names_in_files(schema_of(after[1]), mapped=False),
    )
    return next((".".join(path) for path in new if path in old and new[path] != old[path]), None)


def _names_in_files(kind: DataType, *, mapped: bool, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], str]:
    """Return the name in files of each field, by the lower-case names of the fields that lead to it."""
    found: dict[tuple[str, ...], str] = {}
    if isinstance(kind, StructType):
        for field in kind:
            inner = (*path, field.name.lower())
            found[inner] = name_in_log(field, mapped=mapped)
            found |= _names_in_files(field.type, mapped=mapped, path=inner)
    elif isinstance(kind, ArrayType):
        found |= _names_in_files(kind.element, mapped=mapped, path=(*path, "element"))
    elif isinstance(kind, MapType):
        found |= _names_in_files(kind.key, mapped=mapped, path=(*path, "key"))
        found |= _names_in_files(kind.value, mapped=mapped, path=(*path, "value"))
    return found


def retyped_column(feature: str, before: Metadata, after: Metadata) -> str | None:
    """Return a column whose type needs a feature in `before`, and is another in `after`; None if there is none.

    Files that were written before still have the type. For a feature that adds types which this release does not
    know, those are the unknown types.
    """
    later, mapped = schema_of(after), maps_columns(after)
    names = {name_in_log(field, mapped=mapped).lower(): field for field in later}
    for field in schema_of(before):
        now = names.get(name_in_log(field, mapped=maps_columns(before)).lower())
        if now is not None and now.type != field.type and _uses(field.type, feature):
            return field.name
    return None


def unknown_type(metadata: Metadata) -> str | None:
    """Return a column with a type that this release does not know; None if there is none."""
    kinds = (kind for column in schema_of(metadata) for kind in nested_types(column.type))
    return next((kind.column or kind.name for kind in kinds if isinstance(kind, UnknownType)), None)


def _uses(kind: DataType, feature: str) -> bool:
    parts = list(nested_types(kind))
    if feature == "timestampNanos":
        return any(isinstance(part, UnknownType) for part in parts)
    if feature == "geospatial":
        return any(isinstance(part, GeospatialType) for part in parts)
    return any(isinstance(part, PrimitiveType) and _TYPES.get(part.name) == feature for part in parts)
