"""The pages of a Parquet column chunk, as their headers describe them; nothing is decoded.

What a file's footer says about sizes is a claim. The headers of the pages are what the Parquet reader goes by, so
that is where a bound for the memory that decoding takes has to come from.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

#: Kinds of pages.
DATA: Final = 0
DICTIONARY: Final = 2
DATA_V2: Final = 3
#: Encodings of values.
PLAIN_DICTIONARY: Final = 2
RLE: Final = 3
DELTA_BYTE_ARRAY: Final = 7
RLE_DICTIONARY: Final = 8

#: Old writers left the dictionary page's header out of a chunk's size.
_PADDING: Final = 100
#: Bytes of a page's header, as in the Parquet reader; pages of a chunk.
_LONGEST_HEADER: Final = 16 * 1024 * 1024
_MOST_PAGES: Final = 1_000_000
#: Values of a dictionary that are walked through one by one.
_FEW: Final = 100_000
#: Packed levels are looked at so many bytes of each bit at a time.
_PACKED: Final = 64 * 1024

#: Bytes behind the head of a field, by its kind: two booleans, a byte, a float.
_WIDTHS: Final = {1: 0, 2: 0, 3: 1, 7: 8}
#: The headers of most pages, up to what matters of them: a dictionary's, and that of data with its encoding.
_NUMBER: Final = rb"([\x80-\xff]{0,4}[\x00-\x7f])"
_SIZES: Final = rb"\x15" + _NUMBER + rb"\x15" + _NUMBER + rb"(?:\x15[\x80-\xff]{0,4}[\x00-\x7f])?"
_DICTIONARY_HEADER: Final = re.compile(
    rb"\x15\x04" + _SIZES + rb"[\x3c\x4c]\x15" + _NUMBER + rb"\x15[\x00-\x7f][\x11\x12]?\x00\x00", re.DOTALL
)
_DATA_HEADER: Final = re.compile(
    rb"\x15\x00" + _SIZES + rb"[\x1c\x2c]\x15" + _NUMBER + rb"\x15([\x00-\x7f])", re.DOTALL
)


class MalformedPageError(ValueError):
    """A page's header makes no sense."""


class Page(NamedTuple):
    """One page.

    Attributes:
        kind: `DATA`, `DICTIONARY` or `DATA_V2`.
        start: where its bytes start, behind its header.
        stored: how many bytes it takes in the file.
        size: how many it takes when decompressed.
        values: how many values it holds, nulls included.
        encoding: the encoding of the values.
        levels: bytes of repetition levels and of definition levels that stand uncompressed before the values
            (version 2 only).
    """

    kind: int
    start: int
    stored: int
    size: int
    values: int
    encoding: int
    levels: tuple[int, int] = (0, 0)

    @property
    def by_index(self) -> bool:
        """Whether its values are positions in the dictionary."""
        return self.encoding in (RLE_DICTIONARY, PLAIN_DICTIONARY)


def pages_of(data: memoryview, start: int, stop: int, values: int) -> list[Page]:
    """Return the pages of a column chunk.

    Args:
        data: the file's bytes.
        start: where the chunk starts.
        stop: where it ends, as the footer says.
        values: how many values it has, as the footer says; the reader looks at no page behind them.

    Raises:
        MalformedPageError: a header makes no sense.
    """
    found: list[Page] = []
    seen = 0
    end = min(stop + _PADDING, len(data))
    while seen < values and start < stop:
        page = _page(data, start, end)
        if page.kind in (DATA, DATA_V2):
            seen += page.values
        if page.kind in (DATA, DATA_V2, DICTIONARY):
            found.append(page)
        start = page.start + page.stored
        if len(found) > _MOST_PAGES:
            raise MalformedPageError(f"a column chunk has more than {_MOST_PAGES:,} pages")
    return found


def quick_bound(data: memoryview, start: int, values: int) -> int | None:
    """Return a bound for what the texts of a column chunk come to, if it is made as most small ones are.

    That is a page of data, perhaps with a dictionary before it.

    Args:
        data: the file's bytes.
        start: where the chunk starts.
        values: how many values it has, no value being repeated.
    """
    held = entry = 0
    header = _DICTIONARY_HEADER.match(data, start)
    if header is not None:
        size, stored, entries = [_unsigned(number) for number in header.groups()]
        held, entry, start = size, max(size - 4 * entries, 0), header.end() + stored
    header = _DATA_HEADER.match(data, start)
    if header is None:
        return None
    size, _, count, encoding = [_unsigned(number) for number in header.groups()]
    if count != values or encoding == DELTA_BYTE_ARRAY:
        return None
    return held + size + (values * entry if encoding in (RLE_DICTIONARY, PLAIN_DICTIONARY) else 0)


