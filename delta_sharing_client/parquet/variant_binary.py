"""Binary encoding of variants: dictionaries of names, lengths of values, positions of children.

A variant is two binaries. `metadata` is a dictionary of field names. `value` is a tree: each node starts with a
byte for its kind, and objects refer to their fields' names by index. The bytes are not trusted: every position is
checked.

Serves "Variant Binary Encoding" of the Parquet format.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final, Generic, NamedTuple, TypeVar

T = TypeVar("T")

#: Kinds of nodes, the low two bits of the first byte.
PRIMITIVE: Final = 0
SHORT_STRING: Final = 1
OBJECT: Final = 2
ARRAY: Final = 3

#: Kinds of primitives, the high six bits of the first byte.
NULL: Final = 0
TRUE: Final = 1
FALSE: Final = 2
INT8: Final = 3
INT16: Final = 4
INT32: Final = 5
INT64: Final = 6
DOUBLE: Final = 7
DECIMAL4: Final = 8
DECIMAL8: Final = 9
DECIMAL16: Final = 10
DATE: Final = 11
TIMESTAMP: Final = 12
TIMESTAMP_NTZ: Final = 13
FLOAT: Final = 14
BINARY: Final = 15
STRING: Final = 16
TIME: Final = 17
TIMESTAMP_NANOS: Final = 18
TIMESTAMP_NTZ_NANOS: Final = 19
UUID: Final = 20

#: Bytes after the first one by kind of primitive; -1 for binaries and strings, which have a length.
WIDTHS: Final = (0, 0, 0, 1, 2, 4, 8, 8, 5, 9, 17, 4, 8, 8, 4, -1, -1, 8, 8, 8, 16)

#: The whole value of a JSON null.
NULL_VALUE: Final = b"\x00"

_VERSION: Final = 1


class MalformedVariantError(ValueError):
    """A variant's bytes or shredded columns break the encoding's rules."""


class MetadataCache(Generic[T]):
    """Dictionaries of variants in a decoded form; most tables have few different ones."""

    #: Bytes of dictionaries whose decoded form is kept.
    _KEEP: Final = 1024 * 1024

    def __init__(self, decode: Callable[[bytes], T]) -> None:
        self._decode = decode
        self._known: dict[bytes, T] = {}
        self._kept = 0

    def __call__(self, metadata: bytes) -> T:
        """Return the decoded form of a variant's `metadata`; raises `MalformedVariantError`."""
        found = self._known.get(metadata)
        if found is None:
            found = self._decode(metadata)
            self._kept += len(metadata)
            if self._kept > self._KEEP:
                self._known.clear()
                self._kept = len(metadata)
            self._known[metadata] = found
        return found


class Container(NamedTuple):
    """The children of an object or an array.

    Attributes:
        ids: indices of the fields' names in the dictionary; None for an array.
        starts: the offset of each child.
        data: the offset of the first child.
    """

    ids: Sequence[int] | None
    starts: Sequence[int]
    data: int


def parse_metadata(metadata: bytes) -> list[bytes]:
    """Return the names in a variant's dictionary, as UTF-8; raises `MalformedVariantError`."""
    if not metadata:
        raise MalformedVariantError("its metadata is empty")
    if metadata[0] & 0x0F != _VERSION:
        raise MalformedVariantError(f"its metadata has version {metadata[0] & 0x0F}, known is {_VERSION}")
    width = (metadata[0] >> 6) + 1
    count = unsigned(metadata, 1, width)
    start = 1 + (count + 2) * width
    if start > len(metadata):
        raise MalformedVariantError(f"its metadata is too short for {count} names")
    offsets = unsigned_list(metadata, 1 + width, count + 1, width)
    names = []
    for begin, end in pairwise(offsets):
        if begin > end or start + end > len(metadata):
            raise MalformedVariantError("a name in its metadata lies outside of it")
        names.append(metadata[start + begin : start + end])
    return names


def unsigned(data: bytes, at: int, width: int) -> int:
    """Return the little-endian number of `width` bytes at an offset; raises `MalformedVariantError`."""
    part = data[at : at + width]
    if len(part) < width:
        raise MalformedVariantError("its bytes end too soon")
    return int.from_bytes(part, "little")


def unsigned_list(data: bytes, at: int, count: int, width: int) -> Sequence[int]:
    """Return `count` little-endian numbers of `width` bytes; the caller checks the length."""
    if width == 1:
        return data[at : at + count]
    if width == 2:
        return struct.unpack_from(f"<{count}H", data, at)
    if width == 4:
        return struct.unpack_from(f"<{count}I", data, at)
    return [int.from_bytes(data[i : i + width], "little") for i in range(at, at + count * width, width)]


