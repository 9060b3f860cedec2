"""Checks that an answer is for the requested version or time, which a server may ignore.

The checks compare the version in the answer's header, and the versions and commit times of its lines ("Metadata",
"File"). A line of an earlier version is correct: servers may send the version that added the metadata or the file.

For a time, `_check_version` in `scan/planner.py` also compares the version with that of the metadata, if the
metadata was requested before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from delta_sharing_client.errors import VersionMismatchError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import QueryRequest, wire_timestamp

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


def check_time_travel(
    actions: Iterator[Decoded], *, request: QueryRequest, answered: int | None, what: str
) -> Iterator[Decoded]:
    """Yield the actions of an answer, with a check of each.

    Args:
        actions: the actions.
        request: requests a version, a time or the latest version.
        answered: the version in the answer's header.
        what: the table, for messages.

    Raises:
        VersionMismatchError: the answer is for another version, or for a version that is newer than the time.
    """
    version, timestamp = request.version, wire_timestamp(request.timestamp)
    if version is not None and answered not in (None, version):
        raise VersionMismatchError(
            f"{what}: requested version {version}, the server answered for version {answered}",
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
                f"{what}: the answer for {requested} has a line of version {newest}",
                expected=version,
                actual=newest,
            )
        if last is not None and committed > last:
            raise VersionMismatchError(
                f"{what}: the answer for {timestamp} has a file of a version committed "
                f"{(committed - last) / 1000:,.3f} s after that",
                expected=version,
            )
        yield action
