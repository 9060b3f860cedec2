"""POST /query: the one place where queries are sent, with what a server may refuse of them left out if it does.

An answer may take long: a server that was asked for it asynchronously gives the query a name, under which it is
asked again. Hints only spare work, so that a query that is refused with them is sent once more without.

Serves "Read Data from a Table" and "Asynchronous query".
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Final, TypeVar

from delta_sharing_client.errors import BadRequestError, QueryError
from delta_sharing_client.model import capabilities
from delta_sharing_client.model.actions import QueryStatus
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.calls import Caller
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import parse_retry_after
from delta_sharing_client.wire.query_status import UnannouncedStatusError, decode_query
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest
from delta_sharing_client.wire.typed_lines import Decoded

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: The first wait, and the longest; each is half as long again as the one before. Seconds.
_FIRST_WAIT: Final = 0.5
_LONGEST_WAIT: Final = 10.0
_GROWTH: Final = 1.5

_BAD_REQUEST: Final = 400


class TableQuery:
    """One query and the pages of its answer.

    Args:
        caller: sends the requests.
        path: the segments of the table's URL.
        what: the table, for messages.
        options: whether to ask for asynchronous answers, and how long a page of one may take.
        advice: what to tell the user, by status.

    Attributes:
        hints_refused: the server refused the query with its hints, and answered it without.
    """

    def __init__(
        self,
        caller: Caller,
        path: tuple[str, ...],
        what: str,
        options: TransportOptions,
        advice: Mapping[int, str],
    ) -> None:
        self.hints_refused = False
        self._caller = caller
        self._path = path
        self._what = what
        self._deadline = options.query_deadline.total_seconds()
        self._asynchronous = options.asynchronous_queries
        self._advice = advice
        self._key = ""
        self._name: str | None = None

    def page(self, request: QueryRequest | VersionsRequest, read: Callable[[Response, Iterator[Decoded]], T]) -> T:
        """Return a page of the answer, once it is there; the first page begins the query anew.

        Args:
            request: asks for the page.
            read: makes the page of its actions; called once per attempt.

        Raises:
            QueryError: the query failed, or takes longer than the deadline.
            ProtocolError: the server answers asynchronously, and does not say that it can.
            DeltaSharingError: what the last attempt came to, or `read` raised.
        """
        if isinstance(request, VersionsRequest):
            return self._page(request, read)
        bare = request.without_hints()
        if self.hints_refused:
            request = bare
        try:
            return self._page(request, read)
        except (BadRequestError, QueryError) as error:
            # A page after the first, or a listing that is renewed, follows one that was answered with these hints.
            renewed = request.page_token is not None or request.refresh_token is not None
            if error.status != _BAD_REQUEST or renewed or request == bare:
                raise
            logger.warning("%s; asked once more, without hints on the rows that are wanted", error)
        answer = self._page(bare, read)
        self.hints_refused = True
        return answer

    def _page(
        self, request: QueryRequest | VersionsRequest, read: Callable[[Response, Iterator[Decoded]], T]
    ) -> T:
        if request.page_token is None:
            self._key, self._name = str(uuid.uuid4()), None
        try:
            return self._awaited(request, read)
        except UnannouncedStatusError as error:
            if not self._asynchronous:
                raise
            logger.warning("%s; asked once more, for an answer at once", error)
        self._asynchronous = False
        return self._awaited(request, read)

    def _awaited(
        self, request: QueryRequest | VersionsRequest, read: Callable[[Response, Iterator[Decoded]], T]
    ) -> T:
        began = self._caller.retrier.clock()
        wait = _FIRST_WAIT
        while isinstance(answer := self._ask(request, read), QueryStatus):
            waited = self._caller.retrier.clock() - began
            left = self._deadline - waited
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

    def _ask(
        self, request: QueryRequest | VersionsRequest, read: Callable[[Response, Iterator[Decoded]], T]
    ) -> T | QueryStatus:
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

        name, body = self._name, request.body()
        path: tuple[str, ...] = (*self._path, "query")
        advice = self._advice
        if name is not None:
            path = (*self._path, "queries", name)
            body = {key: body[key] for key in _PAGING if key in body}
            advice = {**advice, 404: _GONE}
        elif self._asynchronous:
            body["idempotencyKey"] = self._key
        return self._caller.call(
            "POST",
            path,
            self._what,
            read_or_wait,
            headers={
                capabilities.HEADER: capabilities.request_capabilities(
                    request.formats, asynchronous=self._asynchronous
                )
            },
            body=body,
            hints=advice,
        )


#: What a request for a page of an asynchronous query's answer says of it.
_PAGING: Final = ("maxFiles", "pageToken")
_GONE: Final = "The server does not know the query any more; run it again"
