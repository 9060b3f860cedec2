"""Per-file statistics: how many rows, and bounds of the columns.

Statistics may be missing, cut short, rounded or loose (see `bounds`), and NaN is in no bound at all. So they may
leave a file out, and never vouch for the rows of one that is read. Serves "Per-file Statistics".
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
from delta_sharing_client.model.json_text import loads, loads_exact
from delta_sharing_client.model.schema import DataType

_NULL: Final = Raw(b"null")
_FALSE: Final = Raw(b"false")
_any: Final = msgspec.json.Decoder().decode
#: Rows that no file has.
_TOO_MANY: Final = 2**63


class Stats(Struct, frozen=True):
    """The statistics of one file.

    Attributes:
        num_records: rows in the file, deleted ones included; None where not told.
        lower, upper: bounds by column name, as JSON values, or as their text.
        null_count: nulls by column name, alike.
        tight: whether the counts are exact for the rows that a deletion vector leaves.
    """

    num_records: int | None
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    null_count: Mapping[str, Any]
    tight: bool = True

    def bounds(self, name: str, data_type: DataType) -> ColumnBounds | None:
        """What the statistics tell of a column; None for nothing.

        Args:
            name: the column's name in the statistics (physical under column mapping).
            data_type: its type in the table's schema.
        """
        nulls = _value(self.null_count.get(name))
        nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
        # With loose bounds a count of nulls still tells that there are none, or nothing else.
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
    """Decode the `stats` text of a file; None where there is none or it cannot be read.

    Statistics only spare work, so a malformed text is as good as none.
    """
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
    """Decodes of the `stats` text of many files what is told of a few columns, as `parse_stats` does of all.

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
        """Return the statistics of one file; None where there are none or they cannot be read."""
        if not text:
            return None
        try:
            whole = self._decode(text) if self._decode is not None else None
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            whole = None  # of another form than writers' own: with NaN, with a part that is no object
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
    """A value that may not be decoded yet, numbers with a point as `Decimal`."""
    if not isinstance(item, Raw):
        return item
    try:
        value = _any(item)
    except (msgspec.DecodeError, UnicodeError):
        value = math.nan  # a number beyond a double, or half a character
    except RecursionError:
        return None
    return loads_exact(bytes(item).decode()) if isinstance(value, float) else value


#: How most writers begin; read without the rest, which is long.
_COUNT_FIRST: Final = re.compile(r'\s*\{\s*"numRecords"\s*:\s*(\d{1,18})\s*[,}]', re.ASCII)
#: The same as the JSON string that it comes in.
_ENCODED_COUNT_FIRST: Final = re.compile(rb'"\{\\"numRecords\\":(0|[1-9]\d{0,17})[,}]')
#: The text of statistics, of its JSON string as it stands in a line, or of null.
decode_text: Final = msgspec.json.Decoder(str | None).decode
_counts: Final = msgspec.json.Decoder(list[int]).decode


def record_counts(encoded: Sequence[Raw]) -> Sequence[int | None]:
    """Return what `num_records` does for many texts, each of them a JSON string still, or null.

    Raises:
        msgspec.DecodeError: one is neither; of those that begin with their count no more is looked at.
    """
    digits = [match[1] if match else b"" for match in map(_ENCODED_COUNT_FIRST.match, encoded)]
    if b"" in digits:
        found = zip(digits, encoded, strict=True)
        return [int(told) if told else num_records(decode_text(text)) for told, text in found]
    # Together, because to make a number of bytes takes Python longer than to find them.
    return _counts(b"[%b]" % b",".join(digits))


def num_records(text: str | None) -> int | None:
    """Return how many rows the `stats` text of a file says it has; None where it does not.

    Where the count comes first, as most writers have it, the rest is not looked at: whether it is JSON, and
    whether it tells another count. The rest is bounds, which are most of the text.
    """
    if not text:
        return None
    if match := _COUNT_FIRST.match(text):
        return int(match[1])
    try:
        item = loads(text)
    except (ValueError, RecursionError):
        return None
    return _count(item.get("numRecords")) if isinstance(item, dict) else None


def _count(count: Any) -> int | None:
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _TOO_MANY else None
