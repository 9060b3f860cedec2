"""Data files behind signed URLs, as an object store serves them.

Errors are XML with the codes and messages of S3. Starlette's `FileResponse` implements ranges and `If-Range`;
`If-Match` is checked here.
"""

from __future__ import annotations

import hashlib
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final
from xml.sax.saxutils import escape

from starlette.requests import Request
from starlette.responses import FileResponse, Response

from delta_sharing_client.server.catalog import Catalog
from delta_sharing_client.server.file_urls import find_file
from delta_sharing_client.server.sign import SIGNATURE, Signer

_MISMATCH: Final = "The request signature we calculated does not match the signature you provided."


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
        path = find_file(self.catalog, key)
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


def _refuse(status: int, code: str, message: str, **extra: str) -> Response:
    elements = {"Code": code, "Message": message} | extra
    body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in elements.items())
    text = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{body}</Error>'
    return Response(text, status_code=status, media_type="application/xml")


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
