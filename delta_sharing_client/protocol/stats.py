"""Per-file statistics: how many rows, and bounds of the columns.

Stats may be missing, cut short or loose, so they are read as bounds and never as values: strings are cut
by writers (a cut upper bound is still an upper bound), timestamps are cut to milliseconds, and NaN is in no
bound at all. Serves "Per-file Statistics".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from delta_sharing_client.protocol.partition_values import INTEGER_BITS, Value, parse_date, parse_timestamp
from delta_sharing_client.protocol.pruning import Domain
from delta_sharing_client.protocol.schema import DataType, DecimalType, PrimitiveType

_MILLISECOND: Final = 1000


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
        only_nulls = nulls is not None and self.num_records is not None and nulls >= self.num_records
        if only_nulls:
            return Domain(has_value=False)
        lower = _bound(self.lower.get(name), data_type)
        upper = _bound(self.upper.get(name), data_type)
        if isinstance(upper, int) and isinstance(data_type, PrimitiveType) and _is_time(data_type):
            upper += _MILLISECOND
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
        item = json.loads(text, parse_float=Decimal)
    except (ValueError, RecursionError):
        return None
    if not isinstance(item, dict):
        return None
    count = item.get("numRecords")
    parts = [item.get(key) for key in ("minValues", "maxValues", "nullCount")]
    lower, upper, nulls = (part if isinstance(part, dict) else {} for part in parts)
    return Stats(
        count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None,
        lower,
        upper,
        nulls,
        item.get("tightBounds") is not False,
    )


def _bound(value: Any, data_type: DataType) -> Value:
    """A JSON bound as a value that compares with literals of the type; None where it cannot be trusted."""
    try:
        if value is None or isinstance(value, dict | list):
            return None
        if isinstance(data_type, DecimalType):
            return Decimal(str(value)) if not isinstance(value, bool) else None
        if not isinstance(data_type, PrimitiveType):
            return None
        name = data_type.name
        if name in INTEGER_BITS:
            return int(value) if not isinstance(value, bool) else None
        if name in ("float", "double"):
            number = float(value)
            return None if number != number else number
        if name == "string" and isinstance(value, str):
            return value
        if name == "date" and isinstance(value, str):
            return parse_date(value)
        if _is_time(data_type) and isinstance(value, str):
            return parse_timestamp(value, wall_clock=name == "timestamp_ntz")
    except (ValueError, ArithmeticError):
        pass
    return None
