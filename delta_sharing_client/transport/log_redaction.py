"""Keeps signatures and page tokens out of urllib3's own log.

urllib3 logs every request's path with its query string at DEBUG, and a pre-signed URL's query string grants
access to the file. While one of our transports is sending, a filter on urllib3's loggers masks it; requests
that other code of the process sends are logged as ever.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import Final

from delta_sharing_client.secrets import MASK, SecretUrl, redact_text, redact_url

logger = logging.getLogger(__name__)

_LOGGERS: Final = (
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.poolmanager",
    "urllib3.response",
    "urllib3.util.retry",
)
_sending = threading.local()


class _RedactingFilter(logging.Filter):
    """Masks query strings in the records that our own requests cause."""

    def filter(self, record: logging.LogRecord) -> bool:
        if getattr(_sending, "depth", 0):
            if isinstance(record.args, tuple):
                record.args = tuple(_masked(value) for value in record.args)
            elif not record.args:
                record.msg = redact_text(str(record.msg))
        return True


_FILTER: Final = _RedactingFilter("")


def install() -> None:
    """Put the filter on urllib3's loggers; once is enough, more do no harm."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def log_request(method: str, url: SecretUrl, outcome: object, started: float) -> None:
    """Log one request at DEBUG, without its query string.

    Args:
        method: the request's method.
        url: its URL.
        outcome: its status, or that it failed.
        started: when it was sent, by the monotonic clock.
    """
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s %.3f s", method, redact_url(url), outcome, time.monotonic() - started)


class _Redacted:
    """Marks what a thread does meanwhile as ours, for the filter; one will do for all threads."""

    def __enter__(self) -> None:
        _sending.depth = getattr(_sending, "depth", 0) + 1

    def __exit__(self, *_: object) -> None:
        _sending.depth -= 1


redacted: Final = _Redacted()


def _masked(value: object) -> object:
    """A log argument that shows nothing: numbers as they are, texts without what follows a question mark."""
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    path, mark, _ = text.partition("?")
    if mark and " " not in path:
        return f"{redact_text(path)}?{MASK}"
    return redact_text(text)
