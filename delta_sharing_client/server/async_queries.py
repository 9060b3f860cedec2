"""Asynchronous queries: submitted by idempotency key, polled by query id, answered when they are ready."""

from __future__ import annotations

import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.server.answers import TableRequest
from delta_sharing_client.server.parameters import ResultParameters
from delta_sharing_client.server.problems import Problem, bad_request

#: Number of queries that are kept; the oldest are dropped first.
_REMEMBERED: Final = 1000


@dataclass(frozen=True, kw_only=True)
class SubmittedQuery:
    """A submitted query.

    Attributes:
        query_id: its id.
        table: the full name of its table.
        body: the body of its request.
        ready_at: the time at which its answer is ready, on the monotonic clock.
    """

    query_id: str
    table: str
    body: Mapping[str, Any]
    ready_at: float

    @property
    def pending(self) -> bool:
        """Whether its answer is not ready."""
        return time.monotonic() < self.ready_at

    def page(self, asked: ResultParameters) -> dict[str, Any]:
        """Return the body of a query for one page of the answer."""
        body = dict(self.body)
        if asked.max_files is not None:
            body["maxFiles"] = asked.max_files
        if asked.page_token is not None:
            body["pageToken"] = asked.page_token
            body.pop("includeRefreshToken", None)
        return body

    def status(self, state: str, message: str | None = None) -> dict[str, Any]:
        """Return the status line (`pending` or `failed`) that is sent instead of the answer."""
        fields = {"queryId": self.query_id, "status": state}
        return {"queryStatus": fields if message is None else {**fields, "errorMessage": message}}


class SubmittedQueries:
    """Submitted queries; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_id: OrderedDict[str, SubmittedQuery] = OrderedDict()
        self._by_key: dict[tuple[str, str], str] = {}

    def submit(self, request: TableRequest, body: Mapping[str, Any], key: str) -> SubmittedQuery:
        """Return the query of an idempotency key, a new one the first time.

        Args:
            request: the request.
            body: its body.
            key: its idempotency key.

        Raises:
            Problem: 400, the key is that of another query.
        """
        table = request.table.full_name
        with self._lock:
            known = self._by_id.get(self._by_key.get((table, key), ""))
            if known is not None:
                if known.body != body:
                    raise bad_request("idempotencyKey was used for another query.")
                return known
            delay = request.options.query_time
            ready = time.monotonic() + (0.0 if delay is None else delay.total_seconds())
            query = SubmittedQuery(query_id=secrets.token_hex(16), table=table, body=dict(body), ready_at=ready)
            self._by_id[query.query_id] = query
            self._by_key[table, key] = query.query_id
            while len(self._by_id) > _REMEMBERED:
                self._by_id.popitem(last=False)
                self._by_key = {known: name for known, name in self._by_key.items() if name in self._by_id}
            return query

    def find(self, request: TableRequest, query_id: str) -> SubmittedQuery:
        """Return a query by its id.

        Raises:
            Problem: 404, the table has no query of that id.
        """
        with self._lock:
            query = self._by_id.get(query_id)
        if query is None or query.table != request.table.full_name:
            raise Problem(404, "RESOURCE_DOES_NOT_EXIST", f"Table {request.table.full_name} has no such query.")
        return query
