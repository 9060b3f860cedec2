"""Metadata, versions and snapshots of a table.

Serves "Query Table Version", "Query Table Metadata" and "Read Data from a Table"; a query with
`startingVersion` is answered by `changes`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.delta.log import AddFile, Snapshot
from delta_sharing_client.server.answers import (
    Answer,
    TableRequest,
    boolean,
    end_stream_action,
    integer,
    parse_timestamp,
    text,
)
from delta_sharing_client.server.capabilities import choose_format
from delta_sharing_client.server.file_selection import select_files
from delta_sharing_client.server.problems import bad_request
from delta_sharing_client.server.reference import check_old_reader
from delta_sharing_client.server.response_lines import Wire, make_wire

# What may differ between the pages of one query.
_PAGING: Final = {
    "maxFiles",
    "pageToken",
    "includeRefreshToken",
    "refreshToken",
    "idempotencyKey",
    "idempotency_key",
}


@dataclass(frozen=True, kw_only=True)
class QueryBody:
    """The body of a query; each field is that of the protocol."""

    predicate_hints: tuple[str, ...]
    json_predicate_hints: str | None
    limit_hint: int | None
    version: int | None
    timestamp: str | None
    starting_version: int | None
    ending_version: int | None
    max_files: int | None
    page_token: str | None
    refresh_token: str | None
    include_refresh_token: bool
    include_historical_protocol: bool
    digest: str

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> QueryBody:
        """Check the body.

        Raises:
            Problem: 400, a field is malformed or does not go with another.
        """
        hints = body.get("predicateHints") or ()
        if not isinstance(hints, Sequence) or not all(isinstance(hint, str) for hint in hints):
            raise bad_request("predicateHints must be a list of strings.")
        parsed = cls(
            predicate_hints=(hints,) if isinstance(hints, str) else tuple(hints),
            json_predicate_hints=text(body.get("jsonPredicateHints"), "jsonPredicateHints"),
            limit_hint=integer(body.get("limitHint"), "limitHint"),
            version=integer(body.get("version"), "version"),
            timestamp=text(body.get("timestamp"), "timestamp"),
            starting_version=integer(body.get("startingVersion"), "startingVersion"),
            ending_version=integer(body.get("endingVersion"), "endingVersion"),
            max_files=integer(body.get("maxFiles"), "maxFiles", minimum=1),
            page_token=text(body.get("pageToken"), "pageToken"),
            refresh_token=text(body.get("refreshToken"), "refreshToken"),
            include_refresh_token=boolean(body.get("includeRefreshToken"), "includeRefreshToken"),
            include_historical_protocol=boolean(
                body.get("includeHistoricalProtocol"), "includeHistoricalProtocol"
            ),
            digest=digest({name: value for name, value in body.items() if name not in _PAGING}),
        )
        points = [parsed.version, parsed.timestamp, parsed.starting_version]
        if sum(point is not None for point in points) > 1:
            raise bad_request("Only one of version, timestamp and startingVersion can be given.")
        if parsed.ending_version is not None and parsed.starting_version is None:
            raise bad_request("endingVersion needs a startingVersion.")
        if parsed.refresh_token or parsed.include_refresh_token:
            if any(point is not None for point in points):
                raise bad_request("Refresh tokens are for the latest snapshot only.")
            if parsed.page_token:
                raise bad_request("Refresh tokens are for the first page only.")
        return parsed


def digest(values: Mapping[str, Any]) -> str:
    """Return a short text that two equal sets of parameters share."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"), default=str)
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def table_version(request: TableRequest, starting_timestamp: str | None) -> int:
    """Answer "Query Table Version".

    Args:
        request: the request.
        starting_timestamp: the earliest version at or after it is wanted.

    Raises:
        Problem: 400.
    """
    log = request.table.log
    if starting_timestamp is None:
        return log.latest_version()
    request.need_history("Reading a table by timestamp")
    return log.version_at_or_after(parse_timestamp(starting_timestamp, "startingTimestamp"))


def table_metadata(request: TableRequest, version: int | None, timestamp: str | None) -> Answer:
    """Answer "Query Table Metadata".

    Args:
        request: the request.
        version: a version, instead of the latest.
        timestamp: a time, instead of the latest.

    Raises:
        Problem: 400.
    """
    snapshot, pinned = _find_snapshot(request, version, timestamp)
    chosen, wire = _open(request, snapshot)

    def lines() -> Iterator[dict[str, Any]]:
        yield from _head(wire, snapshot, pinned=pinned)
        yield from end_stream_action(request)

    return Answer(version=snapshot.version, format=chosen, lines=lines())


