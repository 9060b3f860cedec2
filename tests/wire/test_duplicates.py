"""Files that an answer lists twice: counted once, or refused, however many come at a time."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import AddFile, CdcFile, DeletionVector, Metadata, Protocol
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.wire.answers import AnswerReader, keep_files
from delta_sharing_client.wire.duplicate_files import DuplicateFiles
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest

HEAD: list[Any] = [Protocol(1), Metadata("m", "{}")]


def file(number: int, **more: Any) -> AddFile:
    url = SecretUrl(f"https://h/{number}")
    fields: dict[str, Any] = {"url": url, "id": f"f{number}", "partition_values": {}, "size": 5}
    return AddFile(**fields | more)


def listed(*pages: list[Any], changes: bool = False) -> list[Any]:
    """Read pages of files; a list of files is one block."""
    request = VersionsRequest(starting_version=0) if changes else QueryRequest()
    reader: AnswerReader[Any, Any] = AnswerReader(request, "table t", keep_files)
    items: list[Any] = []
    for page in pages:
        actions = [FileBlock.of(part if isinstance(part, list) else [part]) for part in page if part != []]
        items = reader.read_page(iter(HEAD + actions), version=1).items
    return items


def test_equal_duplicates_count_once() -> None:
    one, two, three = file(1), file(2, partition_values={"a": "1", "b": None}), file(3)
    again = file(
        2, url=SecretUrl("https://h/fresh"), partition_values={"b": None, "a": "1"}, expiration_timestamp=7
    )
    assert listed([[one, two], [three, again]]) == [one, two, three]
    assert listed([[one, two, again]]) == [one, two]
    assert listed([[one, two]], [[again, three]]) == [one, two, three]
    assert listed([[one, two], again, [three]]) == [one, two, three]
    assert listed([one, two], [again, three]) == [one, two, three]


@pytest.mark.parametrize(
    "changed",
    [
        {"size": 6},
        {"partition_values": {}},
        {"partition_values": {"a": "2"}},
        {"partition_values": {"a": "1", "b": None}},
        {"deletion_vector_file_id": "v"},
        {"deletion_vector": DeletionVector("i", SecretUrl("x"), 1, 1)},
    ],
)
@pytest.mark.parametrize("apart", ["in one list", "in two", "on two pages", "one by one"])
def test_different_duplicates_raise(changed: dict[str, Any], apart: str) -> None:
    one, other = file(1, partition_values={"a": "1"}), file(1, **{"partition_values": {"a": "1"}} | changed)
    pages = {
        "in one list": [[[one, file(2), other]]],
        "in two": [[[one, file(2)], [other, file(3)]]],
        "on two pages": [[[one, file(2)]], [[other]]],
        "one by one": [[one, file(2), other]],
    }[apart]
    with pytest.raises(ProtocolError, match="the file f1 twice, with different contents"):
        listed(*pages)


def test_files_of_a_failed_attempt_are_forgotten() -> None:
    reader: AnswerReader[Any, Any] = AnswerReader(QueryRequest(), "table t", keep_files)

    def attempt(*actions: Any) -> Any:
        return reader.read_page(iter([*HEAD, *actions]), version=1).items

    with pytest.raises(ProtocolError, match="a change data file in a snapshot"):
        attempt(FileBlock.of([file(1), file(2)]), FileBlock.of([CdcFile(SecretUrl("u"), "c", {}, 1)]))
    assert attempt(FileBlock.of([file(1, size=9), file(2)])) == [file(1, size=9), file(2)]


def test_the_work_for_a_page_depends_on_its_files_alone() -> None:
    """Counted in sets that are copied, not in seconds."""
    duplicates = DuplicateFiles("table t", changes=False)
    known = duplicates._keys
    for number in range(4):
        duplicates.begin_page()
        block = FileBlock.of([file(2 * number), file(2 * number + 1)])
        assert duplicates.new_files(block) is block
        duplicates.commit_page()
        assert duplicates._keys is known
    assert len(known) == 8


def test_in_changes_a_file_may_come_again_in_another_version() -> None:
    one, later = file(1, version=1), file(1, version=2)
    assert listed([[one, later], [one]], changes=True) == [one, later]


def test_a_file_before_the_metadata_raises() -> None:
    with pytest.raises(ProtocolError, match="a file before its metadata line"):
        AnswerReader(QueryRequest(), "t", keep_files).read_page(
            iter([HEAD[0], FileBlock.of([file(1)])]), version=1
        )


_FILES = st.builds(
    file,
    st.integers(0, 6),
    size=st.sampled_from([5, 5, 5, 6]),
    partition_values=st.sampled_from([{}, {}, {"a": "1"}, {"b": None, "a": "1"}, {"a": "1", "b": None}]),
    deletion_vector_file_id=st.sampled_from([None, None, None, "v"]),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(st.lists(_FILES, max_size=4), max_size=3), max_size=3))
def test_blocks_and_single_files_have_the_same_result(pages: list[list[list[AddFile]]]) -> None:
    def outcome(made: list[list[Any]]) -> Any:
        try:
            return listed(*made)
        except ProtocolError as error:
            return str(error)

    assert outcome([list(page) for page in pages]) == outcome([[f for run in page for f in run] for page in pages])
