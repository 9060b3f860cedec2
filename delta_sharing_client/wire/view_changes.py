"""Checks of an answer that lists the changes of a shared view, which have times and no versions."""

from __future__ import annotations

from collections.abc import Iterator

from delta_sharing_client.errors import ProtocolError, ViewChangesError
from delta_sharing_client.wire.decoder import Decoded
from delta_sharing_client.wire.file_block import FileBlock
from delta_sharing_client.wire.requests import ChangesRequest, Request


def check_view_changes(
    actions: Iterator[Decoded], *, request: Request, answered: int | None, what: str
) -> Iterator[Decoded]:
    """Yield the actions of an answer, with a check of each.

    Args:
        actions: the actions of an answer with the capability `cdfonviews=true`.
        request: the request.
        answered: the version in the answer's header.
        what: the view, for messages.

    Raises:
        ViewChangesError: the request needs versions.
        ProtocolError: the answer has a version, a file without a time, or one with a deletion vector.
    """
    if not isinstance(request, ChangesRequest) or not request.views:
        raise ViewChangesError(
            f"{what}: it is a view, whose changes have no versions; pollers, streams, mirrors and local copies "
            "need them: load the changes with changes(starting_timestamp=...)"
        )
    if request.starting_version is not None or request.ending_version is not None:
        raise ViewChangesError(
            f"{what}: it is a view, whose changes have no versions: give starting_timestamp and ending_timestamp"
        )
    if answered is not None:
        raise ProtocolError(
            f"{what}: the answer is marked as the changes of a view, and its header has version {answered}"
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
                raise ProtocolError(f"{what}: the changes of this view are malformed: the file {file.id} {fault}")
        yield action
