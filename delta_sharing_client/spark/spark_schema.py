"""A table's columns in Spark's terms; the types are taken over one by one, and everything may be null."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from delta_sharing_client.errors import ColumnError, UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructType,
    UnknownType,
    parse_schema,
)
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    from pyspark.sql.types import StructType as SparkStruct

#: The first Spark with a type for variants.
VARIANT_SINCE = (4, 0)


def spark_schema(schema: StructType, variant: VariantForm, version: tuple[int, int]) -> SparkStruct:
    """Return the Spark schema of a table or of a projection of it.

    Args:
        schema: the columns.
        variant: ``struct`` for Spark's own variant type, ``json`` for text.
        version: Spark's version.

    Raises:
        UnsupportedTypeError: a column has a type that this release or this Spark does not know.
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


def asked_columns(asked: SparkStruct, schema: StructType, variant: VariantForm) -> tuple[str, ...]:
    """Return the names of the columns that a user's own schema asks for.

    Args:
        asked: what stands in ``.schema(...)``.
        schema: the table's columns.
        variant: what variants are read as.

    Raises:
        ColumnError: it names a column that the table lacks, or gives one another type, or says NOT NULL.
    """
    wanted = parse_schema(asked.json())
    if not wanted.fields:
        raise ColumnError("the schema given has no columns; name one at least")
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
                f"{'string' if actual == 'string' else found.type}: load it as it is, and cast it then",
                columns=[field.name],
            )
        if not field.nullable or _promises(field.type):
            raise ColumnError(
                f"the schema given says that {field.name!r} holds no nulls, which nobody can promise of a shared "
                "table: leave NOT NULL out",
                columns=[field.name],
            )
    return tuple(wanted.names)


def holds_variant(data_type: DataType) -> bool:
    """Tell whether a type is variant or has one inside."""
    if isinstance(data_type, ArrayType):
        return holds_variant(data_type.element)
    if isinstance(data_type, MapType):
        return holds_variant(data_type.key) or holds_variant(data_type.value)
    if isinstance(data_type, StructType):
        return any(holds_variant(field.type) for field in data_type)
    return isinstance(data_type, PrimitiveType) and data_type.name == "variant"


def _json(data_type: DataType, variant: VariantForm) -> Any:
    """A type as Spark's JSON spells it, every part of it nullable."""
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
    if variant == "json" and data_type == PrimitiveType("variant"):
        return "string"
    return str(data_type)


def _promises(data_type: DataType) -> bool:
    """Whether a type says somewhere inside that there are no nulls."""
    if isinstance(data_type, ArrayType):
        return not data_type.contains_null or _promises(data_type.element)
    if isinstance(data_type, MapType):
        return not data_type.value_contains_null or _promises(data_type.key) or _promises(data_type.value)
    if isinstance(data_type, StructType):
        return any(not field.nullable or _promises(field.type) for field in data_type)
    return False


def _comment(metadata: Any) -> dict[str, str]:
    """Of what the provider keeps with a column only its comment means anything to a reader."""
    comment = metadata.get("comment")
    return {"comment": comment} if isinstance(comment, str) else {}
