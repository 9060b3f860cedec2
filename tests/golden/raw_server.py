"""A second sharing server for the golden tables: sends the log's own actions, in delta format.

It knows two calls, /metadata and /query of the newest version, and sends what stands in the log, with URLs for
paths. Nothing of the embedded server is in it.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, Self
from urllib.parse import quote, unquote

from delta_sharing_client.log import DeltaLog, Snapshot, deletion_vector_path, resolve_path

#: Contents of an answer: the log's actions; required fields only; all fields, null if unknown.
Wording = Literal["plain", "short", "nulls"]

_OTHERS: Final = ("remove", "cdc", "metaData", "protocol", "txn", "commitInfo", "domainMetadata")


class RawServer:
    """Serves the tables of a directory's children as `s.d.<child>`, each from its folder `table`.

    Args:
        tables: the directory.
        wording: contents of an answer.
    """

    def __init__(self, tables: Path, wording: Wording) -> None:
        self.tables = tables
        self.wording = wording
        raw_server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Headers and body in one packet, or each answer would wait for the other side's word.
            wbufsize = 1 << 20
            disable_nagle_algorithm = True

            def log_message(self, *_: Any) -> None:
                pass

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._answer(files=True)

            def do_GET(self) -> None:
                place, _, _ = self.path.partition("?")
                if place.startswith("/data/"):
                    self._file(Path(unquote(place.removeprefix("/data/"))))
                else:
                    self._answer(files=False)

            def _answer(self, *, files: bool) -> None:
                name = unquote(self.path.split("/tables/")[1].split("/")[0])
                lines, headers = raw_server.answer(name, files=files)
                body = "".join(json.dumps(line) + "\n" for line in lines).encode()
                self._send(200, body, headers | {"Content-Type": "application/x-ndjson; charset=utf-8"})

            def _file(self, file: Path) -> None:
                data = file.read_bytes()
                wanted = self.headers.get("Range")
                if wanted is None:
                    self._send(200, data, {})
                    return
                first, last = wanted.removeprefix("bytes=").split("-")
                part = data[int(first) : int(last) + 1]
                span = f"bytes {first}-{int(first) + len(part) - 1}/{len(data)}"
                self._send(206, part, {"Content-Range": span})

            def _send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def profile(self) -> dict[str, Any]:
        """The profile of a client."""
        return {"shareCredentialsVersion": 1, "endpoint": self.url, "bearerToken": "any"}

    def answer(self, name: str, *, files: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
        """Return the lines about a table, and the headers."""
        table = self.tables / name / "table"
        snapshot = DeltaLog.for_table(table, any_features=True).snapshot()
        lines: list[dict[str, Any]] = [
            {"protocol": {"deltaProtocol": dict(snapshot.protocol.raw)}},
            {"metaData": self._metadata(snapshot)},
        ]
        if files:
            lines += [{"file": self._file(table, add.raw, n)} for n, add in enumerate(snapshot.files)]
        if self.wording == "short":
            return lines, {}
        headers = {"delta-table-version": str(snapshot.version)}
        return lines, headers | {"Delta-Sharing-Capabilities": "ResponseFormat=Delta"}

    def _metadata(self, snapshot: Snapshot) -> dict[str, Any]:
        raw = dict(snapshot.metadata.raw)
        if self.wording == "short":
            kept = {"schemaString", "partitionColumns", "configuration"}
            return {"deltaMetadata": {key: value for key, value in raw.items() if key in kept and value}}
        if self.wording == "nulls":
            unknown = dict.fromkeys(("name", "description", "createdTime"))
            raw = unknown | raw | {"format": {"provider": "parquet", "options": {"x": "y"}}}
            raw["configuration"] = raw.get("configuration") or None
            raw["partitionColumns"] = raw.get("partitionColumns") or None
            return {"deltaMetadata": raw, "version": None, "size": None, "numFiles": None}
        return {"deltaMetadata": raw, "version": snapshot.version}

    def _file(self, table: Path, raw: Mapping[str, Any], number: int) -> dict[str, Any]:
        add = dict(raw) | {"path": self._url(resolve_path(table, raw["path"]))}
        vector = raw.get("deletionVector")
        if vector is not None and vector["storageType"] != "i":
            file = next(a for a in DeltaLog.for_table(table, any_features=True).snapshot().files if a.raw is raw)
            assert file.deletion_vector is not None
            place = deletion_vector_path(table, file.deletion_vector)
            assert place is not None
            add["deletionVector"] = vector | {"storageType": "p", "pathOrInlineDv": self._url(place)}
        if self.wording == "short":
            kept = {"path", "partitionValues", "deletionVector"}
            return {"deltaSingleAction": {"add": {key: add[key] for key in kept if add.get(key)}}}
        if self.wording == "nulls":
            unknown = dict.fromkeys(("stats", "tags", "deletionVector", "baseRowId", "defaultRowCommitVersion"))
            action = dict.fromkeys(_OTHERS) | {"add": unknown | add}
            more = dict.fromkeys(("version", "timestamp", "expirationTimestamp", "deletionVectorFileId"))
            return {"id": str(number), "deltaSingleAction": action} | more
        return {"id": str(number), "deltaSingleAction": {"add": add}}

    def _url(self, file: Path) -> str:
        return f"{self.url}/data/{quote(str(file), safe='')}?sig=secret"
