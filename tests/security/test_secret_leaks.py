"""Canary tokens, signatures and refresh tokens must not appear in texts, logs, pickles or files."""

from __future__ import annotations

import gc
import logging
import pickle
import traceback
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.faulty_share import SIGNATURE, TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import FOREVER, NEVER

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.scan.url_renewal import UrlRenewer

#: The token of the scripted server's profile, and what its answers hold.
CANARIES = ("canary-token-7f3a", SIGNATURE, "canary-refresh")
QUICK = {
    "backoff_base": timedelta(milliseconds=1),
    "backoff_cap": timedelta(milliseconds=2),
    "api_attempts": 2,
    "storage_attempts": 2,
}
FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(4)]


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """What the whole process logs meanwhile, at DEBUG, with the records' parts."""
    texts: list[str] = []
    formatter = logging.Formatter("%(name)s %(message)s")

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            texts.append(f"{formatter.format(record)} {record.args!r} {record.msg!r} {record.exc_text!r}")

    root, handler = logging.getLogger(), Keep()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield texts
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


@pytest.fixture
def share() -> Iterator[FaultyShare]:
    with FaultServer() as server:
        yield FaultyShare(server=server, versions=[FILES[:2], FILES[1:4]], version=1, sends_expiration=False)


@pytest.fixture
def client(share: FaultyShare, request: pytest.FixtureRequest) -> Iterator[ds.SharingClient]:
    """A client that is in a hurry only where a fault is that nothing comes."""
    silent = hasattr(request.node, "callspec") and "silent" in request.node.callspec.params.get("name", "")
    options = TransportOptions(**QUICK, read_timeout=timedelta(seconds=0.5) if silent else NEVER)
    with ds.SharingClient(share.server.profile, options=options) as opened:
        yield opened


def clean(text: str) -> None:
    found = [canary for canary in CANARIES if canary in text]
    assert not found, f"{found} in {text[:2000]}"


def shown(error: BaseException) -> str:
    """All that an error shows, its pickle included."""
    dumped = pickle.dumps(error)
    parts = [
        str(error),
        repr(error),
        repr(error.args),
        repr(vars(error)),
        repr(dumped),
        repr(pickle.loads(dumped)),
    ]
    return "\n".join([*parts, *traceback.format_exception(error)])


def on_disk(folder: Path) -> str:
    return "\n".join(
        f"{path} {path.read_bytes()!r}" if path.is_file() else str(path) for path in folder.rglob("*")
    )


def test_canaries_are_present_in_the_sources(share: FaultyShare, client: ds.SharingClient) -> None:
    """What the other tests search for does travel: in headers, in URLs, in answers."""
    plan = client.table("s.s.t").scan().plan()
    assert plan.end is not None
    assert plan.end.refresh_token == "canary-refresh-1"
    assert SIGNATURE in plan.tasks[0].url.reveal()
    assert share.server.requests[0].headers["authorization"] == "Bearer canary-token-7f3a"


def test_loads_with_renewals_leak_no_canary(
    share: FaultyShare, client: ds.SharingClient, logged: list[str], tmp_path: Path
) -> None:
    """Every way to read, through expired URLs and refused refresh tokens; then logs and disk are searched."""
    slow = {"first": True}

    def store(request: Request, reply: Reply) -> Reply:
        if request.path.startswith("/data/") and slow.pop("first", False):
            return Reply(
                status=403, body=f"<Error><Message>Request has expired {SIGNATURE}</Message></Error>".encode()
            )
        if b"refreshToken" in request.body and len(share.server.requests) % 2:
            return Reply.of_json({"errorCode": "X", "message": request.body.decode()}, status=400)
        return reply

    share.fault = store
    table = client.table("s.s.t")
    for load in (
        lambda: table.scan().to_pandas(),
        lambda: table.scan(filters=[("id", ">", 3)]).to_arrow(),
        lambda: table.changes(0).to_pandas(),
        lambda: table.mirror(tmp_path / "mirror").sync(),
        lambda: table.scan().materialize(tmp_path / "copy"),
        lambda: table.scan().to_polars(),
    ):
        slow["first"] = True
        load()
        assert not slow
    poller = table.poll_changes(checkpoint=tmp_path / "checkpoint.json", starting_version=0)
    batch = poller.pull()
    assert batch is not None
    batch.commit()
    assert "\n".join(logged).count("delta_sharing_client") > 10
    clean("\n".join(logged))
    clean(on_disk(tmp_path))
    assert (tmp_path / "checkpoint.json").exists()