def container(value: bytes, at: int) -> Container:
    """Return the children of the object or array at an offset; raises `MalformedVariantError`."""
    ids_at, id_width, count, offset_width = _layout(value, at)
    offsets_at = ids_at + count * id_width
    data = offsets_at + (count + 1) * offset_width
    if data > len(value):
        raise MalformedVariantError(f"its bytes end within the lists of {count} elements")
    ids = unsigned_list(value, ids_at, count, id_width) if id_width else None
    return Container(ids, [data + start for start in unsigned_list(value, offsets_at, count, offset_width)], data)


def _layout(value: bytes, at: int) -> tuple[int, int, int, int]:
    """Return the lists' offset, the width of ids (0 in arrays), the number of children, the width of offsets."""
    header = value[at] >> 2
    id_width, wide = ((header >> 2 & 3) + 1, header & 0x10) if value[at] & 3 == OBJECT else (0, header & 0x04)
    count_width = 4 if wide else 1
    return at + 1 + count_width, id_width, unsigned(value, at + 1, count_width), (header & 3) + 1


def value_end(value: bytes, at: int) -> int:
    """Return the end of the node at an offset; raises `MalformedVariantError`."""
    if not 0 <= at < len(value):
        raise MalformedVariantError("an element lies outside of its bytes")
    kind, basic = value[at] >> 2, value[at] & 3
    if basic == SHORT_STRING:
        end = at + 1 + kind
    elif basic != PRIMITIVE:
        ids_at, id_width, count, offset_width = _layout(value, at)
        last = ids_at + count * (id_width + offset_width)
        end = last + offset_width + unsigned(value, last, offset_width)
    elif kind >= len(WIDTHS):
        raise MalformedVariantError(f"it holds a value of type {kind}, which this release does not know")
    elif kind in (BINARY, STRING):
        end = at + 5 + unsigned(value, at + 1, 4)
    else:
        end = at + 1 + WIDTHS[kind]
    if end > len(value):
        raise MalformedVariantError("its bytes end too soon")
    return end


def read_object(value: bytes, names: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    """Return the fields of an object: names and encoded values, in its order; raises `MalformedVariantError`."""
    if not value or value[0] & 3 != OBJECT:
        raise MalformedVariantError("its value is not an object, though its fields are stored apart")
    inside = container(value, 0)
    fields: list[tuple[bytes, bytes]] = []
    left = len(value)
    for number, start in zip(inside.ids or (), inside.starts, strict=True):
        if number >= len(names):
            raise MalformedVariantError(f"field {number} is not among the {len(names)} names of its metadata")
        end = value_end(value, start)
        left -= end - start
        if left < 0:
            raise MalformedVariantError("its elements overlap")
        fields.append((names[number], value[start:end]))
    return fields


def encode_object(fields: Sequence[tuple[bytes, bytes]], ids: Mapping[bytes, int]) -> bytes:
    """Return an object of names and encoded values, in the order of the names; `ids` are the dictionary's indices.

    Raises `MalformedVariantError` if the dictionary lacks a name, or a name occurs twice.
    """
    try:
        numbers = [ids[name] for name, _ in fields]
    except KeyError as error:
        name = error.args[0].decode(errors="replace")
        raise MalformedVariantError(f"its metadata lacks the name of the field {name!r}") from None
    if len(set(numbers)) < len(numbers):
        raise MalformedVariantError("an object has the same field twice")
    offsets = list(accumulate((len(value) for _, value in fields), initial=0))
    id_width, offset_width = _width(max(numbers, default=0)), _width(offsets[-1])
    wide = len(fields) > 255
    header = (wide << 4 | (id_width - 1) << 2 | (offset_width - 1)) << 2 | OBJECT
    return b"".join(
        [
            bytes([header]),
            len(fields).to_bytes(4 if wide else 1, "little"),
            _numbers(numbers, id_width),
            _numbers(offsets, offset_width),
            *(value for _, value in fields),
        ]
    )


def encode_array(values: Sequence[bytes]) -> bytes:
    """Return an array of encoded values."""
    offsets = list(accumulate(map(len, values), initial=0))
    offset_width = _width(offsets[-1])
    wide = len(values) > 255
    header = (wide << 2 | (offset_width - 1)) << 2 | ARRAY
    return b"".join(
        [
            bytes([header]),
            len(values).to_bytes(4 if wide else 1, "little"),
            _numbers(offsets, offset_width),
            *values,
        ]
    )


def _width(number: int) -> int:
    """Return the bytes of a number, at least one."""
    if number >= 1 << 32:
        raise MalformedVariantError("it takes more than 4 GiB")
    return max((number.bit_length() + 7) // 8, 1)


def _numbers(numbers: Sequence[int], width: int) -> bytes:
    if width == 1:
        return bytes(numbers)
    return b"".join([number.to_bytes(width, "little") for number in numbers])
