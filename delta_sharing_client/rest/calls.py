"""Calls of the sharing server: a request, its retries, its error statuses, and the pages of listings."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeVar

from delta_sharing_client.errors import ProtocolError, QueryError
from delta_sharing_client.rest.status_errors import error_for
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.retry import Attempt, Retrier, parse_http_date
from delta_sharing_client.transport.transports import ApiTransport
from delta_sharing_client.wire.ndjson import MAX_LINE, parse_object

T = TypeVar("T")

#: Pages of one listing; a server that goes on beyond them is broken.
MAX_PAGES: Final = 10_000


class Caller:
    """Sends requests through a transport until their answers could be read to the end.

    Args:
        transport: sends them.
        retrier: repeats them.

    Attributes:
        clock_offset: seconds that the server's clock is ahead of this machine's, by its last `Date`.
    """

    def __init__(self, transport: ApiTransport, retrier: Retrier) -> None:
        self.transport = transport
        self.retrier = retrier
        self.clock_offset = 0.0

    def call(
        self,
        method: str,
        path: tuple[str, ...],
        what: str,
        read: Callable[[Response], T],
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        hints: Mapping[int, str],
    ) -> T:
        """Send a request until its answer could be read to the end.

        Args:
            method: GET, POST or HEAD.
            path: the segments below the endpoint.
            what: the thing asked for, for messages.
            read: reads the answer; called once per attempt that succeeds so far.
            params: the query string.
            headers: further headers.
            body: sent as JSON.
            hints: what to tell the user, by status.

        Raises:
            DeltaSharingError: what the last attempt came to.
        """

        def once(attempt: Attempt) -> T:
            with self.transport.request(
                method, path, params=params, headers=headers, body=body, timeout=attempt.timeout, what=what
            ) as response:
                attempt.answered()
                served_at = parse_http_date(response.headers.get("Date"))
                if served_at is not None:
                    self.clock_offset = served_at - time.time()
                if not response.ok:
                    hints_now = {401: self.transport.authorize.hint(), **hints}
                    raise error_for(response, what=what, hints=hints_now)
                try:
                    return read(response)
                except QueryError as error:
                    said = response.scrub(error.server_message)
                    raise QueryError(what=error.what, server_message=said, status=error.status) from None

        return self.retrier.call(once)

    def json(self, what: str) -> Callable[[Response], dict[str, Any]]:
        """Read an answer that is one JSON object."""

        def read(response: Response) -> dict[str, Any]:
            data = response.read(MAX_LINE + 1)
            if len(data) > MAX_LINE:
                raise ProtocolError(f"{what}: the answer has more than {MAX_LINE} bytes")
            try:
                return parse_object(data)
            except (ValueError, RecursionError):
                raise ProtocolError(
                    f"{what}: the answer is not a JSON object; is {self.transport.endpoint} the endpoint of a "
                    "sharing server?"
                ) from None

        return read

    def items(
        self,
        build: Callable[[Mapping[str, Any]], T],
        path: tuple[str, ...],
        what: str,
        hints: Mapping[int, str],
        max_results: int | None,
    ) -> Iterator[T]:
        """Yield the items of a listing, asking for a page only when it is needed: the one page iterator.

        Args:
            build: makes an item of its JSON object.
            path: the segments below the endpoint.
            what: the thing listed, for messages.
            hints: what to tell the user, by status.
            max_results: items to a page; the server decides without.

        Raises:
            ValueError: `max_results` is less than 1.
            ProtocolError: the listing is malformed or never ends.
        """
        if max_results is not None and max_results < 1:
            raise ValueError(f"max_results is {max_results}; it has to be at least 1")

        def pages() -> Iterator[T]:
            params = {} if max_results is None else {"maxResults": str(max_results)}
            tokens: set[str] = set()
            while True:
                answer = self.call("GET", path, what, self.json(what), params=params, hints=hints)
                items = answer.get("items")
                items = [] if items is None else items
                if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
                    raise ProtocolError(f"{what}: 'items' of the listing is not a list of objects")
                yield from map(build, items)
                token = answer.get("nextPageToken")
                if not token:
                    return
                if not isinstance(token, str):
                    raise ProtocolError(f"{what}: 'nextPageToken' of the listing is not a text")
                next_page(token, tokens, what)
                params["pageToken"] = token

        return pages()


def next_page(token: str, tokens: set[str], what: str) -> None:
    """Note the token of the next page.

    Args:
        token: the token.
        tokens: those of the pages before; the new one is added.
        what: the thing listed, for messages.

    Raises:
        ProtocolError: the listing goes round in circles, or on for ever.
    """
    if token in tokens:
        raise ProtocolError(f"{what}: the server gave the same page token twice; its listing never ends")
    if len(tokens) >= MAX_PAGES:
        raise ProtocolError(f"{what}: the listing has more than {MAX_PAGES} pages")
    tokens.add(token)
