"""Logs, representations, pickles and errors contain no token and no signature."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from faults.server import FaultServer, Reply, Request
from loading_faults import SIGNATURE, TABLE, Share, expired
from loading_tables import File, column, write_table

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import AuthenticationError, DeltaSharingError
from delta_sharing_client.server import SharingServer

TOKEN = "canary-token-7f3a"
COLUMNS = [column("id", "long"), column("p", "string")]
QUICK = {
    "backoff_base": timedelta(milliseconds=1),
    "backoff_cap": timedelta(milliseconds=2),
    "api_attempts": 2,
    "storage_attempts": 2,
}


@pytest.fixture
def logged() -> Iterator[list[logging.LogRecord]]:
    """Every record of the process at DEBUG, urllib3's own among them."""
    records: list[logging.LogRecord] = []

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            records.append(record)

    root = logging.getLogger()
    handler, level = Keep(), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield records
    finally:
        root.setLevel(level)
        root.removeHandler(handler)


def shown(error: BaseException) -> str:
    """All that an error shows: its text, its parts, its traceback with causes, itself after a pickle."""
    copy = pickle.loads(pickle.dumps(error))
    parts = [str(error), repr(error), repr(error.args), repr(vars(error)), str(copy), repr(vars(copy))]
    return "\n".join([*parts, *traceback.format_exception(error)])


def texts(records: list[logging.LogRecord]) -> str:
    formatter = logging.Formatter("%(name)s %(message)s")
    return "\n".join([formatter.format(r) + repr(r.args) + repr(r.msg) for r in records])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]) -> SharingServer:
    files = [
        File(rows=pa.table({"id": [n]}), name=f"{n}.parquet", values={"p": "x"}, vector=[0] if n == 1 else None)
        for n in range(3)
    ]
    root = tmp_path_factory.mktemp("secrets") / "t"
    table = write_table(root, COLUMNS, files, partitions=["p"], features=["deletionVectors"])
    return serve({"s.s.t": table}, token=TOKEN, max_files_per_page=1, page_size=1)


def signatures(client: SharingClient) -> set[str]:
    found = set()
    for task in client.table("s.s.t").scan().files():
        urls = [task.url] + ([task.deletion_vector.path_or_inline] if task.deletion_vector else [])
        found |= {parse_qs(urlsplit(url.reveal()).query)["X-Amz-Signature"][0] for url in urls}
    assert len(found) == 4
    assert all(len(signature) > 30 for signature in found)
    return found


def test_a_load_logs_no_secret(
    server: SharingServer, connect: Callable[..., SharingClient], logged: list[logging.LogRecord]
) -> None:
    client = connect(server)
    client.list_all_tables()
    scan = client.table("s.s.t").scan(filters=[("p", "=", "x")])
    assert scan.to_pandas().shape == (2, 2)
    client.table("s.s.t").metadata()
    reader = scan.to_record_batch_reader()
    reader.read_next_batch()
    del reader
    secrets = signatures(client)
    text = texts(logged)
    assert "urllib3.connectionpool" in text
    assert "/files/" in text
    assert "delta_sharing_client.transport" in text
    assert TOKEN not in text
    assert "Signature" not in text
    assert not [secret for secret in secrets if secret in text]


def test_logs_of_other_requests_are_unchanged(
    server: SharingServer, connect: Callable[..., SharingClient], logged: list[logging.LogRecord]
) -> None:
    import urllib3

    connect(server).list_shares()
    pool = urllib3.PoolManager()
    pool.request("GET", f"{server.endpoint}/shares?other=query")
    pool.clear()
    assert "other=query" in texts(logged)


@pytest.mark.filterwarnings("ignore::delta_sharing_client.expressions.hint_check.PredicateHintWarning")
def test_reprs_and_pickles_hold_no_secret(server: SharingServer, connect: Callable[..., SharingClient]) -> None:
    client = connect(server)
    table = client.table("s.s.t")
    scan = table.scan(json_predicate_hints='{"op":"isNull"}')
    plan = scan.plan()
    things = [
        client,
        client.profile,
        client.profile.credential,
        client.list_shares(),
        client.list_all_tables(),
        table,
        table.metadata(),
        table.protocol(),
        scan,
        plan,
        plan.tasks,
        plan.request,
        plan.tasks[0].deletion_vector,
        scan.files(),
        client._rest,
        client._storage,
    ]
    secrets = {TOKEN, *signatures(client)}
    secrets |= {parse_qs(urlsplit(task.url.reveal()).query)["X-Amz-Signature"][0] for task in plan.tasks}
    for thing in things:
        html = thing._repr_html_() if hasattr(thing, "_repr_html_") else ""
        text = f"{thing!r} {thing} {html}"
        assert not [secret for secret in secrets if secret in text], type(thing)
    text = scan.explain()
    assert not [secret for secret in secrets if secret in text]


