"""POST /query: retry without hints, and polling of asynchronous queries.

Hints are optional, so a query that is refused with hints is sent again without them. A server that answers
asynchronously returns a query id, by which the answer is polled.

Serves "Read Data from a Table" and "Asynchronous query".
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Final, TypeAlias, TypeVar

from msgspec.structs import replace

from delta_sharing_client.errors import BadRequestError, QueryError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.capabilities import HEADER, parse_capabilities
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.rest.calls import Caller, check_file_ids, request_headers
from delta_sharing_client.rest.resources import Resource
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import parse_retry_after
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.query_status import QueryStatus, UnannouncedStatusError, decode_query
from delta_sharing_client.wire.requests import QueryRequest, VersionsRequest

logger = module_logger(__name__)

T = TypeVar("T")
#: Converts the decoded actions of an answer; called once per attempt.
Read: TypeAlias = Callable[[Response, Iterator[Decoded]], T]

_BAD_REQUEST: Final = 400
#: Fields of the body of a poll.
_PAGING: Final = ("maxFiles", "pageToken")
_QUERY_NOT_FOUND: Final = {404: "The server has dropped the query; run it again"}


class TableQuery:
    """One query of a table and the pages of its answer.

    Attributes:
        hints_refused: True if the server refused the query with hints and answered it without them.
    """

    def __init__(self, caller: Caller, table: Resource, options: TransportOptions) -> None:
        self.hints_refused = False
        self._caller = caller
        self._table = table
        self._deadline = options.query_deadline.total_seconds()
        self._asynchronous = options.asynchronous_queries
        self._limit = options.metadata_limit
        self._key = ""
        self._query_id: str | None = None

    def page(self, request: QueryRequest | VersionsRequest, read: Read[T]) -> T:
        """Return a page of the answer; waits for an asynchronous one. Without a page token it starts a new query.

        Raises:
            QueryError: the query failed, or takes longer than the deadline.
            ProtocolError: the server answers asynchronously and does not announce it.
            DeltaSharingError: the error of the last attempt, or of `read`.
        """
        if isinstance(request, VersionsRequest):
            return self._page(request, read)
        bare = request.without_hints()
        if self.hints_refused:
            request = bare
        try:
            return self._page(request, read)
        except (BadRequestError, QueryError) as error:
            # The server has accepted these hints before if this is a later page or a renewal.
            accepted = request.page_token is not None or request.refresh_token is not None
            if error.status != _BAD_REQUEST or accepted or request == bare:
                raise
            logger.warning("%s; repeating the query without hints", error)
        answer = self._page(bare, read)
        self.hints_refused = True
        return answer

    def _page(self, request: QueryRequest | VersionsRequest, read: Read[T]) -> T:
        if request.page_token is None:
            self._key, self._query_id = str(uuid.uuid4()), None
        try:
            return self._poll(request, read)
        except UnannouncedStatusError as error:
            if not self._asynchronous:
                raise
            logger.warning("%s; repeating the query synchronously", error)
        self._asynchronous = False
        return self._poll(request, read)

    def _poll(self, request: QueryRequest | VersionsRequest, read: Read[T]) -> T:
        retrier = self._caller.retrier
        began = retrier.clock()
        answer = retrier.poll(lambda: self._send(request, read), _least_wait, self._deadline)
        if isinstance(answer, QueryStatus):
            raise QueryError(
                subject=self._table.subject,
                server_message=f"query {answer.query_id} is still pending after {retrier.clock() - began:.0f} s; "
                "raise TransportOptions.query_deadline, or read fewer rows",
            )
        return answer

    def _send(self, request: QueryRequest | VersionsRequest, read: Read[T]) -> T | QueryStatus:
        query_id, body = self._query_id, request.body()
        resource = self._table.at("query")
        if query_id is not None:
            resource = replace(
                self._table.at("queries", query_id), advice={**self._table.advice, **_QUERY_NOT_FOUND}
            )
            body = {key: body[key] for key in _PAGING if key in body}
        elif self._asynchronous:
            body["idempotencyKey"] = self._key

        def read_or_wait(response: Response) -> T | QueryStatus:
            actions = decode_query(
                response.chunks(),
                formats=request.formats,
                capabilities=parse_capabilities(response.headers.get(HEADER)),
                subject=self._table.subject,
                query_id=query_id,
                limit=self._limit,
            )
            if isinstance(actions, QueryStatus):
                self._query_id = actions.query_id
                logger.debug("%s: query %s is pending", self._table.subject, actions.query_id)
                return replace(actions, retry_after=parse_retry_after(response.headers))
            check_file_ids(response, request, self._table.subject)
            return read(response, actions)

        headers = request_headers(request, asynchronous=self._asynchronous)
        return self._caller.call("POST", resource, read_or_wait, headers=headers, body=body)


def _least_wait(answer: object) -> float | None:
    return (answer.retry_after or 0.0) if isinstance(answer, QueryStatus) else None
