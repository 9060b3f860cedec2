"""Columns of Delta tables that deltalake writes: types, Arrow rows, and checks that deltalake lacks.

Serves "Schema Serialization Format", "Partition Value Serialization" and "Per-file Statistics".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import SinkError, UnsupportedTypeError
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    nested_fields,
)
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import holds_variant, is_variant
from delta_sharing_client.parquet.tasks import VariantForm

if TYPE_CHECKING:
    from deltalake import Schema, WriterProperties

#: Characters in column names that require column mapping.
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_CHAR: Final = "__CHAR_VARCHAR_TYPE_STRING"
_VARIANT: Final = pa.struct(
    [pa.field("metadata", pa.binary(), nullable=False), pa.field("value", pa.binary(), nullable=False)]
)
#: Column types for which deltalake writes exact bounds.
_WITH_BOUNDS: Final = frozenset(
    {"byte", "short", "integer", "long", "boolean", "string", "date", "timestamp", "timestamp_ntz"}
)
#: Decimals of more digits lose some in statistics: as doubles, or truncated to 64 bits.
_EXACT_DIGITS: Final = 15
#: Types of partition columns that deltalake 1.6.6 writes incorrectly: a negative decimal as ``-1.-25``, for
#: example.
_NO_PARTITION: Final = ("decimal", "binary", "variant", "array", "map", "struct")
#: deltalake fails on statistics of dates beyond the year 262,142. Days since the epoch.
_LAST_DAY: Final = 95_000_000


def stored_schema(schema: StructType, variant: VariantForm, target: str) -> StructType:
    """Return the columns of the Delta table: all nullable; variants that were read as JSON are strings.

    Raises:
        UnsupportedTypeError: a variant is inside another type, or a type is unknown.
    """
    fields = []
    for field in schema:
        kind = field.type
        if variant == "json":
            kind = _as_string(kind)
        elif holds_variant(kind) and not is_variant(kind):
            raise UnsupportedTypeError(
                f"{target}: the column {field.name!r} has variants inside {kind}, which this release does not "
                "write; poll with variant='json', or leave the column out",
                type_name=str(kind),
            )
        comment = {key: value for key, value in field.metadata.items() if key == "comment"}
        fields.append(StructField(field.name, kind, True, comment))
    return StructType(tuple(fields))


def _as_string(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType(tuple(StructField(f.name, _as_string(f.type), f.nullable) for f in kind))
    if isinstance(kind, ArrayType):
        return ArrayType(_as_string(kind.element), kind.contains_null)
    if isinstance(kind, MapType):
        return MapType(_as_string(kind.key), _as_string(kind.value), kind.value_contains_null)
    return PrimitiveType("string") if is_variant(kind) else kind


def needs_mapping(schema: StructType) -> list[str]:
    """Return the names, including nested ones, that require column mapping."""
    return [field.name for field in nested_fields(schema) if _NEEDS_MAPPING.search(field.name)]


def delta_schema(schema: StructType) -> Schema:
    """Return deltalake's schema of columns, with variants and comments."""
    from deltalake import Schema

    described = json.loads(Schema.from_arrow(table_arrow_schema(schema)).to_json())
    for field, raw in zip(schema, described["fields"], strict=True):
        if is_variant(field.type):
            raw["type"] = "variant"
    return Schema.from_json(json.dumps(described))


def table_arrow_schema(schema: StructType) -> pa.Schema:
    """Return the Arrow schema of the rows to write."""
    return pa.schema(
        [
            pa.field(field.name, _VARIANT if is_variant(field.type) else arrow_type(field.type), metadata=comment)
            for field in schema
            for comment in [{"comment": str(field.metadata["comment"])} if "comment" in field.metadata else None]
        ]
    )


def table_rows(rows: pa.Table, names: Mapping[str, str], schema: StructType) -> pa.Table:
    """Return the rows of a batch with all columns of a table, in its order; missing columns are null.

    `names` are the table's names of the batch's columns.
    """
    given = {names[name]: rows.column(name) for name in rows.column_names}
    arrow = table_arrow_schema(schema)
    columns = []
    for field in arrow:
        column = given.get(field.name)
        if column is None:
            columns.append(pa.nulls(rows.num_rows, field.type))
        elif field.type == _VARIANT:
            columns.append(_variant(column.combine_chunks()))
        else:
            columns.append(column)
    return pa.Table.from_arrays(columns, schema=arrow)