def _unsigned(number: bytes) -> int:
    """A number that is not below zero, as Thrift writes it."""
    value = 0
    for shift, byte in enumerate(number):
        value |= (byte & 127) << (7 * shift)
    return value >> 1


def _page(data: memoryview, at: int, end: int) -> Page:
    try:
        header, start = _struct(data, at, min(end, at + _LONGEST_HEADER), 0)
        kind, size, stored = header[1], header[2], header[3]
        levels = 0, 0
        if kind == DATA_V2:
            about = header[8]
            values, encoding, levels = about[1], about[4], (about[6], about[5])
        elif kind in (DATA, DICTIONARY):
            about = header[5 if kind == DATA else 7]
            values, encoding = about[1], about[2]
        else:
            values = encoding = 0
        if size < 0 or stored < 0 or values < 0 or encoding < 0 or min(levels) < 0:
            raise MalformedPageError("the header of a page holds a number below zero")
    except (IndexError, KeyError, TypeError):
        raise MalformedPageError("the header of a page is damaged") from None
    return Page(kind, start, stored, size, values, encoding, levels)


def _struct(data: memoryview, at: int, end: int, depth: int) -> tuple[dict[int, Any], int]:
    """Read a struct in Thrift's compact protocol: its numbers and structs by field; texts are passed over."""
    if depth > 8:
        raise MalformedPageError("the header of a page is nested too deep")
    found: dict[int, Any] = {}
    field = 0
    while at < end:
        head = data[at]
        if not head:
            return found, at + 1
        kind = head & 15
        at += 1
        if head > 15:
            field += head >> 4
        else:
            field, at = _number(data, at)
        if 4 <= kind <= 6:
            number = data[at]
            if number < 128:
                at += 1
                found[field] = (number >> 1) ^ -(number & 1)
            else:
                found[field], at = _number(data, at)
        elif kind == 8:
            number = data[at]
            if number < 128:
                at += 1 + number
            else:
                number, at = _varint(data, at)
                at += number
        elif kind == 12:
            found[field], at = _struct(data, at, end, depth + 1)
        elif kind not in _WIDTHS:
            raise MalformedPageError("the header of a page has a field of an unknown kind")
        else:
            at += _WIDTHS[kind]
    raise MalformedPageError("the header of a page does not end")


def _number(data: memoryview, at: int) -> tuple[int, int]:
    number, at = _varint(data, at)
    return (number >> 1) ^ -(number & 1), at


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
        if shift > 63:
            raise MalformedPageError("the header of a page holds a number that is too long")


def longest_entry(data: memoryview, page: Page, codec: str) -> int:
    """Return a bound for the longest text in a dictionary page of texts: mostly its very length.

    Args:
        data: the file's bytes.
        page: the dictionary page.
        codec: the chunk's compression, as pyarrow names it.
    """
    # Each text stands behind four bytes that hold its length.
    most = max(page.size - 4 * page.values, 0)
    content = _content(data, page, codec)
    if content is None:
        return most
    return min(most, _longest(np.frombuffer(content, np.uint8), page.values))


def _content(data: memoryview, page: Page, codec: str) -> Any:
    """The decompressed bytes of a page without levels; None where they cannot be had here."""
    stored = data[page.start : page.start + page.stored]
    if codec == "UNCOMPRESSED":
        return stored
    try:
        return pa.decompress(stored, page.size, codec.lower() if codec != "LZ4" else "lz4_raw")
    except (pa.ArrowException, OSError, ValueError):
        return None  # the reader may know what to do with it, or says what is wrong


