"""`ChangeOptions`: which changes of a table to read; validated once and passed whole down to the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from delta_sharing_client.scan.options import ReadOptions
from delta_sharing_client.wire.requests import ChangesRequest, Timestamp, check_version, wire_timestamp

#: How the time of a commit is returned: as milliseconds since the epoch, or as an instant.
CommitTimestamp: TypeAlias = Literal["long", "timestamp"]


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
            starting_timestamp=wire_timestamp(self.starting_timestamp),
            ending_timestamp=wire_timestamp(self.ending_timestamp),
        )

    def request(self) -> ChangesRequest:
        """Return the request for the files of the changes.

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
        )
