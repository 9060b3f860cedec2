"""Polling of a table's latest version for a streaming query: throttled, with retries while the server fails."""

from __future__ import annotations

import time
from typing import Final

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    QueryError,
    RateLimitError,
    ServerError,
    TokenError,
    TransportError,
)
from delta_sharing_client.messages import module_logger
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.spark.data_source_options import StreamOptions

logger = module_logger(__name__)

#: Time that a running query waits for a server that does not answer, seconds, beside the retries of each request.
_RETRY_SECONDS: Final = 600.0
#: Errors that may be temporary.
_TRANSIENT: Final = (
    TransportError,
    ServerError,
    RateLimitError,
    QueryError,
    IncompleteResponseError,
    TokenError,
)


class VersionPoller:
    """Requests a table's latest version: at most once per batch, and not more often than the options allow.

    Attributes:
        latest: the latest version that the server has returned.
        frozen: the version at which the query ends, if it ends.
        idle_requests: the number of requests that found no new version since the table's id was last checked.
    """

    def __init__(self, rest: RestClient, options: StreamOptions) -> None:
        self._rest = rest
        self._options = options
        self.latest: int | None = None
        self.frozen: int | None = None
        self.idle_requests = 0
        self._asked_at: float | None = None
        self._may_ask = True
        self._read_all = self._ran = False
        self._trouble_since: float | None = None

    def begin_batch(self, *, read_all: bool) -> None:
        """Allow one request; its answer is required if the batch must read all that is there."""
        self._may_ask = True
        self._read_all = read_all

    def end_batch(self) -> None:
        """Note that the query runs: from now on it waits for a server that fails."""
        self._ran = True

    def request(self) -> int:
        """Return the latest version, with a request."""
        self._may_ask = False
        self._asked_at = time.monotonic()
        self.latest = version = self._rest.table_version(self._options.table)
        self._trouble_since = None
        return version

    def end_for(self, version: int) -> int | None:
        """Return the last version to read, if a batch begins with `version`; None if a request is too early."""
        known = self.latest if self.frozen is None else self.frozen
        if known is not None and (self.frozen is not None or version <= known):
            return known
        waiting = self._asked_at is not None and time.monotonic() < self._asked_at + self._options.interval
        if not self._may_ask or (waiting and not self._read_all):
            return None
        latest = self.request()
        self.idle_requests = self.idle_requests + 1 if latest < version else 0
        return latest

    @property
    def must_check_table(self) -> bool:
        """Whether the table's id is to be checked: a table that was created again may have the same version."""
        return self.idle_requests >= self._options.check_table_every

    def may_wait(self, error: DeltaSharingError) -> bool:
        """Whether a batch without files may hide an error; raised, it would end the query."""
        now = time.monotonic()
        self._asked_at = now
        running = self._ran and self.frozen is None and not self._read_all and self.latest is not None
        if not running or not isinstance(error, _TRANSIENT):
            return False
        if self._trouble_since is None:
            self._trouble_since = now
        if now - self._trouble_since > _RETRY_SECONDS:
            return False
        logger.warning("the stream sends the next request in %g s: %s", self._options.interval, error)
        return True
