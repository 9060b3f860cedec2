"""The read pipeline against a store on loopback: order, budget, limits, pieces, faults, ends."""

from __future__ import annotations

import os
import signal
import threading
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.server import FaultServer, Reply, file_reply
from url_renewals import FunctionRenewal
from waiting import BRIEFLY, FOREVER, HANG, wait_for_rest, wait_until

from delta_sharing_client.errors import DataError, FileGoneError, StorageError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.model.schema import PrimitiveType, StructField, StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet import fetch_strategy as strategy
from delta_sharing_client.parquet.tasks import FileScanTask, ReadSpec
from delta_sharing_client.scan import pipeline
from delta_sharing_client.scan.pipeline import Load
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.storage_transport import StorageTransport

NAMES = ("n", "a", "b", "c", "text")
TYPES = ("long", "double", "double", "double", "string")
SCHEMA = StructType(tuple(StructField(n, PrimitiveType(t)) for n, t in zip(NAMES, TYPES, strict=True)))
FAST = {"backoff_base": timedelta(milliseconds=1), "backoff_cap": timedelta(milliseconds=2)}


def parquet_bytes(first, rows, group):
    rng = np.random.default_rng(first)
    table = pa.table(
        {
            "n": pa.array(np.arange(first, first + rows)),
            "a": rng.random(rows),
            "b": rng.random(rows),
            "c": rng.random(rows),
            "text": pa.array([f"row {i}" for i in range(first, first + rows)]),
        }
    )
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=group, compression="none", write_page_checksum=True)
    return sink.getvalue().to_pybytes()


SMALL = [parquet_bytes(k * 100, 100, 40) for k in range(40)]
LARGE = [parquet_bytes(k * 200_000, 200_000, 25_000) for k in range(2)]


@pytest.fixture
def store():
    with FaultServer() as server:
        for k, data in enumerate(SMALL):
            server.on("*", f"/small/{k}", file_reply(data))
        for k, data in enumerate(LARGE):
            server.on("*", f"/large/{k}", file_reply(data))
        yield server


@pytest.fixture
def reader():
    readers = []

    def make(**changes):
        options = TransportOptions(**{**FAST, **changes})
        readers.append(DownloadReader(StorageTransport(options, True), options))
        return readers[-1]

    yield make
    for one in readers:
        one.close()


def tasks_of(store, kind, files, **changes):
    return [
        FileScanTask(SecretUrl(f"{store.url}/{kind}/{k}"), f"{kind}-{k}", len(data), **changes)
        for k, data in enumerate(files)
    ]


def spec_of(columns=NAMES, filters=None):
    output = StructType(tuple(f for f in SCHEMA.fields if f.name in columns))
    predicate = bind_filters(filters, SCHEMA) if filters else None
    extra = tuple(f for f in SCHEMA.fields if f.name not in columns) if predicate is not None else ()
    return ReadSpec(output, extra=extra, predicate=predicate)


def read_batches(tasks, spec, storage, progress=None, **more):
    return pipeline.read_batches(Load(tasks=tasks, spec=spec, storage=storage, **more), progress)


def estimate_fetch(tasks, spec, storage):
    return pipeline.estimate_fetch(Load(tasks=tasks, spec=spec, storage=storage, table_columns=SCHEMA))


def numbers(batches):
    return [n for batch in batches for n in batch.column("n").to_pylist()]


def fetched(store):
    return sum(
        int(r.headers["range"].split("-")[1]) - int(r.headers["range"].split("=")[1].split("-")[0]) + 1
        for r in store.requests
    )


def test_the_files_keep_their_order_and_small_ones_take_one_get_each(store, reader):
    rows = numbers(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader(), table_columns=SCHEMA))
    assert rows == list(range(4000))
    assert sorted(r.path for r in store.requests) == sorted(f"/small/{k}" for k in range(40))
    assert all(r.method == "GET" and "range" not in r.headers for r in store.requests)


