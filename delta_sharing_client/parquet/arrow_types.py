"""Arrow types of the types of a table's schema, and Arrow values of Python and NumPy values.

`timestamp` is an instant (`timestamp[us, UTC]`), `timestamp_ntz` is wall-clock time (`timestamp[us]`), `void` is
`null`. A `variant` is a struct of its two binaries, or JSON text. A `geometry` or `geography` is well-known binary
with the metadata of GeoArrow. All columns and fields are nullable, because files may break the schema's
constraints.

Values become Arrow values by their bytes: pyarrow's own functions import pandas if it is installed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from functools import lru_cache
from typing import Any, Final

import numpy as np
import pyarrow as pa

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.partition_values import Value
from delta_sharing_client.model.schema import (
    ArrayType,
    DataType,
    DecimalType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
)
from delta_sharing_client.parquet.tasks import VariantForm

#: The two binaries of a variant.
VARIANT: Final = pa.struct([pa.field("metadata", pa.binary()), pa.field("value", pa.binary())])

_EPOCH: Final = date(1970, 1, 1).toordinal()
_PRIMITIVES: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "void": pa.null(),
}


def arrow_type(data_type: DataType, variant: VariantForm = "struct") -> pa.DataType:
    """Return the Arrow type of a type in a table's schema.

    Raises:
        UnsupportedTypeError: the type is unknown to this release, or contains an unknown type.
    """
    if isinstance(data_type, PrimitiveType):
        if data_type.name == "variant":
            return VARIANT if variant == "struct" else pa.string()
        return _PRIMITIVES[data_type.name]
    if isinstance(data_type, DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, ArrayType):
        return pa.list_(arrow_type(data_type.element, variant))
    if isinstance(data_type, MapType):
        return pa.map_(arrow_type(data_type.key, variant), arrow_type(data_type.value, variant))
    if isinstance(data_type, StructType):
        return pa.struct([_arrow_field(f, variant) for f in data_type.fields])
    if isinstance(data_type, GeospatialType):
        return pa.binary()
    if isinstance(data_type, UnknownType):
        raise data_type.error()
    raise UnsupportedTypeError(f"no Arrow type for {data_type}", type_name=str(data_type))


@lru_cache(maxsize=64)
def arrow_schema(schema: StructType, variant: VariantForm = "struct") -> pa.Schema:
    """Return the Arrow schema of a table or of a projection of it.

    Raises:
        UnsupportedTypeError: a column has a type unknown to this release.
    """
    return pa.schema([_arrow_field(f, variant) for f in schema.fields])


def _arrow_field(field: StructField, variant: VariantForm) -> pa.Field:
    """Return the Arrow field of a column; one of geospatial values is marked as in GeoArrow."""
    kind, metadata = field.type, None
    if isinstance(kind, GeospatialType):
        described = {"crs": kind.crs} if kind.edges is None else {"crs": kind.crs, "edges": kind.edges}
        metadata = {"ARROW:extension:name": "geoarrow.wkb", "ARROW:extension:metadata": json.dumps(described)}
    return pa.field(field.name, arrow_type(kind, variant), metadata=metadata)


def is_any_list(kind: pa.DataType) -> bool:
    """Whether a type is a list in any of Arrow's layouts; maps are not."""
    types = pa.types
    large = types.is_large_list(kind) or types.is_large_list_view(kind)
    return bool(types.is_list(kind) or types.is_list_view(kind) or types.is_fixed_size_list(kind) or large)


def scalar_of(value: Value, kind: pa.DataType) -> pa.Scalar:
    """Return a value as an Arrow scalar of a type; times are microseconds.

    Raises:
        pyarrow.ArrowException: the value does not fit the type.
        OverflowError: an integer has more than 64 bits.
    """
    if value is None:
        return pa.nulls(1, kind)[0]
    if isinstance(value, Decimal) or pa.types.is_decimal(kind):
        value = str(value)
    if isinstance(value, str | bytes):
        source, data = (pa.binary(), value) if isinstance(value, bytes) else (pa.string(), value.encode())
        buffers = [struct.pack("=ii", 0, len(data)), data]
    elif isinstance(value, bool):
        source, buffers = pa.bool_(), [bytes([value])]
    elif isinstance(value, int):
        source, buffers = pa.int64(), [np.int64(value).tobytes()]
    elif isinstance(value, float):
        source, buffers = pa.float64(), [struct.pack("=d", value)]
    else:
        source, buffers = pa.date32(), [struct.pack("=i", value.toordinal() - _EPOCH)]
    scalar = pa.Array.from_buffers(source, 1, [None, *map(pa.py_buffer, buffers)])[0]
    return scalar if source == kind else scalar.cast(kind)


def array_of(scalars: Sequence[pa.Scalar]) -> pa.Array:
    """Return scalars of one type as an array; there must be one at least."""
    return pa.concat_arrays([pa.repeat(scalar, 1) for scalar in scalars])


def ascii_texts(values: Sequence[str]) -> pa.Array:
    """Return ASCII texts as an array; raises `ValueError` for others."""
    offsets = np.zeros(len(values) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=offsets[1:])
    data = "".join(values).encode("ascii")
    return pa.Array.from_buffers(pa.string(), len(values), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def mask_of(values: np.ndarray[Any, np.dtype[np.bool_]]) -> pa.BooleanArray:
    """Return booleans as an array."""
    packed = np.packbits(values, bitorder="little")
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, pa.py_buffer(packed)])


def microseconds(times: pa.Array) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return timestamps in microseconds, of which none is null, as integers."""
    return np.frombuffer(times.buffers()[1], np.int64)[times.offset : times.offset + len(times)]
