"""A frame filled batch by batch equals the frame that Arrow converts from all rows at once."""

from __future__ import annotations

import tracemalloc
from datetime import UTC, date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.frames import arrow, pandas_columns
from delta_sharing_client.frames.pandas import to_pandas

SCHEMA = pa.schema(
    {
        "byte": pa.int8(),
        "long": pa.int64(),
        "float": pa.float32(),
        "double": pa.float64(),
        "boolean": pa.bool_(),
        "string": pa.string(),
        "date": pa.date32(),
        "timestamp": pa.timestamp("us", tz="UTC"),
        "timestamp_ntz": pa.timestamp("us"),
        "decimal": pa.decimal128(20, 2),
        "price": pa.decimal128(12, 2),
        "struct": pa.struct({"x": pa.int64()}),
    }
)
VALUES = {
    "byte": st.integers(-128, 127),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "boolean": st.booleans(),
    "string": st.text(max_size=3),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC)),
    "timestamp_ntz": st.datetimes(),
    "decimal": st.decimals(-100, 100, places=2),
    "price": st.decimals(-100, 100, places=2) | st.decimals(-9_999_999_999, 9_999_999_999, places=2),
    "struct": st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5)}),
}
DENSE = st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=6)
SPARSE = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, values in VALUES.items()}), min_size=1, max_size=6
)


def by_arrow(table: pa.Table) -> pd.DataFrame:
    """Arrow's frame, with nullable dtypes for integers and booleans with nulls."""
    nullable = {pa.int8(): pd.Int8Dtype(), pa.int64(): pd.Int64Dtype(), pa.bool_(): pd.BooleanDtype()}
    made = {}
    for name in table.column_names:
        column = table.select([name])
        mapper = nullable.get if column[name].null_count else None
        made[name] = column.to_pandas(types_mapper=mapper, integer_object_nulls=True)[name]
    return pd.DataFrame(made)


@settings(max_examples=examples(150), deadline=None)
@given(
    lists=st.lists(DENSE | SPARSE, min_size=1, max_size=5),
    rows=st.sampled_from([0, 1, 7, 1000]),
    together=st.sampled_from([1, 4, 1000]),
    shared=st.sampled_from([0, 3, 1000]),
)
def test_a_filled_frame_equals_the_frame_that_arrow_converts(lists, rows, together, shared):
    batches = [pa.RecordBatch.from_pylist(some, SCHEMA) for some in lists]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "GROUP_ROWS", together)
        patch.setattr(pandas_columns, "_MOST_SHARED", shared)
        frame = to_pandas(iter(batches), SCHEMA, rows=rows)
    pd.testing.assert_frame_equal(frame, by_arrow(pa.Table.from_batches(batches)))


@pytest.mark.parametrize("backend", [None, "numpy_nullable", "pyarrow"])
def test_sliced_batches_are_read_from_their_offset(backend):
    rows = [{"long": n, "boolean": n % 2 == 0, "decimal": Decimal(n), "string": str(n)} for n in range(50)]
    schema = pa.schema([SCHEMA.field(name) for name in rows[0]])
    whole = pa.RecordBatch.from_pylist(rows, schema)
    frame = to_pandas(iter([whole.slice(7, 5), whole.slice(40)]), schema, backend)
    wanted = [*range(7, 12), *range(40, 50)]
    assert frame["long"].tolist() == wanted
    assert frame["decimal"].tolist() == [Decimal(n) for n in wanted]
    assert frame["string"].tolist() == [str(n) for n in wanted]
    assert frame["boolean"].tolist() == [n % 2 == 0 for n in wanted]


@pytest.mark.parametrize("name", ["byte", "long", "double", "timestamp", "timestamp_ntz", "decimal", "price"])
@pytest.mark.parametrize("backend", [None, "numpy_nullable"])
def test_a_null_after_batches_without_nulls_is_kept(name, backend):
    value = {"timestamp": datetime(2024, 1, 2, tzinfo=UTC), "timestamp_ntz": datetime(2024, 1, 2)}.get(name, 5)
    schema = pa.schema([SCHEMA.field(name)])
    some = [[value] * 3, [value, None], [None], [value]]
    batches = [pa.record_batch([pa.array(values, schema.field(0).type)], schema) for values in some]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrow, "GROUP_ROWS", 1)
        frame = to_pandas(iter(batches), schema, backend)
    assert frame[name].isna().tolist() == [False] * 4 + [True, True, False]
    assert (frame[name].dropna() == value).all()


@pytest.mark.parametrize("rows", [10**12, 2**62])
def test_an_absurd_expected_number_of_rows_is_ignored(rows):
    batch = pa.record_batch([pa.array([1, 2])], ["long"])
    frame = to_pandas(iter([batch]), batch.schema, rows=rows)
    assert frame["long"].tolist() == [1, 2]


def test_columns_can_be_written_to():
    batches = [pa.RecordBatch.from_pylist([dict.fromkeys(SCHEMA.names)] * 2, SCHEMA)]
    frame = to_pandas(iter(batches), SCHEMA)
    frame.loc[0, "long"] = 7
    frame.loc[1, "date"] = date(2024, 1, 1)
    assert frame["long"].tolist() == [7, pd.NA]
    assert frame["date"].tolist() == [None, date(2024, 1, 1)]


def test_arrow_memory_of_numbers_is_reused():
    """Arrow holds only a few groups of rows at a time."""
    rows, count = 65_536, 40
    most = before = pa.total_allocated_bytes()

    def batches():
        nonlocal most
        for number in range(count):
            values = pa.array(np.arange(number * rows, (number + 1) * rows))
            yield pa.record_batch([values.cast(pa.float64()), values.cast(pa.int32())], ["double", "integer"])
            del values
            most = max(most, pa.total_allocated_bytes())

    tracemalloc.start()
    try:
        schema = pa.schema({"double": pa.float64(), "integer": pa.int32()})
        frame = to_pandas(batches(), schema, rows=rows * count)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert frame["integer"].iloc[-1] == rows * count - 1
    one = rows * 12
    assert most - before < 6 * one
    assert peak < 1.5 * one * count
