"""Reconstruction of shredded variants: typed columns to encoded values.

A shredded variant is a group of `value` (bytes) and `typed_value` (a column of one type). If the latter is a group
or a list, its fields or elements are such groups again. Each group is converted to a column of encoded values,
from which its parent encodes objects and arrays.

Serves "Variant Shredding" of the Parquet format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.parquet import variant_binary as vb
from delta_sharing_client.parquet.arrow_types import is_any_list
from delta_sharing_client.parquet.cast import look_up
from delta_sharing_client.parquet.variant_binary import MalformedVariantError

#: Levels of groups within groups.
MAX_DEPTH: Final = 100

#: An encoded value for each row of a column; None for a missing one.
Encoded: TypeAlias = list[bytes | None]

_SHORT_STRINGS: Final = tuple(bytes([length << 2 | vb.SHORT_STRING]) for length in range(64))
_BINARY_BYTE: Final = bytes([vb.BINARY << 2])
_STRING_BYTE: Final = bytes([vb.STRING << 2])


class Dictionaries:
    """The dictionaries of a column's variants; `first` is the number of the first row, for messages."""

    def __init__(self, metadata: Sequence[bytes | None], first: int = 0) -> None:
        self.first = first
        self._metadata = metadata
        self._decoded = vb.MetadataCache(_names_and_ids)

    def of(self, row: int) -> tuple[list[bytes], Mapping[bytes, int]]:
        """Return the names of a row's dictionary, and the index of each; raises `MalformedVariantError`."""
        return self._decoded(self._metadata[row - self.first] or b"")


def _names_and_ids(metadata: bytes) -> tuple[list[bytes], Mapping[bytes, int]]:
    names = vb.parse_metadata(metadata)
    # The first index of a duplicate name.
    return names, {name: len(names) - 1 - back for back, name in enumerate(reversed(names))}


def rebuild(group: pa.StructArray, dictionaries: Dictionaries) -> Encoded:
    """Return the encoded value of each row of a shredded variant; None if both columns are null.

    `group` has the columns `value` and `typed_value`; other columns are ignored.

    Raises:
        MalformedVariantError: a row breaks the rules of shredding.
    """
    return _group(group, np.arange(dictionaries.first, dictionaries.first + len(group)), dictionaries, 0)


def columns_of(group: pa.StructArray) -> dict[str, pa.Array]:
    """Return the columns of a group by name, null where the group is null; raises `MalformedVariantError`."""
    columns = {group.type.field(i).name: child for i, child in enumerate(group.flatten())}
    if len(columns) < group.type.num_fields:
        raise MalformedVariantError("a shredded group has two columns of the same name")
    return columns


def binaries(array: pa.Array) -> pa.Array:
    """Return a column of bytes as the type `binary`; raises `MalformedVariantError` for another type."""
    array = plain(array)
    kind = array.type
    if pa.types.is_binary(kind):
        return array
    if pa.types.is_null(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return array.cast(pa.binary())
    raise MalformedVariantError(f"it holds {kind} where bytes are expected")


def plain(array: pa.Array) -> pa.Array:
    """Return a column without extension type and dictionary."""
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    return look_up(array) if pa.types.is_dictionary(array.type) else array


def _group(group: pa.Array, rows: np.ndarray[Any, Any], dictionaries: Dictionaries, depth: int) -> Encoded:
    """Return the encoded values of a group of `value` and `typed_value`; `rows` are their row numbers."""
    if depth > MAX_DEPTH:
        raise MalformedVariantError(f"it is shredded deeper than {MAX_DEPTH} levels")
    group = plain(group)
    if not pa.types.is_struct(group.type):
        raise MalformedVariantError(f"it holds {group.type} where a group of value and typed_value is expected")
    columns = columns_of(group)
    value = binaries(columns["value"]) if "value" in columns else None
    if "typed_value" not in columns:
        if value is None:
            raise MalformedVariantError("a shredded group has neither value nor typed_value")
        return _values(value, len(group))
    typed = plain(columns["typed_value"])
    if typed.null_count == len(typed):
        return _values(value, len(group))
    if pa.types.is_struct(typed.type):
        return _objects(typed, value, rows, dictionaries, depth)
    encoded = _arrays(typed, rows, dictionaries, depth) if is_any_list(typed.type) else _scalars(typed)
    if value is None or value.null_count == len(value):
        return encoded
    both = pc.and_(value.is_valid(), typed.is_valid())
    if pc.any(both).as_py():
        row = rows[both.index(True).as_py()]
        raise MalformedVariantError(f"row {row} of its batch has both a value and a typed_value")
    return [left if done is None else done for left, done in zip(_values(value, len(group)), encoded, strict=True)]


def _values(value: pa.Array | None, rows: int) -> Encoded:
    values: Encoded = [None] * rows if value is None else value.to_pylist()
    return values


def _objects(
    typed: pa.StructArray,
    value: pa.Array | None,
    rows: np.ndarray[Any, Any],
    dictionaries: Dictionaries,
    depth: int,
) -> Encoded:
    columns = columns_of(typed).items()
    shredded = sorted((name.encode(), _group(column, rows, dictionaries, depth + 1)) for name, column in columns)
    names = [name for name, _ in shredded]
    known = frozenset(names)
    left = _values(value, len(typed))
    here = typed.is_valid().to_numpy(zero_copy_only=False).tolist()
    result: Encoded = []
    places = zip(*(column for _, column in shredded), strict=True) if shredded else [()] * len(typed)
    for present, rest, row, values in zip(here, left, rows.tolist(), places, strict=True):
        if not present:
            result.append(rest)
            continue
        fields = [field for field in zip(names, values, strict=True) if field[1] is not None]
        try:
            texts, ids = dictionaries.of(row)
            if rest is not None:
                others = vb.read_object(rest, texts)
                if not known.isdisjoint(name for name, _ in others):
                    raise MalformedVariantError("its value holds a field that is stored apart")
                fields = sorted(fields + others)
            result.append(vb.encode_object(fields, ids))
        except MalformedVariantError as error:
            raise MalformedVariantError(f"row {row} of its batch: {error}") from None
    return result


def _arrays(array: pa.Array, rows: np.ndarray[Any, Any], dictionaries: Dictionaries, depth: int) -> Encoded:
    lengths = pc.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    elements = _group(array.flatten(), np.repeat(rows, lengths), dictionaries, depth + 1)
    here = array.is_valid().to_numpy(zero_copy_only=False).tolist()
    result: Encoded = []
    start = 0
    for present, length in zip(here, lengths.tolist(), strict=True):
        # A missing element is a JSON null.
        values = [vb.NULL_VALUE if item is None else item for item in elements[start : start + length]]
        result.append(vb.encode_array(values) if present else None)
        start += length
    return result


def _scalars(array: pa.Array) -> Encoded:
    """Return the encoded values of a column that is not nested."""
    kind = array.type
    if pa.types.is_boolean(kind):
        texts = (bytes([vb.FALSE << 2]), bytes([vb.TRUE << 2]))
        return [None if flag is None else texts[flag] for flag in array.to_pylist()]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _texts(array.cast(pa.large_string()).cast(pa.large_binary()), _string)
    if pa.types.is_fixed_size_binary(kind) and kind.byte_width == 16:
        # Arrow drops the UUID annotation; no other type of variants has this storage.
        prefix = bytes([vb.UUID << 2])
        return _texts(array, lambda data: prefix + data)
    if pa.types.is_decimal(kind):
        return _decimals(array)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind) or pa.types.is_binary_view(kind):
        return _texts(array, lambda data: _BINARY_BYTE + len(data).to_bytes(4, "little") + data)
    for known, primitive, numbers in _FIXED:
        if kind == known:
            return _fixed(bytes([primitive << 2]), array.cast(numbers), array)
    if pa.types.is_timestamp(kind) and kind.tz is not None and kind.unit in ("us", "ns"):
        primitive = vb.TIMESTAMP if kind.unit == "us" else vb.TIMESTAMP_NANOS
        return _fixed(bytes([primitive << 2]), array.cast(pa.int64()), array)
    raise MalformedVariantError(f"no variant is shredded as {kind}")


