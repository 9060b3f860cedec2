"""Selection vectors: deletion vectors whose rows are selected."""

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


def test_selected_rows_are_the_complement_of_deleted_rows() -> None:
    marked = positions(0, 3, 4, 9, 2**33)
    kept = marked.without(None)
    for start, count in [(0, 10), (0, 1), (1, 2), (3, 2), (5, 4), (9, 1), (2**33, 3)]:
        assert mask(kept, start, count) == [not row for row in mask(marked, start, count)]


def test_deleted_rows_are_removed_from_selected_rows() -> None:
    assert mask(positions(1, 2, 5).without(positions(2, 7)), 0, 8) == [i in (1, 5) for i in range(8)]
    assert positions(1, 2).without(positions(1, 2, 3)).selects_nothing
    assert not positions(1, 2).without(positions(1)).selects_nothing
    assert not positions().selects_nothing


def test_row_groups_without_remaining_rows_are_recognized() -> None:
    deleted = positions(*range(10, 20))
    assert not deleted.touches(10, 10)
    assert deleted.touches(9, 10)
    kept = deleted.without(None)
    assert kept.touches(19, 5)
    assert not kept.touches(20, 5)
    assert not kept.touches(0, 10)


def test_no_mask_if_all_rows_remain() -> None:
    assert positions(*range(5)).without(None).keep_mask(0, 5) is None
    assert isinstance(positions(1).without(None).keep_mask(0, 5), pa.BooleanArray)


def test_positions_after_the_last_row_raise() -> None:
    with pytest.raises(DataError, match="row 5 of a file of 5 rows"):
        positions(5).without(None).check(5)
    positions(5).without(positions(5)).check(5)


def test_the_row_count_of_a_task() -> None:
    vector = DeletionVector("i", SecretUrl("x"), 1, 7)
    assert FileScanTask(SecretUrl("u"), "f", 1, num_records=10, selection=SelectionVector(vector)).row_count == 7
    assert (
        FileScanTask(
            SecretUrl("u"), "f", 1, num_records=10, selection=SelectionVector(vector), deletion_vector=vector
        ).row_count
        is None
    )
    assert FileScanTask(SecretUrl("u"), "f", 1, num_records=10, deletion_vector=vector).row_count == 3
