"""Offsets of a stream and the admission of files to batches, without Spark and without a server."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from delta_sharing_client.errors import StreamError
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark.stream_offsets import Admission, Offset, StreamFile, pending

START = Offset.initial("table-id", 5, snapshot=True)


TASK = FileScanTask(url=SecretUrl("https://host/f"), file_id="f", size=10)


def files(*versions: tuple[int, int], whole: bool = False) -> list[StreamFile]:
    """Files of 10 bytes of versions, each given as the version and the number of its files."""
    return [StreamFile(version, index, TASK, whole) for version, count in versions for index in range(count)]


# -- offsets


def test_an_offset_survives_json() -> None:
    offset = START.at(5, 3)
    text = json.dumps(offset.to_json())
    assert text == (
        '{"sourceVersion": 1, "tableId": "table-id", "version": 5, "index": 3, "isInitialSnapshot": true, '
        '"initialVersion": 5, "initialSnapshot": true}'
    )
    again = Offset.from_json(json.loads(text))
    assert again == offset
    assert json.dumps(again.to_json()) == text  # Spark compares the texts


def test_an_offset_in_the_order_of_paths_is_one_of_version_2() -> None:
    """Earlier releases, which count files in the order of their ids, refuse it; between versions they do not."""
    offset = START.at(5, 3, "delta", paths="digest")
    value = offset.to_json()
    assert next(iter(value)) == "sourceVersion"
    assert (value["sourceVersion"], value["paths"]) == (2, "digest")
    assert Offset.from_json(value) == offset
    assert offset.after(5).to_json()["sourceVersion"] == 1


def test_every_offset_has_the_start_of_the_query() -> None:
    later = START.at(5, 3).after(5).at(9, 2)
    assert (later.version, later.index, later.is_initial_snapshot) == (9, 2, False)
    assert later.start == START
    assert Offset.from_json(later.to_json()).start == START


def test_a_version_that_is_read_again_is_after_its_first_reading() -> None:
    first = START.at(5, 7, "delta", file_id="x")
    again = first.again(1)
    steps = [first, again, again.at(5, 0, "parquet", paths="p"), again.at(5, 3).again(2), again.after(5)]
    assert [step.place for step in steps] == sorted(step.place for step in steps)
    assert again.to_json() == START.to_json() | {"repeats": 1}
    assert Offset.from_json(again.to_json()) == again
    assert again.after(5) == START.after(5)
    assert START.to_json().keys() == START.after(5).to_json().keys()


def test_the_snapshot_is_before_the_changes_of_its_version() -> None:
    steps = [START, START.at(5, 0), START.at(5, 1), START.after(5), START.after(5).at(6, 0), START.after(6)]
    assert [step.place for step in steps] == sorted(step.place for step in steps)
    # The whole table as of a version is before the changes of that version.
    assert START.at(5, 99).place < structs.replace(START, is_initial_snapshot=False).place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sourceVersion": 3}, "offsets of version 3, and this release reads 1 and 2"),
        ({"sourceVersion": None}, "offsets of version None"),
        ({"version": "5"}, r"Expected `int`, got `str` - at `\$.version`"),
        ({"version": True}, r"Expected `int`, got `bool` - at `\$.version`"),
        ({"version": -1}, r"Expected `int` >= 0 - at `\$.version`"),
        ({"index": -2}, r"Expected `int` >= -1 - at `\$.index`"),
        ({"isInitialSnapshot": 1}, "Expected `bool`, got `int`"),
        ({"tableId": None}, "Expected `str`, got `null`"),
        ({"reservoirId": "x"}, "one of another source"),
        ({"tableVersion": 1}, "one of another source"),
    ],
)
def test_invalid_offsets_raise(change: dict[str, Any], message: str) -> None:
    with pytest.raises(StreamError, match=message):
        Offset.from_json(START.to_json() | change)


@pytest.mark.parametrize("key", sorted(START.to_json().keys() - {"sourceVersion"}))
def test_an_offset_without_a_field_raises(key: str) -> None:
    value = START.to_json()
    del value[key]
    with pytest.raises(StreamError, match=f"damaged offset: Object missing required field `{key}`"):
        Offset.from_json(value)


@pytest.mark.parametrize("value", [None, 5, "text", []])
def test_an_offset_that_is_no_object_raises(value: Any) -> None:
    with pytest.raises(StreamError, match="an offset that is not an object"):
        Offset.from_json(value)


# -- batches


def test_without_a_limit_all_files_are_admitted() -> None:
    end = Admission().advance(START.after(5), files((6, 2), (8, 1)), 9)
    assert (end.version, end.index) == (10, -1)


def test_a_batch_ends_after_the_last_admitted_file() -> None:
    taken = Admission(max_files=3)
    end = taken.advance(START.after(5), files((6, 2), (8, 2)), 9)
    assert (end.version, end.index) == (8, 0)
    assert taken.full


def test_a_batch_that_ends_with_a_version_ends_before_the_next_file() -> None:
    end = Admission(max_files=2).advance(START.after(5), files((6, 2), (8, 2)), 9)
    assert (end.version, end.index) == (8, -1)
    end = Admission(max_files=2).advance(START, files((5, 2)), 5)
    assert (end.version, end.index, end.is_initial_snapshot) == (6, -1, False)


def test_the_file_that_exceeds_the_size_is_admitted() -> None:
    for limit, taken in ((1, 1), (10, 1), (11, 2), (25, 3)):
        admission = Admission(max_bytes=limit)
        admission.advance(START.after(5), files((6, 5)), 6)
        assert admission.files == taken


def test_both_limits_apply() -> None:
    for limits, taken in (((2, 1000), 2), ((4, 15), 2)):
        admission = Admission(*limits)
        admission.advance(START.after(5), files((6, 5)), 6)
        assert admission.files == taken


def test_change_files_of_a_version_are_in_one_batch() -> None:
    many = files((6, 3), whole=True) + files((7, 3), whole=True)
    end = Admission(max_files=1).advance(START.after(5), many, 7)
    assert (end.version, end.index) == (7, -1)
    admission = Admission(max_files=4)
    end = admission.advance(START.after(5), many, 7)
    assert (end.version, end.index, admission.files) == (8, -1, 6)


def test_versions_without_files_are_skipped() -> None:
    end = Admission(max_files=1).advance(START.after(5), [], 12)
    assert (end.version, end.index) == (13, -1)


runs = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3), st.booleans()), max_size=8)


@given(runs, st.integers(1, 4), st.one_of(st.none(), st.integers(1, 60)), st.integers(0, 3))
def test_batches_are_the_files_once_and_in_order(
    shape: list[tuple[int, int, bool]], most: int, size: int | None, after: int
) -> None:
    """With any limits every file is in one batch, and versions that must not be divided are not."""
    all_files: list[StreamFile] = []
    version = 6
    for gap, count, whole in shape:
        version += gap
        all_files += files((version, count), whole=whole)
        version += 1
    last = version - 1 + after
    position, seen = START.after(5), []
    for _ in range(len(all_files) + 2):
        if position.version > last:
            break
        admission = Admission(max_files=most, max_bytes=size)
        rest = pending(all_files, position)
        end = admission.advance(position, rest, last)
        assert end.place > position.place
        batch = [f for f in rest if (f.version, f.index) <= (end.version, end.index)]
        assert len(batch) == admission.files
        assert len(batch) <= most or all(f.whole for f in batch[most - 1 :])
        cut = {f.version for f in batch if f.whole} & {f.version for f in pending(all_files, end) if f.whole}
        assert not cut
        seen += batch
        position = end
    assert seen == all_files
    assert position == START.after(last)
