"""Hostile servers: internal addresses, local files, decompression bombs. Over real sockets."""

from __future__ import annotations

import gzip
import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from faults.faulty_share import TABLE, FaultyShare, File, parquet, rows
from faults.server import FaultServer, Reply, Request
from waiting import run_program

import delta_sharing_client as ds
from delta_sharing_client.errors import DataError, DeltaSharingError, InsecureUrlError, ProtocolError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.wire import answers, ndjson

FILES = [File(f"f{n}", rows(100 * n, 20), parquet(rows(100 * n, 20))) for n in range(2)]
QUICK = {
    "backoff_base": timedelta(milliseconds=1),
    "backoff_cap": timedelta(milliseconds=2),
    "read_timeout": timedelta(seconds=5),
    "api_attempts": 2,
    "storage_attempts": 2,
}


@pytest.fixture
def share(server: FaultServer) -> FaultyShare:
    return FaultyShare(server=server, versions=[FILES])


@pytest.fixture
def table(share: FaultyShare) -> Iterator[Any]:
    with ds.SharingClient(share.server.profile, options=TransportOptions(**QUICK)) as client:
        yield client.table("s.s.t")


#: What a server may hand out as the URL of a file, and must not lead anywhere.
BAD_URLS = [
    "file:///etc/passwd",
    "/etc/passwd",
    "etc/passwd",
    "",
    "s3://bucket/key",
    "ftp://127.0.0.1/x",
    "data:,PAR1",
    "http://169.254.169.254/latest/meta-data/",
    "https://169.254.169.254/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://0xa9fea9fe/",
    "http://user:word@127.0.0.1/x",
    "http://192.0.2.7/x",
    "http://127.0.0.1:0/x",
    "http://127.0.0.1 /x",
    "http://[::1/x",
    "https://",
]

LOADS: dict[str, Callable[[Any, Path], object]] = {
    "snapshot": lambda table, folder: table.scan().to_arrow(),
    "pieces": lambda table, folder: table.scan(columns=[]).to_arrow(),
    "changes": lambda table, folder: table.changes(0).to_arrow(),
    "mirror": lambda table, folder: table.mirror(folder / "m").sync(),
    "copy": lambda table, folder: table.scan().materialize(folder / "c"),
}


@pytest.mark.parametrize("how", LOADS)
@pytest.mark.parametrize("url", BAD_URLS)
def test_insecure_urls_are_not_fetched(share: FaultyShare, table: Any, tmp_path: Path, how: str, url: str) -> None:
    signed = re.compile(rb'"url": "[^"]*"')
    replaced = b'"url": ' + json.dumps(url).encode()

    def hand_out(request: Request, reply: Reply) -> Reply:
        return reply.but(body=signed.sub(lambda match: replaced, reply.body))

    share.fault = hand_out
    with pytest.raises((InsecureUrlError, ProtocolError)):
        LOADS[how](table, tmp_path)
    assert share.file_requests == []


@pytest.mark.parametrize("url", ["file:///etc/passwd", "/etc/passwd", "http://169.254.169.254/x", "u", "../x"])
@pytest.mark.parametrize("kind", ["p", "u", "x"])
def test_insecure_urls_of_deletion_vectors_are_not_fetched(server: FaultServer, url: str, kind: str) -> None:
    vector = {"storageType": kind, "pathOrInlineDv": url, "offset": 1, "sizeInBytes": 40, "cardinality": 1}
    add = {
        "path": f"{server.url}/data/f0",
        "partitionValues": {},
        "size": len(FILES[0].data),
        "deletionVector": vector,
    }
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    features = {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["deletionVectors"]}
    metadata = {
        "id": "x",
        "format": {"provider": "parquet"},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
    }
    lines = [
        {"protocol": {"deltaProtocol": {**features, "writerFeatures": ["deletionVectors"]}}},
        {"metaData": {"deltaMetadata": metadata}},
        {"file": {"id": "f0", "deltaSingleAction": {"add": add}}},
    ]
    server.on("POST", f"{TABLE}/query", Reply.of_lines(*lines))
    server.on("GET", "/data/f0", Reply(body=FILES[0].data))
    client = ds.SharingClient(server.profile, options=TransportOptions(**QUICK))
    with client, pytest.raises((InsecureUrlError, ProtocolError)):
        client.table("s.s.t").scan().to_arrow()


@pytest.mark.parametrize("target", ["file:///etc/passwd", "http://169.254.169.254/x", "http://192.0.2.7/x"])
def test_redirects_of_a_store_obey_the_same_rules(share: FaultyShare, table: Any, target: str) -> None:
    moved = Reply(status=302, headers={"Location": target})
    share.fault = lambda request, reply: moved if request.path.startswith("/data/") else reply
    with pytest.raises(InsecureUrlError):
        table.scan().to_arrow()


