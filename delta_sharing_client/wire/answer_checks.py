"""Checks of an answer against its request: the version or time of a query, the changes of a shared view.

A server may ignore the requested version or time. Checks compare the version in the answer's header, and the
versions and commit times of its lines ("Metadata", "File"). A line of an earlier version is correct: servers may
send the version that added the metadata or the file.

For a time, `_check_version` in `scan/planner.py` also compares the version with that of the metadata, if the
metadata was requested before.

The changes of a shared view have times and no versions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from delta_sharing_client.errors import ProtocolError, VersionMismatchError, ViewChangesError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ChangesRequest, QueryRequest, Request, wire_timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def check_time_travel(
    actions: Iterator[Decoded], *, request: QueryRequest, answered: int | None, subject: str
) -> Iterator[Decoded]:
    """Yield the actions of an answer, with a check of each.

    Args:
        actions: the actions.
        request: requests a version, a time or the latest version.
        answered: the version in the answer's header.
        subject: the table, for messages.

    Raises:
        VersionMismatchError: the answer is for another version, or for a version that is newer than the time.
    """
    version, timestamp = request.version, wire_timestamp(request.timestamp)
    if version is not None and answered not in (None, version):
        raise VersionMismatchError(
            f"{subject}: requested version {version}, the server answered for version {answered}",
            expected=version,
            actual=answered,
        )
    if version is None and timestamp is None:
        yield from actions
        return
    requested = f"version {version}"
    if timestamp is not None:
        version = answered
        requested = f"{timestamp}, which is version {version} by its header,"
    # The last commit time in milliseconds; a server may round the time up.
    last = None if timestamp is None else (parse_iso8601(timestamp) - _EPOCH) // _MILLISECOND + 1
    for action in actions:
        versions: Sequence[int | None] = ()
        times: Sequence[int | None] = ()
        if isinstance(action, FileBlock):
            versions, times = action.versions, action.timestamps
        elif isinstance(action, Metadata):
            versions = [action.version]
        newest, committed = (max(filter(None, numbers), default=0) for numbers in (versions, times))
        if version is not None and newest > version:
            raise VersionMismatchError(
                f"{subject}: the answer for {requested} has a line of version {newest}",
                expected=version,
                actual=newest,
            )
        if last is not None and committed > last:
            raise VersionMismatchError(
                f"{subject}: the answer for {timestamp} has a file of a version committed "
                f"{(committed - last) / 1000:,.3f} s after that",
                expected=version,
            )
        yield action


def check_view_changes(
    actions: Iterator[Decoded], *, request: Request, answered: int | None, subject: str
) -> Iterator[Decoded]:
    """Yield the actions of an answer, with a check of each.

    Args:
        actions: the actions of an answer with the capability `cdfonviews=true`.
        request: the request.
        answered: the version in the answer's header.
        subject: the view, for messages.

    Raises:
        ViewChangesError: the request needs versions.
        ProtocolError: the answer has a version, a file without a time, or one with a deletion vector.
    """
    if not isinstance(request, ChangesRequest) or not request.views:
        raise ViewChangesError(
            f"{subject}: it is a view, whose changes have no versions; pollers, streams, mirrors and local copies "
            "need them: load the changes with changes(starting_timestamp=...)"
        )
    if request.starting_version is not None or request.ending_version is not None:
        raise ViewChangesError(
            f"{subject}: it is a view, whose changes have no versions: give starting_timestamp and "
            "ending_timestamp"
        )
    if answered is not None:
        raise ProtocolError(
            f"{subject}: the answer is marked as the changes of a view, and its header has version {answered}"
        )
    for action in actions:
        for file in action if isinstance(action, FileBlock) else ():
            fault = None
            if file.version is not None:
                fault = f"has version {file.version}"
            elif file.timestamp is None:
                fault = "has no timestamp"
            elif file.deletion_vector is not None:
                fault = "has a deletion vector"
            if fault is not None:
                raise ProtocolError(
                    f"{subject}: the changes of this view are malformed: the file {file.id} {fault}"
                )
        yield action
