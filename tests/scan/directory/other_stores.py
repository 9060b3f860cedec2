"""Imitations of Azure Blob Storage and Google Cloud Storage, beside that of S3: what pyarrow asks of them."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

sys.path.append(str(Path(__file__).parents[2]))

from directory_store import PATH, DirectoryServer
from faults.server import Reply, Request, file_reply

ACCOUNT = "account"
SAS = "sv=2024&sig=canary-sas"
TOKEN = "canary-gcp-token"


def _stamp(path: Path, form: str) -> str:
    return datetime.fromtimestamp(path.stat().st_mtime, UTC).strftime(form)


def _entries(shared: DirectoryServer, prefix: str) -> list[tuple[str, Path]]:
    folder = shared.path / prefix.removeprefix("x/t/")
    return [(prefix + path.name, path) for path in sorted(folder.iterdir())] if folder.is_dir() else []


def azure(shared: DirectoryServer) -> dict[str, Any]:
    """Make the store one of Azure; return the credentials for it."""
    http_time = "%a, %d %b %Y %H:%M:%S GMT"

    def answer(request: Request) -> Reply:
        if request.query.get("sig") != "canary-sas":
            return Reply(status=403, headers={"x-ms-error-code": "AuthenticationFailed"})
        if request.query.get("action") == "getAccessControl":  # asks whether folders are real here
            return Reply(status=400, headers={"x-ms-error-code": "HierarchicalNamespaceNotEnabled"})
        if request.query.get("comp") == "list":
            prefix = request.query["prefix"]
            blobs = "".join(
                f"<Blob><Name>{name}</Name><Properties><Last-Modified>{_stamp(path, http_time)}</Last-Modified>"
                f"<Etag>0x1</Etag><Content-Length>{path.stat().st_size}</Content-Length>"
                "<BlobType>BlockBlob</BlobType></Properties></Blob>"
                for name, path in _entries(shared, prefix)
                if path.is_file()
            )
            folders = "".join(
                f"<BlobPrefix><Name>{name}/</Name></BlobPrefix>"
                for name, path in _entries(shared, prefix)
                if path.is_dir()
            )
            body = (
                '<?xml version="1.0" encoding="utf-8"?><EnumerationResults ServiceEndpoint="http://h/" '
                f'ContainerName="c"><Prefix>{prefix}</Prefix><Delimiter>/</Delimiter><Blobs>{blobs}{folders}</Blobs>'
                "<NextMarker/></EnumerationResults>"
            )
            return Reply(body=body.encode(), headers={"Content-Type": "application/xml"})
        path = shared.path / unquote(request.path).removeprefix(f"/{ACCOUNT}/c/x/t/")
        if not path.is_file():
            return Reply(status=404, headers={"x-ms-error-code": "BlobNotFound"})
        ranged = {**request.headers, "range": request.headers.get("x-ms-range", "")}
        request = Request(request.method, request.target, ranged, request.body, request.connection)
        reply = file_reply(path.read_bytes(), etag='"0x1"')(request)
        stamp = {"Last-Modified": _stamp(path, http_time), "x-ms-creation-time": _stamp(path, http_time)}
        kind = {"x-ms-blob-type": "BlockBlob", "x-ms-server-encrypted": "true", "Content-Type": "application/x"}
        return reply.but(headers={**reply.headers, **stamp, **kind})

    shared.store.on("*", "*", answer)
    shared.api.on(
        "POST",
        f"{PATH}/temporary-table-credentials",
        _given(
            location=f"abfss://c@{ACCOUNT}.dfs.core.windows.net/x/t",
            azureUserDelegationSas={"sasToken": f"?{SAS}"},
        ),
    )
    host = f"127.0.0.1:{shared.store.port}"
    return {
        "blob_storage_authority": host,
        "dfs_storage_authority": host,
        "blob_storage_scheme": "http",
        "dfs_storage_scheme": "http",
    }


def google(shared: DirectoryServer) -> dict[str, Any]:
    """Make the store one of Google; return how it is reached."""
    form = "%Y-%m-%dT%H:%M:%S.000Z"

    def item(name: str, path: Path) -> dict[str, Any]:
        stamp = _stamp(path, form)
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": "b",
            "generation": "1",
            "size": str(path.stat().st_size),
            "updated": stamp,
            "timeCreated": stamp,
        }

    def answer(request: Request) -> Reply:
        if request.headers.get("authorization") != f"Bearer {TOKEN}":
            return Reply.of_json({"error": {"code": 401, "message": "Invalid Credentials"}}, status=401)
        name = unquote(request.path).partition("/o/")[2] or unquote(request.path).removeprefix("/b/")
        if request.path.endswith("/o"):
            found = [(name, path) for name, path in _entries(shared, request.query["prefix"]) if path.is_file()]
            return Reply.of_json({"kind": "storage#objects", "items": [item(*entry) for entry in found]})
        path = shared.path / name.removeprefix("x/t/")
        if not path.is_file():
            return Reply.of_json({"error": {"code": 404, "message": "No such object"}}, status=404)
        if request.path.startswith("/storage/") and request.query.get("alt") != "media":
            return Reply(body=json.dumps(item(name, path)).encode(), headers={"Content-Type": "application/json"})
        reply = file_reply(path.read_bytes())(request)
        return reply.but(headers={**reply.headers, "x-goog-generation": "1"})

    shared.store.on("*", "*", answer)
    shared.api.on(
        "POST",
        f"{PATH}/temporary-table-credentials",
        _given(location="gs://b/x/t", gcpOauthToken={"oauthToken": TOKEN}),
    )
    return {"scheme": "http", "endpoint_override": f"127.0.0.1:{shared.store.port}"}


def _given(**credentials: Any) -> Reply:
    return Reply.of_json({"credentials": {**credentials, "expirationTime": 4_000_000_000_000}})


def main() -> None:
    """Serve a folder as a table in a Google store until the standard input ends; print how it is reached."""
    with DirectoryServer(Path(sys.argv[1])) as shared:
        print(json.dumps({"where": google(shared), "profile": shared.api.profile}), flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
