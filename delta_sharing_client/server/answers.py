"""Requests for table data, and their answers in newline-delimited JSON."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.server.capabilities import DELTA, PARQUET, Capabilities
from delta_sharing_client.server.catalog import ServedTable
from delta_sharing_client.server.links import Links
from delta_sharing_client.server.options import ServerOptions
from delta_sharing_client.server.problems import Problem, bad_request, from_log_error
from delta_sharing_client.server.sign import Signer

_LOGGER: Final = logging.getLogger(__name__)
_CHUNK_BYTES: Final = 256 * 1024


@dataclass(frozen=True, kw_only=True)
class TableRequest:
    """One request for a table's data.

    Attributes:
        table: the table.
        capabilities: the client's capabilities.
        options: the server's options.
        signer: the server's signer.
        base_url: `http://host:port`, as the client reached the server.
    """

    table: ServedTable
    capabilities: Capabilities
    options: ServerOptions
    signer: Signer
    base_url: str

    def links(self, table_id: str, chosen: str) -> Links:
        """Return the writer of URLs and file ids of an answer in a response format."""
        by_format = {PARQUET: "md5", DELTA: "sha256"} if self.options.file_ids_by_format else {}
        return Links(
            signer=self.signer,
            base_url=self.base_url,
            table=self.table,
            table_id=table_id,
            expires=int(time.time() * 1000) + self.options.url_lifetime // timedelta(milliseconds=1),
            path_hash=by_format.get(chosen),
            vector_ids=self.options.imitate != "reference",
        )

    def need_history(self, what: str) -> None:
        """Raise `Problem` (400) if history is not shared; `what` needs it."""
        if not self.options.history:
            raise bad_request(f"{what} is not supported: history is not shared for table {self.table.full_name}.")


@dataclass(frozen=True, kw_only=True)
class Answer:
    """An answer in newline-delimited JSON.

    Attributes:
        version: the `Delta-Table-Version`.
        format: the response format.
        lines: the JSON objects, one per line, created as they are sent.
    """

    version: int
    format: str
    lines: Iterator[dict[str, Any]]


def end_stream_action(
    request: TableRequest,
    *,
    links: Links | None = None,
    page_token: str | None = None,
    refresh_token: str | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the EndStreamAction, if the client asks for one or it has content.

    Args:
        request: the request.
        links: the answer's links, once all of them are made.
        page_token: the token of the next page.
        refresh_token: the token that refreshes the URLs.
    """
    fields: dict[str, Any] = {}
    if refresh_token is not None:
        fields["refreshToken"] = refresh_token
    if page_token is not None:
        fields["nextPageToken"] = page_token
    if fields or request.capabilities.end_stream_action:
        if links is not None and links.used:
            fields["minUrlExpirationTimestamp"] = links.expires
        yield {"endStreamAction": fields}


def encode(answer: Answer, request: TableRequest) -> Iterator[bytes]:
    """Yield the body of an answer in chunks of about 256 KiB.

    After the first chunk the status has been sent. A later failure ends the answer with an EndStreamAction
    that has the error, or cuts it off for a client that did not ask for one.

    Args:
        answer: the answer.
        request: the request it answers.

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
        _LOGGER.warning("table %s: failed while answering: %s", request.table.full_name, type(error).__name__)
        if not request.capabilities.end_stream_action:
            raise
        problem = error if isinstance(error, Problem) else _problem(error, request)
        failure = {"errorMessage": problem.message, "httpStatusErrorCode": problem.status}
        pending.append(_line({"endStreamAction": failure}))
    if pending:
        yield b"".join(pending)


def _problem(error: Exception, request: TableRequest) -> Problem:
    if isinstance(error, DeltaLogError):
        return from_log_error(error, request.table.full_name)
    return Problem(500, "INTERNAL_ERROR", f"The files of table {request.table.full_name} cannot be read.")


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
