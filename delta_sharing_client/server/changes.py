"""Change data feed and files of a range of versions.

Serves "Read Change Data Feed from a Table", and "Read Data from a Table" with `startingVersion`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from delta_sharing_client.delta.log import (
    AddFile,
    CdcFile,
    Commit,
    Metadata,
    Protocol,
    RemoveFile,
    Snapshot,
    file_key,
)
from delta_sharing_client.server.answers import (
    Answer,
    TableRequest,
    end_stream_action,
)
from delta_sharing_client.server.capabilities import DELTA, choose_format
from delta_sharing_client.server.parameters import ChangesParameters, QueryBody, parse_timestamp
from delta_sharing_client.server.problems import bad_request
from delta_sharing_client.server.reference import check_old_reader
from delta_sharing_client.server.response_lines import LineFormat, line_format
from delta_sharing_client.server.snapshots import page_limit

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"

_FileAction: TypeAlias = AddFile | RemoveFile | CdcFile


@dataclass(frozen=True, kw_only=True)
class ChangeQuery:
    """A range of versions.

    Attributes:
        start: the first version.
        end: the last version, inclusive.
        change_feed: return row-level changes (with change files) instead of files added and removed.
        historical_metadata: include the metadata at `start`, and every change of it after that.
        historical_protocol: include every change of the protocol after `start`.
        max_files: the `maxFiles` of the request.
        page_token: the `pageToken` of the request.
        purpose: the text that page tokens of this query are bound to.
    """

    start: int
    end: int | None
    change_feed: bool
    historical_metadata: bool
    historical_protocol: bool
    max_files: int | None
    page_token: str | None
    purpose: str


@dataclass(frozen=True, kw_only=True)
class _Entry:
    """A line of the answer: an action and its commit."""

    commit: Commit
    action: _FileAction | Metadata | Protocol


def feed_query(request: TableRequest, asked: ChangesParameters) -> ChangeQuery:
    """Return the query of `GET /changes`.

    Raises:
        Problem: 400.
    """
    request.need_history("Reading the changes of a table")
    log = request.table.log
    start, start_time = asked.starting_version, asked.starting_timestamp
    end, end_time = asked.ending_version, asked.ending_timestamp
    if (start is None) == (start_time is None):
        raise bad_request("Exactly one of startingVersion and startingTimestamp must be given.")
    if end is not None and end_time is not None:
        raise bad_request("Only one of endingVersion and endingTimestamp can be given.")
    if start_time is not None:
        start = log.version_at_or_after(parse_timestamp(start_time, "startingTimestamp"))
    if end_time is not None:
        end = log.version_at_or_before(parse_timestamp(end_time, "endingTimestamp"))
    return ChangeQuery(
        start=start or 0,
        end=end,
        change_feed=True,
        historical_metadata=asked.include_historical_metadata,
        historical_protocol=asked.include_historical_protocol,
        max_files=asked.max_files,
        page_token=asked.page_token,
        purpose=f"changes {request.table.full_name} {asked.digest}",
    )


def range_query(request: TableRequest, body: QueryBody) -> ChangeQuery:
    """Return the query of `POST /query` with `startingVersion`.

    Args:
        request: the request.
        body: the checked body.

    Raises:
        Problem: 400.
    """
    request.need_history("Reading a table from a starting version")
    return ChangeQuery(
        start=body.starting_version or 0,
        end=body.ending_version,
        change_feed=False,
        historical_metadata=True,
        historical_protocol=body.include_historical_protocol,
        max_files=body.max_files,
        page_token=body.page_token,
        purpose=f"range {request.table.full_name} {body.digest}",
    )


def query_changes(request: TableRequest, query: ChangeQuery) -> Answer:
    """Answer with the changes of a range of versions.

    Args:
        request: the request.
        query: the range.

    Raises:
        Problem: 400.
    """
    check_old_reader(request)
    log = request.table.log
    latest = log.latest_version()
    end, first, metadata_version, token = latest if query.end is None else min(query.end, latest), 0, latest, None
    if query.page_token and request.options.send_end_stream_action:
        token = request.signer.open_token(query.purpose, query.page_token, "pageToken")
        end, first, metadata_version = token["end"], token["first"], token["metadata_version"]
    if query.start > latest:
        raise bad_request(
            f"The starting version {query.start} is after the latest version {latest} of table "
            f"{request.table.full_name}."
        )
    if end < query.start:
        raise bad_request(f"The ending version {end} is before the starting version {query.start}.")
    begin = log.snapshot_at(query.start)
    shown = begin if query.historical_metadata else log.snapshot_at(metadata_version)
    entries = list(_entries(request, query, begin, end))
    states = _states(begin, shown, entries)
    chosen = choose_format(
        request.capabilities, states, table_name=request.table.full_name, options=request.options
    )
    if token is not None and token["format"] != chosen:
        raise bad_request("pageToken is not valid for this request: it asks for another response format.")
    page, next_first = _page(_requested(query, entries, chosen), first, page_limit(request, query.max_files))
    page_token = None
    if next_first is not None:
        state = {"end": end, "first": next_first, "metadata_version": metadata_version, "format": chosen}
        page_token = request.signer.make_token(query.purpose, state)
    writer = line_format(chosen, request.links(shown.metadata.id, chosen))

    def lines() -> Iterator[dict[str, Any]]:
        yield writer.protocol(shown.protocol)
        version = shown.version if query.historical_metadata else None
        yield writer.metadata(shown.metadata, version=version, totals=None if query.historical_metadata else shown)
        for entry in page:
            yield _line(request, writer, entry)
        yield from end_stream_action(request, links=writer.links, page_token=page_token)

    return Answer(version=query.start, format=chosen, lines=lines())


def _entries(request: TableRequest, query: ChangeQuery, begin: Snapshot, end: int) -> Iterator[_Entry]:
    """Yield the actions of the range by version, metadata before files."""
    enabled = _has_feed(begin.metadata)
    for commit in request.table.log.changes(query.start, end):
        heads = [action for action in commit.actions if isinstance(action, Metadata | Protocol)]
        for head in heads:
            if isinstance(head, Metadata):
                enabled = _has_feed(head)
            yield _Entry(commit=commit, action=head)
        if query.change_feed and not enabled:
            raise bad_request(
                f"Change data feed is not enabled for version {commit.version} of table {request.table.full_name}."
            )
        changed: list[_FileAction] = []
        if query.change_feed:
            # If a version has change files, only they describe its changes.
            changed = [action for action in commit.actions if isinstance(action, CdcFile)]
        if not changed:
            changed = [a for a in commit.actions if isinstance(a, AddFile | RemoveFile) and a.data_change]
        for action in changed:
            yield _Entry(commit=commit, action=action)


def _has_feed(metadata: Metadata) -> bool:
    return metadata.configuration.get(_CHANGE_FEED, "").lower() == "true"


def _states(begin: Snapshot, shown: Snapshot, entries: list[_Entry]) -> list[tuple[Protocol, Metadata]]:
    """Return all protocols and metadata that were valid in the range."""
    protocol, metadata = begin.protocol, begin.metadata
    states = [(protocol, metadata), (shown.protocol, shown.metadata)]
    for entry in entries:
        if isinstance(entry.action, Protocol):
            protocol = entry.action
        elif isinstance(entry.action, Metadata):
            metadata = entry.action
        else:
            continue
        states.append((protocol, metadata))
    return states


def _requested(query: ChangeQuery, entries: list[_Entry], chosen: str) -> list[_Entry]:
    """Return the entries without unrequested protocols and metadata."""

    def requested(entry: _Entry) -> bool:
        if isinstance(entry.action, Metadata):
            return query.historical_metadata and entry.commit.version > query.start
        if isinstance(entry.action, Protocol):
            return query.historical_protocol and chosen == DELTA and entry.commit.version > query.start
        return True

    return [entry for entry in entries if requested(entry)]


def _page(entries: list[_Entry], first: int, limit: int | None) -> tuple[list[_Entry], int | None]:
    """Return a page of up to `limit` files, and the index of the next one."""
    files = 0
    for index in range(first, len(entries)):
        if isinstance(entries[index].action, AddFile | RemoveFile | CdcFile):
            if files == limit:
                return entries[first:index], index
            files += 1
    return entries[first:], None


def _line(request: TableRequest, writer: LineFormat, entry: _Entry) -> dict[str, Any]:
    action, commit = entry.action, entry.commit
    if isinstance(action, Metadata):
        return writer.metadata(action, version=commit.version)
    if isinstance(action, Protocol):
        return writer.protocol(action, version=commit.version)
    added = None
    if isinstance(action, RemoveFile) and action.raw.get("size") is None and commit.version > 0:
        # Old writers omit the size and the partition values of removed files.
        added = request.table.log.snapshot_at(commit.version - 1).state.adds.get(file_key(action))
    return writer.file(action, version=commit.version, timestamp=commit.timestamp, added=added, change=True)
