"""Metadata, versions and snapshots of a table.

Serves "Query Table Version", "Query Table Metadata" and "Read Data from a Table"; a query with
`startingVersion` is answered by `changes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from delta_sharing_client.delta.log import AddFile, Snapshot
from delta_sharing_client.server.answers import (
    Answer,
    TableRequest,
    end_stream_action,
)
from delta_sharing_client.server.capabilities import choose_format
from delta_sharing_client.server.file_selection import select_files
from delta_sharing_client.server.parameters import PointInTime, QueryBody, parse_timestamp
from delta_sharing_client.server.problems import bad_request
from delta_sharing_client.server.reference import check_old_reader
from delta_sharing_client.server.response_lines import LineFormat, line_format


def table_version(request: TableRequest, starting_timestamp: str | None) -> int:
    """Answer "Query Table Version".

    Args:
        request: the request.
        starting_timestamp: selects the earliest version at or after it; None for the latest version.

    Raises:
        Problem: 400.
    """
    log = request.table.log
    if starting_timestamp is None:
        return log.latest_version()
    request.need_history("Reading a table by timestamp")
    return log.version_at_or_after(parse_timestamp(starting_timestamp, "startingTimestamp"))


def table_metadata(request: TableRequest, point: PointInTime) -> Answer:
    """Answer "Query Table Metadata", by default of the latest version.

    Raises:
        Problem: 400.
    """
    snapshot, pinned = _find_snapshot(request, point.version, point.timestamp)
    chosen, writer = _open(request, snapshot)

    def lines() -> Iterator[dict[str, Any]]:
        yield from _head(writer, snapshot, pinned=pinned)
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
    purpose = f"query {request.table.full_name} {body.digest}"
    if body.predicate_hints or body.max_files is not None or body.page_token:
        check_old_reader(request)
    first = 0
    if body.page_token and paging:
        state = request.signer.open_token(purpose, body.page_token, "pageToken")
        snapshot, pinned, first = request.table.log.snapshot_at(state["version"]), state["pinned"], state["first"]
    elif body.refresh_token and paging:
        state = request.signer.open_token(f"refresh {request.table.full_name}", body.refresh_token, "refreshToken")
        snapshot, pinned = request.table.log.snapshot_at(state["version"]), False
    else:
        snapshot, pinned = _find_snapshot(request, body.version, body.timestamp)
    chosen, writer = _open(request, snapshot)
    if body.page_token and paging and state["format"] != chosen:
        raise bad_request("pageToken is not valid for this request: it asks for another response format.")
    files = select_files(snapshot, body.json_predicate_hints, body.limit_hint)
    page = _page(files, first, page_limit(request, body.max_files))
    next_first = first + len(page)
    page_token = refresh_token = None
    if next_first < len(files):
        page_token = request.signer.make_token(
            purpose,
            {"version": snapshot.version, "pinned": pinned, "first": next_first, "format": chosen},
        )
    if body.include_refresh_token and paging:
        refresh_token = request.signer.make_token(
            f"refresh {request.table.full_name}", {"version": snapshot.version}
        )

    def lines() -> Iterator[dict[str, Any]]:
        yield from _head(writer, snapshot, pinned=pinned)
        version, timestamp = (snapshot.version, snapshot.timestamp) if pinned else (None, None)
        for add in page:
            yield writer.file(add, version=version, timestamp=timestamp)
        yield from end_stream_action(
            request, links=writer.links, page_token=page_token, refresh_token=refresh_token
        )

    return Answer(version=snapshot.version, format=chosen, lines=lines())


def page_limit(request: TableRequest, max_files: int | None) -> int | None:
    """Return the maximum number of files of an answer; None for no limit.

    The server's own limit applies only to clients that ask for an EndStreamAction or send `maxFiles`: other
    clients cannot page.
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
    """Return the snapshot, and whether the request is for a version or timestamp."""
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


def _open(request: TableRequest, snapshot: Snapshot) -> tuple[str, LineFormat]:
    chosen = choose_format(
        request.capabilities,
        [(snapshot.protocol, snapshot.metadata)],
        table_name=request.table.full_name,
        options=request.options,
    )
    return chosen, line_format(chosen, request.links(snapshot.metadata.id, chosen))


def _head(writer: LineFormat, snapshot: Snapshot, *, pinned: bool) -> Iterator[dict[str, Any]]:
    yield writer.protocol(snapshot.protocol)
    yield writer.metadata(snapshot.metadata, version=snapshot.version if pinned else None, totals=snapshot)
