"""Streams while the response format changes, and with it the ids of the files."""

from __future__ import annotations

import json
import random
import re
from base64 import urlsafe_b64decode
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
from msgspec import structs

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, StreamError
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.stream import in_order

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


def require_vectors(table: ChangeTable) -> None:
    """Give version 0 the protocol of a table that servers share in delta format alone."""
    log = table.root / "_delta_log" / f"{0:020}.json"
    lines = [line for line in log.read_text().splitlines() if not line.startswith('{"protocol"')]
    log.write_text("\n".join([json.dumps(table.protocol(VECTORS)), *lines]) + "\n")


@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}, {"startingVersion": 0, "readChangeFeed": "true"}])
@pytest.mark.parametrize(("first", "then"), [("delta", "parquet"), ("parquet", "delta")])
def test_a_stream_goes_on_if_the_format_of_its_version_is_no_longer_available(
    table: ChangeTable, serve: Serve, first: Any, then: Any, start: dict[str, Any]
) -> None:
    """Each row is read once, and each batch, made again in the other format, has the same rows."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format=first) as server:
        query = Query(server, **start)
        batches = [query.ids(TWO), query.ids(TWO)]
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    assert query.end is not None
    assert (query.end["responseFormat"], query.end["version"], query.end["index"]) == (first, 0, 3)
    if then == "delta":
        require_vectors(table)
    serve(table, port=port, token=token, prefer_format=then)
    query.start()
    batches += query.all(TWO)
    assert sorted(flat(batches)) == list(range(9))
    query.start()
    again = [query.rows(*pair).column("id").to_pylist() for pair in query.pairs]
    assert [sorted(batch) for batch in again if batch] == [sorted(batch) for batch in batches if batch]


def test_a_stream_goes_on_if_file_ids_change(table: ChangeTable, serve: Serve) -> None:
    """The files are in the order of their paths."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format="delta") as server:
        query = Query(server)
        read = query.ids(TWO)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    serve(table, port=port, token=token, prefer_format="parquet")
    assert query.end is not None
    query.end["responseFormat"] = "parquet"
    query.start()
    assert sorted(read + all_of(query)) == list(range(9))


def test_other_files_before_the_offset_raise(table: ChangeTable, serve: Serve) -> None:
    with SharingServer({"s.s.t": table.root}) as server:
        query = Query(server)
        first, _ = query.ids(TWO)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    log = table.root / "_delta_log" / f"{0:020}.json"
    log.write_text(log.read_text().replace(f"file-{first}", "file-x"))
    serve(table, port=port, token=token)
    query.start()
    with pytest.raises(StreamError, match=r"version 0, .* other paths or ids.* new checkpoint location"):
        query.batch(TWO)


def test_files_without_distinct_paths_are_in_the_order_of_their_ids() -> None:
    urls = [SecretUrl(f"https://host/file?name={number}") for number in range(3)]
    tasks = [FileScanTask(url, id_, 1) for url, id_ in zip(urls, "cab", strict=True)]
    listed = in_order(tasks, 4, by_id=False)
    assert [(file.index, file.task.file_id, file.paths) for file in listed] == [
        (0, "a", None),
        (1, "b", None),
        (2, "c", None),
    ]
    distinct = [structs.replace(task, url=SecretUrl(f"https://host/{task.file_id}")) for task in tasks]
    changed = in_order(distinct, 4, by_id=False)
    assert [file.task.file_id for file in changed] == ["a", "b", "c"]
    assert len({file.paths for file in changed}) == 3


def test_offsets_within_a_version_have_its_format_and_a_digest(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), startingVersion=0)
    query.ids(TWO)
    assert query.end is not None
    assert query.end["responseFormat"] == "parquet"
    assert len(query.end["paths"]) == 32
    assert not {"responseFormat", "paths"} & query.stream.initial_offset().keys()
    gain_a_feature(table, 100)
    query.all(("ReadMaxFiles", 1))
    formats = [end.get("responseFormat") for _, end in query.pairs if end["version"] == 1]
    assert set(formats) <= {"delta", None}
    assert "delta" in formats
    assert not {"responseFormat", "paths"} & query.end.keys()  # between two versions it depends on nothing


# -- offsets of earlier releases, which count files in the order of their ids; the first ones lack the format