def test_the_credential_goes_to_no_other_host(share: FaultyShare, table: Any) -> None:
    """Neither on a redirect of the server, nor to a store, nor on a redirect of that."""
    with FaultServer() as other:
        other.on("*", "*", Reply.of_json({"items": []}))
        away = Reply(status=307, headers={"Location": f"{other.url}/taken"})
        share.fault = lambda request, reply: away if request.path == f"{TABLE}/query" else reply
        with pytest.raises(InsecureUrlError, match="credentials are not sent to another host"):
            table.scan().to_arrow()
        assert other.requests == []
        share.fault = lambda request, reply: away if request.path.startswith("/data/") else reply
        with pytest.raises(DeltaSharingError):
            table.scan().to_arrow()
        assert other.requests
    sent = [request.headers for request in [*share.file_requests, *other.requests]]
    assert not [headers for headers in sent if {"authorization", "cookie"} & set(headers)]


def test_cookies_are_not_kept(share: FaultyShare, table: Any) -> None:
    def set_cookie(request: Request, reply: Reply) -> Reply:
        return reply.but(headers={**reply.headers, "Set-Cookie": "spy=1; Path=/"})

    share.fault = set_cookie
    for _ in range(2):
        table.scan().to_arrow()
    assert not [request for request in share.server.requests if "cookie" in request.headers]


HEAD = Reply.of_lines({"protocol": {"minReaderVersion": 1}}).body
BOMBS = {
    "gzip": Reply(body=gzip.compress(b" " * 2**20) * 200, headers={"Content-Encoding": "gzip"}),
    "gzip of lines": Reply(body=gzip.compress(b"\n" * 2**20) * 200, headers={"Content-Encoding": "gzip"}),
    "endless line": Reply(endless=b"x", length=None),
    "endless blanks": Reply(endless=b" \n", length=None),
    "endless head": Reply(endless=HEAD, length=None),
    "deep": Reply(body=b'{"a":' * 100_000),
    "deep brackets": Reply(body=b"[" * 1_000_000),
    "many braces": Reply(body=b"{" * 10_000_000),
}


@pytest.mark.parametrize("name", BOMBS)
def test_endless_answers_are_refused(
    share: FaultyShare, table: Any, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A typed error, whatever the server goes on sending; the processes of the next test have the true limits."""
    monkeypatch.setattr(answers, "MAX_OTHERS", 20_000)
    monkeypatch.setattr(ndjson, "_BLANK_COST", 4096)
    share.fault = lambda request, reply: BOMBS[name]
    with pytest.raises(ProtocolError):
        table.scan().to_arrow()
    with pytest.raises(ProtocolError):
        table.metadata()


def test_a_file_without_end_is_not_read_beyond_its_size(share: FaultyShare, table: Any) -> None:
    sent: list[Request] = []

    def endless(request: Request, reply: Reply) -> Reply:
        if not request.path.startswith("/data/"):
            return reply
        sent.append(request)
        return reply.but(endless=b"x", length=None)

    share.fault = endless
    with pytest.raises(DataError, match=r"it has more than [0-9,]+ bytes"):
        table.scan().to_arrow()
    assert len(sent) <= 2 * len(FILES)


CHILD = """
import resource, sys
import delta_sharing_client as ds
client = ds.SharingClient(sys.argv[1])
table = client.table("s.s.t")
def peak():
    try:  # what getrusage tells begins with the peak of the process that started this one
        status = open("/proc/self/status").read()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.split("VmHWM:")[1].split()[0]) / 1024
try:
    table.scan().to_arrow()
except ds.DeltaSharingError:
    pass
before = peak()
for _ in range(2):
    try:
        table.scan().to_arrow()
    except ds.DeltaSharingError as error:
        print(type(error).__name__, round(before), round(peak()))
"""


@pytest.mark.parametrize("name", ["gzip", "endless line", "endless blanks"])
def test_decompression_bombs_take_bounded_memory(share: FaultyShare, tmp_path: Path, name: str) -> None:
    """A process that met one has not grown by more than a few times the longest line."""
    share.fault = lambda request, reply: BOMBS[name]
    profile = tmp_path / "p.share"
    profile.touch(0o600)
    profile.write_text(json.dumps(share.server.profile))
    done = run_program([sys.executable, "-c", CHILD, profile], check=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    assert [line[0] for line in lines] == ["ProtocolError"] * 2
    assert all(int(line[2]) < 500 for line in lines), done.stdout


@pytest.mark.parametrize("size", [-1, 2**40, 2**62, 2**70])
def test_impossible_sizes_are_refused(share: FaultyShare, table: Any, tmp_path: Path, size: int) -> None:
    """A claim of terabytes allocates nothing and reads no more than there is."""
    claims = re.compile(rb'"size": \d+')
    share.fault = lambda request, reply: reply.but(body=claims.sub(b'"size": %d' % size, reply.body))
    for how in ("snapshot", "mirror"):
        with pytest.raises(DeltaSharingError):
            LOADS[how](table, tmp_path)


def test_footer_with_a_billion_rows_is_refused(share: FaultyShare, table: Any) -> None:
    """The numbers of a Parquet footer are held against its bytes."""
    data = FILES[0].data
    length = int.from_bytes(data[-8:-4], "little")
    for claim in (0, 1, length + 1, 2**31 - 1, 2**32 - 1):
        lying = data[:-8] + claim.to_bytes(4, "little") + b"PAR1"
        share.files["f0"] = File("f0", FILES[0].table, lying)
        with pytest.raises(DataError):
            table.scan().to_arrow()
    share.files["f0"] = FILES[0]
    assert isinstance(table.scan().to_arrow(), pa.Table)
