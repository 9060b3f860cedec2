"""The gateway without Spark: its protocol, its cache, what it reads ahead, and its end."""

from __future__ import annotations

import http.client
import io
import itertools
import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from waiting import HANG, run_program, wait_for_rest, wait_until

sys.path.append(str(Path(__file__).parents[1] / "faults"))

from server import FaultServer, Reply, Request

from delta_sharing_client import TransportOptions
from delta_sharing_client.errors import DataError, SparkError, StorageError
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.spark import gateway as gateways
from delta_sharing_client.spark.gateway import LOOPBACK, Gateway
from delta_sharing_client.spark.gateway_files import PIECE, Layout, PlanFiles, RangeCache
from delta_sharing_client.storage.byte_source import Transfers
from delta_sharing_client.storage.download import DownloadReader
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.storage_transport import StorageTransport

OPTIONS = TransportOptions(storage_attempts=2)
COLUMNS = 5
GROUPS = 4


class Context:
    """A Spark context, as far as a gateway looks at one."""

    _jsc: object = object()


class Java:
    """A weak reference of Java."""

    gone = False

    def refersTo(self, value: object) -> bool:
        return self.gone


def parquet(rows: int = 40_000, groups: int = GROUPS) -> bytes:
    table = pa.table(
        {f"c{n}": pa.array([(i * 7919 + n) % 1_000_003 for i in range(rows)]) for n in range(COLUMNS)}
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=rows // groups, compression="none", use_dictionary=False)
    return sink.getvalue()


CONTENT = parquet()


def ranged(content: bytes, etag: str = '"1"') -> Callable[[Request], Reply]:
    def reply(request: Request) -> Reply:
        first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
        headers = {"Content-Range": f"bytes {first}-{last}/{len(content)}", "ETag": etag}
        return Reply(status=206, headers=headers, body=content[first : last + 1])

    return reply


@pytest.fixture
def store() -> Iterator[FaultServer]:
    with FaultServer() as server:
        server.on("GET", "*", ranged(CONTENT))
        yield server


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    context = Context()
    opened = Gateway(context, LOOPBACK, OPTIONS)  # type: ignore[arg-type]
    yield opened
    assert context
    opened.close()


def serve(gateway: Gateway, store: FaultServer, files: int = 1) -> tuple[str, PlanFiles]:
    """Open a plan of equal files in one folder; return its path and state."""
    tasks = [
        (FileScanTask(SecretUrl(f"{store.url}/{n}?X-Amz-Signature=abc"), f"f{n}", len(CONTENT)), "p=a%20b/")
        for n in range(files)
    ]
    transfers = Transfers(None, Cancellation(), None)
    key, plan = gateway.open(
        tasks, DownloadReader(StorageTransport(OPTIONS, endpoint_is_loopback=True), OPTIONS), transfers
    )
    group = plan.add_group(plan.files)
    return "/webhdfs/v1" + gateway.folder("s.d.t", key, group).partition(str(gateway.port))[2], plan


def ask(gateway: Gateway, path: str, method: str = "GET", *, secret: bool = True) -> tuple[int, Any, bytes]:
    connection = http.client.HTTPConnection(gateway.host, gateway.port, timeout=HANG)
    try:
        connection.request(method, path, headers={gateway._header: '""'} if secret else {})
        response = connection.getresponse()
        return response.status, response.headers, response.read()
    finally:
        connection.close()


def file_path(plan: PlanFiles, folder: str, number: int = 0) -> str:
    return f"{folder}/p=a%20b/{plan.name_of(plan.files[number])}"


def chunks() -> list[tuple[int, int, int, int]]:
    """Start, end, row group and column of each chunk of the content."""
    metadata = pq.read_metadata(io.BytesIO(CONTENT))
    found = []
    for group in range(GROUPS):
        for number in range(COLUMNS):
            chunk = metadata.row_group(group).column(number)
            found.append((chunk.data_page_offset, chunk.total_compressed_size, group, number))
    return found


def read_chunk(gateway: Gateway, path: str, start: int, size: int) -> bytes:
    """Read as Spark does: open at an offset, read, close the connection."""
    connection = socket.create_connection((gateway.host, gateway.port), HANG)
    with connection, connection.makefile("rb") as reader:
        target = f"{path}?op=OPEN&redirected=true&offset={start}"
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: x\r\n{gateway._header}: x\r\n\r\n".encode())
        assert b" 200 " in reader.readline()
        while reader.readline() != b"\r\n":
            pass
        return reader.read(size)


def fetched(store: FaultServer) -> set[int]:
    """The columns and row groups of which a part was requested, as indices of `chunks`."""
    found = set()
    for request in store.requests:
        first, last = map(int, request.headers["range"].removeprefix("bytes=").split("-"))
        found |= {i for i, (start, size, _, _) in enumerate(chunks()) if first < start + size and last >= start}
    return found


# -- protocol


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that reads on is not waited for."""
    monkeypatch.setattr("delta_sharing_client.spark.webhdfs._HANG_UP", 0.0)


@pytest.mark.usefixtures("impatient")
def test_a_file_is_listed_and_read(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store)
    status, headers, body = ask(gateway, f"{folder}?op=LISTSTATUS&user.name=me")
    assert (status, headers["Content-Type"]) == (200, None)
    (listed,) = json.loads(body)["FileStatuses"]["FileStatus"]
    name = plan.name_of(plan.files[0])
    assert (listed["pathSuffix"], listed["length"], listed["type"]) == (f"p=a%20b/{name}", len(CONTENT), "FILE")
    assert json.loads(ask(gateway, f"{folder}?op=GETFILESTATUS")[2])["FileStatus"]["type"] == "DIRECTORY"
    path = file_path(plan, folder)
    assert json.loads(ask(gateway, f"{path}?op=GETFILESTATUS")[2])["FileStatus"]["length"] == len(CONTENT)
    status, headers, _ = ask(gateway, f"{path}?op=OPEN&buffersize=1")
    assert status == 307
    assert headers["Location"].startswith(f"http://{LOOPBACK}:{gateway.port}/webhdfs/v1/delta-sharing/s.d.t/")
    for start, length in ((0, None), (5, 100), (len(CONTENT) - 8, None), (3, 300_000), (len(CONTENT), None)):
        query = f"op=OPEN&redirected=true&offset={start}" + ("" if length is None else f"&length={length}")
        stop = None if length is None else start + length
        assert ask(gateway, f"{path}?{query}")[2] == CONTENT[start:stop]


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE", "HEAD", "OPTIONS"])
def test_nothing_can_be_written(gateway: Gateway, store: FaultServer, method: str) -> None:
    folder, plan = serve(gateway, store)
    assert ask(gateway, f"{file_path(plan, folder)}?op=CREATE", method)[0] == 501
    assert ask(gateway, f"{file_path(plan, folder)}?op=CREATE")[0] == 400


def test_requests_without_the_secret_are_refused(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store)
    for query in ("op=LISTSTATUS", "op=OPEN", "op=OPEN&redirected=true"):
        status, _, body = ask(gateway, f"{file_path(plan, folder)}?{query}", secret=False)
        assert (status, gateway._header.encode() in body) == (403, False)
    assert gateway.host == "127.0.0.1"


@pytest.mark.usefixtures("impatient")
def test_only_files_of_open_plans_are_served(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store)
    path = f"{file_path(plan, folder)}?op=OPEN&redirected=true"
    for other in ("/webhdfs/v1/", "/webhdfs/v1/etc/passwd", f"{folder}/no.parquet", f"{folder}/_spark_metadata"):
        assert ask(gateway, f"{other}?op=GETFILESTATUS")[0] == 404
    assert ask(gateway, path)[0] == 200
    gateway.drop(folder.split("/")[-2])
    status, _, body = ask(gateway, path)
    assert status == 404
    assert "load it again" in json.loads(body)["RemoteException"]["message"]
    assert gateway.cache.size == 0


def test_a_refusal_of_the_store_names_the_file_and_no_signature(gateway: Gateway, store: FaultServer) -> None:
    store.on("GET", "*", Reply(status=404, body=b"no such key ?X-Amz-Signature=abc"))
    folder, plan = serve(gateway, store)
    status, _, body = ask(gateway, f"{file_path(plan, folder)}?op=OPEN&redirected=true")
    assert status == 500
    message = json.loads(body)["RemoteException"]["message"]
    assert message.startswith("FileGoneError: file f0: ")
    assert "abc" not in message


@pytest.mark.usefixtures("impatient")
def test_a_store_that_fails_within_a_file_closes_the_connection(gateway: Gateway, store: FaultServer) -> None:
    """The client asks for the rest then, and gets the error."""
    whole = ranged(CONTENT)
    second = chunks()[1][0]

    def reply(request: Request) -> Reply:
        first = int(request.headers["range"].removeprefix("bytes=").split("-")[0])
        return whole(request) if first != second else Reply(status=403)

    store.on("GET", "*", reply)
    folder, plan = serve(gateway, store)
    path = f"{file_path(plan, folder)}?op=OPEN&redirected=true"
    with pytest.raises(http.client.IncompleteRead):
        ask(gateway, path)
    assert ask(gateway, f"{path}&offset={second}")[0] == 500


def change(store: FaultServer, content: bytes) -> None:
    """Replace the files of the store."""
    changed, old = ranged(content, etag='"2"'), {"if-match": '"1"'}.items()
    store.on("GET", "*", lambda request: Reply(status=412) if old <= request.headers.items() else changed(request))


def test_a_file_that_changes_is_not_mixed(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store)
    start, size, _, _ = chunks()[0]
    path = file_path(plan, folder)
    assert read_chunk(gateway, path, start, size) == CONTENT[start : start + size]
    change(store, CONTENT)
    for chunk in (7, 12, 7):  # also those that are requested ahead
        with pytest.raises(StorageError, match="file f0: the file changed while Spark was reading it"):
            list(plan.files[0].read(chunks()[chunk][0]))
    assert b"".join(plan.files[0].read(len(CONTENT) - 8)) == CONTENT[-8:]  # the next reader reads the footer again
    assert b"".join(plan.files[0].read(chunks()[7][0]))


def test_a_footer_fetched_before_a_change_is_not_used_after_it(
    gateway: Gateway, store: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another reader has noticed the change meanwhile, and a third one has begun again."""
    _, plan = serve(gateway, store)
    file = plan.files[0]
    fetched, go = threading.Event(), threading.Event()
    fetch = file.fetch

    def fetch_slowly(start: int, stop: int) -> memoryview:
        data = fetch(start, stop)
        fetched.set()
        assert go.wait(HANG)
        return data

    with ThreadPoolExecutor(1) as pool:
        with monkeypatch.context() as patched:
            patched.setattr(file, "fetch", fetch_slowly)
            slow = pool.submit(file.layout)
            assert fetched.wait(HANG)
        file.footer()
        other = parquet(groups=GROUPS - 1)
        other = other[:4] + bytes(len(CONTENT) - len(other)) + other[4:]
        change(store, other)
        with pytest.raises(StorageError, match="file f0: the file changed"):
            list(file.read(chunks()[7][0]))
        assert b"".join(file.read(len(CONTENT) - 8)) == other[-8:]
        go.set()
        with pytest.raises(StorageError, match="file f0: the file changed"):
            slow.result(HANG)
    assert set(file.layout().groups) == set(range(GROUPS - 1))
    assert file.footer() == other[len(other) - len(file.footer()) :]


def test_a_reader_gets_no_content_of_after_a_change(
    gateway: Gateway, store: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a column chunk while another reader notices the change, and a third one begins again."""
    monkeypatch.setattr("delta_sharing_client.spark.gateway_files.PIECE", 1000)
    _, plan = serve(gateway, store)
    file, (start, size, _, _) = plan.files[0], chunks()[7]
    reader = file.read(start)
    assert next(reader) == CONTENT[start : start + 1000]
    change(store, CONTENT[:start] + bytes(size) + CONTENT[start + size :])
    with pytest.raises(StorageError, match="file f0: the file changed"):
        list(file.read(chunks()[12][0]))
    assert b"".join(file.read(len(CONTENT) - 8)) == CONTENT[-8:]
    with pytest.raises(StorageError, match="file f0: the file changed"):
        list(reader)
    assert b"".join(file.read(start)) == bytes(size)


def test_an_address_that_the_machine_lacks_is_an_error() -> None:
    with pytest.raises(SparkError, match=r"cannot listen on 192\.0\.2\.1 .*spark\.delta\.sharing\.gateway\.host"):
        Gateway(Context(), "192.0.2.1", OPTIONS)  # type: ignore[arg-type]


# -- what is fetched


def test_one_column_is_fetched_and_no_other(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store, files=3)
    for number in range(3):
        plan.files[number].footer()
        for start, size, _, column in chunks():
            if column == 2:
                got = read_chunk(gateway, file_path(plan, folder, number), start, size)
                assert got == CONTENT[start : start + size]
    wait_for_rest(lambda: len(store.requests))
    tail = {i for i, (start, size, _, _) in enumerate(chunks()) if start + size > len(CONTENT) - 65536}
    assert {chunks()[i][3] for i in fetched(store) - tail} == {2}


def test_the_columns_of_a_query_are_read_ahead(gateway: Gateway, store: FaultServer) -> None:
    """Two columns of some row groups have been read: both are fetched of the next one before a request."""
    folder, plan = serve(gateway, store)
    layout = chunks()
    for group in range(3):
        for column in (1, 3):
            start, size, _, _ = layout[group * COLUMNS + column]
            read_chunk(gateway, file_path(plan, folder), start, size)
    wait_until(lambda: {3 * COLUMNS + 1, 3 * COLUMNS + 3} <= fetched(store))
    store.requests.clear()
    for column in (1, 3):
        start, size, _, _ = layout[3 * COLUMNS + column]
        read_chunk(gateway, file_path(plan, folder), start, size)
    assert not store.requests


def test_the_columns_of_a_complete_row_group_are_those_of_the_next(gateway: Gateway, store: FaultServer) -> None:
    """Three neighbours may be all columns of a query, or the beginning of all: it is known after a row group."""
    folder, plan = serve(gateway, store)
    plan.files[0].footer()
    for number in (0, 1, 2, COLUMNS, COLUMNS + 1, COLUMNS + 2):
        start, size, _, _ = chunks()[number]
        read_chunk(gateway, file_path(plan, folder), start, size)
    wait_for_rest(lambda: len(store.requests))
    tail = {i for i, (start, size, _, _) in enumerate(chunks()) if start + size > len(CONTENT) - 65536}
    assert {i % COLUMNS for i in fetched(store) - tail if i >= COLUMNS} == {0, 1, 2}


@pytest.mark.parametrize("group", [0, 1])
def test_the_first_column_of_a_query_is_read_ahead_unless_a_row_group_was_skipped(
    gateway: Gateway, store: FaultServer, group: int
) -> None:
    folder, plan = serve(gateway, store)
    plan.files[0].footer()
    store.requests.clear()
    first = group * COLUMNS + 1
    start, size, _, _ = chunks()[first]
    read_chunk(gateway, file_path(plan, folder), start, size)
    expected = {first} if group else {first + n * COLUMNS for n in range(GROUPS)}
    wait_until(lambda: expected <= fetched(store))
    wait_for_rest(lambda: len(store.requests))
    assert fetched(store) == expected


def test_a_large_column_is_not_read_ahead_before_a_row_group_is_complete(
    gateway: Gateway, store: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_sharing_client.spark.gateway_files._GUESSED_BYTES", chunks()[1][1] - 1)
    folder, plan = serve(gateway, store)
    plan.files[0].footer()
    store.requests.clear()
    start, size, _, _ = chunks()[1]
    read_chunk(gateway, file_path(plan, folder), start, size)
    wait_for_rest(lambda: len(store.requests))
    assert fetched(store) == {1}


def test_the_same_query_again_requests_nothing(gateway: Gateway, store: FaultServer) -> None:
    folder, plan = serve(gateway, store)
    for _ in range(2):
        store.requests.clear()
        for start, size, _, _ in chunks():
            read_chunk(gateway, file_path(plan, folder), start, size)
    assert not store.requests


def test_footers_beyond_the_limit_are_fetched_again(
    gateway: Gateway, store: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("delta_sharing_client.spark.gateway_files._FOOTERS", 100_000)
    _, plan = serve(gateway, store, files=3)
    for _ in range(2):
        for file in plan.files:
            file.footer()
    assert len(store.requests) == 6
    plan.files[2].footer()
    assert len(store.requests) == 6


class Memory:
    """A file in memory that counts what is fetched; `wait` holds the fetches."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.state = (self, "first")
        self.fetches: list[tuple[int, int]] = []
        self.error: Exception | None = None
        self.wait = threading.Event()
        self.wait.set()

    def fetch(self, start: int, stop: int) -> memoryview:
        self.fetches.append((start, stop))
        assert self.wait.wait(HANG)
        if self.error is not None:
            raise self.error
        return memoryview(self.content)[start:stop]


def test_the_cache_keeps_within_its_budget() -> None:
    file = Memory(bytes(range(100)))
    cache = RangeCache(30, 2)
    cache.request(file, [(n, n + 10) for n in range(0, 100, 10)], ahead=True)
    assert cache.size == 30
    for start in range(0, 100, 10):  # what a reader waits for is fetched in any case
        assert bytes(cache.get(file, (start, start + 10))) == file.content[start : start + 10]
        assert cache.size <= 30
    cache.forget(file)
    assert cache.size == 0


def test_neighbours_are_one_request_and_waiting_readers_share_it() -> None:
    file = Memory(bytes(3 * PIECE))
    cache = RangeCache(4 * PIECE, 2)
    file.wait.clear()
    with ThreadPoolExecutor(4) as pool:
        pieces = [(0, 100), (100, 300), (PIECE, 2 * PIECE)]
        cache.request(file, pieces, ahead=False)
        got = [pool.submit(cache.get, file, piece) for piece in pieces[:2] * 2]
        file.wait.set()
        assert [len(each.result(HANG)) for each in got] == [100, 200, 100, 200]
    assert sorted(file.fetches) == [(0, 300), (PIECE, 2 * PIECE)]


def test_a_failed_fetch_reaches_each_reader_and_is_tried_again() -> None:
    file = Memory(bytes(100))
    cache = RangeCache(100, 1)
    file.error = StorageError("it is gone")
    with pytest.raises(StorageError, match="it is gone"):
        cache.get(file, (0, 10))
    assert cache.size == 0
    file.error = None
    assert len(cache.get(file, (0, 10))) == 10


def test_wrong_footers_have_no_more_chunks_than_fit() -> None:
    footer = memoryview(CONTENT)
    right = Layout(footer, len(CONTENT) - 100)
    assert len(right.starts) == COLUMNS * GROUPS
    assert [right.chunk_at(start) for start, _, _, _ in chunks()] == list(range(COLUMNS * GROUPS))
    wrong = Layout(footer, chunks()[3][0])
    assert len(wrong.starts) == 3
    for layout, size in ((right, len(CONTENT) - 100), (wrong, chunks()[3][0]), (Layout(memoryview(b""), 99), 99)):
        pieces = list(layout.pieces(0, size))
        assert pieces[0][0] == 0
        assert pieces[-1][1] == size
        assert all(one[1] == other[0] for one, other in itertools.pairwise(pieces))


@pytest.mark.parametrize("end", [b"PAR0", b"\xff\xff\xff\x7fPAR1"])
def test_a_file_that_does_not_end_as_parquet_is_an_error(gateway: Gateway, store: FaultServer, end: bytes) -> None:
    store.on("GET", "*", ranged(CONTENT[: -len(end)] + end))
    _, plan = serve(gateway, store)
    with pytest.raises(DataError, match="does not end as one does"):
        plan.files[0].footer()


# -- its end


def test_plans_without_dataframes_are_dropped(
    gateway: Gateway, store: FaultServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, plan = serve(gateway, store)
    key = folder.split("/")[-2]
    java = Java()
    gateway._plans[key].relations.append(java)
    monkeypatch.setattr(gateways, "LINGER", -1.0)
    serve(gateway, store)
    assert gateway.plan(key) is plan
    java.gone = True
    serve(gateway, store)
    assert gateway.plan(key) is None
    assert plan.transfers.cancelled is not None
    assert plan.transfers.cancelled.is_set()


@pytest.mark.parametrize("how", ["the session stops", "the gateway closes", "the session is gone"])
def test_the_gateway_ends_with_its_session(store: FaultServer, how: str) -> None:
    context: Any = Context()
    gateway = Gateway(context, LOOPBACK, OPTIONS)
    _, plan = serve(gateway, store)
    if how == "the session stops":
        context._jsc = None
    elif how == "the gateway closes":
        gateway.close()
    else:
        del context

    def refuses() -> bool:
        try:
            socket.create_connection((gateway.host, gateway.port), HANG).close()
        except ConnectionRefusedError:
            return True
        return False

    wait_until(refuses)
    cancelled = plan.transfers.cancelled
    assert cancelled is not None
    wait_until(cancelled.is_set)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_does_not_listen(store: FaultServer, monkeypatch: pytest.MonkeyPatch) -> None:
    context: Any = Context()
    gateway = gateways.gateway_of(context, LOOPBACK, OPTIONS)
    assert gateways.gateway_of(context, LOOPBACK, OPTIONS) is gateway
    folder, plan = serve(gateway, store)
    child = os.fork()
    if not child:
        other = gateways.gateway_of(context, LOOPBACK, OPTIONS)
        os._exit(0 if gateway._server.socket.fileno() == -1 and other is not gateway else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ask(gateway, f"{file_path(plan, folder)}?op=OPEN&redirected=true&length=9")[2] == CONTENT[:9]
    with pytest.raises(SparkError, match=r"listens on 127\.0\.0\.1 already"):
        gateways.gateway_of(context, "127.0.0.2", OPTIONS)
    gateway.close()


EXIT = """
import sys, threading
sys.path[:0] = sys.argv[2:]
import test_gateway as tests
from server import FaultServer, Reply

store = FaultServer().__enter__()
store.on("GET", "*", Reply(body=b"x", cut_at=0, ending="stall"))
context = tests.Context()
gateway = tests.Gateway(context, tests.LOOPBACK, tests.OPTIONS)
folder, plan = tests.serve(gateway, store)
path = tests.file_path(plan, folder) + "?op=OPEN&redirected=true"
threading.Thread(target=tests.ask, args=(gateway, path), daemon=True).start()
gateway.cache.request(plan.files[0], [(0, 10)], ahead=False)
tests.wait_until(lambda: len(store.requests) >= 2)
print("leaving")
sys.stdout.flush()
"""


def test_a_process_ends_although_a_store_hangs(tmp_path: Path) -> None:
    script = tmp_path / "leave.py"
    script.write_text(EXIT)
    here = Path(__file__).parent
    done = run_program([sys.executable, script, "x", here, here.parent, here.parent / "faults"])
    assert (done.stdout, done.returncode) == ("leaving\n", 0), done.stderr


def test_a_plan_of_a_closed_gateway_cannot_be_held(gateway: Gateway) -> None:
    class Frame:
        """A DataFrame, as far as a gateway looks at one."""

        def __getattr__(self, name: str) -> Any:
            return self

        def __call__(self, *_: object) -> Any:
            return self

    gateway.close()
    with pytest.raises(SparkError, match="load the table again"):
        gateway.hold("0", Frame())


def test_a_spark_that_hides_its_files_is_an_error_with_the_other_engine(gateway: Gateway) -> None:
    class Frame:
        sparkSession = None

    with pytest.raises(SparkError, match="use engine='arrow'"):
        gateway.hold("0", Frame())
