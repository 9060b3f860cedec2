"""Long listings: the memory of planning with a row filter, and a client that is slower than the server."""

import json
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.wire.requests import QueryRequest

#: The listing has about 200 MB.
FILES = 300_000
SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
)
#: Prints the number of planned files, and the peak of the memory beyond that of a small plan, in MB.
CHILD = """
import resource, sys
import delta_sharing_client as ds

profile = {"shareCredentialsVersion": 1, "endpoint": sys.argv[1], "bearerToken": "t"}

def planned(files, first):
    with ds.SharingClient(profile) as client:
        return len(client.table(f"s.d.{files}").scan(filters=[("id", ">=", first)]).files())

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // (2**20 if sys.platform == "darwin" else 2**10)

planned(5000, 0)
before = peak()
print(planned(300_000, 299_000), peak() - before)
"""


def lines(files):
    """The files of a listing, some at a time; file `n` holds the id `n`."""
    for start in range(0, files, 500):
        yield "".join(
            f'{{"file":{{"url":"https://bucket.example/part-{number:07}.parquet?Signature={"0123456789" * 40}",'
            f'"id":"{number:032x}","partitionValues":{{}},"size":{45_000_000 + number},'
            f'"stats":"{{\\"numRecords\\":1,\\"minValues\\":{{\\"id\\":{number}}},'
            f'\\"maxValues\\":{{\\"id\\":{number}}},\\"nullCount\\":{{\\"id\\":0}}}}"}}}}\n'
            for number in range(start, min(start + 500, files))
        ).encode()


class Handler(BaseHTTPRequestHandler):
    def answer(self):
        self.server.requests.append(self.path)
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.send_response(200)
        self.send_header("Delta-Table-Version", "1")
        self.end_headers()
        metadata = {"id": "m", "format": {"provider": "parquet"}, "schemaString": SCHEMA, "partitionColumns": []}
        for line in ({"protocol": {"minReaderVersion": 1}}, {"metaData": metadata}):
            self.wfile.write(json.dumps(line).encode() + b"\n")
        if self.path.endswith("/query"):
            for some in lines(int(self.path.split("/")[-2])):
                self.wfile.write(some)

    do_GET = do_POST = answer

    def log_message(self, *arguments):
        pass


@contextmanager
def running_server():
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests = []
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


@pytest.mark.slow
def test_memory_of_planning_with_a_filter():
    with running_server() as (_, endpoint):
        done = subprocess.run([sys.executable, "-c", CHILD, endpoint], check=True, capture_output=True, text=True)
    files, megabytes = map(int, done.stdout.split())
    assert files == 1000
    # The ids, by which duplicates are detected, take 0.2 kB a file; tasks would take 0.9 kB.
    assert megabytes < 120


def test_a_listing_that_is_decoded_slower_than_it_arrives_is_requested_once():
    """Between two reads the time-out of a read does not run."""
    timeout = timedelta(seconds=0.5)

    def convert(protocol, metadata):
        def slow(files):
            if len(files) > 1000:
                time.sleep(2 * timeout.total_seconds())
            return list(files.ids)

        return slow

    with running_server() as (server, endpoint):
        profile = Profile.from_dict({"shareCredentialsVersion": 1, "endpoint": endpoint, "bearerToken": "t"})
        with RestClient(profile, TransportOptions(read_timeout=timeout)) as rest:
            # Several blocks, and more than the buffers of the sockets hold.
            answer = rest.query_table(Table("15000", "d", "s"), QueryRequest(), convert)
        assert len(answer.items) == 15_000
        assert len(server.requests) == 1
