"""Typed errors for the error statuses of the sharing server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from delta_sharing_client.errors import (
    AuthenticationError,
    BadRequestError,
    ForbiddenError,
    NotFoundError,
    RateLimitError,
    RestError,
    ServerError,
)
from delta_sharing_client.secrets import redact_text
from delta_sharing_client.shown_text import cut, printable
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import RETRYABLE_STATUSES, RetryLater, parse_retry_after
from delta_sharing_client.wire.ndjson import parse_object

_CLASSES: Final[Mapping[int, type[RestError]]] = {
    400: BadRequestError,
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    429: RateLimitError,
}
#: The `errorCode` of the reference server for what its reader of older protocols would have to read.
_UNSUPPORTED: Final = "UNSUPPORTED_OPERATION"
_UNSUPPORTED_REMEDY: Final = (
    "The server does not support this request for this table, with any release of the client: read the latest "
    "snapshot, with scan() or mirror()"
)
#: In this order in the messages of servers for a table without a change data feed.
_CHANGE_FEED: Final = re.compile(r"(?i)change data feed|\bcdf\b")
_DISABLED: Final = re.compile(r"(?i)\b(?:not enabled|disabled)")
_NO_CHANGE_FEED_REMEDY: Final = (
    "The table has no change data feed for these versions: ask the provider to set the table's property "
    "delta.enableChangeDataFeed to true. Changes are recorded from then on, so request later versions"
)
_MAX_MESSAGE: Final = 600
_MAX_EXCERPT: Final = 200

_INVISIBLE = re.compile(r"(?is)<(script|style)\b.*?(?:</\1\s*>|\Z)|<[^<>]*>")


def error_for(response: Response, *, subject: str, hints: Mapping[int, str]) -> RestError | RetryLater:
    """Return the error for an answer with an error status, with the remedy for the status from `hints`.

    Returns:
        A `RestError`, of the subclass for the status if there is one; within a `RetryLater` if the status can be
        retried and the server sent `Retry-After`.
    """
    code, message = error_in(response.excerpt(), response.scrub)
    remedy = hints.get(response.status)
    if response.status < 500 and names_missing_feed(message or ""):
        remedy = _NO_CHANGE_FEED_REMEDY
    elif code == _UNSUPPORTED:
        remedy = _UNSUPPORTED_REMEDY
    kind = _CLASSES.get(response.status, ServerError if response.status >= 500 else RestError)
    error = kind(
        status=response.status,
        subject=subject,
        error_code=code,
        server_message=message,
        hint=remedy,
    )
    if response.status in RETRYABLE_STATUSES:
        seconds = parse_retry_after(response.headers)
        if seconds is not None:
            return RetryLater(error, seconds)
    return error


def names_missing_feed(message: str) -> bool:
    """Whether a server's message says that the table has no change data feed."""
    feed = _CHANGE_FEED.search(message)
    return bool(feed and _DISABLED.search(message, feed.end())) or "enablechangedatafeed" in message.lower()


def is_unsupported(error: RestError) -> bool:
    """Whether the server refused a request because of what the table requires."""
    return error.error_code == _UNSUPPORTED


def error_in(body: bytes, scrub: Callable[[str], str] = str) -> tuple[str | None, str | None]:
    """Return `errorCode` and `message` of an error's body, or the first words of a body that is not JSON.

    `scrub` masks the secrets of the request.
    """
    try:
        fields = parse_object(body)
    except (ValueError, RecursionError):
        return None, _excerpt(scrub(body.decode("utf-8", "replace")))
    if isinstance(fields.get("error"), dict):  # of an Iceberg catalog
        fields = {"errorCode": fields["error"].get("type"), **fields["error"]}
    code = fields.get("errorCode") or fields.get("error_code")
    message = fields.get("message") or fields.get("error_description") or fields.get("error")
    return (
        _printable(scrub(str(code)), 100) if code else None,
        _printable(scrub(str(message)), _MAX_MESSAGE).rstrip(".") if message else None,
    )


def _excerpt(text: str) -> str | None:
    """Return the first words of an HTML page, without its tags."""
    return _printable(redact_text(_INVISIBLE.sub(" ", text)), _MAX_EXCERPT) or None


def _printable(text: str, limit: int) -> str:
    return cut(printable(" ".join(text.split())), limit)
