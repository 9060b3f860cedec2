"""Row counts in the statistics of files, which every load uses; `statistics` has the rest, for filters."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct

from delta_sharing_client.model.json_text import loads_exact

#: The most rows of a file.
MOST_ROWS: Final = 2**63 - 1

#: Most statistics start with the count; the rest is not parsed for it.
_ENCODED_COUNT_FIRST: Final = re.compile(rb'"\{\\"numRecords\\":(0|[1-9]\d{0,17})[,}]')
#: Decodes the text of statistics from its JSON string, or null.
decode_text: Final = msgspec.json.Decoder(str | None).decode


class _Count(Struct, rename="camel"):
    num_records: Any = None


_decode_count: Final = msgspec.json.Decoder(_Count).decode
_counts: Final = msgspec.json.Decoder(list[int]).decode


def record_counts(stats: Sequence[Any]) -> Sequence[int | None]:
    """Return `num_records` for many texts: all as they are, or all as encoded JSON strings or nulls.

    Raises:
        msgspec.DecodeError: an encoded item that does not start with its count is neither.
    """
    if not stats or not isinstance(stats[0], Raw):
        return list(map(num_records, stats))
    digits = [match[1] if match else b"" for match in map(_ENCODED_COUNT_FIRST.match, stats)]
    if b"" in digits:
        pairs = zip(digits, stats, strict=True)
        return [int(count) if count else num_records(decode_text(text)) for count, text in pairs]
    # Decoding all of them at once is faster than `int` for each.
    return _counts(b"[%b]" % b",".join(digits))


def num_records(text: str | None) -> int | None:
    """Return the row count in the `stats` of a file; None if there is none."""
    try:
        return checked_count(_decode_count(text or "{}").num_records)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        item = parse_object(text)
        return None if item is None else checked_count(item.get("numRecords"))


def parse_object(text: str | None) -> dict[str, Any] | None:
    """Decode the `stats` of a file; return None if they are missing or no JSON object."""
    try:
        item = loads_exact(text) if text else None
    except (ValueError, RecursionError):
        return None
    return item if isinstance(item, dict) else None


def checked_count(count: Any) -> int | None:
    """Return a row count out of statistics; None if it is none."""
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count <= MOST_ROWS else None