def _variant(column: pa.StructArray | pa.ChunkedArray) -> pa.StructArray:
    if isinstance(column, pa.ChunkedArray):
        column = pa.concat_arrays(column.chunks or [pa.array([], column.type)])
    parts = [pc.fill_null(column.field(name), b"") for name in ("metadata", "value")]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(_VARIANT), mask=mask)


def check_partitions(schema: StructType, partition_columns: Sequence[str], target: str) -> None:
    """Raise `UnsupportedTypeError` for a partition column that deltalake writes incorrectly."""
    for field in schema:
        if field.name in partition_columns and str(field.type).startswith(_NO_PARTITION):
            raise UnsupportedTypeError(
                f"{target}: the table is partitioned by {field.name!r}, which is {field.type}; this release does "
                "not write such partition values",
                type_name=str(field.type),
            )


def check_values(
    rows: Iterable[pa.Table], schema: StructType, partition_columns: Sequence[str], target: str
) -> Iterator[pa.Table]:
    """Yield rows after the checks that deltalake lacks; raise `SinkError`.

    A string must not be longer than its column's `char(n)` or `varchar(n)`, a partition value not be the empty
    string, a date not be beyond the year 262,142.
    """
    for table in rows:
        for field in schema:
            if str(field.type) == "string":
                longest = re.fullmatch(r"(?:var)?char\(\s*(\d+)\s*\)", str(field.metadata.get(_CHAR, "")))
                if longest is not None or field.name in partition_columns:
                    _check_strings(table.column(field.name), field, longest, target)
            elif str(field.type) == "date":
                _check_dates(table.column(field.name), field, target)
        yield table


def _check_strings(
    column: pa.ChunkedArray, field: StructField, longest: re.Match[str] | None, target: str
) -> None:
    lengths = pc.min_max(pc.utf8_length(column))
    shortest, found = lengths["min"].as_py(), lengths["max"].as_py() or 0
    if longest is not None and found > int(longest[1]):
        raise SinkError(
            f"the column {field.name!r} is {longest[0]} there, and the batch has a text of {found} characters",
            target=target,
            columns=[field.name],
        )
    if longest is None and shortest == 0:
        raise SinkError(
            f"the partition column {field.name!r} has an empty text, which a Delta table stores as null",
            target=target,
            columns=[field.name],
        )


def _check_dates(column: pa.ChunkedArray, field: StructField, target: str) -> None:
    bounds = pc.min_max(column.cast(pa.int32()))
    if (bounds["max"].as_py() or 0) > _LAST_DAY or (bounds["min"].as_py() or 0) < -_LAST_DAY:
        raise SinkError(
            f"the column {field.name!r} has a date beyond the year 262,142, which deltalake does not write",
            target=target,
            columns=[field.name],
        )


def writer_properties(schema: StructType, physical_names: Mapping[str, str]) -> WriterProperties:
    """Return the properties of Parquet files: compression, and statistics only for types with exact bounds.

    Decimals of more than 15 digits have no statistics: deltalake truncates their bounds to 64 bits. Floats have
    none, because bounds ignore NaN, and no dictionary, in which a search for 0.0 misses -0.0.

    Args:
        schema: the table's columns.
        physical_names: their names in its files.
    """
    from deltalake import ColumnProperties, WriterProperties

    plain = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False)
    bounds = ColumnProperties(statistics_enabled="CHUNK", dictionary_enabled=True)
    columns = {}
    floats_inside = False
    for field in schema:
        kind, name = field.type, physical_names.get(field.name, field.name)
        if isinstance(kind, DecimalType):
            if kind.precision <= _EXACT_DIGITS:
                columns[name] = bounds
        elif str(kind) in _WITH_BOUNDS:
            columns[name] = bounds
        elif str(kind) in ("float", "double"):
            columns[name] = plain
        else:
            floats_inside = floats_inside or re.search(r"\b(float|double)\b", str(kind)) is not None
    others = ColumnProperties(statistics_enabled="NONE", dictionary_enabled=not floats_inside)
    return WriterProperties(
        compression="SNAPPY", default_column_properties=others, column_properties=columns or None
    )
