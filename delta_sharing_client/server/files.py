"""Data files behind signed URLs: URLs made for the lines of an answer, and files as an object store serves them.

Errors are XML with the codes and messages of S3. Starlette's `FileResponse` implements ranges and `If-Range`;
`If-Match` is checked here.
"""

from __future__ import annotations

import binascii
import hashlib
import os
import time
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from delta_sharing_client.server.catalog import Catalog, split_name
from delta_sharing_client.server.problems import forbidden
from delta_sharing_client.server.sign import SIGNATURE, Signer
from delta_sharing_client.server.table_request import TableRequest

#: Arguments of `encode` and `decode` for paths, which may be any bytes.
ANY_BYTES: Final = ("utf-8", "surrogateescape")
_MISMATCH: Final = "The request signature we calculated does not match the signature you provided."


def signed_url(request: TableRequest, path: Path, expires: int) -> str:
    """Return a URL for a file of a table, which expires at a time in milliseconds since the epoch.

    It has the table's name and the path within it, encoded. With `file_ids_by_format` the path itself follows.

    Raises:
        Problem: 403, the path is outside the table's directory.
    """
    table = request.table
    local = os.path.normpath(path)
    root = str(table.path) + os.sep
    # Links are resolved when the file is read; here only if the text of the path is outside of the table.
    if not local.startswith(root):
        local = str(Path(local).resolve())
    if not local.startswith(root):
        raise forbidden(f"Table {table.full_name} has files outside its own directory, which are not shared.")
    relative = local.removeprefix(root).encode(*ANY_BYTES)
    key = urlsafe_b64encode(f"{table.full_name}/".encode(*ANY_BYTES) + relative).decode().rstrip("=")
    if request.options.file_ids_by_format:
        key += f"/{quote(relative)}"
    # Signed as the server receives it, decoded: clients may encode more characters.
    signature = request.signer.sign_url(unquote(key), expires)
    return f"{request.base_url}/files/{key}?expires={expires}&{SIGNATURE}={signature}"


class _FilePart(FileResponse):
    """A response with a file or a range of it, read in large chunks to spare the event loop."""

    chunk_size = 1024 * 1024


@dataclass(frozen=True, kw_only=True)
class FileEndpoint:
    """`GET` and `HEAD` of `/files/{key}?expires=...&X-Amz-Signature=...`."""

    catalog: Catalog
    signer: Signer

    def answer(self, request: Request) -> Response:
        """Answer a request for a data file; runs in a thread."""
        key = request.path_params["key"]
        expires, signature = request.query_params.get("expires", ""), request.query_params.get(SIGNATURE, "")
        if not expires or not signature:
            return _refuse(403, "AccessDenied", "Access Denied")
        if not self.signer.check_url(key, expires, signature):
            return _refuse(403, "SignatureDoesNotMatch", _MISMATCH)
        now = time.time()
        if now * 1000 >= int(expires):
            times = {"Expires": _iso(int(expires) / 1000), "ServerTime": _iso(now)}
            return _refuse(403, "AccessDenied", "Request has expired", **times)
        path = _find_file(self.catalog, key)
        if path is None:
            return _refuse(404, "NoSuchKey", "The specified key does not exist.")
        stat = path.stat()
        identity = f"{stat.st_ino}-{stat.st_size}-{stat.st_mtime_ns}".encode()
        etag = f'"{hashlib.sha256(identity).hexdigest()[:32]}"'
        wanted = request.headers.get("if-match", "*")
        if wanted != "*" and etag not in [tag.strip() for tag in wanted.split(",")]:
            return _refuse(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
        headers = {"etag": etag}
        return _FilePart(path, headers=headers, media_type="application/octet-stream", stat_result=stat)


def _find_file(catalog: Catalog, key: str) -> Path | None:
    """Return the real path of a file by its key; None if its table is not shared, or it is not in its table."""
    key = key.partition("/")[0]
    try:
        full_name, _, relative = urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode(*ANY_BYTES).partition("/")
        table = catalog.find(*split_name(full_name))
        if table is None:
            return None
        real = (table.path / relative).resolve(strict=True)
    except (binascii.Error, ValueError, OSError):
        return None
    return real if real.is_relative_to(table.path) and real.is_file() else None


def _refuse(status: int, code: str, message: str, **extra: str) -> Response:
    elements = {"Code": code, "Message": message} | extra
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in elements.items())
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{body}</Error>'
    return Response(text, status_code=status, media_type="application/xml")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
