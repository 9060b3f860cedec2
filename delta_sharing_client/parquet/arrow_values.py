"""Python and NumPy values to Arrow, by their bytes: pyarrow's own functions import pandas if it is installed."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

import numpy as np
import pyarrow as pa

from delta_sharing_client.model.partition_values import Value

_EPOCH: Final = date(1970, 1, 1).toordinal()


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
