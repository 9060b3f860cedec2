"""Options of a stream, ``spark.readStream.format("deltaSharing")``; Delta's own source has the same names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit

from delta_sharing_client.model.names import Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.scan.options import ReadOptions
from delta_sharing_client.spark.data_source_options import GivenOptions
from delta_sharing_client.spark.partition_plan import check_partition_size
from delta_sharing_client.transport.url_rules import is_loopback

#: Files to a batch, where no limit is given.
MAX_FILES: Final = 1000
#: Versions that one request asks for.
MAX_VERSIONS: Final = 100
#: Seconds between two questions for the table's version, and the least that servers allow.
INTERVAL: Final = 30.0
MIN_INTERVAL: Final = 10.0

_BATCH_ONLY: Final = ("versionAsOf", "timestampAsOf", "endingVersion", "endingTimestamp", "filters", "limit")
_WHY: Final = {
    "filters": "use where() on the DataFrame",
    "limit": "limit a batch with maxFilesPerTrigger or maxBytesPerTrigger",
}


@dataclass(frozen=True, kw_only=True)
class StreamOptions(ReadOptions):
    """What a streaming query asks for, beside what it reads.

    Attributes:
        profile: where the server is, and the credential for it.
        transport: how the server is asked.
        table: the table.
        executor_credentials: whether executors may renew URLs.
        partition_size: bytes of files that make one partition.
        min_partitions: as many at least, if the files are large enough; the number of cores without.
        starting_version: the first version to read, or ``latest`` for the next one; the whole table first without.
        starting_timestamp: the first version at or after this time; not together with the former.
        read_change_feed: read the rows that each version inserted, updated and deleted, not the files it added.
        max_files, max_bytes: limits of a batch, where given.
        max_versions: versions that one request asks for.
        interval: seconds between two questions for the table's version.
        ignore_deletes: let versions pass that only delete.
        ignore_changes: let versions pass that delete or rewrite; what they wrote is read, old rows included.
        skip_change_commits: leave out versions that delete or rewrite.
        schema_tracking: the folder that keeps the schemas the query has gone through.
        allow_changes: ``always``, or the version whose renamed, dropped or retyped columns the query may pass.
    """

    profile: Profile = field(repr=False)
    transport: TransportOptions
    table: Table
    executor_credentials: bool = True
    partition_size: int
    min_partitions: int | None = None
    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    read_change_feed: bool = False
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
    def what(self) -> str:
        """The table, for messages."""
        return f"table {self.table.full_name}"

    def allows(self, version: int) -> bool:
        """Whether the query may pass the columns that a version renamed, dropped or gave another type."""
        return self.allow_changes in ("always", version)


def parse_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Return what the options ask for.

    Args:
        given: options by name, in lower case as Spark hands them over.

    Raises:
        ValueError: an option is unknown, its text is not what it takes, or it does not go with another.
        TableNameError: `path` is missing or no table.
        ProfileError: the profile cannot be used.
    """
    options = GivenOptions(given)
    profile, table = options.profile_and_table()
    for name in _BATCH_ONLY:
        if options.text(name) is not None:
            raise ValueError(f"the option {name} means nothing to a stream; {_WHY.get(name, 'leave it out')}")
    changes = options.flag("readChangeFeed", False)
    ignored = {name: options.flag(name, False) for name in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits")}
    for name, on in ignored.items():
        if on and changes:
            raise ValueError(
                f"the options {name} and readChangeFeed cannot be given together: the change feed tells of rows "
                "that were deleted or updated, so nothing has to be ignored"
            )
    version, time = _starting_version(options), options.time("startingTimestamp")
    if version is not None and time is not None:
        raise ValueError("the options startingVersion and startingTimestamp cannot be given together")
    return StreamOptions(
        profile=profile,
        transport=options.transport(),
        table=table,
        columns=options.names("columns"),
        response_format=options.response_format(),
        variant=options.variant(),
        executor_credentials=options.flag("executorCredentials", True),
        partition_size=check_partition_size(options.number("partitionSize")),
        min_partitions=options.number("minPartitions"),
        starting_version=version,
        starting_timestamp=time,
        read_change_feed=changes,
        max_files=_at_least_one(options, "maxFilesPerTrigger"),
        max_bytes=_bytes(options, "maxBytesPerTrigger"),
        max_versions=_at_least_one(options, "maxVersionsPerRpc") or MAX_VERSIONS,
        interval=_interval(options, profile),
        ignore_deletes=ignored["ignoreDeletes"],
        ignore_changes=ignored["ignoreChanges"],
        skip_change_commits=ignored["skipChangeCommits"],
        schema_tracking=_folder(options, "schemaTrackingLocation"),
        allow_changes=_allowed(options, "allowSourceColumnRenameAndDrop"),
    )


def _starting_version(options: GivenOptions) -> int | Literal["latest"] | None:
    text = options.text("startingVersion")
    if text is not None and text.strip().lower() == "latest":
        return "latest"
    try:
        return options.version("startingVersion")
    except ValueError:
        raise ValueError(f"the option startingVersion is {text!r}; it takes a version, or 'latest'") from None


def _at_least_one(options: GivenOptions, name: str) -> int | None:
    number = options.number(name)
    if number is not None and number < 1:
        raise ValueError(f"the option {name} is {number}; it takes 1 or more")
    return number


_UNITS: Final = {"": 0, "b": 0, "k": 10, "kb": 10, "m": 20, "mb": 20, "g": 30, "gb": 30, "t": 40, "tb": 40}


def _bytes(options: GivenOptions, name: str) -> int | None:
    """A number of bytes, with or without a unit, as Delta takes it: ``10m`` is 10 * 1024 * 1024."""
    text = options.text(name)
    if text is None:
        return None
    digits = text.strip().rstrip("bBkKmMgGtT").rstrip()
    unit = text.strip()[len(digits) :].strip().lower()
    if not digits.isascii() or not digits.isdigit() or int(digits) < 1 or unit not in _UNITS:
        raise ValueError(f"the option {name} is {text!r}; it takes a number of bytes such as 1000000 or 10m")
    return int(digits) << _UNITS[unit]


def _interval(options: GivenOptions, profile: Profile) -> float:
    name = "queryTableVersionIntervalSeconds"
    text = options.text(name)
    if text is None:
        return INTERVAL
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError(f"the option {name} is {text!r}; it takes a number of seconds, more than 0")
    if seconds < MIN_INTERVAL and not is_loopback(profile.endpoint):
        raise ValueError(f"the option {name} is {text!r}; servers ask for at least {MIN_INTERVAL:g} seconds")
    return seconds


def _folder(options: GivenOptions, name: str) -> Path | None:
    text = options.text(name)
    if text is None:
        return None
    parts = urlsplit(text)
    path = Path(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else None
    if path is None and "://" not in text and not text.startswith("dbfs:"):
        path = Path(text)
    if path is None or not path.is_absolute():
        raise ValueError(
            f"the option {name} is {text!r}; it takes an absolute path of a folder that the driver can write to, "
            "by convention one under the query's checkpoint location"
        )
    return path


def _allowed(options: GivenOptions, name: str) -> int | Literal["always"] | None:
    text = (options.text(name) or "false").strip().lower()
    if text == "false":
        return None
    if options.text("schemaTrackingLocation") is None:
        raise ValueError(f"the option {name} needs schemaTrackingLocation")
    if text in ("always", "true"):
        return "always"
    if not text.isascii() or not text.isdigit():
        raise ValueError(f"the option {name} is {text!r}; it takes 'always', or the version that the error names")
    return int(text)
