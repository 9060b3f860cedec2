"""Mapping of error responses of object stores (S3, Azure, GCS) to typed errors: expired, gone, busy, refused."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlsplit

from delta_sharing_client.errors import FileGoneError, StorageError, UrlExpiredError
from delta_sharing_client.secrets import MASK, SecretUrl, redact_text
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import RETRYABLE_STATUSES, RetryLater, parse_retry_after

_CODE = re.compile(r"<Code>\s*([A-Za-z0-9_.-]{1,100})\s*</Code>", re.IGNORECASE)
_MESSAGE = re.compile(r"<Message>([^<]{1,2000})</Message>", re.IGNORECASE)
_JSON_CODE = re.compile(r'"(?:code|errorCode|error)"\s*:\s*"([A-Za-z0-9_.-]{1,100})"')
_JSON_MESSAGE = re.compile(r'"message"\s*:\s*"([^"\\]{1,2000})"')

#: Error codes for an expired URL, or for an expired session that signed it.
_EXPIRED_CODES: Final = frozenset(
    {
        "ExpiredToken",
        "ExpiredTokenException",
        "TokenExpired",
        "ExpiredRequest",
        "AuthenticationFailed",
        "URLExpired",
    }
)
_EXPIRED_TEXT = re.compile(
    r"\b(?:has|have|is|already|request|signature|token|url|link)\s+expired\b", re.IGNORECASE
)
_GONE_CODES: Final = frozenset({"NoSuchKey", "NoSuchBucket", "NoSuchVersion", "BlobNotFound", "ContainerNotFound"})
#: Retryable codes whose status alone is not retryable.
_BUSY_CODES: Final = frozenset({"RequestTimeout", "SlowDown", "Throttling", "ServerBusy", "InternalError"})
_MAX_MESSAGE: Final = 200
#: Shorter values of a signed URL are not secret: flags, versions, seconds.
_SECRET_LENGTH: Final = 8


def store_error(response: Response, file_id: str) -> StorageError | RetryLater:
    """Return the error for an error response of a store.

    Args:
        response: the response; at most 64 kB of its body are read.
        file_id: the file's id in the sharing protocol.

    Returns:
        A `StorageError` or the subclass for the reason; wrapped in a `RetryLater` (with the seconds of the
        `Retry-After`, or 0) if the same request may succeed later.
    """
    status = response.status
    text = response.excerpt().decode("utf-8", "replace")
    code = response.headers.get("x-ms-error-code") or _first(_CODE, text) or _first(_JSON_CODE, text)
    message = _first(_MESSAGE, text) or _first(_JSON_MESSAGE, text)
    detail = ": ".join(part for part in (code, _short(message, response.url)) if part)
    sentence = f"the store answered {status}" + (f" ({detail})" if detail else "")
    if status in (400, 401, 403) and (code in _EXPIRED_CODES or _EXPIRED_TEXT.search(message or text)):
        return UrlExpiredError(
            f"its URL has expired: {sentence}; query the table again for fresh URLs",
            file_id=file_id,
            status=status,
        )
    if status in (404, 410) or code in _GONE_CODES:
        return FileGoneError(
            f"{sentence}; the provider may have vacuumed the table: query it again", file_id=file_id, status=status
        )
    if status in (401, 403):
        sentence += "; ask the provider to check that the sharing server may read the table's files"
    error = StorageError(sentence, file_id=file_id, status=status)
    if status in RETRYABLE_STATUSES or code in _BUSY_CODES:
        return RetryLater(error, parse_retry_after(response.headers) or 0.0)
    return error


def _first(pattern: re.Pattern[str], text: str) -> str | None:
    match = pattern.search(text)
    return match[1] if match else None


def _short(message: str | None, url: SecretUrl) -> str | None:
    """The beginning of a store's message, without URLs and without the signed values of the request's URL."""
    if message is None:
        return None
    text = redact_text(message)
    for _, value in parse_qsl(urlsplit(url.reveal()).query):
        if len(value) >= _SECRET_LENGTH:
            text = text.replace(value, MASK).replace(quote(value, safe=""), MASK)
    words = " ".join(text.split())
    return words if len(words) <= _MAX_MESSAGE else words[:_MAX_MESSAGE] + "..."
