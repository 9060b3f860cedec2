"""Columns of Python objects: decimals and dates.

To make a decimal takes longer than all else that is done for a row, and 104 bytes. Where values repeat, the rows
of one value share one object.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames.growable_array import Growing

if TYPE_CHECKING:
    import pandas as pd

#: Columns of fewer rows are not looked at; of others up to so many rows, to guess whether values repeat.
_SAMPLE: Final = (10_000, 262_144)
#: Rows that are made objects together.
_GROUP: Final = 200_000
#: Places that a table may have, for each row and in all: it is looked through for each group of rows.
_PLACES: Final = (4, 4_000_000)
#: Numbers beyond this have no place: those around them would not fit into 64 bits.
_FURTHEST: Final = 2**62
#: The most digits of a decimal whose unscaled value is sure to fit into 64 bits.
_DIGITS: Final = 18


@contextlib.contextmanager
def python_values() -> Iterator[None]:
    """Raise `DataError` for a value that Python's types cannot hold."""
    try:
        yield
    except (ValueError, OverflowError, pa.ArrowException) as error:
        raise DataError(
            f"a value has no Python object to stand for it in pandas: {error}; "
            "dtype_backend='pyarrow', or loading as Arrow, keeps it"
        ) from None


class Objects:
    """A column of decimals or dates.

    Args:
        kind: its type.
        rows: about how many rows there will be.
    """

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._kind = kind
        self._rows = rows
        self._waiting: list[pa.Array] = []
        self._count = 0
        self._shares: bool | None = None
        self._objects: Growing | None = None
        self._table = _Table(kind) if _Table.suits(kind) else None
        self._known = pa.array([], kind)
        self._of_known = np.empty(0, object)

    def add(self, values: pa.ChunkedArray) -> None:
        """Take further values."""
        self._waiting += values.chunks
        self._count += len(values)
        by_place = self._shares and self._table is not None
        if by_place or self._count >= _GROUP:
            self._convert()

    def finish(self) -> pd.Series:
        """Return the column.

        Raises:
            DataError: Python has no object for a value.
        """
        import pandas as pd

        self._convert()
        rest = pa.chunked_array(self._waiting, self._kind)
        if self._objects is None:
            with python_values():
                made: pd.Series = rest.to_pandas(date_as_object=True)
            return made
        if len(rest):
            self._objects.room(len(rest))[:] = _python(rest)
        return pd.Series(self._objects.result(), dtype=object, copy=False)

    def _convert(self) -> None:
        """Make objects of what waits, unless hardly a value is there twice."""
        if self._shares is False or not self._count:
            return
        chunked = pa.chunked_array(self._waiting, self._kind)
        if self._shares is None:
            self._shares = _repeats(chunked)
            if not self._shares:
                return
        if self._objects is None:
            self._objects = Growing(np.dtype(object), self._rows)
        values = chunked.chunk(0) if chunked.num_chunks == 1 else chunked.combine_chunks()
        if not self._by_place(values):
            encoded = values.dictionary_encode()
            objects = self._shared(encoded.dictionary)
            indices = encoded.indices.fill_null(len(objects) - 1).to_numpy(zero_copy_only=False)
            np.take(objects, indices, out=self._objects.room(len(values)), mode="clip")
        self._waiting, self._count = [], 0

    def _by_place(self, values: pa.Array) -> bool:
        """Fill in values whose objects have places in a table; False where they lie too far apart for one."""
        if self._table is None or self._objects is None:
            return False
        if values.null_count == len(values):
            self._objects.room(len(values))[:] = None
            return True
        nulls = values.is_null().to_numpy(zero_copy_only=False) if values.null_count else None
        numbers = self._table.numbers(values, nulls)
        places = min(_PLACES[0] * (self._objects.size + len(values)), _PLACES[1])
        if numbers is None or not self._table.covers(int(numbers.min()), int(numbers.max()), places):
            self._table = None
            return False
        room = self._objects.room(len(values))
        self._table.write(numbers, room)
        if nulls is not None:
            room[nulls] = None
        return True

    def _shared(self, distinct: pa.Array) -> Any:
        """Return the objects of some values, those made before where there are any; behind them None."""
        places = pc.index_in(distinct, value_set=self._known)
        fresh = distinct.filter(places.is_null())
        start = len(self._known)
        self._known = pa.concat_arrays([self._known, fresh])
        self._of_known = np.concatenate([self._of_known, _python(fresh)])
        self._shares = len(fresh) <= len(distinct) // 2 or not start
        numbers = places.fill_null(-1).to_numpy(zero_copy_only=False).copy()
        numbers[numbers < 0] = np.arange(start, start + len(fresh))
        objects = np.empty(len(distinct) + 1, object)
        objects[:-1] = self._of_known[numbers]
        return objects


