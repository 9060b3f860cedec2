"""Parquet footers: how much memory one may take when it is parsed, from its bytes alone.

A footer is a struct in Thrift's compact protocol. A list in it announces a number of items, for which the Parquet
reader allocates memory before it reads the first one; a column chunk of 3 bytes takes 700.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: The memory of a footer is at most so many times `TransportOptions.metadata_limit`.
_EXPANSION: Final = 16
#: Most footers have fewer bytes. Such a footer takes up to 60 MB, and is not scanned.
_UNSCANNED: Final = 256 * 1024
#: Most bytes of memory for each byte of a valid footer, whose smallest column chunks have 24 bytes.
_DENSEST: Final = 64
#: Bytes of memory of the items of lists, by field: of a file, of a row group, and of any other struct, where they
#: depend on the Thrift type: structs, binaries. Numbers take 8 bytes.
_FILE: Final = {2: 1200, 4: 128}
_ROW_GROUP: Final = {1: 700}
_OTHER: Final[Mapping[int, int]] = {}
_TYPE_SIZES: Final = {12: 80, 8: 32}
_NUMBER_SIZE: Final = 8
#: Maximum number of items of a list.
_MAX_ITEMS: Final = 1_000_000
#: Items of a short footer's lists, of which some have items of one byte.
_FEW_ITEMS: Final = 1000
#: Bytes of the smallest items of a long list.
_SMALLEST_ITEM: Final = 3
_MAX_TEXT: Final = 256 * 1024 * 1024
_MAX_DEPTH: Final = 12
#: Thrift types.
_BOOLEANS: Final = (1, 2)
_BYTE: Final = 3
_INTEGERS: Final = (4, 5, 6)
_DOUBLE: Final = 7
_BINARY: Final = 8
_LISTS: Final = (9, 10)
_STRUCT: Final = 12


class MalformedFooterError(ValueError):
    """A footer is no struct in Thrift's compact protocol."""


def thrift_limits(length: int) -> dict[str, int]:
    """Return the Parquet reader's limits for a footer of `length` bytes: of a text in bytes, of a list in items.

    They bound what announced items take whose bytes are missing.
    """
    return {
        "thrift_string_size_limit": _MAX_TEXT,
        "thrift_container_size_limit": min(max(length // _SMALLEST_ITEM, _FEW_ITEMS), _MAX_ITEMS),
    }


def footer_problem(footer: bytes, limit: int) -> str:
    """Return what is wrong with a footer of at most `limit` bytes (`metadata_limit`); empty if nothing is."""
    if len(footer) <= _UNSCANNED:
        return ""
    allowed = min(_EXPANSION * limit, limit + _DENSEST * len(footer))
    try:
        memory = _memory(footer, allowed)
    except MalformedFooterError as error:
        return f"not a readable Parquet file: {error}"
    if memory <= allowed:
        return ""
    return (
        f"its footer of {len(footer):,} bytes would take more than {allowed:,} bytes of memory, the maximum for "
        f"its size and a TransportOptions.metadata_limit of {limit:,}"
    )


def _memory(footer: bytes, most: int) -> int:
    """Return roughly the bytes of memory of a footer when it is parsed, or more than `most`.

    Raises:
        MalformedFooterError: the footer is damaged.
    """
    scan = _Scan(footer, most - len(footer))
    try:
        scan.struct(0, 0, _FILE)
    except _BeyondError:
        return most + 1
    except IndexError:
        raise MalformedFooterError("its footer is damaged") from None
    return len(footer) + scan.memory


class _BeyondError(Exception):
    """The footer takes more memory than is allowed."""


class _Scan:
    """Skips values, and sums the memory of the items of lists."""

    def __init__(self, data: bytes, most: int) -> None:
        self._data = data
        self._most = most
        self.memory = 0

    def struct(self, at: int, depth: int, sizes: Mapping[int, int]) -> int:
        """Return the offset after a struct; `sizes` are those of the items of its lists, by field."""
        data = self._data
        field = 0
        while head := data[at]:
            at += 1
            kind = head & 15
            if head > 15:
                field += head >> 4
            else:
                number, at = self._number(at)
                field = (number >> 1) ^ -(number & 1)
            # The most frequent types first: a call for each field would take twice as long.
            if kind in _INTEGERS:
                while data[at] > 127:
                    at += 1
                at += 1
            elif kind == _BINARY:
                number = data[at]
                at += 1
                if number > 127:
                    number, at = self._number(at - 1)
                at += number
            elif kind in _LISTS:
                at = self._list(at, depth, sizes.get(field, 0))
            elif kind not in _BOOLEANS:
                at = self._value(kind, at, depth)
        return at + 1

    def _list(self, at: int, depth: int, size: int) -> int:
        """Return the offset after a list; `size` is that of an item in memory, 0 if its type determines it."""
        data = self._data
        head = data[at]
        at += 1
        count, kind = head >> 4, head & 15
        if count == 15:
            count, at = self._number(at)
        self.memory += count * (size or _TYPE_SIZES.get(kind, _NUMBER_SIZE))
        if self.memory > self._most:
            raise _BeyondError
        if kind == _STRUCT and depth < _MAX_DEPTH:
            sizes = _ROW_GROUP if size == _FILE[4] else _OTHER
            for _ in range(count):
                at = self.struct(at, depth + 1, sizes)
        elif kind in _INTEGERS:
            for _ in range(count):
                while data[at] > 127:
                    at += 1
                at += 1
        else:
            for _ in range(count):
                at = self._value(kind, at, depth)
        return at

    def _value(self, kind: int, at: int, depth: int) -> int:
        """Return the offset after a value."""
        if depth >= _MAX_DEPTH:
            raise MalformedFooterError("its footer is nested too deeply")
        if kind == _STRUCT:
            return self.struct(at, depth + 1, _OTHER)
        if kind in _LISTS:
            return self._list(at, depth + 1, 0)
        if kind == _BINARY:
            number, at = self._number(at)
            return at + number
        if kind == _DOUBLE:
            return at + 8
        if kind == _BYTE or kind in _BOOLEANS:
            return at + 1
        raise MalformedFooterError("its footer has a field of an unknown type")

    def _number(self, at: int) -> tuple[int, int]:
        """Return an unsigned number and the offset after it."""
        data, number, shift = self._data, 0, 0
        while (byte := data[at]) > 127:
            number |= (byte & 127) << shift
            shift += 7
            at += 1
            if shift > 63:
                raise MalformedFooterError("its footer has a number of more than 64 bits")
        return number | byte << shift, at + 1
