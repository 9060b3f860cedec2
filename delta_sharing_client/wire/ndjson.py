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
#: The additional cost of a blank line in bytes, so that endless blank lines are refused.
_BLANK_COST: Final = 64

#: Fields without an effect on rows: statistics, and texts for people.
_LENIENT: Final = frozenset({"stats", "message", "errorMessage", "comment", "description", "displayName"})

Json: TypeAlias = dict[str, Any]


class Lines:
    r"""The lines of a body, ended by ``\n`` alone; blank lines are skipped, up to a limit.

    Args:
        chunks: the body, in chunks of any size.
        max_line: the maximum size of a line in bytes, roughly: `TransportOptions.metadata_limit`.
    """

    def __init__(self, chunks: Iterable[bytes], max_line: int = MAX_LINE) -> None:
        self._chunks = chunks
        self._most = max_line
        self._blank = 0

    def blocks(self) -> Iterator[bytes]:
        """Yield blocks of whole lines, of about `BLOCK` bytes; the last line may have no end.

        Raises:
            ProtocolError: a line is too long.
        """
        pending: list[bytes] = []
        received = 0  # bytes in `pending`
        length = 0  # bytes of the line that has not ended yet
        for chunk in self._chunks:
            pending.append(chunk)
            received += len(chunk)
            end = chunk.rfind(b"\n") + 1
            length = len(chunk) - end if end else length + len(chunk)
            if length > self._most:
                raise self._too_long()
            if end and received >= BLOCK:
                pending[-1] = chunk[:end]
                yield b"".join(pending)
                pending = [chunk[end:]]
                received = length
        if received:
            yield b"".join(pending)

    def of(self, block: bytes) -> Iterator[bytes]:
        """Yield the lines of a block, without their ends.

        Raises:
            ProtocolError: a line is too long, or there are too many blank lines.
        """
        for line in block.removesuffix(b"\n").split(b"\n"):
            if len(line) > self._most:
                raise self._too_long()
            if line and not line.isspace():
                yield line
                continue
            self._blank += len(line) + _BLANK_COST
            if self._blank > self._most:
                raise ProtocolError("the answer has no end: too many of its lines are blank")

    def _too_long(self) -> ProtocolError:
        return ProtocolError(
            f"the answer has a line of more than the {self._most:,} bytes that "
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
