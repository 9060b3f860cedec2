"""Recorded requests, with their responses' sizes, for tests."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    """ASGI middleware that records the newest requests, `limit` of them."""

    def __init__(self, app: ASGIApp, *, limit: int) -> None:
        self._app = app
        #: Fields of `RecordedRequest`; those of the response change while it is sent.
        self._records: deque[dict[str, Any]] = deque(maxlen=limit)

    @property
    def requests(self) -> list[RecordedRequest]:
        """The newest requests, oldest first."""
        return [RecordedRequest(**record) for record in self._records.copy()]

    def reset(self) -> None:
        """Delete the records."""
        self._records.clear()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request; record each part of the response before it is sent."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        record: dict[str, Any] = {
            "method": scope["method"],
            "path": scope["path"],
            "query": _masked(query),
            "capabilities": headers.get("delta-sharing-capabilities"),
            "range": headers.get("range"),
            "has_authorization": "authorization" in headers,
            "bytes_sent": 0,
        }
        self._records.append(record)

        async def recording_send(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.update(status=message["status"], body=_masked(scope.get(BODY_KEY)))
            elif message["type"] == "http.response.body":
                record["bytes_sent"] += len(message.get("body", b""))
            await send(message)

        await self._app(scope, receive, recording_send)


def _masked(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    if fields is None:
        return None
    return {name: _MASK if name in _SECRETS else value for name, value in fields.items()}
