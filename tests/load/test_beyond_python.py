"""Dates before the year 1: Arrow has them, Python's own objects have not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from load_frames import to_pandas

from delta_sharing_client.errors import DataError

BEFORE_PYTHON = pa.array([-800_000, 0], pa.int32()).cast(pa.date32())


@pytest.mark.parametrize("column", [BEFORE_PYTHON, pa.ListArray.from_arrays([0, 2], BEFORE_PYTHON)])
def test_a_date_that_python_lacks_is_a_typed_error_that_says_what_to_do(column):
    with pytest.raises(DataError, match=r"out of range.*dtype_backend='pyarrow'"):
        to_pandas(pa.table({"d": column}))


def test_the_pyarrow_backend_keeps_it():
    frame = to_pandas(pa.table({"d": BEFORE_PYTHON}), "pyarrow")
    assert pa.array(frame["d"]).cast(pa.int32()).to_pylist() == [-800_000, 0]
