"""Queries whose answer may take long: the server gives them a name, under which it is asked again.

Serves "Read Data from a Table" and "Asynchronous query".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final, TypeVar

from delta_sharing_client.errors import QueryError
from delta_sharing_client.http.calls import Caller
from delta_sharing_client.http.response import Response
from delta_sharing_client.http.retry import parse_retry_after
from delta_sharing_client.protocol import capabilities
from delta_sharing_client.protocol.actions import QueryStatus
from delta_sharing_client.protocol.query_status import decode_query
from delta_sharing_client.protocol.request import QueryRequest
from delta_sharing_client.protocol.usual import Decoded

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The first wait, and the longest; each is half as long again as the one before. Seconds.
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 10.0
_GROWTH: Final = 1.5


class TableQuery:
    """One query and the pages of its answer.

    Args:
        caller: sends the requests.
        path: the segments of the table's URL.
        what: the table, for messages.
        deadline: how long a page may take that the server prepares asynchronously.
        hints: what to tell the user, by status.
    """

    def __init__(
        self, caller: Caller, path: tuple[str, ...], what: str, deadline: timedelta, hints: Mapping[int, str]
    ) -> None:
        self._caller = caller
        self._path = path
        self._what = what
        self._deadline = deadline
        self._hints = hints
        self._key = ""
        self._name: str | None = None

    def page(self, request: QueryRequest, read: Callable[[Response, Iterator[Decoded]], T]) -> T:
        """Return a page of the answer, once it is there; the first page begins the query anew.

        Args:
            request: asks for the page.
            read: makes the page of its actions; called once per attempt.

        Raises:
            QueryError: the query failed, or takes longer than the deadline.
            DeltaSharingError: what the last attempt came to, or `read` raised.
        """
        if request.page_token is None:
            self._key, self._name = str(uuid.uuid4()), None
        request = replace(request, idempotency_key=self._key)
        began = self._caller.retrier.clock()
        wait = _FIRST_WAIT
        while isinstance(answer := self._ask(request, read), QueryStatus):
            waited = self._caller.retrier.clock() - began
            left = self._deadline.total_seconds() - waited
            if left <= 0:
                raise QueryError(
                    what=self._what,
                    server_message=f"query {answer.query_id} is still pending after {waited:.0f} s; "
                    "raise TransportOptions.query_deadline, or ask for less",
                )
            self._name = answer.query_id
            pause = min(max(wait, answer.retry_after or 0.0), left)
            logger.debug("%s: query %s is pending, asked again in %.1f s", self._what, self._name, pause)
            self._caller.retrier.sleep(pause)
            wait = min(wait * _GROWTH, _LONGEST_WAIT)
        return answer

    def _ask(self, request: QueryRequest, read: Callable[[Response, Iterator[Decoded]], T]) -> T | QueryStatus:
        def read_or_wait(response: Response) -> T | QueryStatus:
            actions = decode_query(
                response.chunks(),
                formats=request.formats,
                capabilities=capabilities.parse_capabilities(response.headers.get(capabilities.HEADER)),
                what=self._what,
                query_id=self._name,
            )
            if isinstance(actions, QueryStatus):
                return replace(actions, retry_after=parse_retry_after(response.headers))
            return read(response, actions)

        name = self._name
        hints = self._hints if name is None else {**self._hints, 404: _GONE}
        return self._caller.call(
            "POST",
            (*self._path, "query") if name is None else (*self._path, "queries", name),
            self._what,
            read_or_wait,
            headers={capabilities.HEADER: capabilities.request_capabilities(request.formats, asynchronous=True)},
            body=request.body() if name is None else request.paging(),
            hints=hints,
        )


_GONE: Final = "The server does not know the query any more; run it again"
