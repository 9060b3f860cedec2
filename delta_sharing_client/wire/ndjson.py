r"""Splitting of an answer's body into lines, and parsing of a line as a JSON object.

Lines are split from the chunks as they arrive. Only ``\n`` ends a line; other line ends of Python are legal inside
JSON strings. Limits protect memory and stack against hostile answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.json_text import loads

MAX_LINE: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 64
#: The size from which a block of lines is decoded. Each block costs planning with a row filter some 0.3 ms.
BLOCK: Final = 2 * 1024 * 1024
#: What a blank line, and another line without a file, cost besides their bytes, so that endless ones are refused.
_BLANK_COST: Final = 64
_LINE_COST: Final = 4 * 1024
#: What the lines without a file of any answer may cost.
_MIN_OTHERS: Final = 1024 * 1024

#: Fields without an effect on rows: statistics, and texts for people.
_LENIENT: Final = frozenset({"stats", "message", "errorMessage", "comment", "description", "displayName"})

Json: TypeAlias = dict[str, Any]


class Lines(Iterator[bytes]):
    r"""A body in parts of whole lines, ended by ``\n`` alone, of about `BLOCK` bytes; the last may have no end.

    A part that cannot be decoded as a whole is split, down to single lines.

    Args:
        chunks: the body, in chunks of any size.
        subject: the requested object, for messages.
        limit: the maximum size of a line in bytes, roughly: `TransportOptions.metadata_limit`.

    Raises:
        ProtocolError: a line is too long, or there are too many lines without a file; raised during iteration too.
    """

    def __init__(self, chunks: Iterable[bytes], subject: str, limit: int = MAX_LINE) -> None:
        self._received = self._blocks(chunks)
        self._subject = subject
        self._limit = limit
        self._parts: list[bytes] = []
        self._splits = 0
        self._blank = 0
        self._others = 0

    def __next__(self) -> bytes:
        if self._parts:
            return self._parts.pop()
        self._splits = 0
        return next(self._received)

    def _blocks(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        pending: list[bytes] = []
        received = 0  # bytes in `pending`
        length = 0  # bytes of the line that has not ended yet
        least = 1  # the metadata decide whether the rest is read
        for chunk in chunks:
            pending.append(chunk)
            received += len(chunk)
            end = chunk.rfind(b"\n") + 1
            length = len(chunk) - end if end else length + len(chunk)
            self._check_length(length)
            if end and received >= least:
                pending[-1] = chunk[:end]
                yield b"".join(pending)
                pending = [chunk[end:]]
                received = length
                least = BLOCK
        if received:
            yield b"".join(pending)

    def split(self, part: bytes) -> bool:
        """Yield a part again, in smaller parts; return False for a single line.

        First its first and its last line are split off, because protocol and metadata come first and the end of
        the answer last; then it is halved.
        """
        first, last = part.find(b"\n") + 1, part.rfind(b"\n", 0, -1) + 1
        if not last:
            return False
        self._splits += 1
        if self._splits > 3:
            first = last = part.rfind(b"\n", 0, len(part) // 2) + 1 or first
        self._parts += [some for some in (part[last:], part[first:last], part[:first]) if some]
        return True

    def is_blank(self, part: bytes) -> bool:
        """Return whether a part has blank lines alone, and add them: endless ones are refused."""
        if not part.isspace():
            return False
        self._blank += len(part) + _BLANK_COST * (part.count(b"\n") or 1)
        if self._blank > self._limit:
            raise ProtocolError(f"{self._subject}: the answer has no end: too many of its lines are blank")
        return True

    def single(self, part: bytes) -> bytes:
        """Return a part that is one line without its end."""
        line = part.removesuffix(b"\n")
        self._check_length(len(line))
        return line

    def add_other(self, line: bytes) -> None:
        """Add a line that has no file: endless ones are refused."""
        self._others += len(line) + _LINE_COST
        most = max(2 * self._limit, _MIN_OTHERS)
        if self._others > most:
            raise ProtocolError(
                f"{self._subject}: the answer has no end: its lines without a file have more than {most:,} bytes; "
                "TransportOptions.metadata_limit allows half of that for a line"
            )

    def _check_length(self, length: int) -> None:
        if length > self._limit:
            raise ProtocolError(
                f"{self._subject}: the answer has a line of more than the {self._limit:,} bytes that "
                "TransportOptions.metadata_limit allows"
            )


def parse_object(line: bytes) -> Json:
    """Decode one line, or one whole body, as a JSON object of bounded depth; raises `ValueError`."""
    brackets = line.count(b"{") + (line.count(b"[") if b"[" in line else 0)
    if brackets > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
    value = loads(line, lenient=_LENIENT)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


#: Strings, which are skipped, and brackets.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def _depth(line: bytes) -> int:
    """Return the nesting depth of a JSON text outside strings, up to one more than the maximum."""
    depth = deepest = 0
    for token in _TOKEN.finditer(line):
        first = line[token.start()]
        if first in (0x7B, 0x5B):
            depth += 1
            deepest = max(deepest, depth)
            if depth > MAX_DEPTH:
                break
        elif first != 0x22:
            depth -= 1
    return deepest
