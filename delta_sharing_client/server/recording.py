"""Recorded requests, with their responses' sizes, for tests."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qsl

Scope: TypeAlias = MutableMapping[str, Any]
Message: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
App: TypeAlias = Callable[[Scope, Receive, Send], Awaitable[None]]

BODY_KEY: Final = "delta_sharing_body"

_SECRETS: Final = {"X-Amz-Signature", "pageToken", "refreshToken"}
_MASK: Final = "***"


@dataclass(frozen=True, kw_only=True)
class RecordedRequest:
    """One request; tokens and signatures are masked.

    Attributes:
        method: `GET`, `POST` or `HEAD`.
        path: the decoded path.
        query: the query parameters.
        body: the JSON body of a query, None for other requests.
        capabilities: the `delta-sharing-capabilities` header, if any.
        range: the `Range` header, if any.
        has_authorization: whether there was an `Authorization` header.
        status: the status of the response; 0 before it is sent.
        bytes_sent: bytes of the response's body sent so far.
    """

    method: str
    path: str
    query: dict[str, str]
    body: dict[str, Any] | None = None
    capabilities: str | None = None
    range: str | None = None
    has_authorization: bool = False
    status: int = 0
    bytes_sent: int = 0

    @property
    def is_file(self) -> bool:
        """Whether it was for a data file and not for the API."""
        return self.path.startswith("/files/")


class Recorder:
    """ASGI middleware that records the newest requests.

    Args:
        app: the application.
        limit: number of requests to keep.
    """

    def __init__(self, app: App, *, limit: int) -> None:
        self._app = app
        self._limit = limit
        self._lock = threading.Lock()
        self._records: OrderedDict[int, RecordedRequest] = OrderedDict()
        self._next = 0

    @property
    def requests(self) -> list[RecordedRequest]:
        """The newest requests, oldest first."""
        with self._lock:
            return list(self._records.values())

    def reset(self) -> None:
        """Forget the requests so far."""
        with self._lock:
            self._records.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; record each part of the response before it is sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        record = RecordedRequest(
            method=scope["method"],
            path=scope["path"],
            query={name: _MASK if name in _SECRETS else value for name, value in query.items()},
            capabilities=headers.get("delta-sharing-capabilities"),
            range=headers.get("range"),
            has_authorization="authorization" in headers,
        )
        with self._lock:
            key = self._next
            self._next += 1
            self._records[key] = record
            while len(self._records) > self._limit:
                self._records.popitem(last=False)

        async def recording_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._update(key, status=message["status"], body=_masked(scope.get(BODY_KEY)))
            elif message["type"] == "http.response.body":
                self._update(key, more_bytes=len(message.get("body", b"")))
            await send(message)

        await self._app(scope, receive, recording_send)

    def _update(self, key: int, *, more_bytes: int = 0, **changes: Any) -> None:
        with self._lock:
            record = self._records.get(key)
            if record is not None:
                self._records[key] = replace(record, bytes_sent=record.bytes_sent + more_bytes, **changes)


def _masked(body: Any) -> dict[str, Any] | None:
    if not isinstance(body, dict):
        return None
    return {name: _MASK if name in _SECRETS else value for name, value in body.items()}
