"""A share on the scripted server whose files, listings and URLs fail as scripted."""

from __future__ import annotations

import io
import itertools
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults.server import FaultServer, Reply, Request, file_reply
from loading_tables import Column, struct_of

TABLE = "/shares/s/schemas/s/tables/t"
SIGNATURE = "canary-signature-5d1e"


def parquet(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


class Share:
    """The table `s.s.t`; each listing hands out URLs of a new generation.

    data: the files by their ids.
    generation: how often the files have been listed.
    """

    def __init__(
        self,
        server: FaultServer,
        columns: Sequence[Column],
        files: Mapping[str, pa.Table | bytes],
        **parquet_options: Any,
    ) -> None:
        self.server = server
        self.data = {
            name: content if isinstance(content, bytes) else parquet(content, **parquet_options)
            for name, content in files.items()
        }
        self.etags = dict.fromkeys(self.data, '"v1"')
        self.generation = 0
        self.version = 7
        self._schema = json.dumps(struct_of(*columns))
        self._count = itertools.count(1)
        server.on("POST", f"{TABLE}/query", lambda request: self.listing(self.data))
        server.on("GET", f"{TABLE}/metadata", self.listing(()))
        self.serve_files_with(lambda request, answer: answer(request))

    def listing(self, names: Iterable[str]) -> Reply:
        """The answer to a query that lists these files."""
        if names:
            self.generation = next(self._count)
        return self._lines([self.entry(name) for name in names])

    def entry(self, name: str) -> dict[str, Any]:
        url = f"{self.server.url}/data/{name}?generation={self.generation}&X-Amz-Signature={SIGNATURE}"
        return {"file": {"url": url, "id": name, "partitionValues": {}, "size": len(self.data[name])}}

    def serve_files_with(self, how: Callable[[Request, Callable[[Request], Reply]], Reply]) -> None:
        """Have `how` answer for the files; it is given the request and what a healthy store answers."""

        def answer(request: Request) -> Reply:
            name = request.path.rpartition("/")[2]
            healthy = file_reply(self.data[name], etag=self.etags[name])
            return how(request, healthy)

        self.server.on("GET", re.compile(r"^/data/"), answer)

    @property
    def file_requests(self) -> list[Request]:
        return [request for request in list(self.server.requests) if request.path.startswith("/data/")]

    def _lines(self, files: list[dict[str, Any]]) -> Reply:
        metadata = {
            "id": "x",
            "format": {"provider": "parquet"},
            "partitionColumns": [],
            "schemaString": self._schema,
        }
        return Reply.of_lines(
            {"protocol": {"minReaderVersion": 1}},
            {"metaData": metadata},
            *files,
            {"endStreamAction": {}},
            headers={
                "Delta-Table-Version": str(self.version),
                "delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true",
            },
        )


def expired(request: Request) -> Reply:
    """S3's answer to an expired URL."""
    text = "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
    return Reply(status=403, body=text.encode(), headers={"Content-Type": "application/xml"})


def generation_of(request: Request) -> int:
    return int(request.query["generation"])