def test_a_load_of_few_bytes_uses_all_connections(store, reader):
    tasks = tasks_of(store, "large", LARGE[:1])
    assert numbers(read_batches(tasks, spec_of(), reader(), table_columns=SCHEMA)) == list(range(200_000))
    size = len(LARGE[0])
    assert size > 4 * 1024 * 1024
    assert len(store.requests) == 1 + -(-size // (1024 * 1024))
    store.requests.clear()
    two = reader(max_connections=2)
    assert len(numbers(read_batches(tasks, spec_of(), two, table_columns=SCHEMA))) == 200_000
    assert len(store.requests) == 1  # each connection would receive half of it, after the footer


def test_the_order_holds_where_later_files_come_first(store, reader):
    store.on("GET", "/small/0", lambda request: file_reply(SMALL[0], delay=0.3)(request))
    assert numbers(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader())) == list(range(4000))


def test_large_files_come_in_ranges_and_are_the_same(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    monkeypatch.setattr(pipeline, "READ_UNIT_SIZE", 512 * 1024)
    rows = numbers(read_batches(tasks_of(store, "large", LARGE), spec_of(), reader(), table_columns=SCHEMA))
    assert rows == list(range(400_000))
    assert all("range" in r.headers for r in store.requests)
    assert len(store.requests) >= 18


def test_one_column_fetches_little_more_than_its_chunks(store, reader):
    spec = spec_of(("a",))
    batches = list(read_batches(tasks_of(store, "large", LARGE), spec, reader(), table_columns=SCHEMA))
    assert sum(b.num_rows for b in batches) == 400_000
    chunks = 0
    for data in LARGE:
        metadata = pq.read_metadata(pa.BufferReader(data))
        for group in range(metadata.num_row_groups):
            chunks += metadata.row_group(group).column(1).total_compressed_size
    assert fetched(store) < 1.2 * chunks + 2 * 64 * 1024
    estimate = estimate_fetch(tasks_of(store, "large", LARGE), spec, reader())
    assert estimate.ranged_files == 2
    assert estimate.row_groups == 16


def test_a_filter_fetches_only_the_row_groups_that_can_match(store, reader):
    spec = spec_of(filters=[("n", ">=", 30_000), ("n", "<", 30_010)])
    tasks = tasks_of(store, "large", LARGE, all_rows_match=False)
    assert numbers(read_batches(tasks, spec, reader(), table_columns=SCHEMA)) == list(range(30_000, 30_010))
    assert fetched(store) < len(LARGE[0]) / 8 * 1.5 + 2 * 64 * 1024
    estimate = estimate_fetch(tasks, spec, reader())
    assert (estimate.row_groups, estimate.row_groups_skipped) == (16, 15)


def test_counting_rows_takes_no_more_than_the_footers(store, reader):
    batches = read_batches(tasks_of(store, "large", LARGE), spec_of(()), reader(), table_columns=SCHEMA)
    assert sum(batch.num_rows for batch in batches) == 400_000
    assert len(store.requests) == 2
    assert fetched(store) <= 2 * 64 * 1024


@pytest.mark.parametrize("limit", [0, 1, 39, 40, 41, 100, 101, 4000, 9999])
def test_a_limit_gives_just_so_many_rows(store, reader, limit):
    tasks = tasks_of(store, "small", SMALL)
    assert numbers(read_batches(tasks, spec_of(), reader(), limit=limit)) == list(range(min(limit, 4000)))


def test_a_limit_ends_the_fetching(store, reader):
    list(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader(), limit=50))
    assert len(store.requests) <= 2
    store.requests.clear()
    tasks = tasks_of(store, "small", SMALL, num_records=100)
    assert numbers(read_batches(tasks, spec_of(), reader(), limit=150)) == list(range(150))
    assert len(store.requests) == 2


def test_a_limit_on_a_large_file_fetches_one_row_group(store, reader):
    tasks = tasks_of(store, "large", LARGE)
    assert numbers(read_batches(tasks, spec_of(), reader(), limit=5, table_columns=SCHEMA)) == [0, 1, 2, 3, 4]
    assert fetched(store) < len(LARGE[0]) / 8 * 1.5 + 2 * 64 * 1024


def test_statistics_that_promise_too_many_rows_lose_none_under_a_limit(store, reader):
    tasks = tasks_of(store, "small", SMALL, num_records=1_000_000)
    assert numbers(read_batches(tasks, spec_of(), reader(), limit=250)) == list(range(250))


