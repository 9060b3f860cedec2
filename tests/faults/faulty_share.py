"""A shared table on the scripted server, with the expected rows of each version.

The table has versions, pages, refresh tokens, a change data feed, and signed URLs that expire. The function
`fault` receives every request with its correct reply, and returns the reply to send.
"""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from faults.server import FaultServer, Reply, Request, file_reply

TABLE = "/shares/s/schemas/s/tables/t"
SIGNATURE = "canary-signature-c4a1"
SCHEMA = pa.schema([("id", pa.int64()), ("noise", pa.int64()), ("name", pa.string())])
#: The status and body with which the three clouds refuse an expired URL.
EXPIRED = (
    (403, "<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"),
    (400, "<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"),
    (
        403,
        "<Error><Code>AuthenticationFailed</Code><Message>Signature not valid in the time</Message></Error>",
    ),
)


def rows(first: int, count: int) -> pa.Table:
    """Return rows with values computed from the id."""
    ids = range(first, first + count)
    return pa.table([ids, [n * 7919 % 1_000_003 for n in ids], [f"name {n}" for n in ids]], schema=SCHEMA)


def parquet(table: pa.Table, row_group: int = 10**6) -> bytes:
    """Return a Parquet file with page checksums and one page per column chunk."""
    sink = io.BytesIO()
    pq.write_table(
        table,
        sink,
        compression="none",
        use_dictionary=False,
        write_page_checksum=True,
        data_page_size=2**24,
        row_group_size=row_group,
    )
    return sink.getvalue()


@dataclass
class File:
    """A file of the table."""

    name: str
    table: pa.Table
    data: bytes


