"""Parquet pages: headers, repetition levels and dictionaries, read without decoding a column.

The sizes in a file's footer are not trusted. The Parquet reader allocates memory by the headers of the pages, so
the bounds for the memory of decoding are computed from these headers, which are structs in Thrift's compact
protocol.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

#: Types of pages.
DATA: Final = 0
DICTIONARY: Final = 2
DATA_V2: Final = 3
_KINDS: Final = (DATA, DICTIONARY, DATA_V2)
#: Encodings of values.
DELTA_BYTE_ARRAY: Final = 7
_DICTIONARY_ENCODINGS: Final = (2, 8)

#: Old writers left the dictionary page's header out of a chunk's size.
CHUNK_PADDING: Final = 100
#: Bytes of a header, as in the Parquet reader.
_MAX_HEADER: Final = 16 * 1024 * 1024
#: Most headers are shorter than so many bytes, of which a copy is read in less time than the file itself.
_SHORT_HEADER: Final = 256
_MAX_PAGES: Final = 1_000_000
_MAX_DEPTH: Final = 8
#: Bytes of bit-packed levels that are expanded at a time, for each bit of a level.
_PACKED_BYTES: Final = 64 * 1024
_NO_ZEROS: Final = np.empty(0, np.int64)
#: Bytes of a field's value by its Thrift type: true, false, byte, double.
_FIXED_SIZES: Final = {1: 0, 2: 0, 3: 1, 7: 8}
_BINARY: Final = 8
#: Types that begin with a number: integers of 16, 32 and 64 bits, and binary.
_NUMBERS: Final = (5, 6, 4, _BINARY)
_STRUCT: Final = 12


class MalformedPageError(ValueError):
    """A page's header or its levels are malformed."""


class ParquetPage(NamedTuple):
    """One page.

    Attributes:
        kind: `DATA`, `DICTIONARY` or `DATA_V2`.
        start: the offset of its content, after the header.
        stored: bytes of its content in the file.
        size: bytes of its content when decompressed.
        values: number of values, nulls included.
        encoding: the encoding of the values.
        level_bytes: bytes of the uncompressed repetition levels (`DATA_V2` only).
    """

    kind: int
    start: int
    stored: int
    size: int
    values: int
    encoding: int
    level_bytes: int = 0

    @property
    def uses_dictionary(self) -> bool:
        """Whether its values are indices into the dictionary."""
        return self.encoding in _DICTIONARY_ENCODINGS


def read_pages(data: memoryview, start: int, stop: int, values: int) -> list[ParquetPage]:
    """Return the pages of the column chunk from `start` to `stop`; raises `MalformedPageError`.

    The Parquet reader stops after the number of values in the footer, `values`.
    """
    pages: list[ParquetPage] = []
    seen = 0
    end = min(stop + CHUNK_PADDING, len(data))
    while seen < values and start < stop:
        page = _read_page(data, start, end)
        if page.kind != DICTIONARY:
            seen += page.values
        if page.kind in _KINDS:
            pages.append(page)
        start = page.start + page.stored
        if len(pages) > _MAX_PAGES:
            raise MalformedPageError(f"a column chunk has more than {_MAX_PAGES:,} pages")
    return pages


def _read_page(data: memoryview, at: int, end: int) -> ParquetPage:
    values = encoding = level_bytes = 0
    try:
        try:
            fields, length = _read_struct(bytes(data[at : min(at + _SHORT_HEADER, end)]), 0)
        except IndexError:
            fields, length = _read_struct(data[at : min(at + _MAX_HEADER, end)], 0)
        kind, size, stored = fields[1], fields[2], fields[3]
        if kind == DATA_V2:
            details = fields[8]
            values, encoding, level_bytes = details[1], details[4], details[6]
        elif kind in (DATA, DICTIONARY):
            details = fields[5 if kind == DATA else 7]
            values, encoding = details[1], details[2]
        if size < 0 or stored < 0 or values < 0 or encoding < 0 or level_bytes < 0:
            raise MalformedPageError("a page header has a negative number")
    except (IndexError, KeyError, TypeError):
        raise MalformedPageError("a page header is damaged") from None
    return ParquetPage(kind, at + length, stored, size, values, encoding, level_bytes)


