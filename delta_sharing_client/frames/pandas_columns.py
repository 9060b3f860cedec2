"""Columns of a pandas frame, filled batch by batch.

Numbers and times are copied to their place in the frame as batches arrive, so that Arrow's memory is reused and no
column exists twice; strings get the offsets that pandas needs. Equal decimals share one Python object. Arrow
converts all other types as well by itself (`benchmarks/frames.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

#: Decimals of a column that are known by their value, at most, to share their objects.
_MOST_SHARED: Final = 200_000
_NOT_A_TIME: Final = int(np.iinfo(np.int64).min)


class Column(Protocol):
    """A column of a frame that is being filled."""

    def add(self, values: pa.ChunkedArray) -> None:
        """Append values."""

    def finish(self) -> pd.Series:
        """Return the column."""


def new_column(kind: pa.DataType, rows: int, *, nullable: bool) -> Column | None:
    """Return a column to fill batch by batch; None for a type that Arrow converts as a whole.

    Args:
        kind: the column's type.
        rows: the expected number of rows; 0 if unknown.
        nullable: use nullable dtypes for numbers even without nulls.
    """
    if pa.types.is_integer(kind) or kind in (pa.float32(), pa.float64()):
        return _Numbers(kind, rows, nullable)
    if pa.types.is_timestamp(kind) and kind.unit == "us":
        return _Times(kind, rows)
    if pa.types.is_decimal128(kind) or pa.types.is_decimal256(kind):
        return _Decimals(kind, rows)
    if pa.types.is_string(kind) and not nullable and _pandas_uses_arrow_strings():
        return _Strings()
    return None


@lru_cache(maxsize=1)
def _pandas_uses_arrow_strings() -> bool:
    dtype = pa.table({"text": pa.array([], pa.string())}).to_pandas(use_threads=False)["text"].dtype
    return getattr(dtype, "storage", "") == "pyarrow"  # pandas 2 has a numpy dtype here, without storage


@contextlib.contextmanager
def python_values() -> Iterator[None]:
    """Raise `DataError` for a value that Python's types cannot represent."""
    try:
        yield
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"pandas cannot represent a value as a Python object: {error}; "
            "load with dtype_backend='pyarrow', or as Arrow"
        ) from None


