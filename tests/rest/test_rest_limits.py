"""Limits of what a server may answer: tokens, lines without files, whole answers."""

from __future__ import annotations

import itertools
import json

import pytest
from faults.server import Reply

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.answers import AnswerReader
from delta_sharing_client.wire.decoder import MAX_TOKEN, decode_actions
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

CAPABILITIES = ResponseCapabilities()
TABLE = Table("t", "share", "schema")
SCHEMA = '{"type":"struct","fields":[{"name":"id","type":"long","nullable":true,"metadata":{}}]}'
PROTOCOL = {"protocol": {"minReaderVersion": 1}}
METADATA = {"metaData": {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
FILE = {"file": {"url": "https://store.example/f", "id": "f1", "partitionValues": {}, "size": 573}}
LONG = "t" * (MAX_TOKEN + 1)


@pytest.mark.parametrize("name", ["nextPageToken", "refreshToken"])
@pytest.mark.parametrize("wrapped", [True, False])
def test_a_long_token_of_a_query_is_not_sent_back(rest, server, name, wrapped):
    end = {name: LONG}
    server.on("POST", "*", Reply.of_lines(PROTOCOL, METADATA, FILE, {"endStreamAction": end} if wrapped else end))
    with pytest.raises(ProtocolError, match=f"'{name}' has 65,537 characters") as raised:
        rest.query_table(TABLE, QueryRequest())
    assert len(str(raised.value)) < 500
    assert len(server.requests) == 1


def test_a_long_token_of_changes_is_not_sent_back(rest, server):
    server.on("GET", "*", Reply.of_lines(PROTOCOL, METADATA, {"endStreamAction": {"nextPageToken": LONG}}))
    with pytest.raises(ProtocolError, match="'nextPageToken' has 65,537 characters"):
        rest.table_changes(TABLE, ChangesRequest(starting_version=0))
    assert len(server.requests) == 1


def test_a_long_token_of_a_listing_is_not_sent_back(rest, server):
    server.on("GET", "*", Reply.of_json({"items": [{"name": "a"}], "nextPageToken": LONG}))
    with pytest.raises(ProtocolError, match="'nextPageToken' has 65,537 characters"):
        list(rest.list_shares())
    assert len(server.requests) == 1


def test_tokens_up_to_the_limit_are_sent_back(rest, server):
    token = "t" * 8000
    server.on(
        "GET", "*", Reply.of_json({"items": [], "nextPageToken": token}), Reply.of_json({"items": [{"name": "a"}]})
    )
    assert [share.name for share in rest.list_shares()] == ["a"]
    assert server.requests[1].query["pageToken"] == token


@pytest.mark.parametrize("line", [METADATA, PROTOCOL], ids=["metaData", "protocol"])
@pytest.mark.parametrize("changes", [False, True])
@pytest.mark.parametrize("padding", [0, 100_000])
def test_endless_lines_without_a_file_end(line, changes, padding):
    read = 0
    text = json.dumps({name: {**fields, "x": "x" * padding} for name, fields in line.items()}).encode() + b"\n"

    def endless():
        nonlocal read
        yield b"".join(json.dumps(each).encode() + b"\n" for each in (PROTOCOL, METADATA))
        for number in itertools.count():
            read += len(text)
            yield text.replace(b'"m"', f'"m{number}"'.encode()) if changes else text

    actions = decode_actions(
        endless(), formats=("parquet",), capabilities=CAPABILITIES, subject="t", limit=4 * 1024 * 1024
    )
    request = VersionsRequest(starting_version=0) if changes else QueryRequest()
    with pytest.raises(ProtocolError, match=r"has no end: its lines without a file .*metadata_limit"):
        AnswerReader(request, "t", lambda *_: list).read_page(actions, version=0)
    assert read < 16 * 1024 * 1024


def limited(server, limit):
    return RestClient(Profile.from_dict(server.profile), TransportOptions(metadata_limit=limit))


def test_a_long_line_names_the_option(server):
    server.on("POST", "*", Reply.of_lines(PROTOCOL, {"metaData": {**METADATA["metaData"], "name": "x" * 20_000}}))
    with limited(server, 10_000) as client, pytest.raises(ProtocolError, match=r"10,000 .*metadata_limit"):
        client.query_table(TABLE, QueryRequest())
    with limited(server, 30_000) as client:
        assert client.query_table(TABLE, QueryRequest()).items == []


def test_a_long_listing_names_the_option(server):
    server.on("GET", "*", Reply.of_json({"items": [{"name": f"s{number}"} for number in range(1000)]}))
    with limited(server, 10_000) as client, pytest.raises(ProtocolError, match=r"10,000 .*metadata_limit"):
        list(client.list_shares())
    with limited(server, 30_000) as client:
        assert len(list(client.list_shares())) == 1000
