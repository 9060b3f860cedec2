"""Columns of decimals and dates: every value is kept, and equal values share one Python object."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from frame_helpers import to_pandas

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames import arrow, pandas_columns

ROWS = 30_000
SMALL = pa.decimal128(12, 2)


def column(values, kind, chunks=3):
    step = len(values) // chunks
    return pa.chunked_array([pa.array(values[i : i + step], kind) for i in range(0, len(values), step)])


@pytest.mark.parametrize("backend", [None, "numpy_nullable"])
@pytest.mark.parametrize("distinct", [1, 50, 29_000])
@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(18, 0), pa.decimal128(19, 0), pa.decimal128(38, 18)])
def test_every_decimal_is_kept_in_its_row(backend, distinct, kind):
    unit = Decimal(1).scaleb(-kind.scale)
    values = [None if i % 7 == 0 else (i % distinct - 20) * unit for i in range(ROWS)]
    table = pa.table({"n": pa.array(range(ROWS)), "price": column(values, kind), "s": ["x"] * ROWS})
    frame = to_pandas(table, backend)
    assert list(frame.columns) == ["n", "price", "s"]
    assert frame["price"].dtype == object
    assert frame["price"].tolist() == values
    assert frame["n"].tolist() == list(range(ROWS))


@pytest.mark.parametrize("backend", [None, "numpy_nullable"])
@pytest.mark.parametrize("distinct", [1, 50, 29_000])
def test_every_date_is_kept_in_its_row(backend, distinct):
    values = [None if i % 7 == 0 else date(1900, 1, 1) + timedelta(i % distinct) for i in range(ROWS)]
    frame = to_pandas(pa.table({"day": column(values, pa.date32())}), backend)
    assert frame["day"].dtype == object
    assert frame["day"].tolist() == values


@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(38, 0), pa.date32()])
def test_repeated_values_share_their_objects(kind):
    first = date(2024, 1, 1) if kind == pa.date32() else Decimal(7)
    step = timedelta(1) if kind == pa.date32() else Decimal(1)
    frame = to_pandas(pa.table({"x": column([first + i % 10 * step for i in range(ROWS)], kind)}))
    assert len({id(value) for value in frame["x"]}) == 10


@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(38, 0), pa.decimal256(50, 0)])
def test_equal_decimals_of_several_groups_share_their_objects(kind, monkeypatch):
    monkeypatch.setattr(arrow, "GROUP_ROWS", 1)
    frame = to_pandas(pa.table({"x": column([Decimal(i % 10 - 5) for i in range(600)], kind)}))
    assert frame["x"].tolist() == [Decimal(i % 10 - 5) for i in range(600)]
    assert len({id(value) for value in frame["x"]}) == 10


def test_decimals_of_more_than_64_bits_follow_and_precede_smaller_ones(monkeypatch):
    monkeypatch.setattr(arrow, "GROUP_ROWS", 1)
    one, low = Decimal(1), Decimal(-(2**63))
    values = [one, None, low, Decimal(2**63), one, low - 1, one] * 3
    table = pa.table({"x": pa.chunked_array([pa.array([value] * 4, pa.decimal128(38, 0)) for value in values])})
    assert to_pandas(table)["x"].tolist() == [value for value in values for _ in range(4)]


@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(38, 0), pa.date32()])
def test_a_column_of_nulls_becomes_none(kind):
    frame = to_pandas(pa.table({"x": pa.nulls(ROWS, kind)}))
    assert frame["x"].tolist() == [None] * ROWS


def of_words(words, kind):
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(np.array(words, np.int64))])


def test_decimals_with_more_digits_than_the_type_allows_are_kept():
    """Parquet stores 16 bytes whatever the precision."""
    kind = pa.decimal128(12, 0)
    values = pa.chunked_array([of_words([(5, 1), (-3, -64), (7, 0)] * 3, kind)])
    long = [Decimal(2**64 + 5), Decimal(-64 * 2**64 + 2**64 - 3), Decimal(7)]
    assert to_pandas(pa.table({"x": values}))["x"].tolist() == long * 3


@pytest.mark.parametrize("shared", [0, 3, 1000])
@pytest.mark.parametrize("repeat", [1, 4])
def test_groups_of_decimals_are_joined_in_order(repeat, shared, monkeypatch):
    monkeypatch.setattr(arrow, "GROUP_ROWS", 1)
    monkeypatch.setattr(pandas_columns, "_MOST_SHARED", shared)
    values = [None if i % 7 == 0 else Decimal(i // repeat) for i in range(50)]
    table = pa.table({"x": column(values, SMALL, chunks=25)})
    assert to_pandas(table)["x"].tolist() == values


@pytest.mark.parametrize("kind", [SMALL, pa.date32()])
def test_the_memory_under_a_null_is_ignored(kind):
    value = date(2024, 5, 6) if kind == pa.date32() else Decimal("1.50")
    plain = pa.array([value] * 4, kind)
    width = kind.bit_width // 8
    data = bytearray(plain.buffers()[1].to_pybytes()[: 4 * width])
    data[width : 2 * width] = b"\x7f" * width
    validity = pa.py_buffer(bytes([0b1101]))
    holed = pa.Array.from_buffers(kind, 4, [validity, pa.py_buffer(bytes(data))])
    chunks = pa.chunked_array([holed, holed[1:], holed[1:2]])
    expected = [value, None, value, value, None, value, value, None]
    assert to_pandas(pa.table({"x": chunks}))["x"].tolist() == expected


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (SMALL, [Decimal(n) for n in (1, 1, 2, 2, 3, 3)]),
        (pa.date32(), [date(2024, 1, n) for n in (1, 1, 2, 2, 3, 3)]),
    ],
)
def test_sliced_chunks_are_read_from_their_offset(kind, values):
    whole = pa.array(values, kind)
    chunks = pa.chunked_array([whole[2:5], whole[5:], whole[:0], whole[:2]])
    assert to_pandas(pa.table({"x": chunks}))["x"].tolist() == [*values[2:5], *values[5:], *values[:2]]


@pytest.mark.parametrize("days", [(-800_000, -800_000), (0, 2_932_897)])
def test_a_date_outside_pythons_range_raises_in_many_rows_too(days):
    values = pa.array(np.resize(np.array(days, np.int32), ROWS)).view(pa.date32())
    with pytest.raises(DataError, match=r"out of range.*dtype_backend='pyarrow'"):
        to_pandas(pa.table({"d": values}))
