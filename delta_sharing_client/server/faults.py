"""Faults on request: answers that fail, are cut, or are late, so that tests see what their own code does then."""

from __future__ import annotations

import json
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

#: The requests that a fault applies to: listings of shares, schemas and tables; the version, metadata, query or
#: changes of a table; data files; or all of them.
Requests: TypeAlias = Literal["listings", "version", "metadata", "query", "changes", "files", "all"]

_REQUESTS: Final = ("listings", "version", "metadata", "query", "changes", "files", "all")
_EXPIRED: Final = (
    b'<?xml version="1.0" encoding="UTF-8"?>\n'
    b"<Error><Code>AccessDenied</Code><Message>Request has expired</Message></Error>"
)
_ANSWERS: Final = ("version", "metadata", "query", "changes")


class _CutError(Exception):
    """Makes uvicorn close a connection before the end of the response."""


@dataclass(eq=False, kw_only=True)
class Fault:
    """A fault of the embedded server; made by `Faults`.

    Attributes:
        on: the requests that it applies to.
        times: how many requests it still applies to; None for all.
        hits: how many requests it has applied to.
    """

    on: Requests
    times: int | None
    hits: int = 0
    _reply: Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]] = field(repr=False)


class Faults:
    """ASGI middleware with the faults of a server. Of several that apply to a request, the first one does.

    Args:
        app: the application that answers all other requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def refuse(
        self, status: int, *, on: Requests = "all", times: int | None = 1, retry_after: int | None = None
    ) -> Fault:
        """Answer requests with an HTTP error, such as 429, 503, 401 or 404.

        Args:
            status: the HTTP status, 400 to 599.
            on: the requests.
            times: how many requests; None for all.
            retry_after: seconds in the `Retry-After` header; None for no such header.
        """
        if not 400 <= status <= 599:
            raise ValueError(f"status is {status}; it takes 400 to 599")
        body = json.dumps({"errorCode": "TEST_FAULT", "message": f"a test requested status {status}"}).encode()
        headers = [] if retry_after is None else [(b"retry-after", str(retry_after).encode())]

        async def reply(_app: ASGIApp, _scope: Scope, _receive: Receive, send: Send) -> None:
            await _send(send, status, b"application/json; charset=utf-8", body, headers)

        return self._add(on, times, reply)

    def expire_urls(self, *, times: int | None = 1) -> Fault:
        """Refuse requests for files as a store does when a pre-signed URL has expired.

        Args:
            times: how many requests; None for all, so that renewed URLs do not help.
        """

        async def reply(_app: ASGIApp, _scope: Scope, _receive: Receive, send: Send) -> None:
            await _send(send, 403, b"application/xml", _EXPIRED, [])

        return self._add("files", times, reply)

    def cut(
        self, at: float = 0.5, *, on: Requests = "query", times: int | None = 1, between_lines: bool = False
    ) -> Fault:
        """Cut the body of responses.

        Args:
            at: the part of the body that is sent, from 0 to less than 1.
            on: the requests.
            times: how many requests; None for all.
            between_lines: cut after the last whole line, and end the response as if it were complete. By default
                the connection is closed.
        """
        if not 0 <= at < 1:
            raise ValueError(f"at is {at:g}; it takes 0 to less than 1, the part of the body that is sent")

        async def reply(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
            messages: list[Message] = []

            async def hold(message: Message) -> None:
                messages.append(message)

            await app(scope, receive, hold)
            start, *parts = messages
            body = b"".join(part.get("body", b"") for part in parts)
            sent = body[: int(len(body) * at)]
            if between_lines:
                lines = sent[: sent.rfind(b"\n") + 1]
                headers = [item for item in start["headers"] if item[0].lower() != b"content-length"]
                await send({**start, "headers": headers})
                await send({"type": "http.response.body", "body": lines})
                return
            await send(start)
            await send({"type": "http.response.body", "body": sent, "more_body": True})
            raise _CutError

        return self._add(on, times, reply)

    def delay(self, seconds: float, *, on: Requests = "files", times: int | None = None) -> Fault:
        """Answer requests late, as a slow store or server does.

        Args:
            seconds: time before the answer.
            on: the requests.
            times: how many requests; None for all.
        """

        async def reply(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
            import asyncio  # slow to import, and needed by a running server only

            await asyncio.sleep(seconds)
            await app(scope, receive, send)

        return self._add(on, times, reply)

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def _add(self, on: Requests, times: int | None, reply: Callable[..., Awaitable[None]]) -> Fault:
        if on not in _REQUESTS:
            raise ValueError(f"on is {on!r}; it takes one of {', '.join(_REQUESTS)}")
        fault = Fault(on=on, times=times, _reply=reply)
        with self._lock:
            self._faults.append(fault)
        return fault

    def _next(self, kind: str) -> Fault | None:
        """Return the fault for a request, and count it."""
        with self._lock:
            for fault in self._faults:
                if fault.on in (kind, "all") and fault.times != 0:
                    fault.hits += 1
                    fault.times = None if fault.times is None else fault.times - 1
                    return fault
        return None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request."""
        fault = self._next(_kind(scope["path"])) if scope["type"] == "http" else None
        if fault is None:
            await self._app(scope, receive, send)
        else:
            await fault._reply(self._app, scope, receive, send)


def _kind(path: str) -> str:
    if path.startswith("/files/"):
        return "files"
    parts = path.split("/tables/")[1].split("/") if "/tables/" in path else []
    if len(parts) == 1:  # HEAD of a table
        return "version"
    if len(parts) > 1:
        return "query" if parts[1] == "queries" else parts[1] if parts[1] in _ANSWERS else "all"
    return "listings"


async def _send(
    send: Send, status: int, media_type: bytes, body: bytes, headers: list[tuple[bytes, bytes]]
) -> None:
    fixed: list[tuple[bytes, Any]] = [
        (b"content-type", media_type),
        (b"content-length", str(len(body)).encode()),
    ]
    await send({"type": "http.response.start", "status": status, "headers": fixed + headers})
    await send({"type": "http.response.body", "body": body})
