"""`PollOptions`: where to start polling a table, how often, and what to do about schema changes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from delta_sharing_client.wire.requests import Timestamp, check_version, format_timestamp

#: The reaction to a column that is renamed or dropped, or changes its type.
SchemaChanges: TypeAlias = Literal["raise", "follow"]
#: The start: a version, the next version, or the whole table first.
StartingVersion: TypeAlias = int | Literal["latest", "snapshot"]

#: The minimum interval that servers request.
MIN_INTERVAL: Final = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class PollOptions:
    """Options of a poller; see `SharedTable.poll_changes`.

    Attributes:
        starting_version, starting_timestamp: the start without a checkpoint; at most one of them.
        poll_interval: the time between two polls.
        max_versions: the maximum number of versions in a batch.
        schema_changes: ``raise`` an error, or ``follow`` with the new columns.
    """

    starting_version: StartingVersion | None = None
    starting_timestamp: Timestamp | None = None
    poll_interval: timedelta = timedelta(seconds=30)
    max_versions: int = 100
    schema_changes: SchemaChanges = "raise"

    def __post_init__(self) -> None:
        start = self.starting_version
        if start is not None and self.starting_timestamp is not None:
            raise ValueError("give at most one of starting_version and starting_timestamp")
        if isinstance(start, str):
            if start not in ("latest", "snapshot"):
                raise ValueError(f"starting_version is {start!r}; it takes a version, 'latest' or 'snapshot'")
        else:
            check_version(start, "starting_version")
        if self.starting_timestamp is not None:
            object.__setattr__(self, "starting_timestamp", format_timestamp(self.starting_timestamp))
        if not isinstance(self.poll_interval, timedelta):
            raise TypeError(
                f"poll_interval is a timedelta, as timedelta(seconds=30), not {type(self.poll_interval).__name__}"
            )
        if self.poll_interval <= timedelta(0):
            raise ValueError(f"poll_interval is {self.poll_interval}; it has to be positive")
        if (check_version(self.max_versions, "max_versions") or 0) < 1:
            raise ValueError(f"max_versions is {self.max_versions}; it takes 1 or more")
        if self.schema_changes not in ("raise", "follow"):
            raise ValueError(f"schema_changes is {self.schema_changes!r}; it takes 'raise' or 'follow'")
