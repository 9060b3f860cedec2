"""Times after the last commit of a table: with ``on_future="latest"`` the latest version is read for them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeVar

from delta_sharing_client.errors import BadRequestError
from delta_sharing_client.model.names import Table
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.wire.requests import Timestamp

if TYPE_CHECKING:
    from delta_sharing_client.rest.client import RestClient

T = TypeVar("T")

#: A time before every commit.
_FIRST_TIME: Final = "1970-01-01T00:00:00Z"


def in_time(rest: RestClient, table: Table, options: ScanOptions, run: Callable[[ScanOptions], T]) -> T:
    """Return what a function returns for the options; with the latest version for a time after its commit.

    Raises:
        BadRequestError: the server refuses the time, and `on_future` is ``raise`` or the time is not after the
            last commit.
    """
    try:
        return run(options)
    except BadRequestError:
        if options.timestamp is None or options.on_future != "latest":
            raise
        version = latest_before(rest, table, options.timestamp)
        if version is None:
            raise
    return run(options.replace(version=version, timestamp=None))


def latest_before(rest: RestClient, table: Table, time: Timestamp) -> int | None:
    """Return the latest version if its commit is before a time; None if not, or if the server cannot tell."""
    latest = rest.table_version(table)
    try:
        rest.table_version(table, time)
    except BadRequestError:
        with contextlib.suppress(BadRequestError):  # a server without history refuses every time
            rest.table_version(table, _FIRST_TIME)
            return latest
    return None
