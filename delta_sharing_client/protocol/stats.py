"""Per-file statistics: how many rows, and bounds of the columns.

Stats may be missing, cut short or loose, so they are read as bounds and never as values: long strings are
cut by writers, times are cut to milliseconds, decimals may have gone through a double, floats are written
in fewer digits than they have, and NaN is in no bound at all. Serves "Per-file Statistics".
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any, Final

import msgspec
from msgspec import Raw

from delta_sharing_client.protocol.json_text import loads, loads_exact
from delta_sharing_client.protocol.partition_values import (
    INTEGER_BITS,
    Value,
    parse_date,
    parse_timestamp,
    to_float32,
)
from delta_sharing_client.protocol.pruning import Domain
from delta_sharing_client.protocol.schema import DataType, DecimalType, PrimitiveType

_MILLISECOND: Final = 1000
#: Rows that no file has.
_TOO_MANY: Final = 2**63
#: Characters from which on a string may have been cut.
_CUT: Final = 32
#: Decimals of so many digits survive a double; longer ones are off by less than the given part of them.
_DOUBLE_DIGITS: Final = 15
_DOUBLE_ERROR: Final = Decimal("1e-15")
_WIDE: Final = Context(prec=80)


@dataclass(frozen=True, slots=True)
class Stats:
    """The statistics of one file.

    Attributes:
        num_records: rows in the file, deleted ones included; None where not told.
        lower, upper: bounds by column name, as JSON values.
        null_count: nulls by column name.
        tight: whether the counts are exact for the rows that a deletion vector leaves.
    """

    num_records: int | None
    lower: Mapping[str, Any]
    upper: Mapping[str, Any]
    null_count: Mapping[str, Any]
    tight: bool = True

    def domain(self, name: str, data_type: DataType) -> Domain | None:
        """What the statistics tell of a column; None for nothing.

        Args:
            name: the column's name in the statistics (physical under column mapping).
            data_type: its type in the table's schema.
        """
        nulls = self.null_count.get(name)
        nulls = nulls if isinstance(nulls, int) and not isinstance(nulls, bool) else None
        # With loose bounds a count of nulls still tells that there are none, or nothing else.
        if nulls is not None and nulls == self.num_records:
            return Domain(has_value=False)
        lower: Any = _bound(self.lower.get(name), data_type)
        upper: Any = _bound(self.upper.get(name), data_type, upper=True)
        if lower is not None and upper is not None and lower > upper:
            lower = upper = None
        if nulls is None and lower is None and upper is None:
            return None
        floating = isinstance(data_type, PrimitiveType) and data_type.name in ("float", "double")
        return Domain(lower, upper, has_null=nulls != 0, may_be_nan=floating)


def _is_time(data_type: PrimitiveType) -> bool:
    return data_type.name in ("timestamp", "timestamp_ntz")


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
    return Stats(
        _count_in(item),
        lower,
        upper,
        nulls,
        item.get("tightBounds") is not False,
    )


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
    return _count_in(item) if isinstance(item, dict) else None


def _count_in(item: Mapping[str, Any]) -> int | None:
    count = item.get("numRecords")
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < _TOO_MANY else None


def _bound(value: Any, data_type: DataType, *, upper: bool = False) -> Value:
    """A JSON bound as a value that compares with literals of the type; None where it cannot be trusted."""
    try:
        if value is None or isinstance(value, dict | list | bool):
            return None
        if isinstance(data_type, DecimalType):
            return _decimal(Decimal(str(value)), data_type, upper=upper)
        if not isinstance(data_type, PrimitiveType):
            return None
        name = data_type.name
        if name in INTEGER_BITS:
            number = int(value)
            return number if isinstance(value, str) or number == value else None
        if name in ("float", "double"):
            real = float(value)
            if real != real:
                return None
            single = to_float32(real)
            # A double may have been a float when the bound was written: 0.1 then stands for the float next to it.
            if name == "float" or not math.isfinite(single):
                return single if name == "float" else real
            return max(real, single) if upper else min(real, single)
        if name == "string" and isinstance(value, str):
            return _after_cut(value) if upper and len(value) >= _CUT else value
        if name == "date" and isinstance(value, str):
            return parse_date(value)
        if _is_time(data_type) and isinstance(value, str):
            micros = parse_timestamp(value, wall_clock=name == "timestamp_ntz")
            return micros + _MILLISECOND if upper else micros
    except (ValueError, ArithmeticError):
        pass
    return None


def _decimal(value: Decimal, data_type: DecimalType, *, upper: bool) -> Decimal | None:
    """A decimal bound, moved outwards where it may have been rounded to a double."""
    if not value.is_finite():
        return None
    if data_type.precision <= _DOUBLE_DIGITS:
        return value
    slack = _WIDE.multiply(value.copy_abs(), _DOUBLE_ERROR)
    return _WIDE.add(value, slack) if upper else _WIDE.subtract(value, slack)


def _after_cut(value: str) -> str | None:
    """The least string that comes after all that begin with `value`; None where there is none."""
    rest = value.rstrip("\uffff\U0010ffff")
    if not rest:
        return None
    following = ord(rest[-1]) + 1
    return rest[:-1] + chr(0xE000 if following == 0xD800 else following)
