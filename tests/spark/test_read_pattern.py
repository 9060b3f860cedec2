"""What a gateway requests ahead, by the row groups that a query has read."""

from __future__ import annotations

import pytest

from delta_sharing_client.spark import gateway_files
from delta_sharing_client.spark.gateway_files import Expectation, ReadPattern

STORED = range(8)


def read(pattern: ReadPattern, file: int, group: int, *columns: int) -> list[Expectation]:
    """Read some columns of a row group; return what is expected at each."""
    pattern.open(file)
    return [pattern.read((file, group), column, STORED[: column + 1]) for column in columns]


def test_columns_are_known_when_the_reader_has_gone_on() -> None:
    pattern = ReadPattern(readers=1)
    assert [e.columns for e in read(pattern, 0, 0, 2, 5)] == [{2}, {5}]
    first, second = read(pattern, 0, 1, 2, 5)
    assert first.columns == second.columns == {2, 5}
    assert (first.row_groups, second.row_groups) == (2, 0)


def test_row_groups_of_other_readers_may_be_incomplete() -> None:
    pattern = ReadPattern(readers=2)
    read(pattern, 0, 0, 2)
    (expected,) = read(pattern, 1, 0, 2)
    assert expected.size == gateway_files._GUESSED_BYTES
    read(pattern, 0, 0, 5)
    (expected,) = read(pattern, 0, 1, 2)
    assert (expected.columns, expected.row_groups) == ({2, 5}, 2)


def test_more_is_requested_ahead_with_each_row_group() -> None:
    pattern = ReadPattern(readers=1)
    counts = [read(pattern, 0, group, 3)[0].row_groups for group in range(9)]
    assert counts == [4, 2, 4, 8, 16, 32, 64, 64, 64]


def test_little_is_requested_ahead_if_row_groups_are_skipped() -> None:
    pattern = ReadPattern(readers=1)
    assert [read(pattern, 0, group, 3)[0].row_groups for group in (0, 2, 3, 4)] == [4, 1, 2, 3]
    pattern = ReadPattern(readers=2)
    read(pattern, 0, 0, 3)
    for skipped in range(1, 5):
        pattern.open(skipped)
    read(pattern, 5, 0, 3)
    assert read(pattern, 6, 0, 3)[0].row_groups == 1


def test_few_bytes_are_requested_ahead_for_the_first_columns_of_a_query() -> None:
    pattern = ReadPattern(readers=2)
    assert [e.row_groups for e in read(pattern, 0, 0, 2, 5, 6)] == [4, 4, 0]
    assert {e.size for e in read(pattern, 1, 0, 2, 5)} == {512 * 1024}


def test_nothing_is_requested_ahead_for_the_first_columns_if_the_query_skips_row_groups() -> None:
    pattern = ReadPattern(readers=2)
    assert [e.row_groups for e in read(pattern, 0, 3, 2, 5)] == [0, 0]
    for skipped in range(1, 4):
        pattern.open(skipped)
    assert [e.row_groups for e in read(pattern, 4, 0, 2)] == [0]


def test_neighbours_are_expected_until_the_columns_are_known() -> None:
    pattern = ReadPattern(readers=1)
    assert [e.neighbours for e in read(pattern, 0, 0, 0, 1, 2, 3, 5, 6)] == [0, 2, 4, 8, 0, 2]
    assert [e.neighbours for e in read(pattern, 0, 1, 0, 1, 2, 3, 5, 6)] == [0] * 6


@pytest.mark.parametrize("idle", [True, False])
def test_another_query_begins_anew(monkeypatch: pytest.MonkeyPatch, idle: bool) -> None:
    """It begins with a column that was read before, or after a pause."""
    pattern = ReadPattern(readers=1)
    read(pattern, 0, 0, 1, 2)
    read(pattern, 0, 1, 1, 2)
    if idle:
        monkeypatch.setattr(gateway_files, "_IDLE", -1.0)
    (expected,) = read(pattern, 0, 0, 4 if idle else 1)
    assert (expected.size, expected.columns) == (gateway_files._GUESSED_BYTES, {4 if idle else 1})
    assert not pattern.has_read((0, 1), 1)


@pytest.mark.parametrize("paused", [True, False])
def test_a_query_that_opens_the_files_again_begins_anew(monkeypatch: pytest.MonkeyPatch, paused: bool) -> None:
    """Without a pause a file may be opened again for its next split."""
    monkeypatch.setattr(gateway_files, "_IDLE_IF_OPENED_AGAIN", -1.0 if paused else 1e9)
    pattern = ReadPattern(readers=1)
    for group in range(3):
        pattern.read((0, group), 3, STORED[:4])
    pattern.open(0)
    pattern.open(1)
    pattern.open(0)
    expected = pattern.read((0, 7), 5, STORED[:6])
    assert expected.columns == ({5} if paused else {3, 5})
    assert bool(expected.row_groups) is not paused
