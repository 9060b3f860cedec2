"""Calls of the sharing server: one request with its retries, and the iterator over the pages of an answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from delta_sharing_client.errors import ProtocolError, QueryError
from delta_sharing_client.model.capabilities import FILE_ID_HASH, HEADER, parse_capabilities, request_capabilities
from delta_sharing_client.rest.resources import Resource
from delta_sharing_client.rest.status_errors import error_for
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.rest_transport import ApiTransport
from delta_sharing_client.transport.retry import Attempt, Retrier, parse_http_date
from delta_sharing_client.wire.answers import Answer, AnswerReader, Convert
from delta_sharing_client.wire.decoder import Decoded, decode_actions, page_token
from delta_sharing_client.wire.ndjson import parse_object
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, VersionsRequest

T = TypeVar("T")
R = TypeVar("R", QueryRequest, ChangesRequest | VersionsRequest)

VERSION_HEADER: Final = "Delta-Table-Version"
#: The most pages of one answer; more are an error of the server.
MAX_PAGES: Final = 10_000


class Caller:
    """Sends requests, and repeats each one until its answer has been read to the end.

    Args:
        transport: sends a request.
        retrier: decides on retries.
        max_results: items per page of a listing, unless a call states another number; None lets the server decide.

    Attributes:
        clock_offset: seconds that the server's clock is ahead of this machine's, from its last `Date` header.
    """

    def __init__(self, transport: ApiTransport, retrier: Retrier, max_results: int | None = None) -> None:
        self._max_results = max_results
        self.transport = transport
        self.retrier = retrier
        self.clock_offset = 0.0

    def call(
        self,
        method: str,
        resource: Resource,
        read: Callable[[Response], T],
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> T:
        """Send a request and return what `read` returns for its answer.

        Args:
            method: GET, POST or HEAD.
            resource: the requested object.
            read: reads the answer to its end; called once per attempt.
            params: the query string.
            headers: further headers.
            body: sent as JSON.

        Raises:
            DeltaSharingError: the error of the last attempt.
        """
        subject = resource.subject

        def once(attempt: Attempt) -> T:
            with self.transport.request(
                method,
                resource.path,
                params=params,
                headers=headers,
                body=body,
                timeout=attempt.timeout,
                subject=subject,
            ) as response:
                attempt.answered()
                served_at = parse_http_date(response.headers.get("Date"))
                if served_at is not None:
                    self.clock_offset = served_at - time.time()
                if not response.ok:
                    advice = {401: self.transport.authorize.hint(), **resource.advice}
                    raise error_for(response, subject=subject, hints=advice)
                try:
                    return read(response)
                except QueryError as error:
                    message = response.scrub(error.server_message)
                    raise QueryError(subject=error.subject, server_message=message, status=error.status) from None

        return self.retrier.call(once)

    def call_json(
        self,
        method: str,
        resource: Resource,
        *,
        params: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its answer, one JSON object."""

        def read(response: Response) -> dict[str, Any]:
            data = self.read_whole(response, resource)
            try:
                return parse_object(data)
            except (ValueError, RecursionError):
                raise ProtocolError(
                    f"{resource.subject}: the answer is not a JSON object; is {self.transport.endpoint} "
                    "the endpoint of a sharing server?"
                ) from None

        return self.call(method, resource, read, params=params, body=body)

    def read_whole(self, response: Response, resource: Resource) -> bytes:
        """Return the body of an answer that is no sequence of lines; raise `ProtocolError` if it is too long."""
        limit = self.transport.options.metadata_limit
        data = response.read(limit + 1)
        if len(data) > limit:
            raise ProtocolError(
                f"{resource.subject}: the answer has more than the {limit:,} bytes that "
                "TransportOptions.metadata_limit allows"
            )
        return data

    def get_actions(
        self,
        resource: Resource,
        request: QueryRequest | ChangesRequest,
        read: Callable[[Response, Iterator[Decoded]], T],
    ) -> T:
        """Send a GET request with capabilities and return what `read` makes of the actions of its answer."""

        def decode(response: Response) -> T:
            actions = decode_actions(
                response.chunks(),
                formats=request.formats,
                capabilities=parse_capabilities(response.headers.get(HEADER)),
                subject=resource.subject,
                limit=self.transport.options.metadata_limit,
            )
            check_file_ids(response, request, resource.subject)
            return read(response, actions)

        return self.call("GET", resource, decode, params=request.params(), headers=request_headers(request))

    def items(
        self, build: Callable[[Mapping[str, Any]], T], resource: Resource, max_results: int | None
    ) -> Iterator[T]:
        """Yield the items of a listing, `max_results` per page; a page is requested when its first item is needed.

        With 0 the server returns no items, whatever follows: the listing ends with its first page.

        Raises:
            ValueError: `max_results` is less than 0.
            ProtocolError: the listing is malformed or has no end.
        """
        max_results = self._max_results if max_results is None else max_results
        if max_results is not None and max_results < 0:
            raise ValueError(f"max_results is {max_results}; it has to be at least 0")
        size = {} if max_results is None else {"maxResults": str(max_results)}

        def fetch(token: str | None) -> tuple[list[Mapping[str, Any]], str | None]:
            params = size if token is None else {**size, "pageToken": token}
            answer = self.call_json("GET", resource, params=params)
            items, following = answer.get("items"), answer.get("nextPageToken")
            items = [] if items is None else items
            if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                raise ProtocolError(f"{resource.subject}: 'items' of the listing is not a list of objects")
            if following and not isinstance(following, str):
                raise ProtocolError(f"{resource.subject}: 'nextPageToken' of the listing is not a text")
            try:
                following = page_token(answer, "nextPageToken")
            except ValueError as error:
                raise ProtocolError(f"{resource.subject}: the listing's {error}") from None
            return items, None if max_results == 0 else following

        return (build(item) for page in iter_pages(fetch, resource.subject) for item in page)

    def all_pages(
        self,
        request: R,
        fetch: Callable[[R, AnswerReader[T, R]], Answer[T, R]],
        subject: str,
        convert: Convert[T],
    ) -> Answer[T, R]:
        """Return all pages of an answer; starts again once if the URLs of the first page expire meanwhile.

        Args:
            request: requests the first page.
            fetch: requests one page and reads it; returns the answer up to there.
            subject: the queried table, for messages.
            convert: makes the items of files.

        Raises:
            ProtocolError: the answer has no end, or takes longer than its URLs are valid, twice.
        """
        for _ in range(2):
            answer = self._pages_in_time(request, fetch, AnswerReader(request, subject, convert), subject)
            if answer is not None:
                return answer
        raise ProtocolError(
            f"{subject}: listing the files takes longer than their URLs are valid, twice in a row; read fewer "
            "files at once, or ask the provider for URLs that are valid for longer"
        )

    def _pages_in_time(
        self,
        request: R,
        fetch: Callable[[R, AnswerReader[T, R]], Answer[T, R]],
        reader: AnswerReader[T, R],
        subject: str,
    ) -> Answer[T, R] | None:
        """Return all pages of an answer; None if the URLs of the first page have expired before."""

        def fetch_page(token: str | None) -> tuple[Answer[T, R], str | None]:
            answer = fetch(request if token is None else request.page(token), reader)
            return answer, answer.end.next_page_token if answer.end is not None else None

        pages = iter_pages(fetch_page, subject)
        answer = next(pages)
        expires = answer.end.min_url_expiration_timestamp if answer.end is not None else None
        for longer in pages:
            if expires is not None and (time.time() + self.clock_offset) * 1000 >= expires:
                return None
            answer = longer
        return answer


