"""Randomly damaged answers return the files or raise a typed error."""

import json
import random

import pytest
from faults.server import Reply

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.requests import QueryRequest

HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nDelta-Table-Version: 7\r\n"
    b"delta-sharing-capabilities: responseformat=parquet;includeendstreamaction=true\r\n"
)
SCHEMA = json.dumps({"type": "struct", "fields": []})
LINES = [
    {"protocol": {"minReaderVersion": 1}},
    {"metaData": {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}},
    *(
        {"file": {"url": f"https://s/{n}?sig=x", "id": f"f{n}", "partitionValues": {}, "size": 10}}
        for n in range(5)
    ),
    {"endStreamAction": {"minUrlExpirationTimestamp": 9_999_999_999_000}},
]
BODY = b"".join(json.dumps(line).encode() + b"\n" for line in LINES)
BITS = [b"{", b"[", b"\n", b"null", b"1e999", b"-1", b'"', b"\\u0000", b"9" * 30, b"true", b"NaN", b"\xff\xfe"]
HEADERS = [
    b"\r\n",
    b":",
    b"-",
    b"9" * 30,
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Encoding: gzip\r\n",
    b"Content-Length: 5\r\n",
    b"HTTP/1.1 100 Continue\r\n\r\n",
]


def damage(source, data, bits, limit):
    damaged = bytearray(data)
    for _ in range(source.choice([1, 1, 2, 5, 30])):
        at = source.randrange(min(len(damaged), limit) + 1)
        kind = source.randrange(3)
        if kind == 0:
            damaged[at : at + 1] = bytes([source.randrange(256)])
        elif kind == 1:
            del damaged[at : at + source.randrange(1, 40)]
        else:
            damaged[at:at] = source.choice(bits) * source.choice([1, 1, 3, 200])
    return bytes(damaged)


def malformed(source):
    body = damage(source, BODY, BITS, len(BODY)) if source.random() < 0.7 else BODY
    framing = source.randrange(3)
    if framing == 0:
        answer = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    elif framing == 1:
        pieces = [body[start : start + 97] for start in range(0, len(body), 97)]
        answer = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
        answer += b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        answer = HEAD + b"Connection: close\r\n\r\n" + body
    return damage(source, answer, HEADERS, 400) if source.random() < 0.5 else answer


@pytest.mark.parametrize("seed", range(4))
# urllib3 lets go of a connection with contradictory lengths without closing it.
@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_damaged_answers(server, seed):
    source = random.Random(seed)
    server.on("*", "*", lambda request: Reply(raw=malformed(source)))
    options = TransportOptions(api_attempts=1)
    answered = refused = 0
    with RestClient(Profile.from_dict(server.profile), options) as rest:
        for _ in range(150):
            try:
                rest.query_table(Table("t", "s", "c"), QueryRequest())
                answered += 1
            except DeltaSharingError:
                refused += 1
    assert answered > 5
    assert refused > 50