def counted_by_id(query: Query, index: int, form: Any = "auto") -> tuple[dict[str, Any], list[int]]:
    """Return the offset after a file of version 0, as earlier releases wrote it, and the rows up to the file."""
    with SharingClient(query.server.profile) as client:
        plan = client.table("s.s.t").scan(version=0, response_format=form).plan()
    files = sorted(plan.tasks, key=lambda file: file.file_id)
    assert plan.request is not None
    counted = {"index": index, "responseFormat": plan.request.formats[0], "fileId": files[index].file_id}
    return query.stream.initial_offset() | counted, rows_of(files[: index + 1])


def rows_of(files: list[FileScanTask]) -> list[int]:
    """Return the rows of files of one row each, whose names have it."""
    keys = [urlsplit(file.url.reveal()).path.split("/")[2] for file in files]
    names = [urlsafe_b64decode(f"{key}==").decode().rpartition("/")[2] for key in keys]
    return [int(name.partition("-")[2].partition(".")[0]) for name in names]


def older(offset: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in offset.items() if key not in ("responseFormat", "fileId")}


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
@pytest.mark.parametrize("response_format", ["parquet", "delta"])
def test_a_checkpoint_in_the_order_of_ids_continues_in_it(
    table: ChangeTable, serve: Serve, response_format: str, start: dict[str, Any], *, restart: bool
) -> None:
    """Its version is read to the end in that order and format; later versions are in the order of paths."""
    prefer = "delta" if response_format == "delta" else "auto"
    query = Query(serve(table, prefer_format=prefer), **start)
    begin, first = counted_by_id(query, 1, response_format)
    end, read = counted_by_id(query, 4, response_format)
    expected = [*range(9), *gain_a_feature(table, 100), *gain_a_feature(table, 200)]
    query.end = end
    query.start()
    assert query.rows(begin, end).column("id").to_pylist() == read[2:]
    initial = query.stream.initial_offset()
    assert query.rows(initial, begin).column("id").to_pylist() == first
    while query.batch(("ReadMaxFiles", 1)) is not None:
        if restart:
            query.start()
    inside = [end for _, end in query.pairs if end["index"] >= 0]
    assert {end["version"]: end["sourceVersion"] for end in inside} == {0: 1, 1: 2, 2: 2}
    query.start()
    again = [query.rows(*pair).column("id").to_pylist() for pair in query.pairs]
    assert sorted(read + flat(again)) == expected
    whole = query.rows(begin, query.end).column("id").to_pylist()  # a batch over versions of both orders
    assert sorted(first + whole) == expected


def test_a_batch_that_ends_in_the_order_of_ids_is_read_in_it(table: ChangeTable, serve: Serve) -> None:
    """An earlier release planned it, from the version before."""
    query = Query(serve(table), startingVersion=0)
    before = query.stream.initial_offset()
    table.commit(*(table.add(f"more-{number}", rows(number)) for number in range(10, 16)))
    with SharingClient(query.server.profile) as client:
        files = client.table("s.s.t").changes(starting_version=1).files()
    files.sort(key=lambda file: file.file_id)
    end = before | {"version": 1, "index": 2, "responseFormat": "parquet", "fileId": files[2].file_id}
    expected = [*range(9), *sorted(rows_of(files[:3]))]
    query.start()
    assert sorted(query.rows(before, end).column("id").to_pylist()) == expected
    query.end = end
    query.start()
    assert sorted(expected + all_of(query)) == [*range(9), *range(10, 16)]


STARTS = [{}, {"startingVersion": 0}, {"startingVersion": 0, "readChangeFeed": "true"}]