def _read_struct(data: bytes | memoryview, at: int, depth: int = 0) -> tuple[dict[int, Any], int]:
    """Return a struct's integers and structs by field id, and the offset after it; skip all other values."""
    if depth > _MAX_DEPTH:
        raise MalformedPageError("a page header is nested too deeply")
    fields: dict[int, Any] = {}
    field = 0
    while head := data[at]:
        at += 1
        kind = head & 15
        if head > 15:
            field += head >> 4
        else:
            number, at = _read_varint(data, at)
            field = (number >> 1) ^ -(number & 1)
        if kind in _NUMBERS:
            number = data[at]
            at += 1
            if number > 127:  # a call for each number would take longer
                number, at = _read_varint(data, at - 1)
            if kind == _BINARY:
                at += number
            else:
                fields[field] = (number >> 1) ^ -(number & 1)
        elif kind == _STRUCT:
            fields[field], at = _read_struct(data, at, depth + 1)
        elif kind in _FIXED_SIZES:
            at += _FIXED_SIZES[kind]
        else:
            raise MalformedPageError("a page header has a field of an unknown type")
    return fields, at + 1


def _read_varint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while (byte := data[at]) > 127:
        number |= (byte & 127) << shift
        shift += 7
        at += 1
        if shift > 63:
            raise MalformedPageError("a number has more than 64 bits")
    return number | byte << shift, at + 1


def longest_text(reader: Any, group: int, column: int) -> int | None:
    """Return the length of the longest text in a column chunk's dictionary, which is loaded for the first row.

    The reader must decode the column as dictionary indices. The result is None if the length is unknown.
    """
    batch = next(reader.iter_batches(1, [group], [column], False))
    array = batch.column(0)
    while pa.types.is_nested(array.type):
        array = array.field(0) if pa.types.is_struct(array.type) else array.values
    if not pa.types.is_dictionary(array.type) or not len(array.dictionary):
        return None
    longest: int = pc.max(pc.binary_length(array.dictionary)).as_py()
    return longest


def longest_row(data: memoryview, pages: Iterable[ParquetPage], codec: str, max_level: int) -> int | None:
    """Return the number of values of the longest row of a repeated column, from its repetition levels.

    The result is None if the levels cannot be decompressed here. Raises `MalformedPageError` for damaged levels.
    """
    longest = start = position = 0  # the longest row, the start of the last one, the values before a run
    for page in pages:
        levels = _repetition_levels(data, page, codec)
        if levels is None:
            return None
        for count, zeros in _level_runs(levels, max_level.bit_length(), page.values):
            # A row starts at each level 0.
            if zeros is None:
                longest = max(longest, position - start, 1)
                start = position + count - 1
            elif len(zeros):
                longest = max(longest, position + int(zeros[0]) - start, int(np.diff(zeros).max(initial=0)))
                start = position + int(zeros[-1])
            position += count
    return max(longest, position - start)


def _repetition_levels(data: memoryview, page: ParquetPage, codec: str) -> memoryview | None:
    stored = data[page.start : page.start + page.stored]
    if page.kind == DATA_V2:
        return stored[: page.level_bytes]
    if codec != "UNCOMPRESSED":
        try:
            name = "lz4_raw" if codec == "LZ4" else codec.lower()
            stored = memoryview(pa.decompress(stored, page.size, name)).cast("B")
        except (pa.ArrowException, OSError, ValueError):
            return None
    length = int.from_bytes(stored[:4], "little")
    return stored[4 : 4 + length] if 4 + length <= len(stored) else None


def _level_runs(levels: memoryview, width: int, values: int) -> Iterator[tuple[int, np.ndarray[Any, Any] | None]]:
    """Decode the RLE and bit-packed hybrid encoding.

    Yields the number of levels of a run, and the indices of the zeros among them; None if all are zeros.
    """
    at = 0
    size = (width + 7) // 8
    while values > 0 and at < len(levels):
        try:
            header, at = _read_varint(levels, at)
        except IndexError:
            raise MalformedPageError("the levels of a page are damaged") from None
        if not header & 1:
            count = min(header >> 1, values)
            level = int.from_bytes(levels[at : at + size], "little")
            at += size
            values -= count
            if count:
                yield count, _NO_ZEROS if level else None
            continue
        end = at + (header >> 1) * width
        while at < end and values > 0:
            stop = min(at + _PACKED_BYTES * width, end)
            bits = np.unpackbits(np.frombuffer(levels[at:stop], np.uint8), bitorder="little")
            at = stop
            count = min(len(bits) // width, values)
            values -= count
            yield count, np.flatnonzero(~bits[: count * width].reshape(count, width).any(axis=1))
