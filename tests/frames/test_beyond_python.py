"""Dates before the year 1: valid in Arrow, outside the range of Python's objects."""

from __future__ import annotations

import pyarrow as pa
import pytest
from frame_helpers import to_pandas

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames import arrow, pandas

BEFORE_PYTHON = pa.array([-800_000, 0], pa.int32()).cast(pa.date32())


@pytest.mark.parametrize("column", [BEFORE_PYTHON, pa.ListArray.from_arrays([0, 2], BEFORE_PYTHON)])
def test_a_date_outside_pythons_range_raises_an_error_with_the_remedy(column):
    with pytest.raises(DataError, match=r"out of range.*dtype_backend='pyarrow'"):
        to_pandas(pa.table({"d": column}))


def test_the_pyarrow_backend_keeps_dates_outside_pythons_range():
    frame = to_pandas(pa.table({"d": BEFORE_PYTHON}), "pyarrow")
    assert pa.array(frame["d"]).cast(pa.int32()).to_pylist() == [-800_000, 0]


def test_the_source_of_rows_is_closed_while_the_error_is_kept(monkeypatch):
    monkeypatch.setattr(arrow, "GROUP_ROWS", 1)
    ended = []

    def batches():
        try:
            for _ in range(100):
                yield pa.record_batch([BEFORE_PYTHON], ["d"])
        finally:
            ended.append(True)

    with pytest.raises(DataError) as kept:
        pandas.to_pandas(batches(), pa.schema({"d": pa.date32()}))
    assert kept.value.__traceback__ is not None
    assert ended
