"""Change data feed and files of a range of versions.

Serves "Read Change Data Feed from a Table", and "Read Data from a Table" with `startingVersion`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from delta_sharing_client.log import AddFile, CdcFile, Commit, Metadata, Protocol, RemoveFile, Snapshot
from delta_sharing_client.server.parameters import ChangesParameters, QueryBody, parse_timestamp
from delta_sharing_client.server.problems import bad_request
from delta_sharing_client.server.response_lines import Entry
from delta_sharing_client.server.table_request import TableRequest
from delta_sharing_client.server.table_response import Selection, State, TableResponse, answer_page

_CHANGE_FEED: Final = "delta.enableChangeDataFeed"


@dataclass(frozen=True, kw_only=True)
class _Range:
    """A range of versions.

    Attributes:
        start: the first version.
        end: the last version, inclusive; None for the latest one.
        change_feed: select row-level changes (with change files) instead of files added and removed.
        historical_metadata: include the metadata at `start`, and every change of it after that.
        historical_protocol: include every change of the protocol after `start`.
    """

    start: int
    end: int | None
    change_feed: bool
    historical_metadata: bool
    historical_protocol: bool


def query_feed(request: TableRequest, parameters: ChangesParameters) -> TableResponse:
    """Answer `GET /changes`; raise `Problem` (400)."""
    request.need_history("Reading the changes of a table")
    log = request.table.log
    start, start_time = parameters.starting_version, parameters.starting_timestamp
    end, end_time = parameters.ending_version, parameters.ending_timestamp
    if (start is None) == (start_time is None):
        raise bad_request("Exactly one of startingVersion and startingTimestamp must be given.")
    if end is not None and end_time is not None:
        raise bad_request("Only one of endingVersion and endingTimestamp can be given.")
    if start_time is not None:
        start = log.version_at_or_after(parse_timestamp(start_time, "startingTimestamp"))
    if end_time is not None:
        end = log.version_at_or_before(parse_timestamp(end_time, "endingTimestamp"))
    wanted = _Range(
        start=start or 0,
        end=end,
        change_feed=True,
        historical_metadata=parameters.include_historical_metadata,
        historical_protocol=parameters.include_historical_protocol,
    )
    return _answer(request, wanted, parameters)


def query_range(request: TableRequest, body: QueryBody) -> TableResponse:
    """Answer `POST /query` with `startingVersion`; raise `Problem` (400)."""
    request.need_history("Reading a table from a starting version")
    wanted = _Range(
        start=body.starting_version or 0,
        end=body.ending_version,
        change_feed=False,
        historical_metadata=True,
        historical_protocol=body.include_historical_protocol,
    )
    return _answer(request, wanted, body)


def _answer(request: TableRequest, wanted: _Range, paging: ChangesParameters | QueryBody) -> TableResponse:
    request.check_old_reader()
    log = request.table.log

    def select(state: State | None) -> Selection:
        latest = log.latest_version()
        if state is None:
            end = latest if wanted.end is None else min(wanted.end, latest)
            state = {"end": end, "metadata_version": latest}
        if wanted.start > latest:
            raise bad_request(
                f"The starting version {wanted.start} is after the latest version {latest} of table "
                f"{request.table.full_name}."
            )
        if state["end"] < wanted.start:
            raise bad_request(f"The ending version {state['end']} is before the starting version {wanted.start}.")
        begin = log.snapshot_at(wanted.start)
        head = begin if wanted.historical_metadata else log.snapshot_at(state["metadata_version"])
        entries = list(_entries(request, wanted, begin.metadata, state["end"]))
        return Selection(
            version=wanted.start,
            head=head,
            head_version=head.version if wanted.historical_metadata else None,
            totals=not wanted.historical_metadata,
            entries=[entry for entry in entries if _is_included(wanted, entry)],
            protocols=_protocols(begin, head, entries),
            state=state,
            is_range=True,
        )

    return answer_page(request, select, paging)


def _entries(request: TableRequest, wanted: _Range, metadata: Metadata, end: int) -> Iterator[Entry]:
    """Yield the actions of the range by version, metadata before files."""
    for commit in request.table.log.changes(wanted.start, end):
        for head in commit.actions:
            if isinstance(head, Metadata | Protocol):
                metadata = head if isinstance(head, Metadata) else metadata
                yield Entry(head, commit.version)
        if wanted.change_feed and metadata.configuration.get(_CHANGE_FEED, "").lower() != "true":
            raise bad_request(
                f"Change data feed is not enabled for version {commit.version} of table {request.table.full_name}."
            )
        for action in _changed_files(commit, wanted.change_feed):
            if isinstance(action, RemoveFile) and not request.options.removed_files:
                continue
            yield Entry(action, commit.version, commit.timestamp)


def _changed_files(commit: Commit, change_feed: bool) -> list[CdcFile] | list[AddFile | RemoveFile]:
    # If a version has change files, only they describe its changes.
    changes = [action for action in commit.actions if change_feed and isinstance(action, CdcFile)]
    return changes or [a for a in commit.actions if isinstance(a, AddFile | RemoveFile) and a.data_change]


def _protocols(begin: Snapshot, head: Snapshot, entries: list[Entry]) -> list[tuple[Protocol, Metadata]]:
    """Return all protocols and metadata that were valid in the range."""
    protocol, metadata = begin.protocol, begin.metadata
    states = [(protocol, metadata), (head.protocol, head.metadata)]
    for entry in entries:
        if isinstance(entry.action, Protocol):
            protocol = entry.action
        elif isinstance(entry.action, Metadata):
            metadata = entry.action
        else:
            continue
        states.append((protocol, metadata))
    return states


def _is_included(wanted: _Range, entry: Entry) -> bool:
    if isinstance(entry.action, Metadata):
        return wanted.historical_metadata and entry.version != wanted.start
    if isinstance(entry.action, Protocol):
        return wanted.historical_protocol and entry.version != wanted.start
    return True
