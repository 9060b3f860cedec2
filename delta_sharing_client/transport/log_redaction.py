"""Masking of URL signatures and page tokens in the log records of urllib3.

urllib3 logs every request's path with its query string at DEBUG, and a pre-signed URL's query string grants
access to the file. While a transport of this package sends a request, a filter on urllib3's loggers masks it:
urllib3 has no setting for what it logs, and filters on handlers would miss handlers that are added later.
Requests of other code of the process are logged unchanged.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from delta_sharing_client.messages import log_argument, message_text, module_logger
from delta_sharing_client.secrets import MASK, SecretUrl, redact_url

logger = module_logger(__name__)

_LOGGERS: Final = (
    "urllib3.connection",
    "urllib3.connectionpool",
    "urllib3.poolmanager",
    "urllib3.response",
    "urllib3.util.retry",
)


class _Sending(threading.local):
    """Number of `redacted` contexts that this thread is in."""

    depth = 0


_sending: Final = _Sending()


class _RedactingFilter(logging.Filter):
    """Masks query strings in the records of requests of this package."""

    def filter(self, record: logging.LogRecord) -> bool:
        if _sending.depth:
            if isinstance(record.args, tuple):
                record.args = tuple(_masked(value) for value in record.args)
            elif isinstance(record.args, Mapping):
                record.args = {name: _masked(value) for name, value in record.args.items()}
            elif not record.args:
                record.msg = message_text(str(record.msg))
        return True


_FILTER: Final = _RedactingFilter("")


def install() -> None:
    """Add the filter to urllib3's loggers; further calls have no effect."""
    for name in _LOGGERS:
        logging.getLogger(name).addFilter(_FILTER)


def log_request(method: str, url: SecretUrl, outcome: object, started: float) -> None:
    """Log one request at DEBUG, without its query string; `started` is a time of the monotonic clock."""
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s %.3f s", method, redact_url(url), outcome, time.monotonic() - started)


@contextmanager
def redacted() -> Iterator[None]:
    """Mask the log records of this thread."""
    _sending.depth += 1
    try:
        yield
    finally:
        _sending.depth -= 1


def _masked(value: object) -> object:
    """A log argument without its secrets: numbers unchanged, texts without a query string."""
    shown = log_argument(value)
    if isinstance(shown, str):
        path, mark, _ = shown.partition("?")
        if mark and " " not in path:
            return f"{path}?{MASK}"
    return shown
