"""Answers about a table in newline-delimited JSON, page by page."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log import Metadata, Protocol, Snapshot
from delta_sharing_client.messages import module_logger
from delta_sharing_client.server.capabilities import DELTA, choose_format
from delta_sharing_client.server.parameters import Paging
from delta_sharing_client.server.problems import Problem, bad_request, problem_of
from delta_sharing_client.server.response_lines import Entry, LineWriter
from delta_sharing_client.server.table_request import TableRequest

logger = module_logger(__name__)
_CHUNK_BYTES: Final = 256 * 1024

#: The content of a page token.
State: TypeAlias = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Selection:
    """The part of a table's log that a query selects.

    Attributes:
        version: the `Delta-Table-Version`.
        head: the snapshot whose protocol and metadata begin the answer.
        head_version: the version of that metadata, if the answer includes it.
        totals: whether to include the size and the number of files of `head`.
        entries: the further lines, of all pages.
        protocols: the protocols and metadata that are valid in the selected versions.
        state: what a page token needs to select the same again.
        refresh_token: the token that refreshes the URLs, if the request is for one.
        is_range: whether the entries are of a range of versions rather than a snapshot.
    """

    version: int
    head: Snapshot
    head_version: int | None
    totals: bool = True
    entries: Sequence[Entry] = ()
    protocols: Sequence[tuple[Protocol, Metadata]]
    state: State = field(default_factory=dict)
    refresh_token: str | None = None
    is_range: bool = False


@dataclass(frozen=True, kw_only=True)
class TableResponse:
    """The lines of an answer, created as they are sent, with its `Delta-Table-Version` and response format."""

    version: int
    format: str
    lines: Iterator[dict[str, Any]]


def answer_page(
    request: TableRequest, select: Callable[[State | None], Selection], paging: Paging | None = None
) -> TableResponse:
    """Return one page of the answer to a query.

    Args:
        request: the request.
        select: returns the selection, for the state of a page token or None.
        paging: the parameters of the request, to which page tokens are bound; None if it has no pages.

    Raises:
        Problem: 400, the page token is not valid, or the client does not support the table.
    """
    state = None
    purpose = "" if paging is None else f"{type(paging).__name__} {request.table.full_name} {paging.digest}"
    if paging is not None and paging.page_token and request.options.send_end_stream_action:
        state = request.signer.open_token(purpose, paging.page_token, "pageToken")
    selection = select(state)
    chosen = choose_format(request.capabilities, selection.protocols, request.table.full_name, request.options)
    if state is not None and state["format"] != chosen:
        raise bad_request("pageToken is not valid for this request: it asks for another response format.")
    entries = [e for e in selection.entries if chosen == DELTA or not isinstance(e.action, Protocol)]
    first = 0 if state is None else state["first"]
    after = _page_end(entries, first, None if paging is None else request.page_limit(paging.max_files))
    tokens: dict[str, Any] = {}
    if selection.refresh_token is not None:
        tokens["refreshToken"] = selection.refresh_token
    if after < len(entries):
        tokens["nextPageToken"] = request.signer.make_token(
            purpose, selection.state | {"first": after, "format": chosen}
        )
    lines = _lines(request, selection, chosen, entries[first:after], tokens)
    return TableResponse(version=selection.version, format=chosen, lines=lines)


def _page_end(entries: Sequence[Entry], first: int, limit: int | None) -> int:
    """Return the index after a page that begins at `first` and has up to `limit` files."""
    if limit is None:
        return len(entries)
    files = (i for i in range(first, len(entries)) if not isinstance(entries[i].action, Metadata | Protocol))
    return next((index for count, index in enumerate(files) if count == limit), len(entries))


def _lines(
    request: TableRequest, selection: Selection, chosen: str, page: Sequence[Entry], tokens: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    head, totals = selection.head, request.options.totals
    counted = None if totals == "none" or not selection.totals else head
    if totals == "stale" and counted is not None and head.version > 0:
        counted = request.table.log.snapshot_at(head.version - 1)
    writer = LineWriter(request, chosen, head.metadata.id, is_range=selection.is_range)
    yield writer.protocol(head.protocol)
    yield writer.metadata(head.metadata, selection.head_version, counted)
    for entry in page:
        yield writer.line(entry)
    if tokens or request.capabilities.end_stream_action:
        expires = {"minUrlExpirationTimestamp": writer.expires} if writer.has_urls else {}
        yield {"endStreamAction": tokens | expires}


def encode(answer: TableResponse, request: TableRequest) -> Iterator[bytes]:
    """Yield the body of an answer in chunks of about 256 KiB.

    After the first chunk the status has been sent. A later failure ends the answer with an EndStreamAction
    that has the error, or cuts it off for a client that did not ask for one.

    Raises:
        Problem, DeltaLogError: before the first chunk; the caller sends the status after it.
    """
    pending: list[bytes] = []
    size, begun = 0, False
    try:
        for line in answer.lines:
            pending.append(_line(line))
            size += len(pending[-1])
            if size >= _CHUNK_BYTES:
                yield b"".join(pending)
                pending, size, begun = [], 0, True
    except (Problem, DeltaLogError, OSError) as error:
        if not begun:
            raise
        logger.warning("table %s: failed while answering: %s", request.table.full_name, type(error).__name__)
        if not request.capabilities.end_stream_action:
            raise
        problem = problem_of(error, request.table.full_name)
        failure = {"errorMessage": problem.message, "httpStatusErrorCode": problem.status}
        pending.append(_line({"endStreamAction": failure}))
    if pending:
        yield b"".join(pending)


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
