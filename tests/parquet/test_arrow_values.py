"""Python and NumPy values to Arrow: the same as by pyarrow, without pandas."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from delta_sharing_client.parquet.arrow_types import array_of, ascii_texts, mask_of, microseconds, scalar_of

VALUES = [
    (5, pa.int8()),
    (-3, pa.int16()),
    (2**31 - 1, pa.int32()),
    (-(2**63), pa.int64()),
    (1.5, pa.float32()),
    (1e39, pa.float32()),
    (float("-inf"), pa.float64()),
    (-0.0, pa.float64()),
    (True, pa.bool_()),
    (False, pa.bool_()),
    ("é", pa.string()),
    ("", pa.string()),
    ("x", pa.large_string()),
    (b"\0\1", pa.binary()),
    (date(1, 1, 1), pa.date32()),
    (date(9999, 12, 31), pa.date32()),
    (Decimal("1.5"), pa.decimal128(12, 2)),
    (Decimal("-0.005"), pa.decimal128(38, 20)),
    (Decimal("1E+3"), pa.decimal128(10, 0)),
    (Decimal("0E-10"), pa.decimal128(10, 10)),
    (Decimal("12345678901234567890123456789012345678"), pa.decimal128(38, 0)),
    (5, pa.decimal128(5, 2)),
    *((None, kind) for kind in (pa.int32(), pa.string(), pa.null(), pa.timestamp("us", "UTC"))),
]


@pytest.mark.parametrize(("value", "kind"), VALUES, ids=str)
def test_scalars_are_those_of_pyarrow(value: object, kind: pa.DataType) -> None:
    got = scalar_of(value, kind)  # type: ignore[arg-type]
    assert got.type == kind
    assert got.equals(pa.scalar(value, kind))


@pytest.mark.parametrize("micros", [0, 1, -62_135_596_800_000_000, 253_402_300_799_999_999])
@pytest.mark.parametrize("kind", [pa.timestamp("us"), pa.timestamp("us", "UTC")], ids=str)
def test_times_are_microseconds(micros: int, kind: pa.TimestampType) -> None:
    got = scalar_of(micros, kind)
    assert (got.type, got.value) == (kind, micros)


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (300, pa.int8()),
        (Decimal("1.555"), pa.decimal128(5, 2)),
        (Decimal(1000), pa.decimal128(3, 0)),
        (2**63, pa.int64()),
    ],
    ids=str,
)
def test_values_that_do_not_fit_raise(value: object, kind: pa.DataType) -> None:
    with pytest.raises((pa.ArrowInvalid, OverflowError)):
        scalar_of(value, kind)  # type: ignore[arg-type]


def test_arrays() -> None:
    assert array_of([scalar_of(n, pa.int32()) for n in (1, None, 3)]).equals(pa.array([1, None, 3], pa.int32()))
    assert ascii_texts([]).equals(pa.array([], pa.string()))
    assert ascii_texts(["a", "", "bcd"]).equals(pa.array(["a", "", "bcd"]))
    with pytest.raises(ValueError, match="ascii"):
        ascii_texts(["é"])
    for size in (0, 1, 7, 8, 9, 1000):
        mask = np.arange(size) % 3 == 0
        assert mask_of(mask).equals(pa.array(mask))
    times = pa.array([5, -7, 9], pa.timestamp("us"))
    assert microseconds(times).tolist() == [5, -7, 9]
    assert microseconds(times.slice(1)).tolist() == [-7, 9]
