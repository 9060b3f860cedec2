"""Decimals that repeat become one Python object each; nothing else of the frame changes."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from load_frames import to_pandas

ROWS = 30_000


def column(values, kind, chunks=3):
    step = len(values) // chunks
    return pa.chunked_array([pa.array(values[i : i + step], kind) for i in range(0, len(values), step)])


@pytest.mark.parametrize("backend", [None, "numpy_nullable"])
@pytest.mark.parametrize("distinct", [1, 50, 29_000])
@pytest.mark.parametrize("kind", [pa.decimal128(12, 2), pa.decimal128(38, 18)])
def test_every_value_is_kept_in_its_place(backend, distinct, kind):
    unit = Decimal(1).scaleb(-kind.scale)
    values = [None if i % 7 == 0 else (i % distinct - 20) * unit for i in range(ROWS)]
    table = pa.table({"n": pa.array(range(ROWS)), "price": column(values, kind), "s": ["x"] * ROWS})
    frame = to_pandas(table, backend)
    assert list(frame.columns) == ["n", "price", "s"]
    assert frame["price"].dtype == object
    assert frame["price"].tolist() == values
    assert frame["n"].tolist() == list(range(ROWS))


def test_repeated_values_share_their_objects():
    values = [Decimal(i % 10) for i in range(ROWS)]
    frame = to_pandas(pa.table({"price": column(values, pa.decimal128(5, 0))}))
    assert len({id(value) for value in frame["price"]}) == 10


def test_a_column_of_nulls():
    frame = to_pandas(pa.table({"price": pa.nulls(ROWS, pa.decimal128(5, 0))}))
    assert frame["price"].tolist() == [None] * ROWS
