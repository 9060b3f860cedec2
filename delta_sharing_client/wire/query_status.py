"""Decoding of the status line of an asynchronous query ("Asynchronous query")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any, Final

from msgspec import Struct

from delta_sharing_client.errors import ProtocolError, QueryError
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.capabilities import ResponseCapabilities
from delta_sharing_client.wire.decoder import Decoded, decode_actions
from delta_sharing_client.wire.ndjson import MAX_LINE, parse_object

#: Longer first lines are never a status.
_MAX_STATUS: Final = 64 * 1024
#: The number of chunks of the body that may follow it.
_MAX_REST: Final = 4
_MAX_NAME: Final = 1024
_MESSAGES: Final = ("errorMessage", "message", "error", "statusMessage")
_FAILED: Final = frozenset(
    {"FAILED", "FAILURE", "ERROR", "CANCELED", "CANCELLED", "ABORTED", "EXPIRED", "TIMED_OUT"}
)


class QueryStatus(Struct, frozen=True):
    """The response while a query is running ("Asynchronous query").

    Attributes:
        query_id: the id by which the answer is requested.
        retry_after: the time in seconds until the next request, if the server sent one.
    """

    query_id: str
    retry_after: float | None = None


class UnannouncedStatusError(ProtocolError):
    """The server answers a query asynchronously without announcing it in its header.

    Such servers ignore the version, the filter and the limit of the query, so the answer must not be used.
    """


def decode_query(
    chunks: Iterable[bytes],
    *,
    formats: tuple[ResponseFormat, ...],
    capabilities: ResponseCapabilities,
    subject: str,
    query_id: str | None = None,
    limit: int = MAX_LINE,
) -> Iterator[Decoded] | QueryStatus:
    """Decode an answer to /query that may be asynchronous ("Asynchronous query").

    The arguments are those of `decode_actions`, and the query's id if it is known from an earlier answer.

    Returns:
        The actions, as `decode_actions` yields them, or the status of a query that is pending.

    Raises:
        QueryError: the query failed.
        UnannouncedStatusError: the answer is asynchronous, and its header does not announce it.
        ProtocolError: the status has no usable `queryId`.
    """
    pieces = iter(chunks)
    head = b""
    for chunk in pieces:
        head += chunk
        if b"\n" in head.lstrip() or len(head) > _MAX_STATUS:
            break
    line = head.lstrip()[:_MAX_STATUS].split(b"\n", 1)[0]
    status = _status_in(line) if b'"queryStatus"' in line else None
    if status is None:
        return decode_actions(
            chain([head], pieces), formats=formats, capabilities=capabilities, subject=subject, limit=limit
        )
    for _ in islice(pieces, _MAX_REST):  # so that the connection can be reused
        pass
    if query_id is None and not capabilities.asynchronous:
        raise UnannouncedStatusError(
            f"{subject}: the server answers asynchronously, and its delta-sharing-capabilities header has no "
            "asyncquery=true: the answer cannot be relied on"
        )
    state = str(status.get("status") or status.get("state") or "").upper()
    message = next((text for key in _MESSAGES if (text := _message(status.get(key)))), None)
    if state in _FAILED or status.get("errorMessage") or status.get("error") or (message and not state):
        raise QueryError(
            subject=subject, server_message=message or f"the query ended as {state}, without a reason"
        )
    name = query_id or status.get("queryId")
    if not isinstance(name, str) or name.strip(".") == "" or len(name) > _MAX_NAME:
        raise ProtocolError(f"{subject}: the asynchronous answer has no usable queryId")
    return QueryStatus(name)


def _status_in(line: bytes) -> dict[str, Any] | None:
    try:
        status = parse_object(line).get("queryStatus")
    except (ValueError, RecursionError):
        return None
    return status if isinstance(status, dict) else None


def _message(value: Any) -> str | None:
    if isinstance(value, dict):
        value = ": ".join(str(value[key]) for key in ("errorCode", "code", "message") if value.get(key))
    return value if isinstance(value, str) and value else None
