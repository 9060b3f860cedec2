"""Streams while the response format changes, and with it the ids of the files."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from stream_query import Query, flat
from waiting import WallClock

pytest.importorskip("pyspark")

from change_tables import ChangeTable, rows

from delta_sharing_client.errors import BadRequestError, StreamError
from delta_sharing_client.server import SharingServer

Serve = Callable[..., SharingServer]
VECTORS = ["deletionVectors"]
TWO = ("ReadMaxFiles", 2)
#: The order of the ids of these files differs between the formats.
NAMES = [f"file-{number}" for number in range(9)]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A server whose file ids are another hash in each response format, unless the options differ."""
    with ExitStack() as stack:

        def start(table: ChangeTable, **options: Any) -> SharingServer:
            options = {"file_ids_by_format": True} | options
            return stack.enter_context(SharingServer({"s.s.t": table.root}, **options))

        yield start


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Version 0 has nine files of one row each, 0 to 8."""
    table = ChangeTable(tmp_path / "t")
    table.commit(*(table.add(name, rows(number)) for number, name in enumerate(NAMES)))
    return table


def gain_a_feature(table: ChangeTable, first: int) -> list[int]:
    """Commit a version that needs deletion vectors, with a file with and one without; return the new rows."""
    table.commit(
        table.protocol(VECTORS),
        table.add(f"with-{first}", rows(first, first + 1, first + 2), vector=table.vector(1)),
        table.add(f"without-{first}", rows(first + 3)),
    )
    return [first, first + 2, first + 3]


def all_of(query: Query, limit: tuple[str, int] = TWO) -> list[int]:
    return sorted(flat(query.all(limit)))


@pytest.mark.parametrize("changes", ["true", "false"])
@pytest.mark.parametrize("restart", [True, False])
def test_each_row_is_read_once_if_the_table_gains_a_feature_between_batches(
    table: ChangeTable, serve: Serve, changes: str, wall_clock: WallClock, *, restart: bool
) -> None:
    """Files of a version are counted in the order of their ids: in one format from its first to its last."""
    query = Query(serve(table, url_lifetime=timedelta(hours=1)), startingVersion=0, readChangeFeed=changes)
    read = query.ids(TWO)
    new = gain_a_feature(table, 100)
    if restart:
        query.start()
    else:
        wall_clock.advance(3600)
        assert not any(listing.is_fresh(0) for listing in query.stream._listings._listings)
    read += all_of(query)
    assert sorted(read) == [*range(9), *new]
    assert query.batch() is None


def test_a_snapshot_is_read_once_if_the_table_gains_a_feature(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table))
    read = query.ids(TWO)
    new = gain_a_feature(table, 100)
    query.start()
    assert sorted(read + all_of(query)) == [*range(9), *new]


def test_a_server_that_cannot_read_the_feature_raises_after_the_earlier_versions(
    table: ChangeTable, serve: Serve
) -> None:
    """Every row of the earlier versions is read, in their format; then an error names the cause."""
    query = Query(serve(table, imitate="reference"))
    read = query.ids(TWO)
    gain_a_feature(table, 100)
    query.start()
    for _ in range(4):
        read += query.ids(TWO)
    assert sorted(read) == list(range(9))
    for _ in range(2):
        with pytest.raises(BadRequestError, match="too new for this version of Delta Standalone"):
            query.batch(TWO)
        query.start()


@pytest.mark.parametrize("limit", [("ReadMaxFiles", 1), TWO, ("ReadMaxFiles", 5), ("ReadMaxFiles", 1000)])
def test_each_row_is_read_once_if_the_format_changes_repeatedly(
    table: ChangeTable, serve: Serve, limit: tuple[str, int]
) -> None:
    """Restarts and ranges of listings differ from step to step; each row is read once."""
    chance = random.Random(7)
    server = serve(table)
    query, batches, expected = Query(server, startingVersion=0), list[list[int]](), list(range(9))
    for step in range(6):
        batches += [query.ids(limit) for _ in range(chance.randrange(4))]
        first = 1000 * (step + 1)
        if step % 2:
            plain = range(first, first + 4)
            table.commit(table.protocol(), *(table.add(f"plain-{i}", rows(i)) for i in plain))
            expected += plain
        else:
            expected += gain_a_feature(table, first)
        if chance.random() < 0.7:
            query.start()
    batches += query.all(limit)
    assert sorted(flat(batches)) == expected
    query.start()  # and each batch, made again from its offsets alone, has the same rows
    again = [query.rows(start, end).column("id").to_pylist() for start, end in query.pairs]
    assert [sorted(batch) for batch in again if batch] == [sorted(batch) for batch in batches if batch]


def test_each_row_is_read_once_if_the_server_prefers_another_format(table: ChangeTable, serve: Serve) -> None:
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True) as server:
        query = Query(server)
        read = query.ids(TWO)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    serve(table, port=port, token=token, prefer_format="delta")
    query.start()
    assert sorted(read + all_of(query)) == list(range(9))


def test_a_format_that_is_no_longer_available_raises(table: ChangeTable, serve: Serve) -> None:
    """Nothing is guessed: it is unknown which files were read."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format="delta") as server:
        query = Query(server)
        query.ids(TWO)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    serve(table, port=port, token=token, prefer_format="parquet")
    query.start()
    with pytest.raises(StreamError, match=r"version 0, .* delta format.* new checkpoint location"):
        query.batch(TWO)


