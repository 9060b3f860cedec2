"""Loads with faults: expired URLs, changed files, stalled stores, interruptions."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply, Request, file_reply
from loading_faults import TABLE, Share, expired, generation_of, parquet
from loading_tables import File, column, load_threads, write_table
from waiting import FOREVER, HANG, WallClock, wait_until, wait_until_asleep

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import DataError, StorageError, TableReplacedError, UrlExpiredError
from delta_sharing_client.server import SharingServer

COLUMNS = [column("id", "long"), column("noise", "long"), column("pad", "long")]
#: 3 row groups of 1.6 MB: read in ranges if only some columns are wanted.
PLAIN = {"compression": "none", "use_dictionary": False, "row_group_size": 70_000}
QUICK = {"backoff_base": timedelta(milliseconds=1), "backoff_cap": timedelta(milliseconds=2)}


def rows(first: int, count: int) -> pa.Table:
    ids = pa.array(range(first, first + count), pa.int64())
    return pa.table({"id": ids, "noise": ids, "pad": ids})


def large(first: int = 0) -> pa.Table:
    return rows(first, 200_000)


class TestExpiredUrls:
    def test_load_longer_than_the_urls_is_complete(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        """The first URLs last for three files; one more listing serves all that wait for it."""
        contents = {f"f{n}": rows(n * 10, 10) for n in range(24)}
        share = Share(faults, COLUMNS, contents)
        served: set[str] = set()
        lock = threading.Lock()

        def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
            with lock:
                if generation_of(request) == 1 and len(served) >= 3:
                    return expired(request)
                served.add(request.path)
            return healthy(request)

        share.serve_files_with(store)
        loaded = connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert loaded.equals(pa.concat_tables(contents.values()))
        assert len(faults.seen(f"{TABLE}/query")) == 2
        assert json.loads(faults.seen(f"{TABLE}/query")[1].body) == {"version": 7}

    def test_urls_expire_between_ranges(self, faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
        share = Share(faults, COLUMNS, {"f": large()}, **PLAIN)
        count = 0

        def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
            nonlocal count
            count += 1
            if generation_of(request) == 1 and count > 2:
                return expired(request)
            return healthy(request)

        share.serve_files_with(store)
        loaded = connect(faults, **QUICK).table("s.s.t").scan(columns=["noise"]).to_arrow()
        assert loaded.equals(large().select(["noise"]))
        assert all("range" in request.headers for request in share.file_requests)
        assert len(faults.seen(f"{TABLE}/query")) == 2

    def test_store_refusing_renewed_urls_raises(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        share = Share(faults, COLUMNS, {"f": rows(0, 10)})
        share.serve_files_with(lambda request, healthy: expired(request))
        with pytest.raises(UrlExpiredError, match="file f: its URL has expired"):
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert len(share.file_requests) == 3

    def test_file_no_longer_listed_raises(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        share = Share(faults, COLUMNS, {"f": rows(0, 10)})
        share.serve_files_with(lambda request, healthy: expired(request))
        faults.on("POST", f"{TABLE}/query", share.listing(["f"]), share.listing([]))
        with pytest.raises(
            StorageError, match=r"does not list the file any more.*is now at a later version than 7"
        ):
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()

    def test_file_of_another_table_raises(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        """The table was created again, at the same version, with a file of the same id."""
        share = Share(faults, COLUMNS, {"f": rows(0, 10)})
        share.serve_files_with(
            lambda request, healthy: expired(request) if generation_of(request) == 1 else healthy(request)
        )
        first = share.listing(["f"])
        again = share.listing(["f"])
        again = again.but(body=again.body.replace(b'"id": "x"', b'"id": "y"'))
        faults.on("POST", f"{TABLE}/query", first, again)
        with pytest.raises(TableReplacedError, match=r"its id was x, and is y.*Load it again") as caught:
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert (caught.value.expected, caught.value.actual, caught.value.version) == ("x", "y", 7)

    def test_with_the_embedded_server(
        self,
        tmp_path: Path,
        serve: Callable[..., SharingServer],
        connect: Callable[..., SharingClient],
        wall_clock: WallClock,
    ) -> None:
        """URLs that live 100 s and a reader that takes longer, with and without history to go back to."""
        files = [File(rows=rows(n * 10, 10), name=f"{n}.parquet", vector=[0, 9]) for n in range(6)]
        table = write_table(tmp_path / "t", COLUMNS, files, features=["deletionVectors"])
        for history in (True, False):
            server = serve({"s.s.t": table}, url_lifetime=timedelta(seconds=100), history=history)
            client = connect(server, max_connections=1, memory_budget=1)
            seen: list[int] = []
            for batch in client.table("s.s.t").scan(columns=["id"]).to_record_batch_reader():
                seen += batch["id"].to_pylist()
                wall_clock.advance(40)
            assert sorted(seen) == [n for n in range(60) if n % 10 not in (0, 9)]
            queries = [request for request in server.requests if request.path.endswith("/query")]
            assert len(queries) >= 2
            assert {request.status for request in queries} == {200}
            assert all("refreshToken" in request.body for request in queries[1:])
            assert {request.status for request in server.requests if request.is_file} <= {200, 206, 403}


class TestFilesThatChange:
    """Whatever comes back is of one state of a file, or an error."""

    def change_after(self, share: Share, requests: int, content: bytes) -> None:
        count = 0
        lock = threading.Lock()

        def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
            nonlocal count
            with lock:
                count += 1
                if count > requests and share.etags["f"] == '"v1"':
                    share.data["f"], share.etags["f"] = content, '"v2"'
            return file_reply(share.data["f"], etag=share.etags["f"])(request)

        share.serve_files_with(store)

    @pytest.mark.parametrize("after", [1, 2])
    def test_changed_file_is_read_again_before_its_first_row(
        self, faults: FaultServer, connect: Callable[..., SharingClient], after: int
    ) -> None:
        share = Share(faults, COLUMNS, {"f": large()}, **PLAIN)
        new = parquet(large(10**6), **PLAIN)
        assert len(new) == len(share.data["f"])
        self.change_after(share, after, new)
        frugal = connect(faults, memory_budget=1, max_connections=1, **QUICK)
        loaded = frugal.table("s.s.t").scan(columns=["noise"]).to_arrow()
        assert loaded.equals(large(10**6).select(["noise"]))

    def test_changed_file_after_its_first_row_raises(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        share = Share(faults, COLUMNS, {"f": large()}, **PLAIN)
        frugal = connect(faults, memory_budget=1, **QUICK)
        reader = frugal.table("s.s.t").scan(limit=199_999).to_record_batch_reader()
        first = reader.read_next_batch()
        assert first["id"][0].as_py() == 0
        self.change_after(share, 0, parquet(large(10**6), **PLAIN))
        with pytest.raises(StorageError, match="file f: the file changed while it was being read"):
            reader.read_all()

    def test_another_size_is_damaged_data(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        share = Share(faults, COLUMNS, {"f": rows(0, 10)})
        longer = share.data["f"] + b"x"
        share.serve_files_with(lambda request, healthy: Reply(body=longer))
        message = f"it has {len(longer)} bytes; the table's metadata has {len(longer) - 1}"
        with pytest.raises(DataError, match=message):
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()


class TestBrokenTransfers:
    def test_cut_reset_and_busy_stores_are_retried(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        contents = {f"f{n}": rows(n * 1000, 1000) for n in range(12)}
        share = Share(faults, COLUMNS, contents)
        tries: dict[str, int] = {}
        lock = threading.Lock()

        def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
            with lock:
                tries[request.path] = nth = tries.get(request.path, 0) + 1
            if nth > 1:
                return healthy(request)
            reply = healthy(request)
            number = int(request.path[7:])
            if number % 3 == 0:
                return reply.but(cut_at=len(reply.body) // 2)
            if number % 3 == 1:
                return reply.but(cut_at=len(reply.body) // 2, ending="reset")
            return Reply(status=503)

        share.serve_files_with(store)
        loaded = connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert loaded.equals(pa.concat_tables(contents.values()))
        assert set(tries.values()) == {2}

    def test_unreachable_store_raises_after_its_retries(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        share = Share(faults, COLUMNS, {f"f{n}": rows(n, 1) for n in range(200)})
        share.serve_files_with(lambda request, healthy: Reply(status=500))
        with pytest.raises(StorageError, match=r"file f\d+: the store answered 500 .*gave up after"):
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert len(share.file_requests) < 200
        wait_until(lambda: not load_threads(), load_threads)

    def test_a_store_without_ranges(self, faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
        share = Share(faults, COLUMNS, {"f": large()}, **PLAIN)
        share.serve_files_with(lambda request, healthy: Reply(body=share.data["f"]))
        loaded = connect(faults, **QUICK).table("s.s.t").scan(columns=["noise"]).to_arrow()
        assert loaded.equals(large().select(["noise"]))

    def test_failed_load_does_not_affect_other_loads(
        self, faults: FaultServer, connect: Callable[..., SharingClient]
    ) -> None:
        """One of two loads of a client fails and is broken off; the other gets its rows."""
        contents = {f"f{n}": rows(n * 100, 100) for n in range(20)}
        share = Share(faults, COLUMNS, contents)
        client = connect(faults, **QUICK)
        scan = client.table("s.s.t").scan()

        def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
            return healthy(request).but(delay=0.01)

        share.serve_files_with(store)
        with ThreadPoolExecutor(2) as pool:
            whole = pool.submit(scan.to_arrow)
            for _ in range(5):
                reader = scan.to_record_batch_reader()
                reader.read_next_batch()
                del reader
            assert whole.result().equals(pa.concat_tables(contents.values()))


CHILD = """
import sys, delta_sharing_client as ds
from datetime import timedelta
client = ds.SharingClient(sys.argv[1], options=ds.TransportOptions(read_timeout=timedelta(days=1)))
scan = client.table("s.s.t").scan()
print("ready", flush=True)
{load}
"""


@pytest.mark.parametrize(
    ("load", "stall"),
    [
        ("scan.to_pandas()", "files"),
        ("[batch for batch in scan.to_record_batch_reader()]", "bodies"),
        ("scan.to_arrow()", "query"),
        ("scan.table.mirror(sys.argv[1] + '.mirror').sync()", "files"),
        ("scan.table.mirror(sys.argv[1] + '.mirror').sync()", "bodies"),
        ("scan.materialize(sys.argv[1] + '.copy')", "bodies"),
    ],
)
def test_ctrl_c_ends_a_load_at_once(faults: FaultServer, tmp_path: Path, load: str, stall: str) -> None:
    """The process does not wait for the store, and ends with one short traceback."""
    share = Share(faults, COLUMNS, {f"f{n}": rows(n, 10) for n in range(60)})

    def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        reply = healthy(request)
        if request.path in ("/data/f0", "/data/f1"):
            return reply
        if stall == "bodies":
            return reply.but(cut_at=len(reply.body) // 2, ending="stall")
        return reply.but(delay=FOREVER)

    share.serve_files_with(store)
    if stall == "query":
        faults.on("POST", f"{TABLE}/query", Reply(delay=FOREVER))
    profile = tmp_path / "p.share"
    profile.write_text(json.dumps(faults.profile))
    profile.chmod(0o600)
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONFAULTHANDLER"}
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD.format(load=load), str(profile)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    try:
        arrived = (
            (lambda: faults.seen(f"{TABLE}/query")) if stall == "query" else (lambda: len(share.file_requests) > 9)
        )
        wait_until(lambda: arrived() or child.poll() is not None)
        assert child.poll() is None
        wait_until_asleep(child.pid)
        child.send_signal(signal.SIGINT)
        out, errors = child.communicate(timeout=HANG)
    finally:
        child.kill()
        child.wait()
    assert out == "ready\n"
    assert errors.rstrip().endswith("KeyboardInterrupt")
    assert errors.count("Traceback") == 1, errors
    assert len(errors.splitlines()) < 150, errors
    assert child.returncode in (-signal.SIGINT, 1, 130)


def test_an_interrupted_load_can_be_repeated(faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
    """What a consumer raises ends the load, and the client is as good as new."""
    contents = {f"f{n}": rows(n * 10, 10) for n in range(30)}
    share = Share(faults, COLUMNS, contents)
    client = connect(faults, **QUICK)

    class Interrupted(BaseException):
        pass

    def interrupt(*_: Any) -> None:
        raise Interrupted

    late = threading.Event()

    def store(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        if len(share.file_requests) <= 15:
            return healthy(request)
        late.set()
        return healthy(request).but(delay=FOREVER)

    def ring() -> None:
        # Not before the consumer waits: in a callback of the collector what a handler raises would be lost.
        if late.wait(HANG):
            wait_until_asleep(os.getpid())
            os.kill(os.getpid(), signal.SIGALRM)

    share.serve_files_with(store)
    previous = signal.signal(signal.SIGALRM, interrupt)
    alarm = threading.Thread(target=ring)
    alarm.start()
    try:
        with pytest.raises(Interrupted):
            client.table("s.s.t").scan().to_arrow(progress=False)
    finally:
        alarm.join()
        signal.signal(signal.SIGALRM, previous)
    wait_until(lambda: not load_threads(), load_threads)
    share.serve_files_with(lambda request, healthy: healthy(request))
    assert client.table("s.s.t").scan().to_arrow().equals(pa.concat_tables(contents.values()))


def test_a_closed_client_can_be_used_again(faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
    Share(faults, COLUMNS, {"f": rows(0, 10)})
    client = connect(faults, **QUICK)
    for _ in range(2):
        assert client.table("s.s.t").scan().to_arrow().num_rows == 10
        client.close()


def test_errors_are_those_of_the_package(faults: FaultServer, connect: Callable[..., SharingClient]) -> None:
    """A file that decodes to nonsense anywhere: never an exception of pyarrow's."""
    good = parquet(rows(0, 1000))
    footer = good[:-20] + b"\xff" * 12 + good[-8:]
    for damaged in (b"x", b"PAR1", b"\0" * len(good), good[:-4] + b"XXXX", footer):
        Share(faults, COLUMNS, {"f": damaged})
        with pytest.raises(DataError) as caught:
            connect(faults, **QUICK).table("s.s.t").scan().to_arrow()
        assert caught.value.file_id == "f"
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("checksums", [True, False])
def test_flipped_bits_raise_data_errors(
    faults: FaultServer, connect: Callable[..., SharingClient], checksums: bool
) -> None:
    """Where the writer stored page checksums every flip in a page is seen; elsewhere most are."""
    whole = rows(0, 1000)
    good = parquet(whole, write_page_checksum=checksums, compression="snappy")
    first = 4 + 200  # behind the header of the first page
    for position in range(first, first + 2000, 200):
        flipped = good[:position] + bytes([good[position] ^ 0x10]) + good[position + 1 :]
        Share(faults, COLUMNS, {"f": flipped})
        scan = connect(faults, **QUICK).table("s.s.t").scan()
        if checksums:
            with pytest.raises(DataError):
                scan.to_arrow()
            continue
        with contextlib.suppress(DataError):
            assert scan.to_arrow().num_rows == 1000
