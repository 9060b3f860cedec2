"""The statistics of a data file that was just written: counts, and bounds that hold.

Serves "Per-file Statistics". Texts are cut to 32 characters and times rounded to milliseconds, outward; what
cannot be said exactly in JSON is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.schema import DecimalType, PrimitiveType, StructField, StructType

_TEXT: Final = 32
_COLUMNS: Final = 32
_HIGHEST: Final = "\U0010ffff"
#: Decimals of more digits change when a reader takes them for a double.
_EXACT_DIGITS: Final = 15
_BOUNDED: Final = frozenset(
    {"byte", "short", "integer", "long", "float", "double", "string", "date", "timestamp", "timestamp_ntz"}
)
_MILLISECOND: Final = timedelta(milliseconds=1)


class StatsWriter:
    """Says what goes into the `stats` of the files of a table.

    Args:
        fields: the columns of its files.
        configuration: its properties: `delta.dataSkippingStatsColumns`, `delta.dataSkippingNumIndexedCols`.
        mode: its column mapping.
    """

    def __init__(self, fields: Sequence[StructField], configuration: Mapping[str, str], mode: MappingMode) -> None:
        self._fields = fields
        self._mode = mode
        named = configuration.get("delta.dataSkippingStatsColumns")
        self._named = None if named is None else {part.strip().strip("`").lower() for part in named.split(",")}
        limit = configuration.get("delta.dataSkippingNumIndexedCols", "").strip()
        self._limit = int(limit) if limit == "-1" or (limit.isdecimal() and len(limit) < 10) else _COLUMNS

    def of(self, data: pa.Table) -> dict[str, Any]:
        """Return the statistics of a file.

        Args:
            data: its rows, with the columns in the order of the fields.
        """
        left = [math.inf if self._limit == -1 else self._limit]
        lowest: dict[str, Any] = {}
        highest: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for position, field in enumerate(self._fields):
            if self._named is not None:
                if field.name.lower() not in self._named:
                    continue
                left = [math.inf]
            self._add(field, data.column(position).combine_chunks(), (lowest, highest, nulls), left)
        return {"numRecords": data.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}

    def _add(
        self,
        field: StructField,
        array: Any,
        into: tuple[dict[str, Any], dict[str, Any], dict[str, Any]],
        left: list[float],
    ) -> None:
        if left[0] <= 0:
            return
        if isinstance(array, pa.ChunkedArray):
            array = pa.concat_arrays(array.chunks or [pa.array([], array.type)])
        name = physical_name(field, self._mode)
        if isinstance(field.type, StructType):
            inner: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({}, {}, {})
            for child, values in zip(field.type, array.flatten(), strict=True):
                self._add(child, values, inner, left)
            for outer, found in zip(into, inner, strict=True):
                if found:
                    outer[name] = found
            return
        left[0] -= 1
        lowest, highest, nulls = into
        nulls[name] = array.null_count
        low, high = _bounds(array, field)
        if low is not None and high is not None:
            lowest[name], highest[name] = low, high


def _bounds(array: pa.Array, field: StructField) -> tuple[Any, Any]:
    kind = field.type
    is_decimal = isinstance(kind, DecimalType) and kind.precision <= _EXACT_DIGITS
    if not is_decimal and not (isinstance(kind, PrimitiveType) and kind.name in _BOUNDED):
        return None, None
    if pa.types.is_floating(array.type) and pc.any(pc.is_nan(array)).as_py():
        return None, None
    try:
        found = pc.min_max(array).as_py()
    except (ValueError, OverflowError):  # a date or time that Python has not
        return None, None
    low, high = found["min"], found["max"]
    if low is None or high is None:
        return None, None
    if isinstance(low, float):
        return (low, high) if math.isfinite(low) and math.isfinite(high) else (None, None)
    if isinstance(low, Decimal):
        return float(low), float(high)
    if isinstance(low, str):
        return low[:_TEXT], _highest_text(high)
    if isinstance(low, datetime):
        return _moment(low, up=False), _moment(high, up=True)
    if isinstance(low, date):
        return low.isoformat(), high.isoformat()
    return low, high


def _highest_text(text: str) -> str | None:
    """Return a text of bounded length that is not less than another."""
    if len(text) <= _TEXT:
        return text
    return None if text[_TEXT] == _HIGHEST else text[:_TEXT] + _HIGHEST


def _moment(moment: datetime, *, up: bool) -> str | None:
    rest = timedelta(microseconds=moment.microsecond % 1000)
    try:
        rounded = moment - rest + (_MILLISECOND if up and rest else timedelta())
    except OverflowError:
        return None
    text = rounded.replace(tzinfo=None).isoformat(timespec="milliseconds")
    return text + "Z" if moment.tzinfo is not None else text