@pytest.fixture
def partitioned(tmp_path: Path) -> ChangeTable:
    """Version 0 has nine files of one row each, 0 to 8, in folders whose names a log encodes."""
    table = ChangeTable(tmp_path / "t")
    table.commit(*(table.add(name, rows(number)) for number, name in enumerate(NAMES)))
    log = table.root / "_delta_log" / f"{0:020}.json"
    for number, name in enumerate(NAMES):
        folder = f"at=2020-01-01 0{number}%3A00 ü"
        (table.root / folder).mkdir()
        (table.root / name).rename(table.root / folder / name)
        logged = folder.replace("%", "%25").replace(" ", "%20")  # as Spark writes it
        log.write_text(log.read_text().replace(f'"{name}"', json.dumps(f"{logged}/{name}")))
    return table


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize(("first", "then"), [("delta", "parquet"), ("parquet", "delta")])
@pytest.mark.parametrize("name", ["table", "partitioned"])
def test_a_checkpoint_in_the_order_of_ids_goes_on_in_another_format_if_ids_are_hashes_of_paths(
    request: pytest.FixtureRequest, serve: Serve, name: str, first: Any, then: Any, start: dict[str, Any]
) -> None:
    """Each row is read once: the ids of the format that is no longer available are computed from the paths."""
    table: ChangeTable = request.getfixturevalue(name)
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format=first) as server:
        query = Query(server, **start)
        begin, before = counted_by_id(query, 1, first)
        end, read = counted_by_id(query, 4, first)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    if then == "delta":
        require_vectors(table)
    serve(table, port=port, token=token, prefer_format=then)
    query.end = end
    query.start()
    initial = query.stream.initial_offset()
    assert sorted(query.rows(initial, begin).column("id").to_pylist()) == sorted(before)
    assert sorted(query.rows(begin, end).column("id").to_pylist()) == sorted(read[2:])
    table.commit(table.add("later", rows(9)))
    batches = query.all(("ReadMaxFiles", 1))
    assert sorted(read + flat(batches)) == list(range(10))
    inside = [end for _, end in query.pairs if end["version"] == 0 and end["index"] >= 0]
    assert all((end["sourceVersion"], end["responseFormat"]) == (1, first) for end in inside)
    query.start()
    again = [query.rows(*pair).column("id").to_pylist() for pair in query.pairs]
    assert [sorted(batch) for batch in again if batch] == [sorted(batch) for batch in batches]
    whole = query.rows(begin, query.end).column("id").to_pylist()  # a batch over versions of both orders
    assert sorted(before + whole) == list(range(10))


def test_a_checkpoint_in_the_order_of_ids_goes_on_if_the_hash_of_its_format_changes(
    table: ChangeTable, serve: Serve
) -> None:
    """The reference server had MD5 in delta format too, in earlier releases."""
    query = Query(serve(table, prefer_format="delta"))
    end, read = counted_by_id(query, 3, "parquet")
    query.end = end | {"responseFormat": "delta"}
    query.start()
    assert sorted(read + all_of(query)) == list(range(9))


def without_its_ids(
    table: ChangeTable, serve: Serve, index: int = 1, **start: Any
) -> tuple[Query, dict[str, Any], list[int]]:
    """Return a query whose last batch ended within version 0, counted by ids that no server returns any more."""
    with SharingServer({"s.s.t": table.root}) as server:
        query = Query(server, **start)
        query.end, read = counted_by_id(query, index)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    serve(table, port=port, token=token)
    query.start()
    return query, query.end, read


@pytest.mark.parametrize("start", STARTS)
def test_a_checkpoint_whose_ids_are_unknown_names_the_option_that_goes_on(
    table: ChangeTable, serve: Serve, start: dict[str, Any]
) -> None:
    """Nothing is guessed; the checkpoint stays usable."""
    query, end, _ = without_its_ids(table, serve, **start)
    elsewhere = " and startingVersion=0" if start else ""
    text = (
        "within version 0, after 2 of its files, and the server now lists 9 files of that version, by other paths "
        "or ids: it is unknown which of them were read. Start the query again with the option "
        "allowRepeatedVersion=0 to read all files of that version, those 2 a second time; or start it with a new "
        f"checkpoint location{elsewhere}, after"
    )
    for other in ("1", None):
        with pytest.raises(StreamError, match=re.escape(text)) as caught:
            query.batch(TWO)
        assert caught.value.version == 0
        assert query.end == end
        query.start(**({"allowRepeatedVersion": other} if other else {}))


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("accepted", ["0", "always"])
def test_a_version_whose_read_files_are_unknown_is_repeated_if_the_option_accepts_it(
    table: ChangeTable, serve: Serve, start: dict[str, Any], accepted: str, caplog: pytest.LogCaptureFixture
) -> None:
    """All files of that version are read again, once, with a warning; later versions are read once."""
    query, _, _ = without_its_ids(table, serve, **start)
    query.start(allowRepeatedVersion=accepted)
    new = gain_a_feature(table, 100)
    batches = query.all(TWO)
    assert sorted(flat(batches)) == [*range(9), *new]
    (warning,) = [
        record.getMessage() for record in caplog.records if "allowRepeatedVersion" in record.getMessage()
    ]
    assert "accepts version 0: it is unknown which of its files were read" in warning
    assert "all of them are read again, 2 of them a second time" in warning
    query.start()
    again = [query.rows(*pair).column("id").to_pylist() for pair in query.pairs]
    assert [sorted(batch) for batch in again if batch] == [sorted(batch) for batch in batches]
    query.start(allowRepeatedVersion="0")
    assert query.batch() is None


