"""A polars frame that is made of groups of batches equals the frame that polars makes of one stream of them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator
from decimal import Decimal

import polars as pl
import pyarrow as pa
import pytest
from polars.testing import assert_frame_equal

from delta_sharing_client.errors import DataError
from delta_sharing_client.frames import arrow
from delta_sharing_client.frames.polars import to_polars
from delta_sharing_client.model.schema import StructType, parse_schema
from delta_sharing_client.parquet.arrow_types import arrow_schema

DAY = datetime.date(2024, 1, 2)
TIME = datetime.datetime(2024, 1, 2, 3, tzinfo=datetime.UTC)
COLUMNS = {
    "long": [1, None, 3],
    "byte": [1, 2, -3],
    "double": [0.5, float("nan"), None],
    "boolean": [True, None, False],
    "string": ["short", None, "a text of more than twelve bytes"],
    "binary": [b"", None, b"\x00" * 20],
    "date": [DAY, None, DAY],
    "timestamp": [TIME, None, TIME],
    "timestamp_ntz": [None, TIME.replace(tzinfo=None), None],
    "decimal(12,2)": [Decimal("1.25"), None, Decimal("-3.00")],
    "decimal(38,0)": [Decimal(10**37), None, Decimal(-1)],
}
FIELDS = [{"name": name, "type": name, "nullable": True, "metadata": {}} for name in COLUMNS]
NESTED = {
    "name": "nested",
    "type": {
        "type": "struct",
        "fields": [
            {
                "name": "tags",
                "type": {"type": "array", "elementType": "string", "containsNull": True},
                "nullable": True,
                "metadata": {},
            }
        ],
    },
    "nullable": True,
    "metadata": {},
}
SCHEMA = parse_schema(json.dumps({"type": "struct", "fields": [*FIELDS, NESTED]}))
ARROW = arrow_schema(SCHEMA)
ROWS = pa.RecordBatch.from_pydict({**COLUMNS, "nested": [{"tags": ["x", None]}, None, {"tags": None}]}, ARROW)
NO_COLUMNS = pa.RecordBatch.from_struct_array(pa.Array.from_buffers(pa.struct([]), 3, [None]))


@pytest.mark.parametrize("together", [1, 4, 100])
@pytest.mark.parametrize("count", [0, 1, 2, 7])
@pytest.mark.parametrize(("schema", "rows"), [(SCHEMA, ROWS), (StructType(()), NO_COLUMNS)])
def test_groups_make_the_same_frame(
    schema: StructType, rows: pa.RecordBatch, count: int, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrow, "GROUP_ROWS", together)
    batches = [rows.slice(number % 2) for number in range(count)]
    frame = to_polars(iter(batches), schema)
    expected = pl.DataFrame(pa.RecordBatchReader.from_batches(arrow_schema(schema), batches))
    assert_frame_equal(frame, expected)
    assert frame.shape == expected.shape
    assert frame.n_chunks("all") == expected.n_chunks("all")


def test_texts_are_converted_before_the_next_group_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrow's memory of a group is free again: its offsets, and its texts of at most twelve bytes."""
    monkeypatch.setattr(arrow, "GROUP_ROWS", 1)
    schema = parse_schema(json.dumps({"type": "struct", "fields": [FIELDS[4], FIELDS[5]]}))
    rows, view = 50_000, 16
    before = pa.total_allocated_bytes()
    held: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(20):
            yield pa.record_batch([["short"] * rows, [b"short"] * rows], arrow_schema(schema))
            held.append(pa.total_allocated_bytes() - before - (number + 1) * 2 * rows * view)

    assert to_polars(batches(), schema).height == 20 * rows
    assert max(held) < 2 * 2 * rows * view


def test_an_error_of_a_batch_is_raised_as_it_is() -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield ROWS
        raise DataError("damaged", file_id="f")

    with pytest.raises(DataError, match="damaged") as caught:
        to_polars(batches(), SCHEMA)
    assert caught.value.file_id == "f"
