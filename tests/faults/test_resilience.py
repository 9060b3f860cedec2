"""Whole loads through each fault return the expected rows or raise the documented error."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.utils import formatdate
from typing import Any

import pytest
from faults.faulty_share import TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import FOREVER, NEVER

import delta_sharing_client as ds
from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    DataError,
    FileGoneError,
    ForbiddenError,
    IncompleteResponseError,
    NotFoundError,
    ProtocolError,
    QueryError,
    RateLimitError,
    RequestTimeoutError,
    ResponseFormatError,
    ServerError,
    StorageError,
    UnsupportedFeatureError,
    UnsupportedTableError,
    VersionMismatchError,
)
from delta_sharing_client.options import TransportOptions

FILES = [File(f"f{n}", rows(1000 * n, 30), parquet(rows(1000 * n, 30))) for n in range(6)]
QUICK = {
    "backoff_base": timedelta(milliseconds=1),
    "backoff_cap": timedelta(milliseconds=4),
}
#: For faults that end with a time-out.
SHORT = timedelta(seconds=0.5)


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    return FaultyShare(server=server, versions=[FILES])


@pytest.fixture
def table(share: FaultyShare, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The table, of a client with a short time-out if the name of the fault contains late, stall or never."""
    fault = request.node.callspec.params.get("name", "") if hasattr(request.node, "callspec") else ""
    timeout = SHORT if re.search("late|stall|never", fault) else NEVER
    with ds.SharingClient(share.server.profile, options=TransportOptions(**QUICK, read_timeout=timeout)) as client:
        yield client.table("s.s.t")


class FirstReplies:
    """Fault in the first `count` replies for a path."""

    def __init__(self, path: str, count: int, fault: Callable[[Request, Reply], Reply]) -> None:
        self.path, self.remaining, self.fault = path, count, fault

    def __call__(self, request: Request, reply: Reply) -> Reply:
        if not request.path.startswith(self.path) or self.remaining <= 0:
            return reply
        self.remaining -= 1
        return self.fault(request, reply)


def status(code: int, **headers: str) -> Callable[[Request, Reply], Reply]:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda request, reply: Reply(status=code, headers=named)


def lines_of(reply: Reply) -> list[bytes]:
    return reply.body.splitlines(keepends=True)


def without_last_lines(count: int) -> Callable[[Request, Reply], Reply]:
    return lambda request, reply: reply.but(body=b"".join(lines_of(reply)[:-count]))


def with_line(line: Any, at: int = -1) -> Callable[[Request, Reply], Reply]:
    def change(request: Request, reply: Reply) -> Reply:
        lines = lines_of(reply)
        lines.insert(at, json.dumps(line).encode() + b"\n")
        return reply.but(body=b"".join(lines))

    return change


