"""Casts of decoded columns to the table schema, without changes of values.

Fields are found by column mapping or by name, ignoring case. Fields that a file lacks are null, fields that the
table lacks are dropped, narrower types of older files are widened. A cast that would change a value raises.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError, ProtocolError
from delta_sharing_client.model.column_mapping import MappingMode, field_id, physical_name
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    nested_types,
)
from delta_sharing_client.parquet.arrow_types import is_any_list

_FIELD_ID: Final = b"PARQUET:field_id"
_OFFSET: Final = struct.Struct("=i")
#: Texts of up to so many bytes are validated in a copy.
_FEW_BYTES: Final = 128 * 1024
_TEXTS: Final = (pa.string(), pa.binary(), pa.large_string(), pa.large_binary())
#: Bytes that may be reserved for the texts of dictionary indices.
_MAX_RESERVED: Final = 256 * 1024 * 1024


class FieldFinder:
    """Finds a table's columns among the fields of a file, by name or by field id.

    Args:
        mode: the table's column mapping.
        file_id: the file, for messages.
        column: the column being read, for messages.
    """

    def __init__(self, mode: MappingMode, file_id: str, column: str = "") -> None:
        self.mode = mode
        self.file_id = file_id
        self.column = column

    def find(self, wanted: StructField, fields: Sequence[pa.Field]) -> int | None:
        """Return the position of a column among `fields`; None if the file lacks it."""
        if self.mode == "id":
            return self._by_id(field_id(wanted), fields)
        name = physical_name(wanted, self.mode)
        lower = name.lower()
        folded = None
        for position, field in enumerate(fields):
            if field.name == name:
                return position
            if folded is None and field.name.lower() == lower:
                folded = position
        return folded

    def _by_id(self, wanted: int, fields: Sequence[pa.Field]) -> int | None:
        known = False
        for position, field in enumerate(fields):
            text = (field.metadata or {}).get(_FIELD_ID)
            if text is not None:
                known = True
                if int(text) == wanted:
                    return position
        if fields and not known:
            raise DataError(
                "the table maps its columns by Parquet field id, and the file has no field ids",
                file_id=self.file_id,
            )
        return None


def cast_to_schema(array: pa.Array, data_type: DataType, target: pa.DataType, finder: FieldFinder) -> pa.Array:
    """Return decoded values as `target`, the Arrow type of `data_type`; `finder` finds nested fields.

    Raises:
        pyarrow.ArrowInvalid: a value would change.
        DataError: a variant is malformed.
    """
    if is_variant(data_type):
        from delta_sharing_client.parquet.variant import cast_variant, variant_to_json

        read = cast_variant if pa.types.is_struct(target) else variant_to_json
        return read(array, file_id=finder.file_id, column=finder.column)
    source = array.type
    if isinstance(source, pa.BaseExtensionType):
        array = array.storage
        source = array.type
    if pa.types.is_dictionary(source):
        array = look_up(array)
        source = array.type
    if not pa.types.is_nested(target):
        return array if source == target else cast_leaf(array, target)
    if pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if isinstance(data_type, StructType):
        return _struct(array, data_type, target, finder)
    if isinstance(data_type, ArrayType):
        return _list(array, data_type, target, finder)
    if isinstance(data_type, MapType):
        return _map(array, data_type, target, finder)
    raise ProtocolError(f"{data_type} cannot be read as {target}")


def look_up(array: pa.DictionaryArray) -> pa.Array:
    """Return the values of dictionary indices."""
    values = array.dictionary
    # Arrow reserves the mean length of the dictionary's texts for each row: terabytes, if a long one is rare.
    is_small = len(array) * values.nbytes <= _MAX_RESERVED * max(len(values), 1)
    if is_small or values.type not in _TEXTS:
        return array.dictionary_decode()
    each = values.cast(pa.large_binary()).to_pylist()
    return pa.array([None if index is None else each[index] for index in array.indices.to_pylist()], values.type)


def is_variant(data_type: DataType) -> bool:
    """Whether a type is variant."""
    return isinstance(data_type, PrimitiveType) and data_type.name == "variant"


def holds_variant(data_type: DataType) -> bool:
    """Whether a type is or contains variant."""
    return any(map(is_variant, nested_types(data_type)))


def _struct(array: pa.Array, data_type: StructType, target: pa.DataType, finder: FieldFinder) -> pa.Array:
    source = array.type
    if not pa.types.is_struct(source):
        raise pa.ArrowInvalid(f"{source} where a struct is expected")
    if array.offset:
        array = array.take(pa.array(np.arange(len(array))))
    fields = [source.field(i) for i in range(source.num_fields)]
    # Fields of null structs may have any bytes, which must not be decoded as variants.
    parts = array.flatten() if holds_variant(data_type) else [array.field(i) for i in range(len(fields))]
    children = []
    for position, wanted in enumerate(data_type.fields):
        kind = target.field(position).type
        found = finder.find(wanted, fields)
        child = (
            pa.nulls(len(array), kind)
            if found is None
            else cast_to_schema(parts[found], wanted.type, kind, finder)
        )
        children.append(child)
    validity = array.buffers()[0]
    return pa.Array.from_buffers(target, len(array), [validity], array.null_count, 0, children)


def _list(array: pa.Array, data_type: ArrayType, target: pa.DataType, finder: FieldFinder) -> pa.Array:
    source = array.type
    if not pa.types.is_list(source):
        if not is_any_list(source):
            raise pa.ArrowInvalid(f"{source} where a list is expected")
        array = _plain_list(array)
    values = cast_to_schema(array.values, data_type.element, target.value_type, finder)
    return pa.Array.from_buffers(target, len(array), array.buffers()[:2], array.null_count, array.offset, [values])


def _plain_list(array: pa.Array) -> pa.ListArray:
    """Return lists of another Arrow layout as `ListArray`."""
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(array) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    if offsets[-1] > np.iinfo(np.int32).max:
        raise pa.ArrowInvalid(f"{offsets[-1]} elements in one array")
    mask = array.is_null() if array.null_count else None
    return pa.ListArray.from_arrays(pa.array(offsets.astype(np.int32)), array.flatten(), mask=mask)


def _map(array: pa.Array, data_type: MapType, target: pa.DataType, finder: FieldFinder) -> pa.Array:
    source = array.type
    if not pa.types.is_map(source):
        raise pa.ArrowInvalid(f"{source} where a map is expected")
    keys = cast_to_schema(array.keys, data_type.key, target.key_type, finder)
    if keys.null_count:  # Arrow would abort the process below
        raise pa.ArrowInvalid("a map with a null for a key")
    items = cast_to_schema(array.items, data_type.value, target.item_type, finder)
    entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
    return pa.Array.from_buffers(
        target, len(array), array.buffers()[:2], array.null_count, array.offset, [entries]
    )


def cast_leaf(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast values that are not nested.

    Raises:
        pyarrow.ArrowInvalid: a value would change, or the types are unrelated.
    """
    source = array.type
    if pa.types.is_null(target) or pa.types.is_null(source):
        return pa.nulls(len(array), target)
    if pa.types.is_timestamp(target):
        return _to_timestamp(array, target)
    if not _related(source, target):
        raise pa.ArrowInvalid(f"{source} where {target} is expected")
    if pa.types.is_binary(target) and not pa.types.is_fixed_size_binary(source) and _is_text(source):
        return array.cast(pa.large_binary() if pa.types.is_large_string(source) else pa.binary()).cast(target)
    if pa.types.is_decimal(target) and pa.types.is_integer(source):
        return array.cast(pa.decimal128(20, 0)).cast(target)
    return array.cast(target)


