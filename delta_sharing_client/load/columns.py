"""The columns of a pandas frame, filled while the rest of the rows is still on its way.

A column of numbers or times goes straight to its place in the frame, and Arrow's memory is used again for the
next rows: the frame's columns are never there twice, and little is left to do once the last row has come.
"""

from __future__ import annotations

import contextlib
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    import pandas as pd

#: Columns of fewer rows are not looked at; of others up to so many rows, to guess whether values repeat.
_SAMPLE: Final = (10_000, 262_144)
#: Rows of decimals that are made objects together.
_GROUP: Final = 200_000
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
    if pa.types.is_decimal(kind):
        return _Decimals(kind, rows)
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


class _Growing:
    """An array that grows at its end."""

    def __init__(self, dtype: Any, rows: int) -> None:
        self._values = self._allocate(rows, dtype)
        self.size = 0

    @staticmethod
    def _allocate(rows: int, dtype: Any) -> Any:
        # The number of rows is what the provider says: memory that is not there is not asked for twice.
        with contextlib.suppress(MemoryError, ValueError):
            return np.empty(max(rows, 1), dtype)
        return np.empty(1, dtype)

    def room(self, rows: int) -> Any:
        """Return a view of that many new values at the end, to be filled at once."""
        start, self.size = self.size, self.size + rows
        if self.size > len(self._values):
            # Large arrays grow without being copied, where the system can map their pages elsewhere.
            self._values.resize(max(self.size, len(self._values) * 3 // 2), refcheck=False)
        return self._values[start : self.size]

    def result(self) -> Any:
        """Return all values."""
        if self.size < len(self._values):
            self._values.resize(self.size, refcheck=False)
        return self._values


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
        self._values = _Growing(np.dtype(kind.to_pandas_dtype()), rows)
        self._rows = rows
        self._marked = nullable
        self._nulls: _Growing | None = None

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

    def _marks(self, rows: int) -> _Growing:
        """Which values are null, of the first `rows` at least."""
        if self._nulls is None:
            self._nulls = _Growing(np.dtype(bool), max(self._rows, rows))
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
        self._values = _Growing(_TIME, rows)

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


class _Decimals:
    """Python's decimals; where values repeat, one object for all rows of one value.

    To make an object takes longer than all else of the conversion, and 104 bytes.
    """

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self._rows = rows
        self._waiting: list[pa.Array] = []
        self._shares: bool | None = None
        self._objects: _Growing | None = None
        self._known = pa.array([], kind)
        self._of_known = np.empty(0, object)

    def add(self, values: pa.ChunkedArray) -> None:
        self._waiting += values.chunks
        if sum(map(len, self._waiting)) >= _GROUP:
            self._convert()

    def finish(self) -> pd.Series:
        import pandas as pd

        self._convert()
        rest = pa.chunked_array(self._waiting, self._kind)
        if self._objects is None:
            made: pd.Series = rest.to_pandas()
            return made
        if len(rest):
            self._objects.room(len(rest))[:] = rest.to_pandas().to_numpy()
        return pd.Series(self._objects.result(), dtype=object, copy=False)

    def _convert(self) -> None:
        """Make objects of what waits, unless hardly a value is there twice."""
        values = pa.chunked_array(self._waiting, self._kind)
        if self._shares is None:
            self._shares = _repeats(values)
        if not self._shares or not len(values):
            return
        encoded = values.combine_chunks().dictionary_encode()
        objects = self._shared(encoded.dictionary)
        indices = encoded.indices.fill_null(len(objects) - 1).to_numpy(zero_copy_only=False)
        if self._objects is None:
            self._objects = _Growing(np.dtype(object), self._rows)
        np.take(objects, indices, out=self._objects.room(len(values)), mode="clip")
        self._waiting = []

    def _shared(self, distinct: pa.Array) -> Any:
        """Return the objects of some values, those made before where there are any; behind them None."""
        places = pc.index_in(distinct, value_set=self._known)
        fresh = distinct.filter(places.is_null())
        start = len(self._known)
        self._known = pa.concat_arrays([self._known, fresh])
        self._of_known = np.concatenate([self._of_known, fresh.to_numpy(zero_copy_only=False)])
        self._shares = len(fresh) <= len(distinct) // 2 or not start
        numbers = places.fill_null(-1).to_numpy(zero_copy_only=False).copy()
        numbers[numbers < 0] = np.arange(start, start + len(fresh))
        objects = np.empty(len(distinct) + 1, object)
        objects[:-1] = self._of_known[numbers]
        return objects


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether most values of a column seem to occur more than once, going by its beginning."""
    fewest, most = _SAMPLE
    if len(column) <= fewest:
        return False
    sample = column.slice(0, max(fewest, min(most, len(column) // 4)))
    return len(sample.unique()) < len(sample) // 2
