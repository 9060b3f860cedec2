"""Deletion vectors that name the rows that count, rather than those that do not."""

from __future__ import annotations

import pyarrow as pa
import pytest
from pyroaring import BitMap64

from delta_sharing_client.errors import DataError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.deletion_vector import RowPositions
from delta_sharing_client.parquet.tasks import FileScanTask, SelectionVector
from delta_sharing_client.secrets import SecretUrl


def positions(*rows: int) -> RowPositions:
    return RowPositions(BitMap64(rows), "f")


def mask(rows: RowPositions, start: int, count: int) -> list[bool]:
    kept = rows.keep_mask(start, count)
    return [True] * count if kept is None else kept.to_pylist()


def test_those_that_are_kept_are_the_others_of_those_that_are_not() -> None:
    marked = positions(0, 3, 4, 9, 2**33)
    kept = marked.less(None)
    for start, count in [(0, 10), (0, 1), (1, 2), (3, 2), (5, 4), (9, 1), (2**33, 3)]:
        assert mask(kept, start, count) == [not row for row in mask(marked, start, count)]


def test_less_others() -> None:
    assert mask(positions(1, 2, 5).less(positions(2, 7)), 0, 8) == [i in (1, 5) for i in range(8)]
    assert positions(1, 2).less(positions(1, 2, 3)).leaves_nothing
    assert not positions(1, 2).less(positions(1)).leaves_nothing
    assert not positions().leaves_nothing


def test_which_row_groups_are_touched() -> None:
    deleted = positions(*range(10, 20))
    assert not deleted.touches(10, 10)
    assert deleted.touches(9, 10)
    kept = deleted.less(None)
    assert kept.touches(19, 5)
    assert not kept.touches(20, 5)
    assert not kept.touches(0, 10)


def test_no_mask_where_all_rows_are_kept() -> None:
    assert positions(*range(5)).less(None).keep_mask(0, 5) is None
    assert isinstance(positions(1).less(None).keep_mask(0, 5), pa.BooleanArray)


def test_rows_that_the_file_does_not_have() -> None:
    with pytest.raises(DataError, match="row 5 of a file of 5 rows"):
        positions(5).less(None).check(5)
    positions(5).less(positions(5)).check(5)


def test_how_many_rows_a_task_has() -> None:
    vector = DeletionVector("i", SecretUrl("x"), 1, 7)
    assert FileScanTask(SecretUrl("u"), "f", 1, num_records=10, only=SelectionVector(vector)).row_count == 7
    assert (
        FileScanTask(
            SecretUrl("u"), "f", 1, num_records=10, only=SelectionVector(vector), deletion_vector=vector
        ).row_count
        is None
    )
    assert FileScanTask(SecretUrl("u"), "f", 1, num_records=10, deletion_vector=vector).row_count == 3
