"""Options of the data source ``deltaSharing``, as the reference connector names them: from text to a query."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from delta_sharing_client.auth.profile import load_profile
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.model.names import Table, parse_bare_table, parse_table_url
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.spark.partition_plan import check_partition_size
from delta_sharing_client.wire.requests import (
    ANY_FORMAT,
    RequestedFormat,
    check_version,
    format_timestamp,
    formats_for,
)

T = TypeVar("T")

#: Fields of a profile that may be given as options, instead of a profile file.
PROFILE_OPTIONS: Final = (
    "shareCredentialsVersion",
    "type",
    "endpoint",
    "bearerToken",
    "expirationTime",
    "tokenEndpoint",
    "clientId",
    "clientSecret",
    "scope",
    "audience",
    "username",
    "password",
)
#: What the data source takes beside them.
OPTIONS: Final = (
    "path",
    "versionAsOf",
    "timestampAsOf",
    "readChangeFeed",
    "startingVersion",
    "endingVersion",
    "startingTimestamp",
    "endingTimestamp",
    "responseFormat",
    "columns",
    "filters",
    "limit",
    "variant",
    "executorCredentials",
    "asynchronousQueries",
    "partitionSize",
    "minPartitions",
)
#: What only streams take.
STREAM_OPTIONS: Final = (
    "maxFilesPerTrigger",
    "maxBytesPerTrigger",
    "maxVersionsPerRpc",
    "queryTableVersionIntervalSeconds",
    "ignoreDeletes",
    "ignoreChanges",
    "skipChangeCommits",
    "schemaTrackingLocation",
    "allowSourceColumnRenameAndDrop",
)
_CHANGES_ONLY: Final = ("startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp")
_SNAPSHOT_ONLY: Final = ("versionAsOf", "timestampAsOf", "filters", "limit")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """What a read through the data source asks for.

    Attributes:
        profile: where the server is, and the credential for it.
        transport: how the server is asked.
        table: the table.
        query: a snapshot, or changes.
        executor_credentials: whether executors may renew URLs.
        partition_size: bytes of files that make one partition.
        min_partitions: as many at least, if the files are large enough; the number of cores without.
    """

    profile: Profile = field(repr=False)
    transport: TransportOptions
    table: Table
    query: ScanOptions | ChangeOptions
    executor_credentials: bool
    partition_size: int
    min_partitions: int | None

    @property
    def variant(self) -> VariantForm:
        """What variants are read as."""
        return self.query.variant


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return what the options ask for.

    Args:
        given: options by name, in lower case as Spark hands them over.

    Raises:
        ValueError: an option is unknown, or its text is not what it takes; no profile field is shown.
        TableNameError: `path` is missing or no table.
        ProfileError: the profile cannot be used.
    """
    options = GivenOptions(given)
    for name in STREAM_OPTIONS:
        if options.text(name) is not None:
            raise ValueError(f"the option {name} is for streams, spark.readStream; leave it out")
    profile, table = options.profile_and_table()
    changes = options.flag("readChangeFeed", False)
    if not changes:
        options.refuse_both("startingVersion", "startingTimestamp")
    options.refuse(_SNAPSHOT_ONLY if changes else _CHANGES_ONLY, "with" if changes else "without")
    return SourceOptions(
        profile=profile,
        transport=options.transport(),
        table=table,
        query=_changes(options) if changes else _snapshot(options),
        executor_credentials=options.flag("executorCredentials", True),
        partition_size=check_partition_size(options.number("partitionSize")),
        min_partitions=options.number("minPartitions"),
    )


def _snapshot(options: GivenOptions) -> ScanOptions:
    version, timestamp = options.version("versionAsOf"), options.time("timestampAsOf")
    options.refuse_both("versionAsOf", "timestampAsOf")
    return ScanOptions(
        columns=options.names("columns"),
        filters=options.text("filters"),
        limit=options.number("limit"),
        version=version,
        timestamp=timestamp,
        response_format=options.response_format(),
        variant=options.variant(),
    )


def _changes(options: GivenOptions) -> ChangeOptions:
    first, first_time = options.version("startingVersion"), options.time("startingTimestamp")
    last, last_time = options.version("endingVersion"), options.time("endingTimestamp")
    if (first is None) == (first_time is None):
        raise ValueError("readChangeFeed takes exactly one of the options startingVersion and startingTimestamp")
    options.refuse_both("endingVersion", "endingTimestamp")
    if first is not None and last is not None and last < first:
        raise ValueError(f"the option endingVersion is {last}, which is before startingVersion, {first}")
    return ChangeOptions(
        starting_version=first,
        starting_timestamp=first_time,
        ending_version=last,
        ending_timestamp=last_time,
        columns=options.names("columns"),
        commit_timestamp="timestamp",
        response_format=options.response_format(),
        variant=options.variant(),
    )