TRANSIENT = {
    "listing 503": (f"{TABLE}/query", 5, status(503)),
    "listing 429": (f"{TABLE}/query", 2, status(429, Retry_After="0")),
    "listing 429 by date": (f"{TABLE}/query", 2, status(429, Retry_After=formatdate(0, usegmt=True))),
    "listing dropped": (f"{TABLE}/query", 3, lambda request, reply: Reply(drop=True)),
    "listing late": (f"{TABLE}/query", 1, lambda request, reply: reply.but(delay=FOREVER)),
    "listing cut at a line": (f"{TABLE}/query", 1, without_last_lines(3)),
    "listing without its end": (f"{TABLE}/query", 1, without_last_lines(1)),
    "listing cut in a line": (f"{TABLE}/query", 2, lambda request, reply: reply.but(cut_at=len(reply.body) - 9)),
    "listing cut in chunks": (f"{TABLE}/query", 2, lambda request, reply: reply.but(cut_at=600, chunk=64)),
    "listing stalls": (f"{TABLE}/query", 1, lambda request, reply: reply.but(cut_at=600, ending="stall")),
    "failed while answering": (
        f"{TABLE}/query",
        2,
        lambda request, reply: Reply.of_lines(
            {"endStreamAction": {"errorMessage": "later", "httpStatusErrorCode": 503}}
        ),
    ),
    "file 503": ("/data/f2", 4, status(503)),
    "file 429": ("/data/f2", 2, status(429, Retry_After="0")),
    "file 500": ("/data/", 6, status(500)),
    "file reset": ("/data/", 6, lambda request, reply: reply.but(cut_at=500, ending="reset")),
    "file cut": ("/data/", 9, lambda request, reply: reply.but(cut_at=len(reply.body) // 2)),
    "file stalls": ("/data/f3", 1, lambda request, reply: reply.but(cut_at=500, ending="stall")),
    "file late": ("/data/f3", 1, lambda request, reply: reply.but(delay=FOREVER)),
    "file of a wrong length": ("/data/f1", 1, lambda request, reply: reply.but(body=reply.body[:-7])),
}


@pytest.mark.parametrize("name", TRANSIENT)
@pytest.mark.parametrize("query", ["snapshot", "changes"])
def test_transient_fault_costs_no_row(share: FaultyShare, table: Any, name: str, query: str) -> None:
    path, count, change = TRANSIENT[name]
    if query == "changes":
        path = path.replace("/query", "/changes")
    fault = share.fault = FirstReplies(path, count, change)
    if query == "snapshot":
        assert table.scan().to_arrow().equals(share.rows_at(0))
    else:
        assert table.changes(0).to_arrow().equals(share.changes(0, 0))
    assert fault.remaining == 0


PERMANENT: dict[str, tuple[str, Callable[[Request, Reply], Reply], type[Exception], str]] = {
    "listing 503": (f"{TABLE}/query", status(503), ServerError, r"table s\.s\.t.*503.*6 attempts"),
    "listing 429": (f"{TABLE}/query", status(429), RateLimitError, r"429.*6 attempts"),
    "asked to wait too long": (
        f"{TABLE}/query",
        status(503, Retry_After="3600"),
        ServerError,
        "asks to wait 3600 s, which is past the deadline",
    ),
    "never an answer": (
        f"{TABLE}/query",
        lambda request, reply: reply.but(delay=FOREVER),
        RequestTimeoutError,
        "nothing came|no answer|time",
    ),
    "always cut at a line": (f"{TABLE}/query", without_last_lines(2), IncompleteResponseError, r"table s\.s\.t"),
    "400": (f"{TABLE}/query", status(400), BadRequestError, "400"),
    "401": (f"{TABLE}/query", status(401), AuthenticationError, "401"),
    "403": (f"{TABLE}/query", status(403), ForbiddenError, r"s\.s\.t.*ask the provider"),
    "404": (f"{TABLE}/query", status(404), NotFoundError, r"s\.s\.t.*list_all_tables"),
    "error message of the server": (
        f"{TABLE}/query",
        with_line({"endStreamAction": {"errorMessage": "view too large", "httpStatusErrorCode": 400}}, at=2),
        (QueryError, ProtocolError),  # type: ignore[dict-item]
        "view too large|EndStreamAction",
    ),
    "unknown action": (f"{TABLE}/query", with_line({"truncate": {}}), ProtocolError, "truncate"),
    "a removed file in a snapshot": (
        f"{TABLE}/query",
        with_line({"remove": {"url": "https://x/y", "id": "f9", "partitionValues": {}, "size": 1}}),
        ProtocolError,
        "removed file in a snapshot",
    ),
    "a file twice, not the same": (
        f"{TABLE}/query",
        with_line({"file": {"url": "https://x/y", "id": "f1", "partitionValues": {}, "size": 1}}),
        ProtocolError,
        "f1 twice, with different contents",
    ),
    "a newer protocol": (
        f"{TABLE}/query",
        lambda request, reply: reply.but(
            body=reply.body.replace(b'"minReaderVersion": 1', b'"minReaderVersion": 99')
        ),
        UnsupportedTableError,
        r"(?i)upgrade|newer release",
    ),
    "file 404": ("/data/f3", status(404), FileGoneError, r"table s\.s\.t, file f3: .*404.*vacuumed"),
    "file 403": ("/data/f3", status(403), StorageError, "file f3: the store answered 403"),
    "file 500": ("/data/f3", status(500), StorageError, r"file f3: the store answered 500 .*gave up after"),
    "file always cut": (
        "/data/f3",
        lambda request, reply: reply.but(cut_at=0),
        StorageError,
        r"file f3: .*gave up after",
    ),
    "file too short": (
        "/data/f3",
        lambda request, reply: Reply(body=b"PAR1"),
        DataError,
        "file f3: it has 4 bytes",
    ),
    "not Parquet": (
        "/data/f3",
        lambda request, reply: reply.but(body=b"x" * len(reply.body)),
        DataError,
        "file f3: not a readable Parquet file",
    ),
}


@pytest.mark.parametrize("name", PERMANENT)
def test_permanent_fault_raises_its_typed_error(share: FaultyShare, table: Any, name: str) -> None:
    path, change, kind, message = PERMANENT[name]
    share.fault = FirstReplies(path, 10**9, change)
    with pytest.raises(kind, match=message) as caught:
        table.scan().to_pandas()
    assert "Signature" not in str(caught.value)


def test_two_hundred_files_of_a_dead_store_share_their_attempts(server: FaultServer) -> None:
    """The files share one budget of attempts."""
    files = [File(f"f{n}", rows(n, 1), parquet(rows(n, 1))) for n in range(200)]
    share = FaultyShare(server=server, versions=[files])
    share.fault = FirstReplies("/data/", 10**9, status(503))
    with ds.SharingClient(server.profile) as client, pytest.raises(StorageError, match="503"):
        client.table("s.s.t").scan().to_arrow()
    assert len(share.file_requests) < 200


def test_unknown_fields_are_ignored_and_repeated_files_count_once(share: FaultyShare, table: Any) -> None:
    def more(request: Request, reply: Reply) -> Reply:
        lines = [json.loads(line) for line in lines_of(reply)]
        for line in lines:
            ((kind, fields),) = line.items()
            line[kind] = {**fields, "later": {"x": [1]}}
        return reply.but(body=b"".join(json.dumps(line).encode() + b"\n" for line in [*lines[:-1], *lines[2:]]))

    share.fault = FirstReplies(f"{TABLE}/query", 1, more)
    assert table.scan().to_arrow().equals(share.rows_at(0))


def test_response_format_must_fit_the_request(share: FaultyShare, table: Any) -> None:
    """A response in parquet format to a request for delta is read; the reverse raises."""
    assert table.scan(response_format="delta").to_arrow().equals(share.rows_at(0))
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    delta = Reply.of_lines({"protocol": {"deltaProtocol": features}}, {"endStreamAction": {}})
    share.fault = FirstReplies(f"{TABLE}/query", 9, lambda request, reply: delta)
    with pytest.raises(ResponseFormatError):
        table.scan(response_format="parquet").to_arrow()


def test_unknown_reader_features_are_named(share: FaultyShare, table: Any) -> None:
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors", "telepathy"]}
    metadata = {"deltaMetadata": {"id": "x", "schemaString": '{"type":"struct","fields":[]}'}}
    reply = Reply.of_lines(
        {"protocol": {"deltaProtocol": features}}, {"metaData": metadata}, {"endStreamAction": {}}
    )
    share.fault = lambda request, correct: reply
    with pytest.raises(UnsupportedFeatureError, match="telepathy"):
        table.scan().to_arrow()


def test_answer_for_another_version_raises(share: FaultyShare, table: Any) -> None:
    def other(request: Request, reply: Reply) -> Reply:
        return reply.but(headers={**reply.headers, "Delta-Table-Version": "5"})

    share.fault = other
    with pytest.raises(VersionMismatchError, match="requested version 0, the server answered for version 5"):
        table.scan(version=0).to_arrow()


def test_repeated_page_token_raises(share: FaultyShare, table: Any) -> None:
    share.page = 2
    share.fault = lambda request, reply: reply.but(
        body=reply.body.replace(b'"nextPageToken": "0-4"', b'"nextPageToken": "0-2"')
    )
    with pytest.raises(ProtocolError, match="same page token twice"):
        table.scan().to_arrow()


def test_expired_token_is_named_in_the_error(server: FaultServer) -> None:
    server.on("*", "*", Reply(status=401))
    past = datetime.now(UTC) - timedelta(days=2)
    profile = server.profile | {"expirationTime": past.isoformat(timespec="seconds")}
    with pytest.warns(ds.ProfileWarning, match=f"expired at {past:%Y-%m-%d}"):
        client = ds.SharingClient(profile)
    with client, pytest.raises(AuthenticationError, match=f"{past:%Y-%m-%d}"):
        client.table("s.s.t").scan().to_arrow()
    assert len(server.requests) == 1


@pytest.mark.parametrize("answer", [{"items": None}, {}, {"items": [], "nextPageToken": ""}])
def test_empty_listings(server: FaultServer, answer: dict[str, Any]) -> None:
    server.on("GET", "/shares", Reply.of_json(answer))
    with ds.SharingClient(server.profile) as client:
        assert client.list_shares() == []