_FIXED: Final[tuple[tuple[pa.DataType, int, pa.DataType], ...]] = (
    (pa.int8(), vb.INT8, pa.int8()),
    (pa.int16(), vb.INT16, pa.int16()),
    (pa.int32(), vb.INT32, pa.int32()),
    (pa.int64(), vb.INT64, pa.int64()),
    (pa.float32(), vb.FLOAT, pa.float32()),
    (pa.float64(), vb.DOUBLE, pa.float64()),
    (pa.date32(), vb.DATE, pa.int32()),
    (pa.time64("us"), vb.TIME, pa.int64()),
    (pa.timestamp("us"), vb.TIMESTAMP_NTZ, pa.int64()),
    (pa.timestamp("ns"), vb.TIMESTAMP_NTZ_NANOS, pa.int64()),
)


def _string(data: bytes) -> bytes:
    if len(data) < 64:
        return _SHORT_STRINGS[len(data)] + data
    return _STRING_BYTE + len(data).to_bytes(4, "little") + data


def _texts(array: pa.Array, encode: Callable[[bytes], bytes]) -> Encoded:
    return [None if data is None else encode(data) for data in array.to_pylist()]


def _fixed(prefix: bytes, numbers: pa.Array, array: pa.Array) -> Encoded:
    """Return a prefix and a little-endian number for each row."""
    values = numbers.fill_null(0).to_numpy(zero_copy_only=False)
    little = values.astype(values.dtype.newbyteorder("<"))
    return _rows(prefix, little.view(np.uint8).reshape(len(array), -1), array)


def _decimals(array: pa.Array) -> Encoded:
    kind = array.type
    if kind.precision > 38 or not 0 <= kind.scale <= 38:
        raise MalformedVariantError(f"no variant is shredded as {kind}")
    array = array.cast(pa.decimal128(kind.precision, kind.scale))
    width, primitive = 16, vb.DECIMAL16
    if kind.precision <= 9:
        width, primitive = 4, vb.DECIMAL4
    elif kind.precision <= 18:
        width, primitive = 8, vb.DECIMAL8
    stored = np.frombuffer(array.buffers()[1], np.uint8)[: (array.offset + len(array)) * 16]
    unscaled = stored.reshape(-1, 16)[array.offset :]
    signs = np.where(unscaled[:, width - 1] & 0x80, 0xFF, 0)[:, None]
    if array.null_count:
        unscaled = np.where(array.is_valid().to_numpy(zero_copy_only=False)[:, None], unscaled, signs)
    if (unscaled[:, width:] != signs).any():
        raise MalformedVariantError(f"it holds a decimal that is too large for {kind}")
    return _rows(bytes([primitive << 2, kind.scale]), unscaled[:, :width], array)


def _rows(prefix: bytes, data: np.ndarray[Any, Any], array: pa.Array) -> Encoded:
    """Return a prefix and the bytes of each row; None where the column is null."""
    size = len(prefix) + data.shape[1]
    table = np.empty((len(data), size), np.uint8)
    table[:, : len(prefix)] = np.frombuffer(prefix, np.uint8)
    table[:, len(prefix) :] = data
    result: Encoded = table.view(f"V{size}").ravel().tolist()
    if array.null_count:
        for position in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)):
            result[position] = None
    return result