def _longest(content: np.ndarray[Any, Any], values: int) -> int:
    size = len(content)
    if not values or size < 4 * values:
        return 0
    if size % values == 0:
        # Most keys are of one length.
        table = content.reshape(values, size // values)
        length = size // values - 4
        if (table[:, :4] == np.frombuffer(length.to_bytes(4, "little"), np.uint8)).all():
            return length
    starts = _likely_starts(content)
    if len(starts) == values and starts[0] == 0:
        lengths = content[starts].astype(np.int64) | content[starts + 1].astype(np.int64) << 8
        ends = starts + 4 + lengths
        # Each starts where the one before it ends: so they are the texts, and no others.
        if ends[-1] <= size and np.array_equal(ends[:-1], starts[1:]):
            return int(lengths.max())
    if values > _FEW:
        return size - 4 * values
    longest = at = 0
    view = content.tobytes()
    for _ in range(values):
        length = int.from_bytes(view[at : at + 4], "little")
        at += 4 + length
        longest = max(longest, length)
        if at >= size:
            break
    return min(longest, size)


def _likely_starts(content: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Where texts seem to start: two zeros or more are the end of a short text's length."""
    zeros = np.flatnonzero(content == 0)
    if len(zeros) < 2:
        return zeros[:0]
    follows = np.diff(zeros) == 1
    last = np.append(~follows, True)
    second = np.insert(follows, 0, False)
    starts: np.ndarray[Any, Any] = zeros[last & second] - 3
    return starts


class Rows(NamedTuple):
    """Where the rows of a column with repeated values lie.

    Attributes:
        longest: the values of the longest row.
        first: for each page of data the number of the row that its first value belongs to.
        last: the same for its last value.
    """

    longest: int
    first: list[int]
    last: list[int]


def rows_of(data: memoryview, pages: list[Page], codec: str, levels: int) -> Rows | None:
    """Find the rows of a column with repeated values from its repetition levels.

    Args:
        data: the file's bytes.
        pages: the column chunk's pages.
        codec: its compression, as pyarrow names it.
        levels: its highest repetition level.

    Returns:
        The rows; None where the levels cannot be had here.

    Raises:
        MalformedPageError: the levels are damaged.
    """
    longest = current = 0
    row = -1
    first: list[int] = []
    last: list[int] = []
    for page in pages:
        if page.kind == DICTIONARY:
            continue
        stored = _levels(data, page, codec)
        if stored is None:
            return None
        begun = False
        for run in _level_runs(stored, levels.bit_length(), page.values):
            if not begun:
                first.append(max(row + (run.first == 0), 0))
                begun = True
            row += run.starts
            if run.starts:
                longest = max(longest, current + run.first, run.apart)
                current = run.values - run.last
            else:
                current += run.values
        if not begun:
            first.append(max(row, 0))
        last.append(max(row, 0))
    return Rows(max(longest, current), first, last)


class _Run(NamedTuple):
    """Some levels: how many, how many are 0 and start a row, the first and the last of those, their widest gap."""

    values: int
    starts: int = 0
    first: int = -1
    last: int = -1
    apart: int = 0


def _levels(data: memoryview, page: Page, codec: str) -> memoryview | None:
    """The encoded repetition levels of a page; None where they cannot be had here."""
    if page.kind == DATA_V2:
        return data[page.start : page.start + page.levels[0]]
    content = _content(data, page, codec)
    if content is None:
        return None
    view = memoryview(content).cast("B")
    length = int.from_bytes(view[:4], "little")
    return view[4 : 4 + length] if 4 + length <= len(view) else None


def _level_runs(stored: memoryview, width: int, values: int) -> Iterator[_Run]:
    """The runs of encoded levels, a hybrid of repeated and of packed ones."""
    at = 0
    size = (width + 7) // 8
    while values > 0 and at < len(stored):
        try:
            header, at = _varint(stored, at)
        except IndexError:
            raise MalformedPageError("the levels of a page are damaged") from None
        if not header & 1:
            count = min(header >> 1, values)
            level = int.from_bytes(stored[at : at + size], "little")
            at += size
            values -= count
            yield _Run(count) if level or not count else _Run(count, count, 0, count - 1, 1)
            continue
        end = at + (header >> 1) * width
        while at < end and values > 0:
            stop = min(at + _PACKED * width, end)
            bits = np.unpackbits(np.frombuffer(stored[at:stop], np.uint8), bitorder="little")
            at = stop
            count = min(len(bits) // width, values)
            values -= count
            zeros = np.flatnonzero(~bits[: count * width].reshape(count, width).any(axis=1))
            if len(zeros):
                apart = int(np.diff(zeros).max(initial=0))
                yield _Run(count, len(zeros), int(zeros[0]), int(zeros[-1]), apart)
            else:
                yield _Run(count)