def test_a_profile_cannot_be_pickled_and_tasks_hold_no_token(
    server: SharingServer, connect: Callable[..., SharingClient]
) -> None:
    client = connect(server)
    with pytest.raises(TypeError, match="Secret cannot be pickled"):
        pickle.dumps(client.profile)
    with pytest.raises(TypeError):
        pickle.dumps(client.table("s.s.t").scan())
    plan = client.table("s.s.t").scan().plan()
    assert TOKEN.encode() not in pickle.dumps((plan.tasks, plan.spec))


ECHO = f"Bearer {TOKEN} https://store.example/x?X-Amz-Signature={SIGNATURE} token={TOKEN}"
JSON_ERROR = {"errorCode": ECHO, "message": f"failed: {ECHO}"}
XML_ERROR = f"<Error><Code>Nope</Code><Message>see {ECHO}</Message></Error>".encode()


ANSWERS = {
    "400": Reply.of_json(JSON_ERROR, status=400),
    "401": Reply.of_json(JSON_ERROR, status=401),
    "500": Reply.of_json(JSON_ERROR, status=500),
    "page": Reply(status=403, body=f"<html><title>{ECHO}</title></html>".encode()),
    "not-json": Reply(body=f"{ECHO}\n{ECHO}\n".encode()),
    "in-the-answer": Reply.of_lines({"endStreamAction": {"errorMessage": ECHO, "httpStatusErrorCode": 400}}),
    "unknown-action": Reply.of_lines({"protocol": {"minReaderVersion": 1}}, {ECHO: {}}),
    "redirect": Reply(status=302, headers={"Location": f"https://else.example/?token={TOKEN}"}),
    "dropped": Reply(drop=True),
    "cut": Reply(body=b"{" + ECHO.encode(), cut_at=9),
}
FILES: dict[str, Callable[[Request, Callable[[Request], Reply]], Reply]] = {
    "400": lambda request, healthy: Reply(status=400, body=XML_ERROR),
    "404": lambda request, healthy: Reply(status=404, body=XML_ERROR),
    "500": lambda request, healthy: Reply(status=500, body=XML_ERROR),
    "expired": lambda request, healthy: expired(request),
    "dropped": lambda request, healthy: Reply(drop=True),
    "cut": lambda request, healthy: healthy(request).but(cut_at=5),
    "redirect": lambda request, healthy: Reply(
        status=307, headers={"Location": f"http://169.254.169.254/?sig={SIGNATURE}"}
    ),
    "damaged": lambda request, healthy: Reply(body=bytes(len(healthy(request).body))),
}


def check_error(client: SharingClient, logged: list[logging.LogRecord]) -> None:
    with pytest.raises(DeltaSharingError) as caught:
        client.table("s.s.t").scan().to_pandas()
    text = shown(caught.value)
    assert TOKEN not in text
    assert SIGNATURE not in text
    assert "\n" not in str(caught.value)
    assert TOKEN not in texts(logged)
    assert SIGNATURE not in texts(logged)


@pytest.mark.parametrize("name", ANSWERS)
def test_errors_of_the_server_hold_no_secret(
    faults: FaultServer, connect: Callable[..., SharingClient], logged: list[logging.LogRecord], name: str
) -> None:
    faults.on("POST", f"{TABLE}/query", ANSWERS[name])
    check_error(connect(faults, **QUICK), logged)


@pytest.mark.parametrize("name", FILES)
def test_errors_of_the_store_hold_no_secret(
    faults: FaultServer, connect: Callable[..., SharingClient], logged: list[logging.LogRecord], name: str
) -> None:
    share = Share(faults, COLUMNS[:1], {"f": pa.table({"id": [1]})})
    share.serve_files_with(FILES[name])
    check_error(connect(faults, **QUICK), logged)
    assert share.file_requests
    assert SIGNATURE in share.file_requests[0].target


def test_a_wrong_token_is_not_repeated(server: SharingServer, logged: list[logging.LogRecord]) -> None:
    profile: dict[str, Any] = server.profile | {"bearerToken": "canary-wrong-token-9b1c"}
    with SharingClient(profile) as client, pytest.raises(AuthenticationError) as caught:
        client.table("s.s.t").scan().to_arrow()
    assert "canary-wrong" not in shown(caught.value)
    assert "canary-wrong" not in texts(logged)
