r"""The body of an answer as lines, and a line as a JSON object.

An answer of 300,000 lines is never held as text: lines are cut from the chunks as they come, decoded and
let go. Only ``\n`` ends a line; the other characters that Python calls line ends are legal inside JSON
strings. Bounds keep a hostile answer from filling the memory or the stack.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.json_text import loads

MAX_LINE: Final = 64 * 1024 * 1024
MAX_DEPTH: Final = 64
#: A blank line counts as so many bytes and its own: of a million of them there is no end.
_BLANK_COST: Final = 64

#: Fields that are shown to people, or only spare work.
_LENIENT: Final = frozenset({"stats", "message", "errorMessage", "comment", "description", "displayName"})

Json: TypeAlias = dict[str, Any]


class Lines:
    r"""The lines of a body, ended by ``\n`` alone; blank ones are passed over, but not for ever.

    Args:
        chunks: the body, in pieces of any size.
        max_line: bytes that a line may have, roughly.
    """

    def __init__(self, chunks: Iterable[bytes], max_line: int = MAX_LINE) -> None:
        self._chunks = chunks
        self._most = max_line
        self._blank = 0

    def blocks(self) -> Iterator[bytes | memoryview]:
        """Yield what has come, cut where a line ends. The last line need not be ended.

        A line that came in two chunks is a block of its own, so that chunks need not be put together.

        Raises:
            ProtocolError: a line is longer than it may be.
        """
        pending: list[bytes | memoryview] = []
        length = 0
        for chunk in self._chunks:
            begin, end = 0, chunk.rfind(b"\n") + 1
            if end:
                if pending:
                    begin = chunk.find(b"\n") + 1
                    pending.append(memoryview(chunk)[:begin])
                    yield b"".join(pending)
                    pending.clear()
                    length = 0
                if begin < end:
                    yield memoryview(chunk)[begin:end]
            if end < len(chunk):
                pending.append(chunk[end:])
                length += len(chunk) - end
                if length > self._most:
                    raise self._too_long()
        if pending:
            yield b"".join(pending)

    def of(self, block: bytes | memoryview) -> Iterator[bytes]:
        """Yield the lines of a block, without their ends.

        Raises:
            ProtocolError: one is longer than it may be, or there are blank ones without end.
        """
        for line in bytes(block).removesuffix(b"\n").split(b"\n"):
            if len(line) > self._most:
                raise self._too_long()
            if line and not line.isspace():
                yield line
                continue
            self._blank += len(line) + _BLANK_COST
            if self._blank > self._most:
                raise ProtocolError("the answer has no end: too many of its lines are blank")

    def _too_long(self) -> ProtocolError:
        return ProtocolError(f"the answer has a line of more than {self._most} bytes")


def parse_object(line: bytes) -> Json:
    """Decode one line, or one whole body, as a JSON object of bounded depth.

    Raises:
        ValueError: it is not one.
    """
    brackets = line.count(b"{") + (line.count(b"[") if b"[" in line else 0)
    if brackets > MAX_DEPTH and _depth(line) > MAX_DEPTH:
        raise ValueError(f"JSON nested deeper than {MAX_DEPTH} levels")
    value = loads(line, lenient=_LENIENT)
    if not isinstance(value, dict):
        raise ValueError("not a JSON object")
    return value


#: Strings, which are passed over, and brackets.
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)


def _depth(line: bytes) -> int:
    """How deep the brackets of a JSON text nest, those inside strings left out; no more than too deep."""
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