class _GrowableArray:
    """A numpy array that grows at its end, without copies where the system can remap its pages."""

    def __init__(self, dtype: Any, rows: int) -> None:
        self._values: Any = np.empty(1, dtype)
        # The expected number comes from the server; memory that does not exist is not an error here.
        with contextlib.suppress(MemoryError, ValueError):
            self._values = np.empty(max(rows, 1), dtype)
        self.size = 0

    def extend(self, rows: int) -> Any:
        """Return a view of `rows` new values, to be written before the next call."""
        start, self.size = self.size, self.size + rows
        if self.size > len(self._values):
            self._values.resize(max(self.size, len(self._values) * 3 // 2), refcheck=False)
        return self._values[start : self.size]

    def result(self) -> Any:
        """Return all values."""
        self._values.resize(self.size, refcheck=False)
        return self._values


def _copy(values: pa.ChunkedArray, target: Any) -> None:
    """Copy values without nulls chunk by chunk; `ChunkedArray.to_numpy` would copy them twice."""
    start = 0
    for chunk in values.chunks:
        target[start : start + len(chunk)] = chunk.to_numpy()
        start += len(chunk)


class _Numbers:
    """Integers or floats; of a nullable dtype on request, and integers with nulls."""

    def __init__(self, kind: pa.DataType, rows: int, nullable: bool) -> None:
        self._floating = pa.types.is_floating(kind)
        self._nullable = nullable
        self._nan = self._floating and not nullable
        self._values = _GrowableArray(kind.to_pandas_dtype(), rows)
        self._nulls: list[tuple[int, Any]] = []

    def add(self, values: pa.ChunkedArray) -> None:
        if values.null_count:
            if not self._nan:
                self._nulls.append((self._values.size, values.is_null().to_numpy()))
            values = values.fill_null(np.nan if self._nan else 0)
        _copy(values, self._values.extend(len(values)))

    def finish(self) -> pd.Series:
        import pandas as pd

        values = self._values.result()
        if not self._nullable and not self._nulls:
            return pd.Series(values, copy=False)
        mask = np.zeros(len(values), bool)
        for start, nulls in self._nulls:
            mask[start : start + len(nulls)] = nulls
        if self._floating and _nan_is_null():
            mask |= np.isnan(values)
        array = pd.arrays.FloatingArray if self._floating else pd.arrays.IntegerArray
        return pd.Series(array(values, mask), copy=False)


def _nan_is_null() -> bool:
    """Whether nullable floats treat NaN as null: the default since pandas 3."""
    import pandas as pd

    probe: pd.DataFrame = pa.table({"x": [np.nan]}).to_pandas(
        types_mapper={pa.float64(): pd.Float64Dtype()}.get, use_threads=False
    )
    return bool(probe["x"].isna().all())


class _Times:
    """Timestamps in microseconds, with or without a time zone."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self._values = _GrowableArray(np.int64, rows)

    def add(self, values: pa.ChunkedArray) -> None:
        _copy(values.cast(pa.int64()).fill_null(_NOT_A_TIME), self._values.extend(len(values)))

    def finish(self) -> pd.Series:
        import pandas as pd

        values = self._values.result()
        if self._kind.tz is None:
            return pd.Series(values.view("M8[us]"), copy=False)
        # pyarrow's own dtype: its time zone class depends on the installed packages.
        dtype = pa.chunked_array([], self._kind).to_pandas(use_threads=False).dtype
        return pd.Series(pd.array(values, dtype=dtype, copy=False), copy=False)


class _Decimals:
    """Decimals as Python objects of 104 bytes; equal values share one, unless nearly all values differ."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self._repeats = True
        self._keys: pa.Array = pa.nulls(0)
        self._shared: Any = np.full(1, None)  # the objects of the keys, and None
        self._objects = _GrowableArray(object, rows)

    def add(self, values: pa.ChunkedArray) -> None:
        target = self._objects.extend(len(values))
        if not self._repeats:
            target[:] = values.to_pandas(use_threads=False).to_numpy()
            return
        keys = _decimal_keys(values)
        if keys.type != self._keys.type or len(self._keys) > _MOST_SHARED:
            self._keys, self._shared = keys[:0], np.full(1, None)
        places = pc.index_in(keys, value_set=self._keys)
        if places.null_count > keys.null_count:
            missing = pc.and_(places.is_null(), keys.is_valid())
            encoded = keys.filter(missing).dictionary_encode()
            new, first = encoded.dictionary, len(self._keys)
            places = pc.replace_with_mask(places, missing, pc.add(encoded.indices, pa.scalar(first, pa.int32())))
            objects = _decimals(new, self._kind).to_pandas(use_threads=False).to_numpy()
            self._keys = pa.concat_arrays([self._keys, new])
            self._shared = np.concatenate([self._shared[:first], objects, self._shared[first:]])
            self._repeats = 2 * len(new) <= len(values)
        places = places.fill_null(len(self._shared) - 1)
        np.take(self._shared, places.to_numpy(), out=target, mode="clip")

    def finish(self) -> pd.Series:
        import pandas as pd

        return pd.Series(self._objects.result(), dtype=object, copy=False)


def _decimal_keys(values: pa.ChunkedArray) -> pa.Array:
    """Return decimals as unscaled integers if these have 64 bits; comparing them takes a third of the time."""
    unscaled = [_unscaled(chunk) for chunk in values.chunks]
    chunks = [keys for keys in unscaled if keys is not None]
    if not chunks or len(chunks) < len(unscaled):
        return values.combine_chunks()
    return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks)


def _unscaled(chunk: pa.Array) -> pa.Array | None:
    """Return the unscaled integers of decimals of 128 bits; None if one has more than 64 bits."""
    if not pa.types.is_decimal128(chunk.type):
        return None
    words = np.frombuffer(chunk.buffers()[1], np.int64, 2 * len(chunk), 16 * chunk.offset)
    low, high = words[::2], words[1::2]
    mask = chunk.is_null().to_numpy(zero_copy_only=False) if chunk.null_count else None
    fits = high == low >> 63
    return pa.array(low.copy(), mask=mask) if (fits if mask is None else fits | mask).all() else None


def _decimals(keys: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the decimals of `_decimal_keys`, which have no nulls."""
    if keys.type == kind:
        return keys
    low = keys.to_numpy()
    return pa.Array.from_buffers(kind, len(low), [None, pa.py_buffer(np.stack([low, low >> 63], axis=1))])


class _Strings:
    """Strings in Arrow's memory, cast batch by batch to the 64-bit offsets that pandas needs."""

    def __init__(self) -> None:
        self._chunks: list[pa.Array] = []

    def add(self, values: pa.ChunkedArray) -> None:
        self._chunks += values.cast(pa.large_string()).chunks

    def finish(self) -> pd.Series:
        column = pa.chunked_array(self._chunks, pa.large_string())
        series: pd.Series = pa.table({"text": column}).to_pandas(use_threads=False)["text"]
        return series