def test_reprs_leak_no_canary(share: FaultyShare, client: ds.SharingClient, tmp_path: Path) -> None:
    table = client.table("s.s.t")
    scan, changes = table.scan(limit=5), table.changes(0)
    plan = scan.plan()
    poller = table.poll_changes(checkpoint=tmp_path / "checkpoint.json", starting_version=0)
    mirror = table.mirror(tmp_path / "mirror")
    things: list[Any] = [
        client,
        client.profile,
        client._rest,
        client._storage,
        table,
        scan,
        changes,
        changes.plan(),
        plan,
        plan.end,
        plan.request,
        plan.tasks,
        UrlRenewer(client._rest, plan.table, plan),
        poller,
        poller.pull(),
        mirror,
        mirror.sync(),
        mirror.verify(),
        scan.to_record_batch_reader(),
    ]
    for thing in things:
        html = thing._repr_html_() if hasattr(thing, "_repr_html_") else ""
        clean(f"{thing!r} {thing} {html} {[thing]!r}")
    clean(scan.explain())


#: What a server can repeat of what it was sent, and what a store can.
ECHO = f"{CANARIES[0]} https://x.example/f?X-Amz-Signature={SIGNATURE}"
STORE_ECHO = f"the signature {SIGNATURE} of https://x.example/f?X-Amz-Signature={SIGNATURE} is wrong"
FAULTS: dict[str, tuple[str, Reply]] = {
    "server 400": (TABLE, Reply.of_json({"errorCode": "BAD", "message": ECHO}, status=400)),
    "server 401": (TABLE, Reply.of_json({"errorCode": ECHO, "message": ECHO}, status=401)),
    "server 503": (TABLE, Reply.of_json({"errorCode": "BUSY", "message": ECHO}, status=503)),
    "server html": (TABLE, Reply(status=502, body=f"<html><b>{ECHO}</b></html>".encode())),
    "server not json": (TABLE, Reply(body=ECHO.encode())),
    "server late error": (TABLE, Reply.of_lines({"endStreamAction": {"errorMessage": ECHO}})),
    "server elsewhere": (TABLE, Reply(status=302, headers={"Location": f"https://else.example/?x={SIGNATURE}"})),
    "server silent": (TABLE, Reply(delay=FOREVER)),
    "store 403": ("/data/", Reply(status=403, body=f"<Error><Message>{STORE_ECHO}</Message></Error>".encode())),
    "store 404": ("/data/", Reply(status=404, body=STORE_ECHO.encode())),
    "store 500": ("/data/", Reply(status=500, body=STORE_ECHO.encode())),
    "store elsewhere": ("/data/", Reply(status=307, headers={"Location": f"file:///x?sig={SIGNATURE}"})),
    "store dropped": ("/data/", Reply(drop=True)),
    "store garbage": ("/data/", Reply(raw=b"HTTP/9 what?\r\n\r\n" + STORE_ECHO.encode())),
    "store silent": ("/data/", Reply(delay=FOREVER)),
    "store other bytes": ("/data/", Reply(body=STORE_ECHO.encode())),
}


@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("how", ["load", "changes", "mirror"])
def test_errors_leak_no_canary(
    share: FaultyShare, client: ds.SharingClient, logged: list[str], tmp_path: Path, name: str, how: str
) -> None:
    where, faulty_reply = FAULTS[name]
    share.fault = lambda request, reply: faulty_reply if request.path.startswith(where) else reply
    table = client.table("s.s.t")
    loads = {
        "load": lambda: table.scan().to_pandas(),
        "changes": lambda: table.changes(0).to_arrow(),
        "mirror": lambda: table.mirror(tmp_path / "m").sync(),
    }
    with pytest.raises(DeltaSharingError) as caught:
        loads[how]()
    clean(shown(caught.value))
    clean("\n".join(logged))
    clean(on_disk(tmp_path))
    gc.collect()


def test_tasks_and_plans_hold_no_token(share: FaultyShare, client: ds.SharingClient) -> None:
    """What may be pickled and sent elsewhere has URLs at the most, and nothing that may is the credential."""
    plan = client.table("s.s.t").scan().plan()
    assert b"canary-token" not in pickle.dumps((plan.tasks, plan.spec, plan.request))
    for thing in (client.profile, client.table("s.s.t"), client.table("s.s.t").scan()):
        with pytest.raises(TypeError):
            pickle.dumps(thing)


def test_duckdb_errors_leak_no_canary(share: FaultyShare, client: ds.SharingClient) -> None:
    """DuckDB wraps our error in its own."""
    duckdb = pytest.importorskip("duckdb")
    share.fault = lambda request, reply: FAULTS["store 403"][1] if request.path.startswith("/data/") else reply
    relation = client.table("s.s.t").scan().to_duckdb(duckdb.connect())
    with pytest.raises(Exception, match="403") as caught:
        relation.fetchall()
    clean("\n".join([str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]))


def test_failing_reader_leaks_no_canary(share: FaultyShare, client: ds.SharingClient) -> None:
    share.fault = lambda request, reply: FAULTS["store 500"][1] if request.path == "/data/f3" else reply
    reader = client.table("s.s.t").scan().to_record_batch_reader()
    with pytest.raises((DeltaSharingError, pa.ArrowException, OSError)) as caught:
        reader.read_all()
    clean("\n".join([str(caught.value), repr(caught.value), *traceback.format_exception(caught.value)]))
