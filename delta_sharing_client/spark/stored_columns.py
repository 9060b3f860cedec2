"""The columns of Parquet files, from their footers, in the names and types that Spark's reader must request.

Spark finds a column of a file by its name, and reads it in about its stored type. Columns mapped by id have any
names, and columns of a widened type other types. Files that Spark would read differently from this package, or not
at all, are recognised here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    nested_types,
)
from delta_sharing_client.model.type_widening import is_widening
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.parquet.cast import FieldFinder, holds_variant, is_variant
from delta_sharing_client.parquet.legacy_calendar import LegacyCalendar, find_zone
from delta_sharing_client.parquet.size_limits import footer_limits
from delta_sharing_client.storage.byte_source import Buffer

#: The first Spark that opens Parquet files with groups annotated as variants.
VARIANT_FILES_SINCE: Final = (4, 1)

_STORED: Final = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
}


class NotForSparkError(Exception):
    """Spark would read a file differently from this package, or not at all."""


@dataclass(frozen=True)
class Footer:
    """A file's footer.

    Attributes:
        schema: its columns, with their field ids. Timestamps of 96 bits have the unit s, which Parquet lacks.
        calendar: its metadata about the legacy calendar.
    """

    schema: pa.Schema
    calendar: LegacyCalendar | None


def parse_footer(data: Buffer, file_id: str, limit: int) -> Footer:
    """Return the footer of a file.

    Args:
        data: the file, or its end with the whole footer.
        file_id: its id, for messages.
        limit: the maximum bytes of the footer.

    Raises:
        DataError: the file is damaged, or is no Parquet file, or its footer is beyond the limit.
    """
    limits = footer_limits(data, limit, file_id)
    try:
        file = pq.ParquetFile(
            pa.BufferReader(pa.py_buffer(data)),
            coerce_int96_timestamp_unit="s",
            **limits,
        )
        schema, metadata = file.schema_arrow, file.metadata
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DataError(f"not a readable Parquet file: {str(error)[:300]}", file_id=file_id) from None
    return Footer(schema.remove_metadata(), LegacyCalendar.of(metadata.metadata))


def stored_columns(
    footer: Footer, wanted: Sequence[StructField], mode: MappingMode, file_id: str, version: tuple[int, int]
) -> StructType | None:
    """Return the names and types of columns in a file, for a release of Spark.

    Returns:
        A field for each column, in that order; a column that the file lacks has a name that the file lacks. None
        if Spark would read the file differently from this package, or not at all.

    Raises:
        DataError: the table maps columns by id, and the file has no ids.
        UnsupportedTypeError: a column has a type that this package lacks.
    """
    calendar = footer.calendar
    if calendar is not None and (
        "maybe" in (calendar.times, calendar.int96)
        or calendar.time_zone is None
        or find_zone(calendar.time_zone) is None
    ):
        return None
    fields = [footer.schema.field(i) for i in range(len(footer.schema))]
    if version < VARIANT_FILES_SINCE and (
        any(_may_be_variant(field.type) for field in fields) or any(holds_variant(field.type) for field in wanted)
    ):
        return None
    finder = FieldFinder(mode, file_id)
    try:
        return _struct(StructType(tuple(wanted)), fields, finder)
    except NotForSparkError:
        return None


def _struct(wanted: StructType, fields: Sequence[pa.Field], finder: FieldFinder) -> StructType:
    """The fields of a struct, or of the table, in a file."""
    places = [finder.find(field, fields) for field in wanted]
    found = [place for place in places if place is not None]
    taken = {field.name.lower() for field in fields}
    if len(taken) != len(fields) or len(set(found)) != len(found):
        # To Spark, names that differ only by case are one name.
        raise NotForSparkError
    stored = []
    for field, place in zip(wanted, places, strict=True):
        if place is None:
            _check_known(field.type)
            stored.append(StructField(_absent(physical_name(field, finder.mode), taken), field.type))
        else:
            kind = _stored(field.type, fields[place].type, finder)
            stored.append(StructField(fields[place].name, kind))
    return StructType(tuple(stored))


def _absent(name: str, taken: set[str]) -> str:
    """A name that the file lacks: its own may be that of another column there."""
    while name.lower() in taken:
        name = f"_{name}"
    taken.add(name.lower())
    return name


def _check_known(kind: DataType) -> None:
    """Raise for a column whose type Spark cannot request."""
    arrow_type(kind)
    if PrimitiveType("void") in nested_types(kind):
        raise NotForSparkError


def _stored(wanted: DataType, arrow: pa.DataType, finder: FieldFinder) -> DataType:
    if is_variant(wanted):
        # Spark finds the parts of a variant, shredded or not.
        if not _may_be_variant(arrow):
            raise NotForSparkError
        return wanted
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if pa.types.is_dictionary(arrow):
        arrow = arrow.value_type
    if isinstance(wanted, StructType):
        if not pa.types.is_struct(arrow):
            raise NotForSparkError
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        if all(finder.find(field, fields) is None for field in wanted):
            # Spark before 4.1 reads such a struct as null.
            raise NotForSparkError
        return _struct(wanted, fields, finder)
    if isinstance(wanted, ArrayType):
        if not (pa.types.is_list(arrow) or pa.types.is_large_list(arrow)):
            raise NotForSparkError
        return ArrayType(_stored(wanted.element, arrow.value_type, finder))
    if isinstance(wanted, MapType):
        if not pa.types.is_map(arrow):
            raise NotForSparkError
        key = _stored(wanted.key, arrow.key_type, finder)
        if key == PrimitiveType("date") != wanted.key:
            # Spark 3.5 does not cast keys of a map from dates.
            raise NotForSparkError
        return MapType(key, _stored(wanted.value, arrow.item_type, finder))
    stored = _leaf_type(arrow)
    if is_widening(stored, wanted):
        return stored
    raise NotForSparkError


def _leaf_type(arrow: pa.DataType) -> DataType:
    """The type in which Spark reads a column that is not nested."""
    name = _STORED.get(arrow)
    if pa.types.is_decimal128(arrow):
        return DecimalType(arrow.precision, arrow.scale)
    if pa.types.is_timestamp(arrow):
        if arrow.unit == "s" or (arrow.unit != "ns" and arrow.tz is not None):
            name = "timestamp"
        elif arrow.unit != "ns":
            name = "timestamp_ntz"
    if name is None:
        raise NotForSparkError
    return PrimitiveType(name)


def _may_be_variant(arrow: pa.DataType) -> bool:
    """Whether a type is or contains a group with the fields of a variant."""
    if isinstance(arrow, pa.BaseExtensionType):
        arrow = arrow.storage_type
    if pa.types.is_struct(arrow):
        names = {arrow.field(i).name for i in range(arrow.num_fields)}
        if "metadata" in names and names <= {"metadata", "value", "typed_value"}:
            return True
        return any(_may_be_variant(arrow.field(i).type) for i in range(arrow.num_fields))
    if pa.types.is_map(arrow):
        return _may_be_variant(arrow.key_type) or _may_be_variant(arrow.item_type)
    return bool(pa.types.is_nested(arrow)) and _may_be_variant(arrow.value_type)
