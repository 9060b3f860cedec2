"""Statistics and partition values in their own types, for checkpoints ("Per-file Statistics").

What does not fit its column's type becomes null: a checkpoint without a bound is right, one with a wrong
bound loses rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from delta_sharing_client.delta.log.log_schema import (
    arrow_type,
    fields_of,
    maps_columns,
    name_in_log,
    partition_fields,
)
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.json_text import loads_exact
from delta_sharing_client.model.numbers import WIDE, is_saturated

_INTEGER_BITS: Final = {"byte": 8, "short": 16, "integer": 32, "long": 64}
#: Decimals of so many digits fit into 64 bits.
_SHORT: Final = 18
_BOUNDED: Final = (*_INTEGER_BITS, "float", "double", "string", "date", "timestamp", "timestamp_ntz")


class StatsLayout:
    """The types that `stats_parsed` and `partitionValues_parsed` have for one table.

    Args:
        metadata: the table's.
    """

    def __init__(self, metadata: Metadata) -> None:
        self._mapped = maps_columns(metadata)
        self._partitions = partition_fields(metadata)
        self._fields = [
            field
            for field in fields_of(metadata)
            if name_in_log(field, mapped=self._mapped) not in self._partitions
        ]

    def stats_type(self) -> Any:
        """Return the Arrow type of `stats_parsed`."""
        import pyarrow as pa

        fields = [pa.field("numRecords", pa.int64())]
        bounds = self._struct(self._fields, bounds=True)
        counts = self._struct(self._fields, bounds=False)
        if bounds is not None:
            fields += [pa.field("minValues", bounds), pa.field("maxValues", bounds)]
        if counts is not None:
            fields.append(pa.field("nullCount", counts))
        fields.append(pa.field("tightBounds", pa.bool_()))
        return pa.struct(fields)

    def partition_type(self) -> Any:
        """Return the Arrow type of `partitionValues_parsed`, or None where there are no partitions."""
        import pyarrow as pa

        if not self._partitions:
            return None
        return pa.struct([pa.field(n, arrow_type(f["type"]) or pa.string()) for n, f in self._partitions.items()])

    def stats(self, text: str | None) -> dict[str, Any] | None:
        """Return the statistics of a file in their types, or None where there are none to be had."""
        try:
            stats = loads_exact(text or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(stats, dict):
            return None
        tight = stats.get("tightBounds")
        return {
            "numRecords": _integer(stats.get("numRecords"), 64),
            "minValues": self._bounds(self._fields, stats.get("minValues")),
            "maxValues": self._bounds(self._fields, stats.get("maxValues")),
            "nullCount": self._counts(self._fields, stats.get("nullCount")),
            "tightBounds": tight if isinstance(tight, bool) else None,
        }

    def partition_values(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        """Return the partition values of a file in their types."""
        return {name: _partition_value(values.get(name), f["type"]) for name, f in self._partitions.items()}

    def _struct(self, fields: list[dict[str, Any]], *, bounds: bool) -> Any:
        import pyarrow as pa

        children = []
        for field in fields:
            name, kind = name_in_log(field, mapped=self._mapped), field["type"]
            if isinstance(kind, dict) and kind.get("type") == "struct":
                data_type = self._struct(kind.get("fields") or [], bounds=bounds)
            elif bounds:
                data_type = arrow_type(kind) if _has_bounds(kind) else None
            else:
                data_type = pa.int64()
            if data_type is not None:
                children.append(pa.field(name, data_type))
        return pa.struct(children) if children else None

    def _bounds(self, fields: list[dict[str, Any]], values: object) -> dict[str, Any] | None:
        if not isinstance(values, dict):
            return None
        found: dict[str, Any] = {}
        for field in fields:
            name, kind = name_in_log(field, mapped=self._mapped), field["type"]
            if isinstance(kind, dict):
                found[name] = self._bounds(kind.get("fields") or [], values.get(name))
            elif _has_bounds(kind):
                found[name] = _bound(values.get(name), kind)
        return found

    def _counts(self, fields: list[dict[str, Any]], values: object) -> dict[str, Any] | None:
        if not isinstance(values, dict):
            return None
        found: dict[str, Any] = {}
        for field in fields:
            name, kind = name_in_log(field, mapped=self._mapped), field["type"]
            if isinstance(kind, dict) and kind.get("type") == "struct":
                found[name] = self._counts(kind.get("fields") or [], values.get(name))
            else:
                found[name] = _integer(values.get(name), 64)
        return found


def _has_bounds(kind: object) -> bool:
    return isinstance(kind, str) and (kind in _BOUNDED or kind.startswith(("decimal", "char(", "varchar(")))


def _integer(value: object, bits: int) -> int | None:
    # The exponent is looked at before the number is expanded.
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or not -(2**63) <= value < 2**63:
        return None
    number = int(value)
    return number if number == value and -(2 ** (bits - 1)) <= number < 2 ** (bits - 1) else None


def _bound(value: object, kind: str) -> Any:
    try:
        if kind in _INTEGER_BITS:
            return _integer(value, _INTEGER_BITS[kind])
        if kind in ("float", "double"):
            return _float(value, single=kind == "float")
        if kind.startswith("decimal"):
            return _decimal(value, kind)
        if not isinstance(value, str):
            return None
        if kind == "date":
            return date.fromisoformat(value)
        if kind in ("timestamp", "timestamp_ntz"):
            return _moment(value, zoned=kind == "timestamp")
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return value


def _float(value: object, *, single: bool) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = float(value)
    if single and math.isfinite(number):
        # A bound that the narrower type cannot hold would be rounded inward.
        import struct

        return number if struct.unpack("f", struct.pack("f", number))[0] == number else None
    return number


def _decimal(value: object, kind: str) -> Decimal | None:
    data_type = arrow_type(kind)
    if data_type is None or isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    number = Decimal(value)
    if not number.is_finite() or (number and number.adjusted() >= data_type.precision - data_type.scale):
        return None
    if number != number.quantize(Decimal((0, (1,), -data_type.scale)), context=WIDE):
        return None
    return None if data_type.precision > _SHORT and is_saturated(number) else number


def _moment(text: str, *, zoned: bool) -> datetime | None:
    moment = datetime.fromisoformat(text)
    if zoned:
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return None if moment.tzinfo is not None else moment


def _partition_value(text: str | None, kind: object) -> Any:
    if text is None or text == "" or not isinstance(kind, str):
        return None
    if kind == "boolean":
        return {"true": True, "false": False}.get(text.lower())
    if kind == "binary":
        return text.encode("utf-8", "surrogateescape")
    try:
        if kind in _INTEGER_BITS:
            return _integer(int(text), _INTEGER_BITS[kind])
        if kind in ("float", "double"):
            return float(text)
    except ValueError:
        return None
    return _bound(text, kind)