@dataclass(kw_only=True)
class FaultyShare:
    """The table `s.s.t`.

    versions: the files of each version; a removed file is not added again.
    lifetime: lifetime of a URL in seconds.
    sends_expiration: whether responses contain the expiration time of URLs.
    tokens: whether responses contain refresh tokens.
    history: whether the server supports time travel.
    page: files per page.
    skew: seconds that the server's clock is ahead.
    refused: number of requests with an expired URL.
    advances: called for each query; returns whether the table then advances to its next version.
    fault: returns the reply to send for a request and its correct reply.
    """

    server: FaultServer
    versions: Sequence[Sequence[File]]
    lifetime: float = 3600.0
    sends_expiration: bool = True
    tokens: bool = True
    history: bool = True
    page: int | None = None
    skew: float = 0.0
    version: int = 0
    listings: int = 0
    refused: int = 0
    advances: Callable[[], bool] = field(default=lambda: False)
    fault: Callable[[Request, Reply], Reply] = field(default=lambda request, reply: reply)

    def __post_init__(self) -> None:
        self.files = {file.name: file for version in self.versions for file in version}
        self._lock = threading.Lock()
        self.server.on("*", "*", self._reply)

    @property
    def queries(self) -> list[dict[str, Any]]:
        """The bodies of the queries."""
        return [request.json() for request in self.server.seen(f"{TABLE}/query")]

    @property
    def file_requests(self) -> list[Request]:
        """The requests for files."""
        return [request for request in list(self.server.requests) if request.path.startswith("/data/")]

    def rows_at(self, version: int) -> pa.Table:
        """Return the expected rows of a version, in the server's order."""
        return pa.concat_tables([SCHEMA.empty_table(), *(file.table for file in self.versions[version])])

    def changes(self, first: int, last: int) -> pa.Table:
        """Return the expected changes of a range of versions."""
        parts = []
        for version in range(first, last + 1):
            for kind, file in self._changed(version):
                parts.append(
                    file.table.append_column("_change_type", pa.array([kind] * len(file.table)))
                    .append_column("_commit_version", pa.array([version] * len(file.table), pa.int64()))
                    .append_column("_commit_timestamp", pa.array([version * 1000] * len(file.table), pa.int64()))
                )
        return pa.concat_tables(parts)

    def _changed(self, version: int) -> list[tuple[str, File]]:
        before = {file.name for file in self.versions[version - 1]} if version else set()
        now = {file.name for file in self.versions[version]}
        removed = [("delete", self.files[name]) for name in sorted(before - now)]
        return removed + [("insert", self.files[name]) for name in sorted(now - before)]

    def _now(self) -> float:
        return time.time() + self.skew

    def _reply(self, request: Request) -> Reply:
        reply = self._store(request) if request.path.startswith("/data/") else self._api(request)
        reply = reply.but(headers={"Date": formatdate(self._now(), usegmt=True), **reply.headers})
        return self.fault(request, reply)

    def _store(self, request: Request) -> Reply:
        if self._now() >= float(request.query["expires"]):
            with self._lock:
                self.refused += 1
            status, text = EXPIRED[0]
            return Reply(status=status, body=text.encode(), headers={"Content-Type": "application/xml"})
        name = request.path.rpartition("/")[2]
        return file_reply(self.files[name].data, etag=f'"{name}"')(request)

    def _api(self, request: Request) -> Reply:
        if request.path == f"{TABLE}/query":
            return self._query(request)
        if request.path == f"{TABLE}/changes":
            return self._feed(request)
        if request.path == f"{TABLE}/metadata":
            return self._lines(self.version, [], {})
        if request.path == f"{TABLE}/version":
            return Reply(headers={"Delta-Table-Version": str(self.version)})
        if request.path == "/shares":
            return Reply.of_json({"items": [{"name": "s"}]})
        return Reply.of_json({"errorCode": "NOT_FOUND", "message": "no such path"}, status=404)

    def _query(self, request: Request) -> Reply:
        body = request.json()
        with self._lock:
            self.listings += 1
            if "pageToken" not in body and self.advances():
                self.version = min(self.version + 1, len(self.versions) - 1)
            version = self.version
        first = 0
        if "pageToken" in body:
            version, first = map(int, body["pageToken"].split("-"))
        elif "refreshToken" in body:
            version = int(body["refreshToken"].rpartition("-")[2])
        elif "version" in body:
            if not self.history:
                return Reply.of_json({"errorCode": "BAD_REQUEST", "message": "no history"}, status=400)
            version = body["version"]
        files = list(self.versions[version])
        last = first + (self.page or len(files))
        end: dict[str, Any] = {} if last >= len(files) else {"nextPageToken": f"{version}-{last}"}
        if self.tokens and body.get("includeRefreshToken"):
            end["refreshToken"] = f"canary-refresh-{version}"
        return self._lines(version, [("file", file, {}) for file in files[first:last]], end)

    def _feed(self, request: Request) -> Reply:
        first = int(request.query["startingVersion"])
        last = int(request.query.get("endingVersion", self.version))
        with self._lock:
            self.listings += 1
        files = [
            ({"insert": "add", "delete": "remove"}[kind], file, {"version": version, "timestamp": version * 1000})
            for version in range(first, last + 1)
            for kind, file in self._changed(version)
        ]
        return self._lines(first, files, {})

    def _lines(self, version: int, files: list[tuple[str, File, dict[str, Any]]], end: dict[str, Any]) -> Reply:
        expires = self._now() + self.lifetime
        lines: list[dict[str, Any]] = [{"protocol": {"minReaderVersion": 1}}, {"metaData": _METADATA}]
        for action, file, more in files:
            url = f"{self.server.url}/data/{file.name}?expires={expires}&X-Amz-Signature={SIGNATURE}"
            entry = {"url": url, "id": file.name, "partitionValues": {}, "size": len(file.data), **more}
            if self.sends_expiration:
                entry["expirationTimestamp"] = int(expires * 1000)
            lines.append({action: entry})
        if self.sends_expiration and files:
            end = {"minUrlExpirationTimestamp": int(expires * 1000), **end}
        lines.append({"endStreamAction": end})
        headers = {
            "Delta-Table-Version": str(version),
            "delta-sharing-capabilities": "responseformat=parquet;includeendstreamaction=true",
        }
        return Reply.of_lines(*lines, headers=headers)


_METADATA = {
    "id": "x",
    "format": {"provider": "parquet"},
    "partitionColumns": [],
    "schemaString": json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in (("id", "long"), ("noise", "long"), ("name", "string"))
            ],
        }
    ),
}
