"""A client that takes long to decode a listing does not time out, and does not request it again."""

import json
import time
from datetime import timedelta

import pytest
from faults.server import Reply

from delta_sharing_client.model.names import Table
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.wire.requests import QueryRequest

QUERY = "/shares/sh/schemas/sc/tables/t/query"
SCHEMA = json.dumps({"type": "struct", "fields": []})
#: More than the buffers of both sockets: the server cannot send the listing before the client reads on.
FILES = 60_000
READ_TIMEOUT = timedelta(seconds=3)


@pytest.fixture
def options():
    return TransportOptions(read_timeout=READ_TIMEOUT, minimum_speed=1_000_000)


def listing():
    yield {"protocol": {"minReaderVersion": 1}}
    yield {"metaData": {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA}}
    for number in range(FILES):
        url = f"https://store.example/{number}?sig={'x' * 400}"
        yield {"file": {"url": url, "id": f"f{number}", "partitionValues": {}, "size": 10}}
    yield {"endStreamAction": {}}


@pytest.mark.slow
def test_the_time_of_decoding_is_not_the_server_s(server, rest):
    body = "\n".join(map(json.dumps, listing())).encode()
    server.on("POST", QUERY, Reply(body=body, headers={"Delta-Table-Version": "7"}))
    pauses = [2 * READ_TIMEOUT.total_seconds()]

    def convert(protocol, metadata):
        def ids(files):
            if pauses:
                time.sleep(pauses.pop())
            return files.ids

        return ids

    answer = rest.query_table(Table("t", "sh", "sc"), QueryRequest(), convert)
    assert not pauses
    assert len(answer.items) == FILES
    assert len(server.requests) == 1
