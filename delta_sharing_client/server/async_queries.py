"""Asynchronous queries: submitted by idempotency key, polled by query id, answered when they are ready."""

from __future__ import annotations

import hashlib
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.server.parameters import Paging
from delta_sharing_client.server.problems import bad_request, not_found
from delta_sharing_client.server.table_request import TableRequest

#: Number of queries that are kept; the oldest are dropped first.
_REMEMBERED: Final = 1000
#: Number of times that the reference server answers a poll with `pending`.
_REFERENCE_POLLS: Final = 3


@dataclass(kw_only=True)
class SubmittedQuery:
    """A submitted query, which is ready at a time of the monotonic clock and after `polls_left` polls."""

    query_id: str
    table: str
    body: Mapping[str, Any]
    ready_at: float
    polls_left: int

    def is_pending(self) -> bool:
        """Return whether its answer is not ready, at a poll."""
        self.polls_left -= 1
        return self.polls_left >= 0 or time.monotonic() < self.ready_at

    def page(self, paging: Paging) -> dict[str, Any]:
        """Return the body of a query for one page of the answer."""
        body = dict(self.body)
        if paging.max_files is not None:
            body["maxFiles"] = paging.max_files
        if paging.page_token is not None:
            body["pageToken"] = paging.page_token
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
        self._queries: OrderedDict[str, SubmittedQuery] = OrderedDict()

    def submit(self, request: TableRequest, body: Mapping[str, Any], key: str) -> SubmittedQuery:
        """Return the query of an idempotency key; raise `Problem` (400) if the key is that of another query."""
        table = request.table.full_name
        query_id = hashlib.sha256(f"{table}\0{key}".encode(errors="surrogatepass")).hexdigest()[:32]
        delay = request.options.query_time
        query = SubmittedQuery(
            query_id=query_id,
            table=table,
            body=dict(body),
            ready_at=time.monotonic() + (0.0 if delay is None else delay.total_seconds()),
            polls_left=_REFERENCE_POLLS if request.options.imitate == "reference" else 0,
        )
        with self._lock:
            known = self._queries.setdefault(query_id, query)
            if len(self._queries) > _REMEMBERED:
                self._queries.popitem(last=False)
        if known.body != query.body:
            raise bad_request("idempotencyKey was used for another query.")
        return known

    def find(self, request: TableRequest, query_id: str) -> SubmittedQuery:
        """Return a query by its id; raise `Problem` (404) if the table has no query of that id."""
        query = self._queries.get(query_id)
        if query is None or query.table != request.table.full_name:
            raise not_found(f"Table {request.table.full_name} has no such query.")
        return query
