"""Per-file statistics: row counts and column bounds.

Statistics may be missing, truncated, rounded or loose (see `bound_values`), and bounds ignore NaN. Files are
skipped by them, but rows are always filtered. Serves "Per-file Statistics".
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import astuple

from delta_sharing_client.expressions.bound_values import parse_bound
from delta_sharing_client.expressions.column_bounds import ColumnBounds
from delta_sharing_client.expressions.predicates import is_float
from delta_sharing_client.model.json_text import loads_exact
from delta_sharing_client.model.schema import DataType

_NULL: Final = Raw(b"null")
_FALSE: Final = Raw(b"false")
_any: Final = msgspec.json.Decoder().decode
#: More rows than a file can have.
_TOO_MANY: Final = 2**63


class Stats(Struct, frozen=True):
    """The statistics of one file.

    Attributes:
        num_records: rows of the file, deleted ones included; None if unknown.
        lower, upper: bounds by column name, as JSON values or their text.
        null_count: numbers of nulls by column name, in the same form.
        tight: whether bounds and counts are exact for the rows that are not deleted.
    """

    num_records: int | None
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    null_count: Mapping[str, Any]
    tight: bool = True

    def bounds(self, name: str, data_type: DataType) -> ColumnBounds | None:
        """Return the bounds of a column; None if unknown.

        Args:
            name: the column's name in the statistics (physical under column mapping).
            data_type: its type in the table's schema.
        """
        nulls = _value(self.null_count.get(name))
        nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
        # With loose bounds, only null counts of 0 and of all rows are reliable.
        if nulls is not None and nulls == self.num_records:
            return ColumnBounds(has_value=False)
        lower: Any = parse_bound(_value(self.lower.get(name)), data_type, upper=False)
        upper: Any = parse_bound(_value(self.upper.get(name)), data_type, upper=True)
        if lower is not None and upper is not None and lower > upper:
            lower = upper = None
        if nulls is None and lower is None and upper is None:
            return None
        return ColumnBounds(lower, upper, has_null=nulls != 0, may_be_nan=is_float(data_type))


def parse_stats(text: str | None) -> Stats | None:
    """Decode the `stats` of a file; return None if they are missing or malformed."""
    if not text:
        return None
    try:
        item = loads_exact(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, dict):
        return None
    parts = [item.get(key) for key in ("minValues", "maxValues", "nullCount")]
    lower, upper, nulls = (part if isinstance(part, dict) else {} for part in parts)
    return Stats(_count(item.get("numRecords")), lower, upper, nulls, item.get("tightBounds") is not False)


class StatsDecoder:
    """Decodes the statistics of some columns of many files, with the result of `parse_stats`.

    Args:
        names: the columns' names in the statistics.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self._names = tuple(names)
        self._decode: Callable[[str], Any] | None = None
        fields = {f"c{number}": name for number, name in enumerate(self._names)}
        try:
            columns = msgspec.defstruct("Columns", [(key, Raw, _NULL) for key in fields], rename=fields, gc=False)
        except ValueError:  # a name with a quote or the like
            return
        parts = ("minValues", "maxValues", "nullCount")
        whole: list[Any] = [("numRecords", Raw, _NULL), ("tightBounds", Raw, _NULL)]
        whole += [(part, columns | None, None) for part in parts]
        self._decode = msgspec.json.Decoder(msgspec.defstruct("Whole", whole, gc=False)).decode

    def __call__(self, text: str | None) -> Stats | None:
        """Return the statistics of one file; None if they are missing or malformed."""
        if not text:
            return None
        try:
            whole = self._decode(text) if self._decode is not None else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            whole = None  # an unusual form: with NaN, or a part that is no object
        if whole is None:
            return parse_stats(text)
        return Stats(
            _count(_value(whole.numRecords)),
            self._by_name(whole.minValues),
            self._by_name(whole.maxValues),
            self._by_name(whole.nullCount),
            whole.tightBounds != _FALSE,
        )

    def _by_name(self, part: Any) -> Mapping[str, Any]:
        return {} if part is None else dict(zip(self._names, astuple(part), strict=True))


def _value(item: Any) -> Any:
    """Decode a value if necessary; numbers with a point are `Decimal`."""
    if not isinstance(item, Raw):
        return item
    try:
        value = _any(item)
    except (msgspec.DecodeError, UnicodeError):
        value = math.nan  # a number out of a double's range, or an unpaired surrogate
    except RecursionError:
        return None
    return loads_exact(bytes(item).decode()) if isinstance(value, float) else value


#: Most statistics start with the count; the rest is not parsed for it.
_ENCODED_COUNT_FIRST: Final = re.compile(rb'"\{\\"numRecords\\":(0|[1-9]\d{0,17})[,}]')
#: Decodes the text of statistics from its JSON string, or null.
decode_text: Final = msgspec.json.Decoder(str | None).decode


class _Count(Struct, rename="camel"):
    num_records: Any = None


_decode_count: Final = msgspec.json.Decoder(_Count).decode
_counts: Final = msgspec.json.Decoder(list[int]).decode


def record_counts(encoded: Sequence[Raw]) -> Sequence[int | None]:
    """Return `num_records` for many texts, each an encoded JSON string or null.

    Raises:
        msgspec.DecodeError: an item that does not start with its count is neither.
    """
    digits = [match[1] if match else b"" for match in map(_ENCODED_COUNT_FIRST.match, encoded)]
    if b"" in digits:
        found = zip(digits, encoded, strict=True)
        return [int(count) if count else num_records(decode_text(text)) for count, text in found]
    # Decoding all of them at once is faster than `int` for each.
    return _counts(b"[%b]" % b",".join(digits))


def num_records(text: str | None) -> int | None:
    """Return the row count in the `stats` of a file; None if there is none."""
    try:
        return _count(_decode_count(text or "{}").num_records)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        stats = parse_stats(text)
        return None if stats is None else stats.num_records


def _count(count: Any) -> int | None:
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _TOO_MANY else None
