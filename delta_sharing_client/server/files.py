"""Data files behind signed URLs, as an object store serves them.

Errors are XML in the words of S3, because that is what clients of shared tables meet. One range of bytes is
honoured, with strong ETags, `If-Match` and `If-Range`.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.sax.saxutils import escape

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from delta_sharing_client.server.links import FileStore
from delta_sharing_client.server.sign import SIGNATURE, Signer

_CHUNK_BYTES: Final = 1024 * 1024
_RANGE: Final = re.compile(r"bytes=(\d*)-(\d*)", re.IGNORECASE | re.ASCII)
_MAX_DIGITS: Final = 18


class StoreError(Exception):
    """A request that the store refuses.

    Args:
        status: the HTTP status.
        code: S3's name for it.
        message: S3's words for it.
        extra: further elements of the answer.
        headers: further headers of the answer.
    """

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        extra: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        elements = {"Code": code, "Message": message} | dict(extra or {})
        body = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in elements.items())
        self.response = Response(
            f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{body}</Error>',
            status_code=status,
            media_type="application/xml",
            headers=dict(headers or {}),
        )


@dataclass(frozen=True, kw_only=True)
class _Slice:
    """An open file, read up to the end of `first_chunk`, and how much of it to send in all."""

    descriptor: int
    length: int
    first_chunk: bytes


class FileResponse(Response):
    """Sends part of a file, read in large pieces off the event loop; closes it in any case."""

    def __init__(self, part: _Slice, *, status: int, headers: dict[str, str]) -> None:
        # Not Response.__init__: the length is that of the file's part, and there is no body to render.
        self.status_code = status
        self.background = None
        self.body = b""
        self.init_headers(headers)
        self._part = part

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the part."""
        part = self._part
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            chunk, sent = part.first_chunk, 0
            while chunk:
                sent += len(chunk)
                await send({"type": "http.response.body", "body": chunk, "more_body": sent < part.length})
                if sent >= part.length:
                    return
                size = min(_CHUNK_BYTES, part.length - sent)
                chunk = await run_in_threadpool(os.read, part.descriptor, size)
            if sent < part.length:
                raise OSError("a data file became shorter while it was sent")
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            os.close(part.descriptor)


class FileEndpoint:
    """`GET` and `HEAD` of `/files/{id}?expires=...&X-Amz-Signature=...`."""

    def __init__(self, *, store: FileStore, signer: Signer) -> None:
        self._store = store
        self._signer = signer

    async def __call__(self, request: Request) -> Response:
        """Answer a request for a data file."""
        try:
            path = self._authorise(request)
            headers = dict(request.headers)
            return await run_in_threadpool(_open, path, headers, head_only=request.method == "HEAD")
        except StoreError as error:
            return error.response

    def _authorise(self, request: Request) -> Path:
        file_id = request.path_params["file_id"]
        expires, signature = request.query_params.get("expires", ""), request.query_params.get(SIGNATURE, "")
        if not expires or not signature:
            raise StoreError(403, "AccessDenied", "Access Denied")
        if not self._signer.check_url(file_id, expires, signature):
            message = "The request signature we calculated does not match the signature you provided."
            raise StoreError(403, "SignatureDoesNotMatch", message)
        now = time.time()
        if now * 1000 >= int(expires):
            times = {"Expires": _iso(int(expires) / 1000), "ServerTime": _iso(now)}
            raise StoreError(403, "AccessDenied", "Request has expired", extra=times)
        path = self._store.find(file_id)
        if path is None:
            raise StoreError(404, "NoSuchKey", "The specified key does not exist.", extra={"Key": file_id})
        return path


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def _open(path: Path, headers: dict[str, str], *, head_only: bool) -> Response:
    """Open a file, decide what of it to send, and read the first piece: one trip off the event loop."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0))
    except OSError:
        raise StoreError(404, "NoSuchKey", "The specified key does not exist.") from None
    try:
        stat = os.fstat(descriptor)
        size = stat.st_size
        identity = f"{stat.st_ino}-{size}-{stat.st_mtime_ns}".encode()
        etag = f'"{hashlib.sha256(identity).hexdigest()[:32]}"'
        answer = {"etag": etag, "accept-ranges": "bytes", "content-type": "application/octet-stream"}
        wanted = headers.get("if-match")
        if wanted is not None and wanted != "*" and etag not in [tag.strip() for tag in wanted.split(",")]:
            raise StoreError(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
        start, length, status = 0, size, 200
        span = _parse_range(headers.get("range"), size)
        if span is not None and headers.get("if-range", etag) == etag:
            start, length, status = span[0], span[1] - span[0], 206
            answer["content-range"] = f"bytes {start}-{span[1] - 1}/{size}"
        answer["content-length"] = str(length)
        first_chunk = b"" if head_only else _read_at(descriptor, start, min(_CHUNK_BYTES, length))
    except BaseException:
        os.close(descriptor)
        raise
    if head_only:
        os.close(descriptor)
        return _Head(status, answer)
    part = _Slice(descriptor=descriptor, length=length, first_chunk=first_chunk)
    return FileResponse(part, status=status, headers=answer)


def _read_at(descriptor: int, start: int, size: int) -> bytes:
    os.lseek(descriptor, start, os.SEEK_SET)
    return os.read(descriptor, size)


class _Head(Response):
    """The headers of a file without its body."""

    def __init__(self, status: int, headers: dict[str, str]) -> None:
        self.status_code = status
        self.background = None
        self.body = b""
        self.init_headers(headers)


def _parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """Return the first byte and the one after the last; None where the whole file is to be sent.

    Several ranges, and what is no range of bytes, are ignored, as HTTP allows.

    Raises:
        StoreError: 416, the range lies behind the end.
    """
    match = _RANGE.fullmatch(header.replace(" ", "")) if header else None
    if match is None or not (match[1] or match[2]):
        return None
    first, last = (_position(digits) for digits in match.groups())
    if first is None:
        start, end = max(0, size - (last or 0)), size
    else:
        start, end = first, size if last is None else min(size, last + 1)
        if last is not None and last < first:
            return None
    if start >= size or start >= end:
        raise StoreError(
            416,
            "InvalidRange",
            "The requested range is not satisfiable",
            extra={"ActualObjectSize": str(size)},
            headers={"content-range": f"bytes */{size}"},
        )
    return start, end


def _position(digits: str) -> int | None:
    """Return a position in a file; one of more digits than any file has bytes counts as the largest of all."""
    if not digits:
        return None
    return int(digits) if len(digits) <= _MAX_DIGITS else sys.maxsize
