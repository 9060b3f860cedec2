"""Iceberg schemas as table schemas, so that columns, filters and Arrow types are those of Delta tables.

`timestamptz` is `timestamp`, `timestamp` is `timestamp_ntz`; `uuid` and `fixed` are `binary`. Types without a
counterpart (`time`, `timestamp_ns`, ...) are unknown types: their columns can be left out, but not read.
"""

from __future__ import annotations

from typing import Final

from pyiceberg import types as iceberg
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
)

_PRIMITIVES: Final[dict[type[iceberg.IcebergType], str]] = {
    iceberg.BooleanType: "boolean",
    iceberg.IntegerType: "integer",
    iceberg.LongType: "long",
    iceberg.FloatType: "float",
    iceberg.DoubleType: "double",
    iceberg.DateType: "date",
    iceberg.TimestampType: "timestamp_ntz",
    iceberg.TimestamptzType: "timestamp",
    iceberg.StringType: "string",
    iceberg.BinaryType: "binary",
    iceberg.FixedType: "binary",
    iceberg.UUIDType: "binary",
}


class IcebergType(UnknownType, frozen=True):
    """A type of Iceberg without a counterpart in the tables of this package."""

    def error(self) -> UnsupportedTypeError:
        """Return the error for reading a column of this type."""
        return UnsupportedTypeError(
            f"column {self.column!r} has the Iceberg type {self.name!r}, which no output of this package has; "
            "leave the column out: name the others with columns=[...]",
            type_name=self.name,
        )


def table_schema(schema: Schema, spec: PartitionSpec | None = None) -> StructType:
    """Return an Iceberg schema as a table schema; the partition columns are those of identity transforms."""
    identities = (
        {f.source_id for f in spec.fields if isinstance(f.transform, IdentityTransform)} if spec else set()
    )
    partitions = tuple(column.name for column in schema.fields if column.field_id in identities)
    return StructType(tuple(_field(field, "") for field in schema.fields), partition_columns=partitions)


def _field(field: iceberg.NestedField, parent: str) -> StructField:
    path = f"{parent}.{field.name}" if parent else field.name
    metadata = {"comment": field.doc} if field.doc else {}
    return StructField(field.name, _type(field.field_type, path), not field.required, metadata)


def _type(kind: iceberg.IcebergType, path: str) -> DataType:
    if isinstance(kind, iceberg.StructType):
        return StructType(tuple(_field(field, path) for field in kind.fields))
    if isinstance(kind, iceberg.ListType):
        return ArrayType(_type(kind.element_type, f"{path}.element"), not kind.element_required)
    if isinstance(kind, iceberg.MapType):
        key, value = _type(kind.key_type, f"{path}.key"), _type(kind.value_type, f"{path}.value")
        return MapType(key, value, not kind.value_required)
    if isinstance(kind, iceberg.DecimalType):
        return DecimalType(kind.precision, kind.scale)
    name = _PRIMITIVES.get(type(kind))
    return IcebergType(str(kind), path) if name is None else PrimitiveType(name)