def test_changed_file_ids_raise(table: ChangeTable, serve: Serve) -> None:
    """The ids are another hash in the same format: the file that the offset names is not where it was."""
    with SharingServer({"s.s.t": table.root}) as server:
        query = Query(server)
        query.ids(TWO)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    serve(table, port=port, token=token)
    query.start()
    with pytest.raises(StreamError, match=r"version 0 .* other ids.* new checkpoint location"):
        query.batch(TWO)


def test_offsets_within_a_version_have_its_format_and_file(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), startingVersion=0)
    query.ids(TWO)
    assert query.end is not None
    assert query.end["responseFormat"] == "parquet"
    assert len(query.end["fileId"]) == 32
    assert not {"responseFormat", "fileId"} & query.stream.initial_offset().keys()
    gain_a_feature(table, 100)
    query.all(("ReadMaxFiles", 1))
    formats = [end.get("responseFormat") for _, end in query.pairs if end["version"] == 1]
    assert set(formats) <= {"delta", None}
    assert "delta" in formats
    assert not {"responseFormat", "fileId"} & query.end.keys()  # between two versions it depends on nothing


# -- offsets of the first releases, without the response format


def older(offset: dict[str, Any] | None) -> dict[str, Any]:
    return {key: value for key, value in (offset or {}).items() if key not in ("responseFormat", "fileId")}


@pytest.mark.parametrize("response_format", ["auto", "parquet", "delta"])
@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
def test_an_old_checkpoint_continues(
    table: ChangeTable, serve: Serve, response_format: str, start: dict[str, Any]
) -> None:
    query = Query(serve(table), responseFormat=response_format, **start)
    first, second = query.ids(TWO), query.ids(TWO)
    begin, end = older(query.pairs[1][0]), older(query.pairs[1][1])
    query.end = end
    query.start()
    assert query.rows(begin, end).column("id").to_pylist() == second  # a batch that was planned before
    table.commit(table.add("later", rows(9)))
    assert json.dumps(query.planned(end, ("ReadMaxFiles", 1))) != json.dumps(end)
    assert sorted(first + second + all_of(query)) == list(range(10))


def test_an_old_checkpoint_with_nothing_new_has_no_batch(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), startingVersion=0)
    query.ids(("ReadMaxFiles", 9))
    query.end = older(query.end) | {"version": 1, "index": -1}
    query.start()
    assert query.batch() is None


def test_an_old_checkpoint_of_a_snapshot_continues_after_a_new_feature(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table))
    read = query.ids(TWO)
    new = gain_a_feature(table, 100)
    query.end = older(query.end)
    query.start()
    assert sorted(read + all_of(query)) == [*range(9), *new]


def test_an_old_checkpoint_with_two_possible_formats_raises(table: ChangeTable, serve: Serve) -> None:
    """The format depended on the other versions of the request: the query stops instead of guessing."""
    query = Query(serve(table), startingVersion=0)
    query.ids(TWO)
    gain_a_feature(table, 100)
    query.end = older(query.end)
    query.start()
    with pytest.raises(StreamError, match=r"within version 0, .* response format .* startingVersion=0"):
        query.batch(TWO)


def test_an_old_checkpoint_continues_if_both_formats_have_one_order(table: ChangeTable, serve: Serve) -> None:
    """If a file has one id in both formats, its index does not depend on the format."""
    query = Query(serve(table, file_ids_by_format=False), startingVersion=0)
    read = query.ids(TWO)
    new = gain_a_feature(table, 100)
    query.end = older(query.end)
    query.start()
    assert sorted(read + all_of(query)) == [*range(9), *new]
