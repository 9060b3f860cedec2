"""Statistics and partition values in their own types, for checkpoints ("Per-file Statistics").

A value that does not fit its type exactly becomes null: a missing bound is correct, a wrong one loses rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation
from typing import Any, Final, TypeAlias, Union

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.log.log_schema import maps_columns, name_in_log, partition_fields, schema_of
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.json_text import loads_exact
from delta_sharing_client.model.numbers import is_saturated
from delta_sharing_client.model.partition_values import (
    INTEGER_BITS,
    MISSING,
    PartitionValues,
    fit_decimal,
    parse_partition_value,
    partition_text,
    to_float32,
)
from delta_sharing_client.model.schema import DataType, DecimalType, PrimitiveType, StructType

#: Names in the log with types, or with the columns of a struct.
_Columns: TypeAlias = Mapping[str, Union[DataType, "_Columns"]]

#: Decimals of at most this many digits fit into 64 bits.
_SHORT: Final = 18
_UNBOUNDED: Final = ("boolean", "binary")


class StatsLayout:
    """The types of `stats_parsed` and `partitionValues_parsed` of one table."""

    def __init__(self, metadata: Metadata) -> None:
        self._partitions = partition_fields(metadata)
        columns = _columns(schema_of(metadata), mapped=maps_columns(metadata))
        self._columns = {name: kind for name, kind in columns.items() if name not in self._partitions}

    def stats_type(self) -> Any:
        """Return the Arrow type of `stats_parsed`."""
        import pyarrow as pa

        bounds = _struct_type(self._columns, lambda kind: None if _is_unbounded(kind) else _arrow_type(kind))
        counts = _struct_type(self._columns, lambda kind: pa.int64())
        fields = {
            "numRecords": pa.int64(),
            "minValues": bounds,
            "maxValues": bounds,
            "nullCount": counts,
            "tightBounds": pa.bool_(),
        }
        return pa.struct([pa.field(name, kind) for name, kind in fields.items() if kind is not None])

    def partition_type(self) -> Any:
        """Return the Arrow type of `partitionValues_parsed`; None for a table without partitions."""
        import pyarrow as pa

        types = {name: field.type for name, field in self._partitions.items()}
        return _struct_type(types, lambda kind: _arrow_type(kind) or pa.string())

    def stats(self, text: str | None) -> dict[str, Any] | None:
        """Return the statistics of a file in their types; None if they are missing or malformed."""
        try:
            stats = loads_exact(text or "null")
        except (ValueError, RecursionError):
            return None
        if not isinstance(stats, dict):
            return None
        tight = stats.get("tightBounds")
        return {
            "numRecords": _integer(stats.get("numRecords"), "long"),
            "minValues": _typed(self._columns, stats.get("minValues"), _bound),
            "maxValues": _typed(self._columns, stats.get("maxValues"), _bound),
            "nullCount": _typed(self._columns, stats.get("nullCount"), lambda count, _: _integer(count, "long")),
            "tightBounds": tight if isinstance(tight, bool) else None,
        }

    def partition_values(self, values: PartitionValues) -> dict[str, Any]:
        """Return the partition values of a file in their types."""
        found: dict[str, Any] = {}
        for name, field in self._partitions.items():
            text = partition_text(values, name, field.name)
            with suppress(ValueError, UnsupportedTypeError):
                found[name] = None if text is MISSING else parse_partition_value(text, field.type)
        return found


def _columns(schema: StructType, *, mapped: bool) -> dict[str, DataType | _Columns]:
    return {
        name_in_log(field, mapped=mapped): _columns(field.type, mapped=mapped)
        if isinstance(field.type, StructType)
        else field.type
        for field in schema
    }


def _struct_type(columns: _Columns, type_of: Callable[[DataType], Any]) -> Any:
    """Return the Arrow type of a struct of the columns that have a type; None if none has."""
    import pyarrow as pa

    types = {
        name: type_of(kind) if isinstance(kind, DataType) else _struct_type(kind, type_of)
        for name, kind in columns.items()
    }
    fields = [pa.field(name, data_type) for name, data_type in types.items() if data_type is not None]
    return pa.struct(fields) if fields else None


def _typed(columns: _Columns, values: object, convert: Callable[[object, DataType], Any]) -> dict[str, Any] | None:
    if not isinstance(values, dict):
        return None
    return {
        name: convert(values.get(name), kind)
        if isinstance(kind, DataType)
        else _typed(kind, values.get(name), convert)
        for name, kind in columns.items()
    }


def _arrow_type(kind: DataType) -> Any:
    """Return the Arrow type of a type with an order; None for other types."""
    import pyarrow as pa

    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    types = {
        "byte": pa.int8(),
        "short": pa.int16(),
        "integer": pa.int32(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "binary": pa.binary(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_ntz": pa.timestamp("us"),
    }
    return types.get(kind.name) if isinstance(kind, PrimitiveType) else None


def _is_unbounded(kind: DataType) -> bool:
    return isinstance(kind, PrimitiveType) and kind.name in _UNBOUNDED


def _bound(value: object, kind: DataType) -> Any:
    try:
        if isinstance(kind, DecimalType):
            return _decimal(value, kind)
        if not isinstance(kind, PrimitiveType):
            return None
        if kind.name in INTEGER_BITS:
            return _integer(value, kind.name)
        if kind.name in ("float", "double"):
            return _float(value, single=kind.name == "float")
        if not isinstance(value, str):
            return None
        if kind.name == "date":
            return date.fromisoformat(value)
        if kind.name in ("timestamp", "timestamp_ntz"):
            return _moment(value, zoned=kind.name == "timestamp")
    except (ValueError, OverflowError, InvalidOperation):
        return None
    return value


def _integer(value: object, name: str) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal) or value != value:
        return None
    # The range is checked before a number with a huge exponent is expanded.
    limit = 1 << (INTEGER_BITS[name] - 1)
    return int(value) if -limit <= value < limit and int(value) == value else None


def _float(value: object, *, single: bool) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal | str):
        return None
    number = float(value)
    # A float would round the bound inward.
    return None if single and math.isfinite(number) and to_float32(number) != number else number


def _decimal(value: object, kind: DecimalType) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | Decimal | str):
        return None
    number = fit_decimal(Decimal(value), kind)
    return None if kind.precision > _SHORT and is_saturated(number) else number


def _moment(text: str, *, zoned: bool) -> datetime | None:
    moment = datetime.fromisoformat(text)
    if zoned:
        return moment.astimezone(UTC) if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return None if moment.tzinfo is not None else moment
