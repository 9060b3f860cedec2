"""Planning of streams: starts, limits, requests, stops; on the embedded server, without Spark's JVM."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pytest
from stream_query import ALL, Query, flat, requested
from waiting import WallClock, wait_until

pytest.importorskip("pyspark")

from change_tables import COLUMNS, ChangeTable, change_rows, expect, rows

from delta_sharing_client.errors import (
    ChangesGoneError,
    ColumnError,
    StreamError,
    TableReplacedError,
    TransportError,
    UnsupportedTableError,
)
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest import calls
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import stream

Serve = Callable[..., SharingServer]


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Five versions, the row `n` inserted in version `n`."""
    table = ChangeTable(tmp_path / "t")
    for version in range(5):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


@pytest.fixture
def server(table: ChangeTable, serve: Serve) -> SharingServer:
    return serve(table)


both = pytest.mark.parametrize("response_format", ["parquet", "delta"])


# -- where it starts


@pytest.mark.parametrize("asynchronous", ["false", "true"])
def test_asynchronous_queries_are_an_option(table: ChangeTable, serve: Serve, asynchronous: str) -> None:
    server = serve(table, query_time=timedelta(seconds=0.05))
    query = Query(server, asynchronousQueries=asynchronous)
    assert sorted(query.ids()) == [0, 1, 2, 3, 4]
    for expected in (5, 6):
        server.reset_requests()
        table.commit(table.add(f"f{expected}", rows(expected)))
        assert query.ids() == [expected]
        assert any("/queries/" in request.path for request in server.requests) == (asynchronous == "true")


@both
def test_the_whole_table_is_read_first_and_then_added_files(
    server: SharingServer, table: ChangeTable, response_format: str
) -> None:
    query = Query(server, responseFormat=response_format)
    assert sorted(query.ids()) == [0, 1, 2, 3, 4]
    assert query.batch() is None
    table.commit(table.add("f5", rows(5)))
    table.commit(table.add("f6", rows(6)))
    assert query.ids() == [5, 6]
    query.start()
    assert query.batch() is None
    table.commit(table.add("f7", rows(7)))
    assert query.ids() == [7]