class _Table:
    """The objects of values that lie close together, each at the place that its number gives it.

    The number of a date is its day, that of a decimal its unscaled value.
    """

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._first = 0
        self._objects = np.empty(0, object)
        self._made = np.empty(0, bool)

    @staticmethod
    def suits(kind: pa.DataType) -> bool:
        """Whether values of a type have numbers of 64 bits that can be read off their memory."""
        small = pa.types.is_decimal128(kind) and kind.precision <= _DIGITS
        return sys.byteorder == "little" and (small or kind == pa.date32())

    def numbers(self, values: pa.Array, nulls: Any) -> Any:
        """Return the numbers of values, for a null that of another value; None where some have none.

        Args:
            values: not only nulls.
            nulls: which of them are null; None where none is.
        """
        first, last = values.offset, values.offset + len(values)
        numbers: Any
        above: Any = None
        if self._kind == pa.date32():
            numbers = np.frombuffer(values.buffers()[1], np.int32, last)[first:]
        else:
            words = np.frombuffer(values.buffers()[1], np.int64, 2 * last)
            numbers, above = words[2 * first :: 2], words[2 * first + 1 :: 2]
        if nulls is not None:  # under which there may be anything
            some = int(np.argmin(nulls))
            numbers = np.where(nulls, numbers[some], numbers)
            above = None if above is None else np.where(nulls, above[some], above)
        # A file may hold more digits than it says.
        return numbers if above is None or np.array_equal(numbers >> 63, above) else None

    def covers(self, low: int, high: int, most: int) -> bool:
        """Make places for the numbers from `low` to `high`, unless it came to more than `most` places."""
        count = len(self._objects)
        if count:
            before, behind = max(self._first - low, 0), max(high - (self._first + count - 1), 0)
        else:
            self._first, before, behind = low, 0, high - low + 1
        wanted = count + before + behind
        if wanted > most or max(-low, high) > _FURTHEST:
            return False
        if before or behind:
            # Room to spare, or values that rise slowly would have the table copied again and again.
            spare = min(count // 2, most - wanted)
            before, behind = before + (spare if before else 0), behind + (0 if before else spare)
            self._objects = np.concatenate([np.empty(before, object), self._objects, np.empty(behind, object)])
            self._made = np.concatenate([np.zeros(before, bool), self._made, np.zeros(behind, bool)])
            self._first -= before
        return True

    def write(self, numbers: Any, room: Any) -> None:
        """Write the objects of numbers that are covered to `room`; those not there yet are made.

        Raises:
            DataError: Python has no object for a value.
        """
        places = np.subtract(numbers, self._first, dtype=np.int64)
        if not self._made[places].all():
            wanted = np.zeros(len(self._made), bool)
            wanted[places] = True
            fresh = np.flatnonzero(wanted > self._made)
            self._objects[fresh] = self._python(fresh + self._first)
            self._made |= wanted
        np.take(self._objects, places, out=room, mode="clip")

    def _python(self, numbers: Any) -> Any:
        if self._kind == pa.date32():
            return _python(pa.array(numbers.astype(np.int32)).view(self._kind))
        words = np.empty((len(numbers), 2), np.int64)
        words[:, 0] = numbers
        words[:, 1] = numbers >> 63
        return _python(pa.Array.from_buffers(self._kind, len(numbers), [None, pa.py_buffer(words)]))


def _python(values: pa.Array | pa.ChunkedArray) -> Any:
    with python_values():
        return values.to_pandas(date_as_object=True).to_numpy()


def _repeats(column: pa.ChunkedArray) -> bool:
    """Whether most values of a column seem to occur more than once, going by its beginning."""
    fewest, most = _SAMPLE
    if len(column) <= fewest:
        return False
    sample = column.slice(0, max(fewest, min(most, len(column) // 4)))
    return len(sample.unique()) < len(sample) // 2
