"""Deviations of the reference sharing server from the protocol (`ServerOptions.like_reference`).

It has two readers. The old one, Delta Standalone, reads tables of reader version 1 only. The new one reads all
tables. It is used for snapshots, unless the query has an option that it does not support.
"""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from dataclasses import replace
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response

from delta_sharing_client.server.answers import TableRequest
from delta_sharing_client.server.capabilities import Capabilities
from delta_sharing_client.server.problems import Problem

_PENDING_ANSWERS: Final = 3
_REMEMBERED: Final = 1000
_OLD_READER: Final = 1


def check_old_reader(request: TableRequest) -> None:
    """Raise `Problem` (400) for a table whose latest protocol Delta Standalone cannot read."""
    if request.options.imitate != "reference":
        return
    protocol = request.table.log.snapshot().protocol
    if protocol.min_reader_version > _OLD_READER:
        needed = f"({protocol.min_reader_version},{protocol.min_writer_version})"
        raise Problem(
            400,
            "UNSUPPORTED_OPERATION",
            f"Delta protocol version {needed} is too new for this version of Delta Standalone Reader (1,2). "
            "Please upgrade to a newer release.",
        )


def unauthorized() -> Response:
    """Return the response to a wrong token: plain text."""
    return PlainTextResponse("401 Unauthorized", status_code=401)


class StubQueries:
    """Asynchronous queries of which only the table is kept; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._polls: OrderedDict[tuple[str, str], int] = OrderedDict()

    def submit(self, request: TableRequest) -> dict[str, Any]:
        """Return the status line of a new query."""
        query_id = secrets.token_hex(16)
        with self._lock:
            self._polls[request.table.full_name, query_id] = 0
            while len(self._polls) > _REMEMBERED:
                self._polls.popitem(last=False)
        return _pending(query_id)

    def poll(self, request: TableRequest, query_id: str) -> dict[str, Any] | None:
        """Return the status line of a query; None if its answer is ready.

        Raises:
            Problem: 404, the table has no query of that id.
        """
        key = (request.table.full_name, query_id)
        with self._lock:
            if key not in self._polls:
                raise Problem(404, "RESOURCE_DOES_NOT_EXIST", f"Table {key[0]} has no such query.")
            self._polls[key] += 1
            return _pending(query_id) if self._polls[key] <= _PENDING_ANSWERS else None


def forgetful(request: TableRequest) -> TableRequest:
    """Return a request without capabilities: asynchronous queries are answered in parquet format."""
    return replace(request, capabilities=Capabilities())


def _pending(query_id: str) -> dict[str, Any]:
    return {"queryStatus": {"queryId": query_id, "status": "pending"}}
