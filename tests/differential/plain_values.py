"""Conversion of frames and Arrow tables to plain Python values that compare exactly, independent of the library.

The worker imports this module in the environment of the other clients, so its top-level imports are from the
standard library only.

A value is a tuple of its type and its data: `("int", 3)` differs from `("float", "0x1.8p+1")`. Timestamps are
microseconds since the epoch and `"utc"` or `"naive"`; floats are hexadecimal (all NaNs are equal).
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Cell = tuple[Any, ...]
#: A column: its name, and its values.
Column = tuple[str, list[Cell]]

NULL: Cell = ("null",)
NAN: Cell = ("nan",)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}


def frame_columns(frame: Any) -> list[Column]:
    """Return the columns of a pandas frame."""
    return [(str(name), list(_series(frame.iloc[:, place]))) for place, name in enumerate(frame.columns)]


def _series(series: Any) -> Iterator[Cell]:
    kind = series.dtype
    if kind.kind == "M":
        zone = "naive" if getattr(kind, "tz", None) is None else "utc"
        unit = getattr(kind, "unit", None) or str(kind).partition("[")[2].rstrip("]")
        for number, missing in zip(series.astype("int64").tolist(), series.isna().tolist(), strict=True):
            yield NULL if missing else _time(number, unit, zone)
        return
    # A missing value in a column of floats is NaN; in other columns some libraries use NaN for null.
    floats = kind.kind == "f"
    objects = str(kind) == "object"
    for value, missing in zip(series.tolist(), series.isna().tolist(), strict=True):
        yield NULL if missing and not floats and not objects else cell(value)


def arrow_columns(table: Any) -> list[Column]:
    """Return the columns of an Arrow table."""
    return [(name, list(_arrow(table.column(name)))) for name in table.column_names]


def _arrow(column: Any) -> Iterator[Cell]:
    import pyarrow as pa

    if isinstance(column, pa.ChunkedArray):
        for chunk in column.chunks:
            yield from _arrow(chunk)
        return
    kind = column.type
    # Integers, because datetime supports the years 1 to 9999 only.
    if pa.types.is_timestamp(kind):
        zone = "naive" if kind.tz is None else "utc"
        for number in column.cast(pa.int64()).to_pylist():
            yield NULL if number is None else _time(number, kind.unit, zone)
    elif pa.types.is_date32(kind):
        for number in column.cast(pa.int32()).to_pylist():
            yield NULL if number is None else ("date", number)
    elif pa.types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        rows = zip(*map(_arrow, column.flatten()), strict=True) if names else iter([()] * len(column))
        for row, valid in zip(rows, column.is_valid().to_pylist(), strict=True):
            yield ("struct", *zip(names, row, strict=True)) if valid else NULL
    elif pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        for value in column:
            if not value.is_valid:
                yield NULL
            elif pa.types.is_map(kind):
                keys, items = (_arrow(value.values.field(place)) for place in (0, 1))
                yield ("list", *(("pair", *pair) for pair in zip(keys, items, strict=True)))
            else:
                yield ("list", *_arrow(value.values))
    else:
        yield from map(cell, column.to_pylist())


def _time(number: int, unit: str, zone: str) -> Cell:
    whole, rest = divmod(number * 1_000_000, _PER_SECOND[unit])
    return ("time", whole, zone) if not rest else ("time", whole, zone, rest)


def cell(value: Any) -> Cell:
    """Return the plain form of a value; nested values are converted recursively."""
    if value is None or type(value).__name__ in ("NAType", "NaTType"):
        return NULL
    if hasattr(value, "dtype"):
        if value.dtype.kind == "M":
            return _numpy_timestamps(value)
        value = value.tolist()  # a numpy scalar or array
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return ("int", value)
    if isinstance(value, float):
        return NAN if math.isnan(value) else ("float", value.hex())
    if isinstance(value, str):
        return ("str", value)
    if isinstance(value, bytes | bytearray | memoryview):
        return ("bytes", bytes(value))
    if isinstance(value, Decimal):
        return ("decimal", str(value))
    if isinstance(value, datetime):
        moment: Any = value if value.tzinfo is not None else value.replace(tzinfo=UTC)
        if type(moment).__name__ == "Timestamp":  # of pandas
            moment = moment.to_pydatetime(warn=False)
        return (
            "time",
            (moment - _EPOCH) // timedelta(microseconds=1),
            "utc" if value.tzinfo is not None else "naive",
        )
    if isinstance(value, date):
        return ("date", value.toordinal() - date(1970, 1, 1).toordinal())
    if isinstance(value, dict):
        return ("struct", *((str(name), cell(inner)) for name, inner in value.items()))
    if isinstance(value, tuple):
        return ("pair", *map(cell, value))
    if isinstance(value, list):
        return ("list", *map(cell, value))
    raise TypeError(f"no plain form for {type(value)!r}")


def _numpy_timestamps(value: Any) -> Cell:
    numbers = value.astype("datetime64[us]").astype("int64").tolist()
    if isinstance(numbers, list):
        return ("list", *(NULL if n == -(2**63) else ("time", n, "naive") for n in numbers))
    return NULL if numbers == -(2**63) else ("time", numbers, "naive")
