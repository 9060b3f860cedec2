"""A sharing server whose tables have as many files as their names say; the files do not exist, or are alike."""

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


def lines(files, store="https://bucket.example", size=None):
    """The files of a listing, some at a time; file `n` holds the id `n`. Signatures do not compress."""
    for start in range(0, files, 500):
        yield "".join(
            f'{{"file":{{"url":"{store}/part-{number:07}.parquet?Signature={signature(number)}",'
            f'"id":"{number:032x}","partitionValues":{{}},"size":{size or 45_000_000 + number},'
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
            where = () if self.server.data is None else (self.server.store, len(self.server.data))
            for some in lines(int(self.path.split("/")[-2]), *where):
                self.wfile.write(some)

    do_POST = answer

    def do_GET(self):
        if not self.path.startswith("/part-"):
            self.answer()
            return
        self.server.requests.append(self.path)
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.server.data)))
        self.end_headers()
        self.wfile.write(self.server.data)

    def log_message(self, *arguments):
        pass


@contextmanager
def running_server(data=None):
    """Run the server; `data` is what each file holds."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.requests, server.data = [], data
        server.store = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server, server.store
        finally:
            server.shutdown()
