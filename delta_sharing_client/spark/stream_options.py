"""Options of a stream, ``spark.readStream.format("deltaSharing")``; Delta's own source has the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.spark.data_source_options import (
    SourceOptions,
    common_options,
    parse_texts,
    read_options,
    refuse_together,
)
from delta_sharing_client.transport.url_rules import is_loopback

#: Files of a batch if no limit is given.
MAX_FILES: Final = 1000
#: Versions that one request covers.
MAX_VERSIONS: Final = 100
#: Seconds between two requests for the table's version: the default, and the minimum for servers elsewhere.
INTERVAL: Final = 30.0
MIN_INTERVAL: Final = 10.0

_BATCH_ONLY: Final = {
    **dict.fromkeys(("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp"), "leave it out"),
    "filters": "use where() on the DataFrame",
    "limit": "limit a batch with maxFilesPerTrigger or maxBytesPerTrigger",
}


@dataclass(frozen=True, kw_only=True)
class StreamOptions(SourceOptions):
    """A streaming query.

    Attributes:
        starting_version: the first version to read, or ``latest`` for the next one; None begins with the whole
            table.
        starting_timestamp: the query begins with the first version at or after this time; excludes
            `starting_version`.
        max_files, max_bytes: limits of a batch.
        max_versions: versions that one request covers.
        interval: seconds between two requests for the table's version.
        ignore_deletes: accept versions that only delete.
        ignore_changes: accept versions that delete or rewrite, and read the files that they wrote, old rows
            included.
        skip_change_commits: skip versions that delete or rewrite.
        schema_tracking: folder of the schema log.
        allow_changes: ``always``, or the version whose renamed, dropped or retyped columns are accepted.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    max_versions: int = MAX_VERSIONS
    interval: float = INTERVAL
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    schema_tracking: Path | None = None
    allow_changes: int | Literal["always"] | None = None

    @property
    def read_change_feed(self) -> bool:
        """Whether the rows are those of the change feed, not those of added files."""
        return isinstance(self.query, ChangeOptions)

    def allows(self, version: int) -> bool:
        """Whether the query accepts columns that a version renamed, dropped or retyped."""
        return self.allow_changes in ("always", version)


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return the streaming query that options describe; raises as `parse_options`."""
    values = parse_texts(given)
    for name, advice in _BATCH_ONLY.items():
        if name in values:
            raise ValueError(f"the option {name} means nothing to a stream; {advice}")
    refuse_together(values, "startingVersion", "startingTimestamp")
    changes = values.get("readChangeFeed", False)
    for name in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        if changes and values.get(name, False):
            raise ValueError(
                f"the options {name} and readChangeFeed cannot be given together: the change feed has the rows "
                "that were deleted or updated, so there is nothing to ignore"
            )
    if values.get("allowSourceColumnRenameAndDrop") is not None and "schemaTrackingLocation" not in values:
        raise ValueError("the option allowSourceColumnRenameAndDrop needs schemaTrackingLocation")
    common, read = common_options(values), read_options(values)
    interval = values.get("queryTableVersionIntervalSeconds", INTERVAL)
    if interval < MIN_INTERVAL and not is_loopback(common["profile"].endpoint):
        raise ValueError(
            f"the option queryTableVersionIntervalSeconds is {interval:g}; servers require at least "
            f"{MIN_INTERVAL:g} seconds"
        )
    return StreamOptions(
        query=ChangeOptions(commit_timestamp="timestamp", **read) if changes else ScanOptions(**read),
        starting_version=values.get("startingVersion"),
        starting_timestamp=values.get("startingTimestamp"),
        max_files=values.get("maxFilesPerTrigger"),
        max_bytes=values.get("maxBytesPerTrigger"),
        max_versions=values.get("maxVersionsPerRpc", MAX_VERSIONS),
        interval=interval,
        ignore_deletes=values.get("ignoreDeletes", False),
        ignore_changes=values.get("ignoreChanges", False),
        skip_change_commits=values.get("skipChangeCommits", False),
        schema_tracking=values.get("schemaTrackingLocation"),
        allow_changes=values.get("allowSourceColumnRenameAndDrop"),
        **common,
    )
