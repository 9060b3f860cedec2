"""A shared table of several files with NULL, NaN, and values at the ends of their types."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import deltalake
import pyarrow as pa

NAME = "share.default.mixed"

POOLS = {
    "i": [None, -5, 0, 1, 2, 2**31 - 1],
    "f": [None, math.nan, -0.0, 0.0, 0.1, 1.5, math.inf, -math.inf],
    "g": [None, math.nan, 0.1, 1.5, -2.0],
    "s": [None, "", "a", "a\0", "it's", "naïve", "x" * 40, "🦆"],
    "d": [None, Decimal("-1.50"), Decimal("0.00"), Decimal("0.01"), Decimal("99999.99")],
    "day": [None, date(1969, 12, 31), date(2024, 1, 1), date(2024, 2, 29)],
    "t": [None, *(datetime(2024, 1, 1, tzinfo=UTC) + timedelta(microseconds=step) for step in (-1, 0, 1500))],
    "n": [None, *(datetime(2024, 1, 1) + timedelta(microseconds=step) for step in (-1, 0, 1500))],
    "b": [None, b"", b"a", b"\x00\xff"],
    "o": [None, True, False],
    "p": [None, 1, 2],
}
TYPES = {
    "i": pa.int32(),
    "f": pa.float64(),
    "g": pa.float32(),
    "s": pa.string(),
    "d": pa.decimal128(10, 2),
    "day": pa.date32(),
    "t": pa.timestamp("us", "UTC"),
    "n": pa.timestamp("us"),
    "b": pa.binary(),
    "o": pa.bool_(),
    "p": pa.int64(),
}
_ROWS = 210


def rows() -> pa.Table:
    columns = {
        name: pa.array([pool[(row * (2 + place) + row // 7) % len(pool)] for row in range(_ROWS)], TYPES[name])
        for place, (name, pool) in enumerate(POOLS.items())
    }
    columns["id"] = pa.array(range(_ROWS), pa.int64())
    nested = pa.struct({"x": pa.int32()})
    columns["st"] = pa.array([{"x": row % 3} if row % 5 else None for row in range(_ROWS)], nested)
    columns["li"] = pa.array([[row] if row % 4 else None for row in range(_ROWS)], pa.list_(pa.int64()))
    return pa.table(columns)


def write(directory: Path) -> Path:
    """Write three commits, each of a file for every value of `p`."""
    table = rows()
    for start in range(0, _ROWS, 70):
        deltalake.write_deltalake(directory, table.slice(start, 70), partition_by=["p"], mode="append")
    return directory