def test_the_memory_budget_bounds_the_files_in_flight(store, reader):
    under_way = most = 0
    bounded = True
    lock, five = threading.Lock(), threading.Event()

    def slow(data):
        plain = file_reply(data)

        def answer(request):
            nonlocal under_way, most
            with lock:
                under_way += 1
                most = max(most, under_way)
                if most == 5:
                    five.set()
            five.wait(BRIEFLY if bounded else HANG)
            with lock:
                under_way -= 1
            return plain(request)

        return answer

    for k, data in enumerate(SMALL):
        store.on("GET", f"/small/{k}", slow(data))
    one = len(SMALL[-1]) * 3
    rows = numbers(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader(memory_budget=2 * one)))
    assert rows == list(range(4000))
    assert most <= 2
    most, bounded = 0, False
    assert numbers(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader())) == rows


def test_a_budget_smaller_than_any_file_still_reads_all(store, reader):
    tasks = tasks_of(store, "large", LARGE)
    batches = read_batches(tasks, spec_of(("n",)), reader(memory_budget=1), table_columns=SCHEMA)
    assert numbers(batches) == list(range(400_000))


def test_taken_rows_make_room_for_further_units(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    monkeypatch.setattr(pipeline, "READ_UNIT_SIZE", 1)
    tasks = tasks_of(store, "large", LARGE[:1])
    batches = read_batches(tasks, spec_of(), reader(memory_budget=5_500_000), table_columns=SCHEMA)
    first = next(batches)
    asked = wait_for_rest(lambda: len(store.requests))  # until all is there that there is room for
    # The consumer starts jobs: those that the first rows make room for with the second, at the latest the third.
    more = [next(batches), next(batches)]
    wait_until(lambda: len(store.requests) > asked, "no further piece is asked for")
    assert numbers([first, *more, *batches]) == list(range(200_000))


def test_files_whose_footers_come_first_leave_room_for_those_before_them(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    monkeypatch.setattr(pipeline, "READ_UNIT_SIZE", 1)
    footer, pieces = file_reply(LARGE[0], delay=0.5), file_reply(LARGE[0])
    first_two = threading.Barrier(2)

    def in_company(request):
        # The first piece of the first file is not answered before the second one is asked for.
        first_two.wait(HANG)
        return pieces(request)

    store.on("GET", "/large/0", footer, in_company, in_company, pieces)
    tasks = tasks_of(store, "large", LARGE)
    batches = read_batches(tasks, spec_of(), reader(memory_budget=10_000_000), table_columns=SCHEMA)
    assert numbers(batches) == list(range(400_000))


def test_a_file_that_changes_between_its_ranges_is_read_again_whole(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    old, new = file_reply(LARGE[0], etag='"old"'), file_reply(LARGE[0], etag='"new"')
    store.on("GET", "/large/0", old, new)
    tasks = tasks_of(store, "large", LARGE[:1])
    assert numbers(read_batches(tasks, spec_of(), reader(), table_columns=SCHEMA)) == list(range(200_000))
    assert any("range" not in request.headers for request in store.requests)


def test_a_store_without_ranges_is_read_whole(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    store.on("GET", "/large/0", file_reply(LARGE[0], ranges=False))
    tasks = tasks_of(store, "large", LARGE[:1])
    assert numbers(read_batches(tasks, spec_of(), reader(), table_columns=SCHEMA)) == list(range(200_000))


@pytest.mark.parametrize("kind", ["small", "large"])
def test_a_file_that_is_gone_is_named(store, reader, kind):
    store.on("GET", f"/{kind}/1", Reply(status=404, body=b"<Error><Code>NoSuchKey</Code></Error>"))
    tasks = tasks_of(store, kind, SMALL if kind == "small" else LARGE)
    with pytest.raises(FileGoneError) as caught:
        list(read_batches(tasks, spec_of(("n",)), reader(), table_columns=SCHEMA))
    assert caught.value.file_id == f"{kind}-1"


def test_a_damaged_page_is_an_error_and_no_wrong_value(store, reader):
    metadata = pq.read_metadata(pa.BufferReader(LARGE[0]))
    place = metadata.row_group(3).column(0).data_page_offset + 5000
    damaged = bytearray(LARGE[0])
    damaged[place] ^= 1
    store.on("GET", "/large/0", file_reply(bytes(damaged)))
    tasks = tasks_of(store, "large", LARGE)
    with pytest.raises(DataError, match="file large-0: row group 3") as caught:
        list(read_batches(tasks, spec_of(("n",)), reader(), table_columns=SCHEMA))
    assert caught.value.file_id == "large-0"


def test_a_file_that_is_no_parquet_file_is_named(store, reader):
    store.on("GET", "/large/0", file_reply(b"x" * len(LARGE[0])))
    with pytest.raises(DataError, match="file large-0: not a readable Parquet file"):
        list(read_batches(tasks_of(store, "large", LARGE), spec_of(("n",)), reader(), table_columns=SCHEMA))


def test_an_expired_url_is_renewed_in_the_midst_of_the_ranges(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024 * 1024)
    expired = Reply(
        status=403, body=b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    )
    fresh = file_reply(LARGE[0])
    store.on("GET", "/large/0", fresh, fresh, expired)
    store.on("GET", "/renewed/0", fresh)
    asked = []

    def renewal(file_id, url):
        asked.append(file_id)
        return SecretUrl(f"{store.url}/renewed/0")

    tasks = tasks_of(store, "large", LARGE[:1])
    batches = read_batches(tasks, spec_of(), reader(), renewal=FunctionRenewal(renewal), table_columns=SCHEMA)
    assert numbers(batches) == list(range(200_000))
    assert asked == ["large-0"]


def test_a_dead_store_fails_soon_and_not_once_for_each_file(store, reader):
    for k in range(40):
        store.on("GET", f"/small/{k}", Reply(status=503))
    with pytest.raises(StorageError, match="503"):
        list(read_batches(tasks_of(store, "small", SMALL), spec_of(), reader()))
    assert len(store.requests) < 40 + 10 + 40 + 40


def test_a_busy_store_does_not_end_the_load_of_a_large_file(store, reader, monkeypatch):
    monkeypatch.setattr(strategy, "LARGE", 1024)
    monkeypatch.setattr(strategy, "WHOLE", 1024)
    monkeypatch.setattr(pipeline, "READ_UNIT_SIZE", 1)
    data = parquet_bytes(0, 30_000, 300)
    served, lock = file_reply(data), threading.Lock()
    refused = set()

    def busy(request):
        with lock:
            if request.headers["range"] in refused:
                return served(request)
            refused.add(request.headers["range"])
            return Reply(status=503)

    store.on("GET", "/busy/0", busy)
    rows = numbers(read_batches(tasks_of(store, "busy", [data]), spec_of(), reader(), table_columns=SCHEMA))
    assert rows == list(range(30_000))
    assert len(refused) > 50  # far more than one file may use up without progress


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_load_of_the_parent_can_be_dropped_in_a_forked_process(store, reader):
    batches = read_batches(tasks_of(store, "small", SMALL), spec_of(), reader())
    first = next(batches)
    child = os.fork()
    if not child:
        signal.alarm(int(HANG))
        try:
            list(batches)
        except StorageError as error:
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) in (0, 2)  # 2: all rows had arrived before
    assert numbers([first, *batches]) == list(range(4000))


def test_a_reader_that_is_left_early_leaves_nothing_behind(store, reader):
    store.on("GET", "/small/5", file_reply(SMALL[5], delay=FOREVER))
    batches = read_batches(tasks_of(store, "small", SMALL), spec_of(), reader())
    next(batches)
    batches.close()
    wait_until(
        lambda: (
            not any(
                thread.name.startswith(("delta-sharing-fetch", "delta-sharing-decode"))
                for thread in threading.enumerate()
            )
        ),
        threading.enumerate,
    )


def test_a_second_load_uses_the_connections_of_the_first(store, reader):
    storage = reader(max_connections=4)
    for _ in range(3):
        assert len(numbers(read_batches(tasks_of(store, "small", SMALL), spec_of(), storage))) == 4000
    assert store.connections <= 4
