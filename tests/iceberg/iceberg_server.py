"""A small Iceberg REST catalog on loopback, over tables that pyiceberg writes to local files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
from faults.server import FaultServer, Reply, Request
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchNamespaceError, NoSuchTableError

import delta_sharing_client as ds

TOKEN = "canary-iceberg-token"
ROOT = "/sharing/iceberg"


class IcebergServer:
    """Serves the tables of one share, for requests with a token of `tokens`.

    config: further fields of the catalog's configuration. credentials: of the answers that load a table.
    loaded: the table of these answers, instead of the stored one.
    """

    def __init__(self, server: FaultServer, folder: Path) -> None:
        self.server = server
        self.tokens = {TOKEN}
        self.config: dict[str, Any] = {}
        self.credentials: dict[str, str] = {}
        self.page_size = 2
        self.loaded: Any = None
        self.catalog = SqlCatalog("tests", uri=f"sqlite:///{folder}/catalog.db", warehouse=f"file://{folder}")
        server.on("GET", re.compile(rf"^{ROOT}/v1/"), self._answer)
        shares = {"items": [{"name": "retail"}]}
        server.on("GET", "/shares", Reply.of_json(shares))

    def profile(self, **fields: Any) -> dict[str, Any]:
        known = {"shareCredentialsVersion": 1, "endpoint": self.server.url, "bearerToken": TOKEN}
        return {**known, "icebergEndpoint": f"{self.server.url}{ROOT}", **fields}

    def client(self, **options: Any) -> ds.SharingClient:
        return ds.SharingClient(self.profile(), options=ds.TransportOptions(**options) if options else None)

    def create(self, name: str, *batches: pa.Table, **settings: Any) -> Any:
        """Create a table ``schema.table`` with one snapshot for each batch."""
        self.catalog.create_namespace_if_not_exists(name.partition(".")[0])
        schema = settings.pop("schema", batches[0].schema if batches else None)
        table = self.catalog.create_table(name, schema, **settings)
        for batch in batches:
            table.append(batch)
        return table

    def seen(self, ending: str) -> list[Request]:
        return [request for request in self.server.requests if request.path.endswith(ending)]

    def _answer(self, request: Request) -> Reply:
        if request.headers.get("authorization", "").removeprefix("Bearer ") not in self.tokens:
            return _error(401, "NotAuthorizedException", "the token is not known")
        names = request.path.removeprefix(f"{ROOT}/v1/").split("/")
        try:
            return self._of(names, request)
        except (NoSuchTableError, NoSuchNamespaceError) as error:
            return _error(404, type(error).__name__, str(error))

    def _of(self, names: list[str], request: Request) -> Reply:
        match names:
            case ["config"] if request.query["warehouse"] == "retail":
                return Reply.of_json({"defaults": {}, "overrides": {"prefix": "shares/retail"}, **self.config})
            case ["shares", "retail", "namespaces"]:
                return self._page("namespaces", sorted(self.catalog.list_namespaces()), request)
            case ["shares", "retail", "namespaces", schema, "tables"]:
                found = [
                    {"namespace": name[:-1], "name": name[-1]} for name in sorted(self.catalog.list_tables(schema))
                ]
                return self._page("identifiers", found, request)
            case ["shares", "retail", "namespaces", schema, "tables", table]:
                metadata = (self.loaded or self.catalog.load_table((schema, table))).metadata
                answer = {"metadata": json.loads(metadata.model_dump_json()), "config": self.credentials}
                return Reply.of_json({"metadata-location": f"{metadata.location}/metadata/x.json", **answer})
        return _error(404, "NoSuchWarehouseException", "there is no such warehouse")

    def _page(self, key: str, items: list[Any], request: Request) -> Reply:
        start = int(request.query.get("pageToken", 0))
        end = start + self.page_size
        following = {"next-page-token": str(end)} if end < len(items) else {}
        return Reply.of_json({key: items[start:end], **following})


def _error(status: int, kind: str, message: str) -> Reply:
    return Reply.of_json({"error": {"message": message, "type": kind, "code": status}}, status=status)
