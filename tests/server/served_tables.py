"""What the server's tests share: a client of bare `requests`, and hand-written tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
from waiting import HANG

from delta_sharing_client.server import SharingServer

DELTA = {"delta-sharing-capabilities": "responseformat=delta"}
END = {"delta-sharing-capabilities": "includeendstreamaction=true"}
DELTA_END = {"delta-sharing-capabilities": "responseformat=delta;includeendstreamaction=true"}


class Answered:
    """A response with its newline-delimited JSON taken apart."""

    def __init__(self, response: requests.Response) -> None:
        self.response = response
        self.status = response.status_code
        self.headers = response.headers
        self.version = response.headers.get("delta-table-version")

    @property
    def json(self) -> Any:
        return self.response.json()

    @property
    def lines(self) -> list[dict[str, Any]]:
        assert self.status == 200, self.response.text
        assert self.response.headers["content-type"] == "application/x-ndjson; charset=utf-8"
        assert self.response.content.endswith(b"\n")
        return [json.loads(line) for line in self.response.content.decode().splitlines()]

    def all(self, name: str) -> list[dict[str, Any]]:
        return [line[name] for line in self.lines if name in line]

    @property
    def files(self) -> list[dict[str, Any]]:
        return self.all("file")

    @property
    def metadata(self) -> dict[str, Any]:
        return self.lines[1]["metaData"]

    @property
    def end(self) -> dict[str, Any]:
        return self.lines[-1]["endStreamAction"]

    def error(self, status: int) -> str:
        assert self.status == status, self.response.text
        assert self.headers["content-type"].startswith("application/json")
        body = self.json
        assert set(body) == {"errorCode", "message"}
        assert "/" not in body["message"].replace("responseformat=delta", ""), "a path in a message"
        return body["message"]


class Caller:
    """Client of a server that follows the protocol's text."""

    def __init__(self, server: SharingServer) -> None:
        self.server = server
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.headers["Authorization"] = f"Bearer {server.profile['bearerToken']}"

    def __enter__(self) -> Caller:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.session.close()

    def call(self, method: str, path: str, **options: Any) -> Answered:
        return Answered(self.session.request(method, self.server.endpoint + path, timeout=HANG, **options))

    def get(self, path: str, headers: dict[str, str] | None = None, **params: Any) -> Answered:
        return self.call("GET", path, headers=headers, params=params)

    def query(self, table: str, headers: dict[str, str] | None = None, **body: Any) -> Answered:
        return self.call("POST", f"{at(table)}/query", headers=headers, json=body)

    def changes(self, table: str, headers: dict[str, str] | None = None, **params: Any) -> Answered:
        return self.get(f"{at(table)}/changes", headers, **params)

    def file(self, url: str, method: str = "GET", **headers: str) -> requests.Response:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        with requests.Session() as session:
            session.trust_env = False
            return session.request(method, url, headers=names, timeout=HANG)


def at(table: str) -> str:
    share, schema, name = table.split(".")
    return f"/shares/{share}/schemas/{schema}/tables/{name}"


def column(name: str, data_type: str, **metadata: Any) -> dict[str, Any]:
    return {"name": name, "type": data_type, "nullable": True, "metadata": metadata}


def protocol(reader: int = 1, writer: int = 2, features: Iterable[str] = ()) -> dict[str, Any]:
    listed = {"readerFeatures": list(features), "writerFeatures": list(features)} if reader == 3 else {}
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer} | listed}


def metadata(
    *columns: dict[str, Any], partitions: Iterable[str] = (), configuration: dict[str, str] | None = None
) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "0f6b4c4e-4e0c-4b5e-9df9-4a6bdf9d2a57",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": list(columns) or [column("a", "long")]}),
            "partitionColumns": list(partitions),
            "configuration": configuration or {},
        }
    }


def add(
    path: str, *, partition: dict[str, str | None] | None = None, stats: Any = None, **more: Any
) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "path": path,
        "partitionValues": partition or {},
        "size": 10,
        "modificationTime": 0,
        "dataChange": True,
    }
    if stats is not None:
        fields["stats"] = stats if isinstance(stats, str) else json.dumps(stats)
    return {"add": fields | more}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True} | more}


def write_table(table: Path, *commits: Iterable[dict[str, Any]]) -> Path:
    """Write a table's log, and a little file for every path in it."""
    log = table / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    first = len(list(log.glob("*.json")))
    for version, actions in enumerate(commits, first):
        lines = []
        for action in actions:
            lines.append(json.dumps(action) + "\n")
            for name in ("add", "cdc"):
                path = action.get(name, {}).get("path", "")
                if path and not path.startswith(("/", "file:", "s3:")) and ".." not in path:
                    (table / path).parent.mkdir(parents=True, exist_ok=True)
                    (table / path).write_bytes(path.encode().ljust(10, b".")[:10])
        (log / f"{version:020}.json").write_text("".join(lines))
    return table
