"""Memory of planning: with a row filter it does not grow with the size of the listing, only with the ids in it."""

import json
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

pytestmark = pytest.mark.slow

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


class Server(BaseHTTPRequestHandler):
    def answer(self):
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


def test_memory_of_planning_with_a_filter():
    with ThreadingHTTPServer(("127.0.0.1", 0), Server) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            command = [sys.executable, "-c", CHILD, f"http://127.0.0.1:{server.server_port}"]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
        finally:
            server.shutdown()
    files, megabytes = map(int, done.stdout.split())
    assert files == 1000
    # The ids, by which duplicates are detected, take 0.2 kB a file; tasks would take 0.9 kB.
    assert megabytes < 120