@both
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"startingVersion": 3}, [3, 4, 5]),
        ({"startingVersion": "latest"}, [5]),
        ({"startingTimestamp": "2023-11-15T00:13:20Z"}, [2, 3, 4, 5]),
    ],
)
def test_a_query_begins_at_a_version_or_time(
    server: SharingServer, table: ChangeTable, options: dict[str, Any], expected: list[int], response_format: str
) -> None:
    query = Query(server, responseFormat=response_format, **options)
    start = query.stream.initial_offset()
    table.commit(table.add("f5", rows(5)))
    assert query.ids() == expected
    assert query.stream.initial_offset() == start


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"startingVersion": 9}, StreamError, "startingVersion is 9, and the latest version of table s.s.t is 4"),
        ({"startingTimestamp": "2033-01-01T00:00:00Z"}, Exception, "400"),
        ({"columns": "nope"}, ColumnError, "no column 'nope'"),
    ],
)
def test_an_invalid_start_raises(
    server: SharingServer, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        Query(server, **options).batch()


@pytest.mark.parametrize("options", [{}, {"startingVersion": 0}, {"startingVersion": "latest"}])
def test_a_table_without_history_raises_at_the_start(
    table: ChangeTable, serve: Serve, options: dict[str, Any]
) -> None:
    query = Query(serve(table, history=False), **options)
    with pytest.raises(UnsupportedTableError, match=r"a stream needs the history of table s\.s\.t"):
        query.stream.initial_offset()


# -- the size of a batch


def test_a_limit_of_files_makes_more_batches(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server)
    two = ("ReadMaxFiles", 2)
    first = query.all(two)
    assert [len(batch) for batch in first] == [2, 2, 1]
    assert sorted(flat(first)) == [0, 1, 2, 3, 4]
    table.commit(*(table.add(f"g{i}", rows(10 + i)) for i in range(3)))
    table.commit(*(table.add(f"h{i}", rows(20 + i)) for i in range(2)))
    later = query.all(two)
    assert [len(batch) for batch in later] == [2, 2, 1]
    assert sorted(flat(later)) == [10, 11, 12, 20, 21]


def test_limits_of_files_and_bytes_both_apply(server: SharingServer, table: ChangeTable) -> None:
    size = (table.root / "f0").stat().st_size
    query = Query(server, maxFilesPerTrigger=4, maxBytesPerTrigger=size + 1)
    assert query.stream.default_limit() == ("ReadMaxFiles", 4)
    assert len(query.ids(query.stream.default_limit())) == 2  # the file that exceeds the limit is read
    query = Query(server, maxBytesPerTrigger=1)
    assert query.stream.default_limit() == ("ReadMaxBytes", 1)
    assert [len(batch) for batch in query.all(("ReadMaxBytes", 1))] == [1] * 5
    assert Query(server).stream.default_limit() == ("ReadMaxFiles", 1000)


def test_read_all_available_ignores_the_limits(server: SharingServer) -> None:
    query = Query(server, maxFilesPerTrigger=1, maxVersionsPerRpc=1, startingVersion=0)
    assert query.ids(ALL) == [0, 1, 2, 3, 4]


def test_a_spark_that_passes_no_start_continues_after_the_last_batch(
    server: SharingServer, table: ChangeTable
) -> None:
    """Before 4.2 `latestOffset` has no arguments; the position is that of the last batch."""
    query = Query(server)
    assert sorted(query.ids(None)) == [0, 1, 2, 3, 4]
    query = Query(server, maxFilesPerTrigger=2)
    assert len(query.ids(None)) == 2
    query.start()
    assert len(query.ids(None)) == 2
    assert len(query.ids(None)) == 1
    assert query.batch(None) is None


def test_available_now_ends_at_the_version_of_its_start(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server)
    query.stream.prepare_for_available_now()
    table.commit(table.add("f5", rows(5)))
    assert sorted(flat(query.all(("ReadMaxFiles", 2)))) == [0, 1, 2, 3, 4]
    query.start()
    query.stream.prepare_for_available_now()
    assert query.all() == [[5]]


# -- requests to the server


def test_a_batch_sends_one_listing_and_a_poll_one_request(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server)
    query.all()
    requested(server)
    query.batch()
    assert requested(server) == ["version"]
    table.commit(table.add("f5", rows(5)))
    table.commit(table.add("f6", rows(6)))
    assert query.ids() == [5, 6]
    assert requested(server) == ["version", "query", "file", "file"]
    query.batch()
    assert requested(server) == ["version"]


def test_one_listing_serves_many_batches(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server)
    query.stream.initial_offset()
    requested(server)
    assert len(query.all(("ReadMaxFiles", 1))) == 5
    assert requested(server).count("query") == 1
    for version in range(5, 10):
        table.commit(table.add(f"f{version}", rows(version)))
    assert len(query.all(("ReadMaxFiles", 1))) == 5
    assert requested(server).count("query") == 1
    for version in range(10, 15):
        table.commit(table.add(f"f{version}", rows(version)))
    query.start(maxVersionsPerRpc=2)
    assert query.all() == [[10, 11, 12, 13, 14]]
    assert requested(server).count("query") == 3


def test_polls_are_throttled(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server, queryTableVersionIntervalSeconds=3600)
    query.all()
    requested(server)
    table.commit(table.add("f5", rows(5)))
    for _ in range(5):
        assert query.batch() is None
    assert requested(server) == []


def test_urls_that_expire_between_batches_are_renewed(
    table: ChangeTable, serve: Serve, wall_clock: WallClock
) -> None:
    server = serve(table, url_lifetime=timedelta(minutes=10))
    query = Query(server, executorCredentials="false")
    assert len(query.ids(("ReadMaxFiles", 1))) == 1
    wall_clock.advance(600)
    assert len(query.ids(("ReadMaxFiles", 4))) == 4


@pytest.mark.parametrize("ahead", [7200, -7200])
def test_urls_last_as_long_as_the_server_says_if_the_clock_is_wrong(
    table: ChangeTable, serve: Serve, wall_clock: WallClock, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    wrong = SimpleNamespace(**vars(time))
    wrong.time = lambda: time.time() + ahead
    for module in (calls, stream):
        monkeypatch.setattr(module, "time", wrong)
    server = serve(table, url_lifetime=timedelta(hours=1))
    query = Query(server, executorCredentials="false")
    assert len(query.ids(("ReadMaxFiles", 1))) == 1
    requested(server)
    wall_clock.advance(2)
    assert len(query.ids(("ReadMaxFiles", 1))) == 1
    assert requested(server) == ["file"]
    wall_clock.advance(3600)
    assert len(query.ids(("ReadMaxFiles", 3))) == 3
    assert requested(server).count("query") == 1


# -- versions that delete or rewrite


def deleting(table: ChangeTable) -> int:
    return table.commit(table.remove("f1"))


def rewriting(table: ChangeTable) -> int:
    return table.commit(table.remove("f2"), table.add("g2", rows(2, 20)))


def rearranging(table: ChangeTable) -> int:
    return table.commit(
        table.remove("f3", data_change=False),
        table.remove("f4", data_change=False),
        table.add("g34", rows(3, 4), data_change=False),
    )


#: The ids of each kind of version with each option; None if the stream stops.
PASSES: dict[str, dict[Callable[[ChangeTable], int], list[int] | None]] = {
    "": {deleting: None, rewriting: None, rearranging: []},
    "ignoreDeletes": {deleting: [], rewriting: None, rearranging: []},
    "ignoreChanges": {deleting: [], rewriting: [2, 20], rearranging: []},
    "skipChangeCommits": {deleting: [], rewriting: [], rearranging: []},
}


@both
@pytest.mark.parametrize("option", PASSES)
@pytest.mark.parametrize("commit", [deleting, rewriting, rearranging])
def test_options_accept_versions_that_delete_or_rewrite(
    server: SharingServer,
    table: ChangeTable,
    option: str,
    commit: Callable[[ChangeTable], int],
    response_format: str,
) -> None:
    query = Query(server, responseFormat=response_format, **({option: "true"} if option else {}))
    query.all()
    table.commit(table.add("f5", rows(5)))
    version = commit(table)
    table.commit(table.add("f7", rows(7)))
    expected = PASSES[option][commit]
    if expected is not None:
        assert sorted(flat(query.all())) == sorted([5, 7, *expected])
        return
    assert query.ids() == [5]  # the rows before it are read
    for _ in range(2):
        with pytest.raises(StreamError, match=f"version {version} ") as caught:
            query.batch()
        assert caught.value.version == version
        assert "skipChangeCommits" in str(caught.value)
        assert "readChangeFeed=true" in str(caught.value)
        query.start()  # also after a restart
    query.start(skipChangeCommits="true")
    assert query.all() == [[7]]


def test_deletion_vectors_are_changes_and_rewrites(tmp_path: Path, serve: Serve) -> None:
    table = ChangeTable(tmp_path / "v", features=["deletionVectors"])
    table.commit(table.add("a", rows(0, 1, 2)))
    server = serve(table)
    query, changes = Query(server), Query(server, readChangeFeed="true")
    assert query.ids() == changes.ids() == [0, 1, 2]
    first = table.vector(1)
    table.commit(table.remove("a"), table.add("a", vector=first))
    with pytest.raises(StreamError, match="version 1 rewrites"):
        query.batch()
    found = changes.batch()
    assert found is not None
    assert change_rows(found) == expect(1, "delete", [1])
    query.start(ignoreChanges="true")
    assert query.ids() == [0, 2]
    table.commit(table.remove("a", vector=first), table.add("a", vector=table.vector(0, 1)))
    found = changes.batch()
    assert found is not None
    assert change_rows(found) == expect(2, "delete", [0])


# -- the change feed


@both
def test_the_change_feed_has_every_kind_of_change(
    server: SharingServer, table: ChangeTable, response_format: str
) -> None:
    query = Query(server, readChangeFeed="true", responseFormat=response_format)
    first = query.batch()
    assert first is not None
    assert sorted(change_rows(first)) == expect(4, "insert", range(5))
    deleting(table)
    rewriting(table)
    rearranging(table)
    table.commit(
        table.remove("g2"),
        table.add("h2", rows(2, 21)),
        table.cdc("c", rows(20, 21), ["update_preimage", "update_postimage"]),
    )
    found = query.batch()
    assert found is not None
    assert change_rows(found)[:1] == expect(5, "delete", [1])
    assert sorted(change_rows(found)[1:4]) == [(6, "delete", 2), (6, "insert", 2), (6, "insert", 20)]
    assert change_rows(found)[4:] == [(8, "update_preimage", 20), (8, "update_postimage", 21)]
    assert found.schema.field("_commit_timestamp").type == pa.timestamp("us", "UTC")
    assert query.batch() is None


def test_the_change_feed_begins_at_a_version(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server, readChangeFeed="true", startingVersion=3)
    found = query.batch()
    assert found is not None
    assert change_rows(found) == [(3, "insert", 3), (4, "insert", 4)]


def test_change_files_of_a_version_are_in_one_batch(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server, readChangeFeed="true", startingVersion="latest")
    query.stream.initial_offset()
    table.commit(table.add("f5", rows(5)))
    table.commit(table.add("f6", rows(6, 7, 8)), *(table.cdc(f"c{i}", rows(6 + i), ["insert"]) for i in range(3)))
    table.commit(table.add("f7", rows(70)), table.add("f8", rows(80)))
    found = [sorted(batch) for batch in query.all(("ReadMaxFiles", 1))]
    assert found[:2] == [[5], [6, 7, 8]]
    assert sorted(found[2:]) == [[70], [80]]


def test_a_table_without_change_data_feed_raises(tmp_path: Path, serve: Serve) -> None:
    table = ChangeTable(tmp_path / "n", configuration={})
    table.commit(table.add("a", rows(0)))
    query = Query(serve(table), readChangeFeed="true", startingVersion=0)
    with pytest.raises(Exception, match="Change data feed is not enabled for version 0"):
        query.batch()


# -- crashes


@both
@pytest.mark.parametrize("changes", ["true", "false"])
def test_a_repeated_batch_has_the_same_rows(
    server: SharingServer, table: ChangeTable, changes: str, response_format: str
) -> None:
    query = Query(server, readChangeFeed=changes, responseFormat=response_format)
    before = [query.batch(("ReadMaxFiles", 2)) for _ in range(2)]
    for version in range(5, 12):
        table.commit(*(table.add(f"f{version}-{i}", rows(10 * version + i)) for i in range(3)))
    before += [query.batch(("ReadMaxFiles", 4)) for _ in range(5)]
    table.commit(table.add("late", rows(1000)))
    query.start(maxVersionsPerRpc=2)
    again = [query.rows(start, end) for start, end in query.pairs]
    assert [table.to_pylist() for table in again] == [table and table.to_pylist() for table in before]
    assert sum(len(table) for table in again) > 20


def test_an_unfinished_first_batch_is_repeated_from_the_same_start(
    server: SharingServer, table: ChangeTable
) -> None:
    """Spark stores the end of a batch before it runs, and never the start of the first one."""
    query = Query(server)
    start = query.stream.initial_offset()
    end = query.planned(start)
    rows_before = query.rows(start, end)
    table.commit(table.add("f5", rows(5)))
    query.end = end
    query.start()
    assert query.stream.initial_offset() == start
    assert query.rows(query.stream.initial_offset(), end).equals(rows_before)
    query.end = None
    query.start()  # a Spark that does not pass the offset first
    other = query.stream.initial_offset()
    assert other != start
    assert query.rows(other, end).equals(rows_before)


def test_removed_versions_raise(server: SharingServer, table: ChangeTable) -> None:
    query = Query(server)
    query.all()
    for version in range(5, 8):
        table.commit(table.add(f"f{version}", rows(version)))
    for version in range(6):
        (table.log / f"{version:020}.json").unlink()
    with pytest.raises(Exception) as caught:
        query.batch()
    assert isinstance(caught.value, (ChangesGoneError, StreamError)), caught.value


def test_a_replaced_table_raises(table: ChangeTable, serve: Serve, tmp_path: Path) -> None:
    query = Query(serve(table))
    query.all()
    table.commit(table.metadata(COLUMNS, table_id="another-id"))
    with pytest.raises(TableReplacedError, match="its id was table-id, and is another-id") as caught:
        query.batch()
    assert caught.value.version == 5
    again = ChangeTable(tmp_path / "again", table_id="another-id")
    for version in range(9):
        again.commit(again.add(f"f{version}", rows(version)))
    query.given |= {key.lower(): str(value) for key, value in serve(again).profile.items()}
    query.start()
    with pytest.raises(TableReplacedError, match="new checkpoint location"):
        query.batch()


def test_a_table_created_again_at_the_same_version_raises(table: ChangeTable, server: SharingServer) -> None:
    query = Query(server, checkTableEvery=3)
    query.all()
    server.reset_requests()
    found: list[str] = []
    while "metadata" not in found:
        assert query.batch() is None
        found += requested(server)
    assert 1 <= found.count("version") <= 3
    shutil.rmtree(table.root)
    again = ChangeTable(table.root, table_id="another-id")
    for version in range(5):
        again.commit(again.add(f"n{version}", rows(100 + version)))
    with pytest.raises(TableReplacedError, match="its id was table-id, and is another-id"):
        while found.count("version") < 10:
            assert query.batch() is None
            found += requested(server)
    with pytest.raises(TableReplacedError):
        query.start()
        query.batch()


def test_a_table_with_fewer_versions_than_before_raises(table: ChangeTable, serve: Serve) -> None:
    server = serve(table)
    query = Query(server)
    query.all()
    query.end = (query.end or {}) | {"version": 99}
    query.start()
    with pytest.raises(ChangesGoneError, match="its latest version is 4, and the query has read version 98"):
        query.batch()


# -- a server that fails


def test_a_running_query_waits_for_a_server_that_does_not_answer(table: ChangeTable) -> None:
    """A running query waits for the server; one that starts, or reads all available rows, raises."""
    with SharingServer({"s.s.t": table.root}) as server:
        query = Query(server)
        query.all()
        query.stream._rest = RestClient(query.stream._options.profile, TransportOptions(api_attempts=2))
        query.stream._listings._rest = query.stream._poller._rest = query.stream._rest
        port = urlsplit(server.profile["endpoint"]).port
    assert query.batch() is None
    with pytest.raises(TransportError):
        query.planned(query.end or {}, ALL)
    query.stream._poller._trouble_since = time.monotonic() - 601  # it waits for ten minutes at most

    def gives_up() -> bool:
        try:
            query.batch()
        except TransportError:
            return True
        return False

    wait_until(gives_up)
    table.commit(table.add("f5", rows(5)))
    with SharingServer({"s.s.t": table.root}, port=port, token=str(server.profile["bearerToken"])) as server:
        assert query.ids() == [5]
        assert query.batch() is None
        assert query.stream._poller._trouble_since is None