def query_snapshot(request: TableRequest, body: QueryBody) -> Answer:
    """Answer "Read Data from a Table" for a snapshot.

    Args:
        request: the request.
        body: the checked body, without `startingVersion`.

    Raises:
        Problem: 400.
    """
    paging = request.options.send_end_stream_action
    if body.predicate_hints or body.max_files is not None or body.page_token:
        check_old_reader(request)
    first = 0
    if body.page_token and paging:
        state = request.signer.open_token(
            f"query {request.table.full_name} {body.digest}", body.page_token, "pageToken"
        )
        snapshot, pinned, first = request.table.log.snapshot_at(state["version"]), state["pinned"], state["first"]
    elif body.refresh_token and paging:
        state = request.signer.open_token(f"refresh {request.table.full_name}", body.refresh_token, "refreshToken")
        snapshot, pinned = request.table.log.snapshot_at(state["version"]), False
    else:
        snapshot, pinned = _find_snapshot(request, body.version, body.timestamp)
    chosen, wire = _open(request, snapshot)
    if body.page_token and paging and state["format"] != chosen:
        raise bad_request("pageToken is not valid for this request: it asks for another response format.")
    files = select_files(snapshot, body.json_predicate_hints, body.limit_hint)
    page = _page(files, first, page_limit(request, body.max_files))
    next_first = first + len(page)
    page_token = refresh_token = None
    if next_first < len(files):
        page_token = request.signer.make_token(
            f"query {request.table.full_name} {body.digest}",
            {"version": snapshot.version, "pinned": pinned, "first": next_first, "format": chosen},
        )
    if body.include_refresh_token and paging:
        refresh_token = request.signer.make_token(
            f"refresh {request.table.full_name}", {"version": snapshot.version}
        )

    def lines() -> Iterator[dict[str, Any]]:
        yield from _head(wire, snapshot, pinned=pinned)
        version, timestamp = (snapshot.version, snapshot.timestamp) if pinned else (None, None)
        for add in page:
            yield wire.file(add, version=version, timestamp=timestamp)
        yield from end_stream_action(request, links=wire.links, page_token=page_token, refresh_token=refresh_token)

    return Answer(version=snapshot.version, format=chosen, lines=lines())


def page_limit(request: TableRequest, max_files: int | None) -> int | None:
    """Return how many files an answer may hold; None for all of them.

    The server's own limit applies only to clients that ask for an EndStreamAction or give `maxFiles`: any other
    client would take the first page for the whole.

    Args:
        request: the request.
        max_files: the `maxFiles` of the request.
    """
    if not request.options.send_end_stream_action:
        return None
    own = request.options.max_files_per_page
    if max_files is None:
        return own if request.capabilities.end_stream_action else None
    return max_files if own is None else min(max_files, own)


def _page(files: Sequence[AddFile], first: int, limit: int | None) -> Sequence[AddFile]:
    return files[first:] if limit is None else files[first : first + limit]


def _find_snapshot(request: TableRequest, version: int | None, timestamp: str | None) -> tuple[Snapshot, bool]:
    """Return the snapshot asked for, and whether one was asked for (or just the latest)."""
    log = request.table.log
    if version is not None and timestamp is not None:
        raise bad_request("Only one of version and timestamp can be given.")
    if version is None and timestamp is None:
        return log.snapshot(), False
    request.need_history("Reading a table by version or timestamp")
    if timestamp is None:
        return log.snapshot_at(version), True
    moment = parse_timestamp(timestamp, "timestamp")
    latest = log.latest_version()
    if moment > log.commit_timestamp(latest):
        raise bad_request(
            f"The timestamp {timestamp} is after the latest version ({latest}) of table {request.table.full_name}."
        )
    return log.snapshot_at(timestamp=moment), True


def _open(request: TableRequest, snapshot: Snapshot) -> tuple[str, Wire]:
    chosen = choose_format(
        request.capabilities,
        [(snapshot.protocol, snapshot.metadata)],
        table_name=request.table.full_name,
        options=request.options,
    )
    return chosen, make_wire(chosen, request.links(snapshot.metadata.id, chosen))


def _head(wire: Wire, snapshot: Snapshot, *, pinned: bool) -> Iterator[dict[str, Any]]:
    yield wire.protocol(snapshot.protocol)
    yield wire.metadata(snapshot.metadata, version=snapshot.version if pinned else None, totals=snapshot)
