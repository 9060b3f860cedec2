"""`ChangeOptions`: which changes of a table to read. `PollOptions`: where and how often to poll for them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal, TypeAlias

from delta_sharing_client.errors import ColumnError
from delta_sharing_client.scan.options import ReadOptions
from delta_sharing_client.wire.requests import ChangesRequest, Timestamp, check_version, wire_timestamp

#: How the time of a commit is returned: as milliseconds since the epoch, or as an instant.
CommitTimestamp: TypeAlias = Literal["long", "timestamp"]
#: The reaction to a column that is renamed or dropped, or changes its type.
SchemaChanges: TypeAlias = Literal["raise", "follow"]
#: The start of a poller: a version, the next version, or the whole table first.
StartingVersion: TypeAlias = int | Literal["latest", "snapshot"]

CHANGE_TYPE: Final = "_change_type"
COMMIT_VERSION: Final = "_commit_version"
COMMIT_TIMESTAMP: Final = "_commit_timestamp"
#: The columns of every change row, after those of the table.
CHANGE_COLUMNS: Final = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)

#: The number of polls without a new version after which the table's id is requested.
CHECK_TABLE_EVERY: Final = 20
#: The minimum poll interval that servers request.
MIN_INTERVAL: Final = timedelta(seconds=10)


@dataclass(frozen=True, kw_only=True)
class ChangeOptions(ReadOptions):
    """Which changes of a table to read; the range includes both its ends.

    Attributes:
        starting_version, starting_timestamp: where the range starts. A query needs exactly one of them; a poller,
            which sets the range of each batch, none.
        ending_version, ending_timestamp: where the range ends; at most one of them, the latest version without.
        commit_timestamp: ``long`` returns `_commit_timestamp` as milliseconds since the epoch, ``timestamp`` as
            an instant.
    """

    starting_version: int | None = None
    ending_version: int | None = None
    starting_timestamp: Timestamp | None = None
    ending_timestamp: Timestamp | None = None
    commit_timestamp: CommitTimestamp = "long"

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = [name for name in self.columns or () if isinstance(name, str) and name.lower() in CHANGE_COLUMNS]
        if taken:
            raise ColumnError(
                f"columns names {', '.join(map(repr, taken))}, which every change has: leave it out of columns",
                columns=taken,
            )
        if self.starting_version is not None and self.starting_timestamp is not None:
            raise ValueError("give exactly one of starting_version and starting_timestamp")
        if self.ending_version is not None and self.ending_timestamp is not None:
            raise ValueError("give at most one of ending_version and ending_timestamp")
        first = check_version(self.starting_version, "starting_version")
        last = check_version(self.ending_version, "ending_version")
        if first is not None and last is not None and last < first:
            raise ValueError(f"ending_version is {last}, which is before starting_version, {first}")
        if self.commit_timestamp not in ("long", "timestamp"):
            raise ValueError(f"commit_timestamp is {self.commit_timestamp!r}; it takes 'long' or 'timestamp'")
        self._set(
            starting_version=first,
            ending_version=last,
            starting_timestamp=wire_timestamp(self.starting_timestamp, "starting_timestamp"),
            ending_timestamp=wire_timestamp(self.ending_timestamp, "ending_timestamp"),
        )

    def request(self, *, views: bool = False) -> ChangesRequest:
        """Return the request for the files of the changes.

        Args:
            views: accept the changes of a view, which have no versions.

        Raises:
            ValueError: the range has no start.
        """
        return ChangesRequest(
            formats=self.formats,
            starting_version=self.starting_version,
            starting_timestamp=self.starting_timestamp,
            ending_version=self.ending_version,
            ending_timestamp=self.ending_timestamp,
            include_historical_metadata=True,
            include_historical_protocol="delta" in self.formats,
            views=views,
        )


@dataclass(frozen=True, kw_only=True)
class PollOptions:
    """Options of a poller; see `SharedTable.poll_changes`.

    Attributes:
        starting_version, starting_timestamp: the start without a checkpoint; at most one of them.
        poll_interval: the time between two polls.
        max_versions: the maximum number of versions in a batch.
        schema_changes: ``raise`` an error, or ``follow`` with the new columns.
        check_table_every: the number of polls without a new version after which the table's id is requested too.
        target: the name of what stores the batches, to which the checkpoint is bound; None to bind it to nothing.
        rebind: bind a checkpoint that is bound to another target to this one, and let a sink begin in a target
            without the batches before.
    """

    starting_version: StartingVersion | None = None
    starting_timestamp: Timestamp | None = None
    poll_interval: timedelta = timedelta(seconds=30)
    max_versions: int = 100
    schema_changes: SchemaChanges = "raise"
    check_table_every: int = CHECK_TABLE_EVERY
    target: str | None = None
    rebind: bool = False

    def __post_init__(self) -> None:
        start = self.starting_version
        if start is not None and self.starting_timestamp is not None:
            raise ValueError("give at most one of starting_version and starting_timestamp")
        if isinstance(start, str):
            if start not in ("latest", "snapshot"):
                raise ValueError(f"starting_version is {start!r}; it takes a version, 'latest' or 'snapshot'")
        else:
            check_version(start, "starting_version")
        time = wire_timestamp(self.starting_timestamp, "starting_timestamp")
        object.__setattr__(self, "starting_timestamp", time)
        if not isinstance(self.poll_interval, timedelta):
            raise TypeError(
                f"poll_interval is a timedelta, as timedelta(seconds=30), not {type(self.poll_interval).__name__}"
            )
        if self.poll_interval <= timedelta(0):
            raise ValueError(f"poll_interval is {self.poll_interval}; it has to be positive")
        for name, number in (
            ("max_versions", self.max_versions),
            ("check_table_every", self.check_table_every),
        ):
            if (check_version(number, name) or 0) < 1:
                raise ValueError(f"{name} is {number}; it takes 1 or more")
        if self.schema_changes not in ("raise", "follow"):
            raise ValueError(f"schema_changes is {self.schema_changes!r}; it takes 'raise' or 'follow'")
