"""Decimals and dates that repeat become one Python object each; nothing else of the frame changes."""

from __future__ import annotations

from datetime import date, timedelta
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from frame_helpers import to_pandas

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames import object_columns as objects
from delta_sharing_client.frames.object_columns import Objects

ROWS = 30_000
SMALL = pa.decimal128(12, 2)
MOST = Decimal("9999999999.99")


def column(values, kind, chunks=3):
    step = len(values) // chunks
    return pa.chunked_array([pa.array(values[i : i + step], kind) for i in range(0, len(values), step)])


def filled(groups, kind, monkeypatch):
    """A column that is made objects of group by group."""
    monkeypatch.setattr(objects, "_GROUP", 1)
    monkeypatch.setattr(objects, "_repeats", lambda column: True)
    made = Objects(kind, 0)
    for values in groups:
        made.add(pa.chunked_array([values if isinstance(values, pa.Array) else pa.array(values, kind)]))
    return made.finish().tolist()


@pytest.mark.parametrize("backend", [None, "numpy_nullable"])
@pytest.mark.parametrize("distinct", [1, 50, 29_000])
@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(18, 0), pa.decimal128(19, 0), pa.decimal128(38, 18)])
def test_every_decimal_is_kept_in_its_place(backend, distinct, kind):
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
def test_every_date_is_kept_in_its_place(backend, distinct):
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


@pytest.mark.parametrize("kind", [SMALL, pa.decimal128(38, 0), pa.date32()])
def test_a_column_of_nulls(kind):
    frame = to_pandas(pa.table({"x": pa.nulls(ROWS, kind)}))
    assert frame["x"].tolist() == [None] * ROWS


def test_values_that_come_below_and_above_those_before_them(monkeypatch):
    groups = [[Decimal(n), Decimal(n), Decimal(n + 1), None] for n in (0, 3, -2, 5, -9, -8, 12, 0)]
    assert filled(groups, pa.decimal128(3, 0), monkeypatch) == [value for group in groups for value in group]


@pytest.mark.parametrize("outlier", [MOST, -MOST])
def test_values_too_far_apart_for_a_table_are_kept_too(outlier, monkeypatch):
    one, two = Decimal("1.00"), Decimal("2.00")
    groups = [[one, one, two], [two, outlier, outlier], [one, None, two], [outlier, one, one]]
    assert filled(groups, SMALL, monkeypatch) == [value for group in groups for value in group]


def of_words(words, kind):
    return pa.Array.from_buffers(kind, len(words), [None, pa.py_buffer(np.array(words, np.int64))])


def test_more_digits_than_the_type_says_are_kept(monkeypatch):
    """Parquet stores 16 bytes whatever the precision, and what was written wrongly reads as it was written."""
    kind = pa.decimal128(12, 0)
    too_long = of_words([(5, 1), (-3, -64), (7, 0), (7, 0)], kind)
    one = of_words([(5, 0), (5, 0)], kind)
    made = filled([one, too_long, one, too_long[2:]], kind, monkeypatch)
    long = [Decimal(2**64 + 5), Decimal(-64 * 2**64 + 2**64 - 3), Decimal(7), Decimal(7)]
    assert made == [5, 5, *long, 5, 5, 7, 7]


@pytest.mark.parametrize(("number", "inwards"), [(-(2**63), 1), (2**63 - 1, -1)])
def test_the_least_and_the_greatest_numbers(number, inwards, monkeypatch):
    kind = pa.decimal128(18, 0)
    near = [number + inwards * step for step in range(1, 9)]
    groups = [near * 2, [number] * 3, near]
    made = filled([of_words([(n, n >> 63) for n in group], kind) for group in groups], kind, monkeypatch)
    assert made == [Decimal(n) for group in groups for n in group]


def test_a_table_has_few_places_for_each_row(monkeypatch):
    made = []
    plain = np.empty

    def watched(shape, dtype=float, **options):
        made.append(shape)
        return plain(shape, dtype, **options)

    monkeypatch.setattr(np, "empty", watched)
    values = [Decimal(n % 10) * 1000 for n in range(ROWS)]
    assert filled([values, [MOST] * 4, values], SMALL, monkeypatch) == values + [MOST] * 4 + values
    assert all(shape < 20 * ROWS for shape in made if isinstance(shape, int))


@pytest.mark.parametrize("kind", [SMALL, pa.date32()])
def test_what_lies_under_a_null_does_not_matter(kind, monkeypatch):
    """The memory of a null may hold anything, so also a number far from all others."""
    value = date(2024, 5, 6) if kind == pa.date32() else Decimal("1.50")
    plain = pa.array([value] * 4, kind)
    width = kind.bit_width // 8
    data = bytearray(plain.buffers()[1].to_pybytes()[: 4 * width])
    data[width : 2 * width] = b"\x7f" * width
    validity = pa.py_buffer(bytes([0b1101]))
    holed = pa.Array.from_buffers(kind, 4, [validity, pa.py_buffer(bytes(data))])
    assert filled([holed, holed[1:], holed[1:2]], kind, monkeypatch) == [
        *(value, None, value, value),
        *(None, value, value),
        None,
    ]


def test_slices_are_read_where_they_begin(monkeypatch):
    for kind, values in (
        (SMALL, [Decimal(n) for n in (1, 1, 2, 2, 3, 3)]),
        (pa.date32(), [date(2024, 1, n) for n in (1, 1, 2, 2, 3, 3)]),
    ):
        whole = pa.array(values, kind)
        assert filled([whole[2:5], whole[5:], whole[:0], whole[:2]], kind, monkeypatch) == [
            *values[2:5],
            *values[5:],
            *values[:2],
        ]


@pytest.mark.parametrize("days", [(-800_000, -800_000), (0, 2_932_897)])
def test_a_date_that_python_lacks_is_a_typed_error_in_many_rows_too(days):
    values = pa.array(np.resize(np.array(days, np.int32), ROWS)).view(pa.date32())
    with pytest.raises(DataError, match=r"out of range.*dtype_backend='pyarrow'"):
        to_pandas(pa.table({"d": values}))