def _profile_of(fields: dict[str, str]) -> Profile:
    known: dict[str, Any] = dict(fields)
    version = known.get("shareCredentialsVersion", "1")
    known["shareCredentialsVersion"] = int(version) if version.strip().isdigit() else version
    return Profile.from_dict(known, "in the options")


class GivenOptions:
    """Options by name, whatever its case, each of its type."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        known = {name.lower(): name for name in (*OPTIONS, *STREAM_OPTIONS, *PROFILE_OPTIONS)}
        if "readchangedata" in self._given:  # what the reference connector called it first
            self._given.setdefault("readchangefeed", self._given.pop("readchangedata"))
        if "owner" in self._given:  # Spark says whose table it is to be
            raise ValueError(
                "CREATE TABLE does not work with deltaSharing, for Spark would keep no options; say "
                "CREATE TEMPORARY VIEW name USING deltaSharing OPTIONS (path '<profile>#<share>.<schema>.<table>')"
            )
        for name in self._given:
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"; is {known[close[0]]!r} meant?" if close else f"; there are {', '.join(OPTIONS)}"
                raise ValueError(f"the option {name!r} is unknown{hint}")

    def profile_and_table(self) -> tuple[Profile, Table]:
        """Return where the server is, and the table."""
        path = self.text("path")
        if path is None:
            raise ValueError(
                "no table is given: .load('<profile>#<share>.<schema>.<table>'), or the option 'path'"
            )
        fields = {name: value for name in PROFILE_OPTIONS if (value := self.text(name)) is not None}
        if fields:
            return _profile_of(fields), parse_bare_table(path)
        source, table = parse_table_url(path)
        return load_profile(source), table

    def transport(self) -> TransportOptions:
        """Return how the server is asked."""
        return TransportOptions(asynchronous_queries=self.flag("asynchronousQueries", False))

    def text(self, name: str) -> str | None:
        """Return an option as it is given; None without it."""
        return self._given.get(name.lower())

    def refuse(self, names: tuple[str, ...], when: str) -> None:
        """Raise if one of some options is given."""
        for name in names:
            if self.text(name) is not None:
                raise ValueError(f"the option {name} means nothing {when} readChangeFeed; leave it out")

    def refuse_both(self, one: str, other: str) -> None:
        """Raise if both of two options are given."""
        if self.text(one) is not None and self.text(other) is not None:
            raise ValueError(f"the options {one} and {other} cannot be given together")

    def flag(self, name: str, default: bool) -> bool:
        """Return an option that is true or false."""
        text = self.text(name)
        if text is None:
            return default
        if text.strip().lower() not in ("true", "false"):
            raise ValueError(f"the option {name} is {text!r}; it takes true or false")
        return text.strip().lower() == "true"

    def number(self, name: str) -> int | None:
        """Return an option that is a whole number; None without it."""
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isascii() or not text.strip().isdigit():
            raise ValueError(f"the option {name} is {text!r}; it takes a whole number, 0 or more")
        return int(text)

    def version(self, name: str) -> int | None:
        """Return an option that is a table's version; None without it."""
        return check_version(self.number(name), name)

    def time(self, name: str) -> str | None:
        """Return an option that is a time, as the protocol spells it; None without it."""
        text = self.text(name)
        try:
            return None if text is None else format_timestamp(text)
        except ValueError as error:
            raise ValueError(f"the option {name}: {error}") from None

    def names(self, name: str) -> tuple[str, ...] | None:
        """A list of names: JSON, or the names with commas between them."""
        text = self.text(name)
        if text is None:
            return None
        if not text.lstrip().startswith("["):
            names: Any = [part.strip() for part in text.split(",")]
        else:
            try:
                names = json.loads(text)
            except ValueError:
                names = None
        if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
            raise ValueError(f"the option {name} takes names with commas between them, or a JSON list of names")
        return tuple(names)

    def response_format(self) -> RequestedFormat:
        """Return ``auto``, ``delta`` or ``parquet``."""
        text = (self.text("responseFormat") or "auto").replace(" ", "").lower()
        formats = ANY_FORMAT if text in ("delta,parquet", "parquet,delta") else formats_for(text)
        return formats[0] if len(formats) == 1 else "auto"

    def variant(self) -> VariantForm:
        """Return what variants are read as."""
        text = self.text("variant") or "variant"
        if text not in ("variant", "json"):
            raise ValueError(f"the option variant is {text!r}; it takes 'variant' or 'json'")
        return "json" if text == "json" else "struct"
