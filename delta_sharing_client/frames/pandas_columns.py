"""The columns of a pandas frame, filled while the rest of the rows is still on its way.

A column of numbers or times goes straight to its place in the frame, and Arrow's memory is used again for the
next rows: the frame's columns are never there twice, and little is left to do once the last row has come.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa

from delta_sharing_client.frames.growable_array import Growing
from delta_sharing_client.frames.object_columns import Objects

if TYPE_CHECKING:
    import pandas as pd

_TIME: Final = np.dtype("datetime64[us]")


class Column(Protocol):
    """One column of a frame that is being filled."""

    def add(self, values: pa.ChunkedArray) -> None:
        """Take further values."""

    def finish(self) -> pd.Series:
        """Return the column."""


def new_column(kind: pa.DataType, rows: int, *, nullable: bool) -> Column | None:
    """Return what fills a column of a type; None where it is better converted as a whole.

    Args:
        kind: the type.
        rows: about how many there will be.
        nullable: whether numbers are of a nullable dtype in any case.
    """
    if pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64()):
        return _Numbers(kind, rows, nullable)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _Times(kind, rows)
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind) or kind == pa.date32():
        return Objects(kind, rows)
    if pa.types.is_string(kind) and not nullable and _keeps_texts():
        return _Texts()
    return None


@lru_cache(maxsize=1)
def _keeps_texts() -> bool:
    """Whether pandas keeps texts in Arrow's memory; then it wants offsets of 64 bits."""
    dtype = pa.table({"text": pa.array([], pa.string())}).to_pandas()["text"].dtype
    return getattr(dtype, "storage", "") == "pyarrow"


def _nan_is_null() -> bool:
    """Whether nullable floats take NaN for null: they do since pandas 3, unless an option says otherwise."""
    import pandas as pd

    probe: pd.DataFrame = pa.table({"x": [np.nan]}).to_pandas(types_mapper={pa.float64(): pd.Float64Dtype()}.get)
    return bool(probe["x"].isna().all())


def _copy(values: pa.ChunkedArray, room: Any) -> None:
    """Copy values without nulls to their place, chunk by chunk: as a whole they would be copied twice."""
    start = 0
    for chunk in values.chunks:
        stop = start + len(chunk)
        room[start:stop] = chunk.to_numpy()
        start = stop


class _Numbers:
    """Integers or floats; nullable ones where that is asked for, and for integers where there are nulls."""

    def __init__(self, kind: pa.DataType, rows: int, nullable: bool) -> None:
        self._floating = pa.types.is_floating(kind)
        self._values = Growing(np.dtype(kind.to_pandas_dtype()), rows)
        self._rows = rows
        self._marked = nullable
        self._nulls: Growing | None = None

    def add(self, values: pa.ChunkedArray) -> None:
        nulls = None
        if values.null_count:
            nulls = values.is_null().to_numpy()
            values = values.fill_null(0)
        room = self._values.room(len(values))
        _copy(values, room)
        if nulls is None:
            if self._nulls is not None:
                self._nulls.room(len(values))[:] = False
        elif self._floating and not self._marked:
            room[nulls] = np.nan
        else:
            self._marks(self._values.size - len(values)).room(len(values))[:] = nulls

    def _marks(self, rows: int) -> Growing:
        """Which values are null, of the first `rows` at least."""
        if self._nulls is None:
            self._nulls = Growing(np.dtype(bool), max(self._rows, rows))
            self._nulls.room(rows)[:] = False
        return self._nulls

    def finish(self) -> pd.Series:
        import pandas as pd

        values = self._values.result()
        if self._nulls is None and not self._marked:
            return pd.Series(values, copy=False)
        nulls = self._marks(self._values.size).result()
        if self._floating and _nan_is_null():
            nulls |= np.isnan(values)
        masked = pd.arrays.FloatingArray if self._floating else pd.arrays.IntegerArray
        return pd.Series(masked(values, nulls), copy=False)


class _Times:
    """Microseconds, of a zone or of none."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self._values = Growing(_TIME, rows)

    def add(self, values: pa.ChunkedArray) -> None:
        room = self._values.room(len(values))
        numbers = values.cast(pa.int64())
        _copy(numbers.fill_null(0) if values.null_count else numbers, room.view(np.int64))
        if values.null_count:
            room[values.is_null().to_numpy()] = np.datetime64("NaT", "us")

    def finish(self) -> pd.Series:
        import pandas as pd

        values = self._values.result()
        if self._kind.tz is None:
            return pd.Series(values, copy=False)
        # The zone as Arrow spells it for pandas, which depends on what else is installed.
        dtype = pa.chunked_array([], self._kind).to_pandas().dtype
        return pd.Series(pd.array(values.view(np.int64), dtype=dtype, copy=False), copy=False)


class _Texts:
    """Texts in Arrow's memory, with offsets as pandas wants them: those that were read are used again."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []

    def add(self, values: pa.ChunkedArray) -> None:
        self._chunks += values.cast(pa.large_string()).chunks

    def finish(self) -> pd.Series:
        made: pd.Series = pa.table({"text": pa.chunked_array(self._chunks, pa.large_string())}).to_pandas()["text"]
        return made
