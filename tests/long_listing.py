"""A sharing server whose tables have as many files as their names say; the files do not exist."""

import hashlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]},
)


def signature(number):
    return hashlib.shake_256(b"%d" % number).hexdigest(200)


def lines(files):
    """The files of a listing, some at a time; file `n` holds the id `n`. Signatures do not compress."""
    for start in range(0, files, 500):
        yield "".join(
            f'{{"file":{{"url":"https://bucket.example/part-{number:07}.parquet?Signature={signature(number)}",'
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