def check_texts(array: pa.Array) -> None:
    """Validate the strings of an array, which the Parquet reader does not do.

    Raises:
        pyarrow.ArrowInvalid: a string is not UTF-8.
    """
    kind = array.type
    if pa.types.is_string(kind):
        _check_utf8(array)
    elif pa.types.is_struct(kind):
        for position in range(kind.num_fields):
            check_texts(array.field(position))
    elif pa.types.is_map(kind):
        check_texts(array.keys)
        check_texts(array.items)
    elif pa.types.is_list(kind):
        check_texts(array.values)


def _check_utf8(array: pa.StringArray) -> None:
    _, offsets, data = array.buffers()
    if data is None or not len(array):
        return
    (start,) = _OFFSET.unpack_from(offsets, 4 * array.offset)
    (stop,) = _OFFSET.unpack_from(offsets, 4 * (array.offset + len(array)))
    size = stop - start
    if size <= _FEW_BYTES:
        # numpy would release the interpreter's lock, and wait for it again.
        ascii_only = bytes(memoryview(data)[start:stop]).isascii()
    else:
        ascii_only = np.frombuffer(data, np.int8, size, start).min() >= 0
    if not ascii_only:
        array.cast(pa.binary()).cast(pa.string())


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view()) or bool(pa.types.is_fixed_size_binary(kind))


def _related(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether a cast keeps the meaning of values."""
    if pa.types.is_boolean(target):
        return bool(pa.types.is_boolean(source))
    if pa.types.is_date(target):
        return bool(pa.types.is_date(source) or pa.types.is_int32(source))
    if _is_text(target) or _is_bytes(target):
        return _is_text(source) or _is_bytes(source)
    if pa.types.is_integer(target):
        return bool(pa.types.is_integer(source))
    if pa.types.is_decimal(target):
        return bool(pa.types.is_decimal(source) or pa.types.is_integer(source))
    if pa.types.is_floating(target):
        narrower = pa.types.is_floating(source) and source.bit_width <= target.bit_width
        return bool(narrower or pa.types.is_integer(source))
    return False


def _to_timestamp(array: pa.Array, target: pa.DataType) -> pa.Array:
    """Return microseconds, rounded down. Times without a zone are UTC; dates are midnight without a zone."""
    source = array.type
    if pa.types.is_timestamp(source):
        if source.unit == "ns":
            array = _floor_microseconds(array)
            source = array.type
        return array.cast(pa.timestamp("us", tz=source.tz)).cast(target)
    if pa.types.is_date(source) and target.tz is None:
        return array.cast(target)
    if pa.types.is_int64(source):
        return array.cast(pa.timestamp("us")).cast(target)
    raise pa.ArrowInvalid(f"{source} where {target} is expected")


def _floor_microseconds(array: pa.Array) -> pa.Array:
    kind = pa.timestamp("us", tz=array.type.tz)
    nanos = array.cast(pa.int64())
    filled = nanos.fill_null(0).to_numpy(zero_copy_only=False)
    micros = np.floor_divide(filled, 1000)
    mask = array.is_null().to_numpy(zero_copy_only=False) if array.null_count else None
    return pa.array(micros, pa.int64(), mask=mask).cast(kind)