def test_a_planned_batch_within_a_repeated_version_loses_nothing(table: ChangeTable, serve: Serve) -> None:
    """It has all files of the version, and so has the next batch: which files are whose is unknown."""
    query, _, _ = without_its_ids(table, serve)
    with SharingServer({"s.s.t": table.root}) as server:
        ends = [counted_by_id(Query(server), index)[0] for index in (1, 4)]
    query.start(allowRepeatedVersion=0)
    assert sorted(query.rows(*ends).column("id").to_pylist()) == list(range(9))
    query.end = ends[1]
    assert all_of(query) == list(range(9))


@pytest.mark.parametrize("limit", [("ReadMaxFiles", 1), TWO, ("ReadMaxFiles", 5)])
def test_a_repeated_batch_has_the_same_rows_if_its_ids_are_available_again(
    table: ChangeTable, serve: Serve, limit: tuple[str, int]
) -> None:
    """The new offsets within a version that is read again say so, wherever the batch ends."""
    query = Query(serve(table), allowRepeatedVersion=0)
    known, _ = counted_by_id(query, 1)
    query.end = known | {"fileId": "unknown"}
    read = sorted(query.ids(limit))
    assert len(read) == limit[1]
    ((_, end),) = query.pairs
    assert end["repeats"] == 1
    query.end = None
    query.start(allowRepeatedVersion="always")
    assert sorted(query.rows(known, end).column("id").to_pylist()) == read
    query.end = end
    assert sorted(read + all_of(query)) == list(range(9))
    assert "repeats" not in query.end


def test_a_version_may_be_repeated_twice(table: ChangeTable, serve: Serve) -> None:
    """The paths that the second offset counts are unknown too, and its batch is ordered after the first."""
    query = Query(serve(table), allowRepeatedVersion=0)
    query.end = counted_by_id(query, 3)[0] | {"fileId": "unknown"}
    query.ids(TWO)
    query.end = query.end | {"paths": "unknown"}
    assert all_of(query, ("ReadMaxFiles", 1)) == list(range(9))
    assert query.pairs[1][1]["repeats"] == 2


@pytest.mark.parametrize("response_format", ["auto", "parquet", "delta"])
@pytest.mark.parametrize("start", [{}, {"startingVersion": 0}])
def test_an_old_checkpoint_continues(
    table: ChangeTable, serve: Serve, response_format: str, start: dict[str, Any]
) -> None:
    query = Query(serve(table), responseFormat=response_format, **start)
    (begin, first), (end, both) = (counted_by_id(query, index, response_format) for index in (1, 3))
    second, begin, end = both[2:], older(begin), older(end)
    query.end = end
    query.start()
    assert query.rows(begin, end).column("id").to_pylist() == second  # a batch that was planned before
    table.commit(table.add("later", rows(9)))
    assert json.dumps(query.planned(end, ("ReadMaxFiles", 1))) != json.dumps(end)
    assert sorted(first + second + all_of(query)) == list(range(10))


def test_an_old_checkpoint_with_nothing_new_has_no_batch(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table), startingVersion=0)
    query.ids(("ReadMaxFiles", 9))
    query.end = older(query.stream.initial_offset()) | {"version": 1}
    query.start()
    assert query.batch() is None


def test_an_old_checkpoint_of_a_snapshot_continues_after_a_new_feature(table: ChangeTable, serve: Serve) -> None:
    query = Query(serve(table))
    end, read = counted_by_id(query, 1)
    new = gain_a_feature(table, 100)
    query.end = older(end)
    query.start()
    assert sorted(read + all_of(query)) == [*range(9), *new]


def test_an_old_checkpoint_with_two_possible_formats_raises(table: ChangeTable, serve: Serve) -> None:
    """The format depended on the other versions of the request: the query stops instead of guessing."""
    query = Query(serve(table), startingVersion=0)
    end, _ = counted_by_id(query, 1)
    gain_a_feature(table, 100)
    query.end = older(end)
    query.start()
    with pytest.raises(StreamError, match=r"within version 0, after 2 .* response format .* startingVersion=0"):
        query.batch(TWO)
    query.start(allowRepeatedVersion=0)
    assert len(all_of(query)) == 9 + 3


def test_an_old_checkpoint_continues_if_both_formats_have_one_order(table: ChangeTable, serve: Serve) -> None:
    """If a file has one id in both formats, its index does not depend on the format."""
    query = Query(serve(table, file_ids_by_format=False), startingVersion=0)
    end, read = counted_by_id(query, 1)
    new = gain_a_feature(table, 100)
    query.end = older(end)
    query.start()
    assert sorted(read + all_of(query)) == [*range(9), *new]
