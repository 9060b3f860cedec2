"""Table schemas as Spark schemas, type by type; every column and field is nullable."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_sharing_client.errors import ColumnError, UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    GeospatialType,
    MapType,
    StructType,
    UnknownType,
    nested_types,
    parse_schema,
)
from delta_sharing_client.parquet.cast import holds_variant, is_variant
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

#: The first Spark with a type for variants.
VARIANT_SINCE = (4, 0)


def spark_schema(schema: StructType, variant: VariantForm, version: tuple[int, int]) -> SparkStruct:
    """Return the Spark schema of columns, for a release of Spark; with ``json`` variants are text.

    Raises:
        UnsupportedTypeError: a column has a type that this package or this Spark lacks.
    """
    from pyspark.sql.types import StructType as SparkStruct

    if variant == "struct" and version < VARIANT_SINCE:
        for field in schema:
            if holds_variant(field.type):
                raise UnsupportedTypeError(
                    f"column {field.name!r} has the type variant, which Spark {version[0]}.{version[1]} lacks: "
                    "load it as text with variant='json', leave it out with columns=[...], or use Spark 4",
                    type_name="variant",
                )
    fields = [
        {"name": f.name, "type": _json(f.type, variant), "nullable": True, "metadata": _comment(f.metadata)}
        for f in schema
    ]
    return SparkStruct.fromJson({"type": "struct", "fields": fields})


def quoted(name: str) -> str:
    """Return a column's name as Spark's functions parse it, with any characters."""
    return "`" + name.replace("`", "``") + "`"


def requested_columns(given: SparkStruct, schema: StructType, variant: VariantForm) -> tuple[str, ...]:
    """Return the names of the table's columns that a user's ``.schema(...)`` selects.

    Raises:
        ColumnError: a column is missing in the table, has another type there, or is NOT NULL in the schema.
    """
    wanted = parse_schema(given.json())
    if not wanted.fields:
        raise ColumnError("the schema given has no columns; name at least one")
    for field in wanted:
        found = schema.find(field.name)
        if found is None:
            raise ColumnError(
                f"the schema given names {field.name!r}, which the table lacks; it has {', '.join(schema.names)}",
                columns=[field.name],
            )
        actual = _json(found.type, variant)
        if _json(field.type, variant) != actual:
            raise ColumnError(
                f"the schema given has {field.name!r} as {field.type}, the table has it as "
                f"{'string' if actual == 'string' else found.type}: load it as it is, then cast it",
                columns=[field.name],
            )
        if not field.nullable or _has_required_part(field.type):
            raise ColumnError(
                f"the schema given has {field.name!r} as NOT NULL, which a shared table does not guarantee: leave "
                "NOT NULL out",
                columns=[field.name],
            )
    return tuple(wanted.names)


def _json(data_type: DataType, variant: VariantForm) -> Any:
    """A type in Spark's JSON, all parts nullable."""
    if isinstance(data_type, ArrayType):
        return {"type": "array", "elementType": _json(data_type.element, variant), "containsNull": True}
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": _json(data_type.key, variant),
            "valueType": _json(data_type.value, variant),
            "valueContainsNull": True,
        }
    if isinstance(data_type, StructType):
        fields = [
            {"name": f.name, "type": _json(f.type, variant), "nullable": True, "metadata": {}} for f in data_type
        ]
        return {"type": "struct", "fields": fields}
    if isinstance(data_type, UnknownType):
        raise data_type.error()
    if variant == "json" and is_variant(data_type):
        return "string"
    if isinstance(data_type, GeospatialType):
        return "binary"
    return str(data_type)


def _has_required_part(kind: DataType) -> bool:
    """Whether a nested type has an element, value or field that is not nullable."""
    return any(
        (isinstance(part, ArrayType) and not part.contains_null)
        or (isinstance(part, MapType) and not part.value_contains_null)
        or (isinstance(part, StructType) and not all(field.nullable for field in part))
        for part in nested_types(kind)
    )


def _comment(metadata: Any) -> dict[str, str]:
    """A column's comment, the only part of its metadata that readers need."""
    comment = metadata.get("comment")
    return {"comment": comment} if isinstance(comment, str) else {}