def request_headers(
    request: QueryRequest | ChangesRequest | VersionsRequest, *, asynchronous: bool = False
) -> dict[str, str]:
    """Return the headers of a request for actions."""
    views = isinstance(request, ChangesRequest) and request.views
    headers = {HEADER: request_capabilities(request.formats, asynchronous=asynchronous, views=views)}
    return headers if request.file_id_hash is None else {**headers, FILE_ID_HASH: request.file_id_hash}


def check_file_ids(
    response: Response, request: QueryRequest | ChangesRequest | VersionsRequest, subject: str
) -> None:
    """Raise `ProtocolError` if the ids of files are in another scheme than requested; older servers state none."""
    answered = response.headers.get(FILE_ID_HASH)
    if request.file_id_hash is not None and answered and answered.lower() != request.file_id_hash:
        raise ProtocolError(
            f"{subject}: requested {FILE_ID_HASH}={request.file_id_hash}, the server answered with "
            f"{answered[:40]!r}"
        )


def version_of(response: Response) -> int | None:
    """Return the answer's `Delta-Table-Version`, or None if it is missing or malformed."""
    text = (response.headers.get(VERSION_HEADER) or "").strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else None


def iter_pages(fetch: Callable[[str | None], tuple[T, str | None]], subject: str) -> Iterator[T]:
    """Yield the pages of an answer, up to the page without a token.

    `fetch` requests the page of a token (None for the first one), and returns it with the token of the next.

    Raises:
        ProtocolError: a token is repeated, or there are more than `MAX_PAGES` pages.
    """
    tokens: set[str] = set()
    token: str | None = None
    while True:
        page, token = fetch(token)
        yield page
        if not token:
            return
        if token in tokens:
            raise ProtocolError(f"{subject}: the server gave the same page token twice; its listing never ends")
        if len(tokens) >= MAX_PAGES:
            raise ProtocolError(f"{subject}: the listing has more than {MAX_PAGES} pages")
        tokens.add(token)
