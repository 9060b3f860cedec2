"""Metadata, versions and snapshots of a table.

Serves "Query Table Version", "Query Table Metadata" and "Read Data from a Table"; a query with
`startingVersion` is answered by `changes`.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

from delta_sharing_client.log import AddFile, Snapshot
from delta_sharing_client.server.file_selection import select_files
from delta_sharing_client.server.parameters import PointInTime, QueryBody, parse_timestamp
from delta_sharing_client.server.problems import bad_request
from delta_sharing_client.server.response_lines import Entry
from delta_sharing_client.server.table_request import TableRequest
from delta_sharing_client.server.table_response import Selection, State, TableResponse, answer_page


def table_version(request: TableRequest, starting_timestamp: str | None) -> int:
    """Return the earliest version at or after a timestamp, by default the latest one; raise `Problem` (400)."""
    log = request.table.log
    if starting_timestamp is None:
        return log.latest_version()
    request.need_history("Reading a table by timestamp")
    return log.version_at_or_after(parse_timestamp(starting_timestamp, "startingTimestamp"))


def table_metadata(request: TableRequest, point: PointInTime) -> TableResponse:
    """Answer "Query Table Metadata", by default of the latest version; raise `Problem` (400)."""
    return answer_page(request, lambda _: _selection(*_find_snapshot(request, point.version, point.timestamp)))


def query_snapshot(request: TableRequest, body: QueryBody) -> TableResponse:
    """Answer "Read Data from a Table" for a snapshot; raise `Problem` (400)."""
    log, signer = request.table.log, request.signer
    refresh = f"refresh {request.table.full_name}"
    if body.predicate_hints or body.max_files is not None or body.page_token:
        request.check_old_reader()

    def select(state: State | None) -> Selection:
        if state is not None:
            snapshot, is_time_travel = log.snapshot_at(state["version"]), state["pinned"]
        elif body.refresh_token and request.options.send_end_stream_action:
            token = signer.open_token(refresh, body.refresh_token, "refreshToken")
            snapshot, is_time_travel = log.snapshot_at(token["version"]), False
        else:
            snapshot, is_time_travel = _find_snapshot(request, body.version, body.timestamp)
        refresh_token = None
        if body.include_refresh_token and request.options.send_end_stream_action:
            refresh_token = signer.make_token(refresh, {"version": snapshot.version})
        files = select_files(
            snapshot,
            body.json_predicate_hints,
            body.limit_hint,
            count_deleted=request.options.limit_counts_deleted_rows,
        )
        return _selection(snapshot, is_time_travel, files, refresh_token)

    return answer_page(request, select, body)


def _selection(
    snapshot: Snapshot, is_time_travel: bool, files: Sequence[AddFile] = (), refresh_token: str | None = None
) -> Selection:
    """Select some files of a snapshot; `is_time_travel`: the request gives a version or time."""
    version, timestamp = (snapshot.version, snapshot.timestamp) if is_time_travel else (None, None)
    return Selection(
        version=snapshot.version,
        head=snapshot,
        head_version=version,
        entries=[Entry(add, version, timestamp) for add in files],
        protocols=[(snapshot.protocol, snapshot.metadata)],
        state={"version": snapshot.version, "pinned": is_time_travel},
        refresh_token=refresh_token,
    )


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
    committed = log.commit_timestamp(latest)
    if moment > committed:
        time = (
            datetime.fromtimestamp(committed / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
        raise bad_request(
            f"The timestamp {timestamp} is after the latest version ({latest}) of table "
            f"{request.table.full_name}, committed at {time}."
        )
    return log.snapshot_at(timestamp=moment), True
