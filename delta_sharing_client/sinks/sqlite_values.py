"""Conversion of Arrow values to SQLite's types, or to exact text."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import SinkError


def sqlite_values(column: pa.Array, name: str, target: str) -> Sequence[Any]:
    """Return the values of a column, null as None.

    Raises:
        SinkError: a date or time is outside the years 1 to 9999.
    """
    kind = column.type
    try:
        if pa.types.is_boolean(kind):
            return _list(column.cast(pa.int8()))
        if pa.types.is_floating(kind):
            values = _list(column)
            return (
                ["NaN" if v is not None and math.isnan(v) else v for v in values] if _has_nan(column) else values
            )
        convert = _converter(kind)
        if convert is None:
            return _list(column)
        if pa.types.is_nested(kind):
            return [None if v is None else _dump(convert(v)) for v in _list(column)]
        return [None if v is None else convert(v) for v in _list(column)]
    except (ValueError, OverflowError):
        raise SinkError(
            f"the column {name!r} has a date or time outside the years 1 to 9999, which SQLite has no text for; "
            "leave it out with columns=[...] of the poller",
            target=target,
            columns=[name],
        ) from None


def _list(column: pa.Array) -> list[Any]:
    return list(column.to_pylist())


def _has_nan(column: pa.Array) -> bool:
    return bool(pc.any(pc.is_nan(column)).as_py())


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _converter(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the conversion of a value for SQLite or JSON; None if it needs none."""
    if pa.types.is_decimal(kind):
        return lambda value: format(value, "f")
    if pa.types.is_date(kind):
        return lambda value: value.isoformat()
    if pa.types.is_timestamp(kind):
        return lambda value: value.isoformat(" ", "microseconds")
    if pa.types.is_struct(kind):
        parts = [(kind.field(i).name, _inside(kind.field(i).type)) for i in range(kind.num_fields)]
        return lambda value: {name: convert(value[name]) for name, convert in parts}
    if pa.types.is_map(kind):
        key, item = _inside(kind.key_type), _inside(kind.item_type)
        return lambda value: [[key(k), item(v)] for k, v in value]
    if pa.types.is_list(kind):
        element = _inside(kind.value_type)
        return lambda value: [element(v) for v in value]
    return None


def _inside(kind: pa.DataType) -> Callable[[Any], Any]:
    """Return the conversion of a nested value for JSON; bytes are base64, NaN and infinities text."""
    if pa.types.is_binary(kind):
        return lambda value: None if value is None else base64.b64encode(value).decode("ascii")
    if pa.types.is_floating(kind):
        return _json_float
    convert = _converter(kind)
    if convert is None:
        return lambda value: value
    return lambda value: None if value is None else convert(value)


def _json_float(value: float | None) -> float | str | None:
    if value is None or math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
