"""Options of the data source ``deltaSharing`` as typed queries, of batches and of streams."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import unquote, urlsplit

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import load_profile
from delta_sharing_client.cdf.options import CHECK_TABLE_EVERY, ChangeOptions
from delta_sharing_client.cdf.table_client import TableClient
from delta_sharing_client.model.names import Table, parse_bare_table, parse_table_url
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.schema_evolution import ColumnChange
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import FileScanTask, VariantForm
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.spark.configuration import ACCEPTED_KEYS, TIME_ZONE, SourceSettings, parse_key
from delta_sharing_client.spark.configuration import INTERVAL as INTERVAL_KEY
from delta_sharing_client.spark.option_parsers import (
    ACCEPTED_CHANGES,
    ALL_OPTIONS,
    BATCH_NAMES,
    END,
    EXECUTORS,
    KNOWN_NAMES,
    NOT_OF_STREAMS,
    PROFILE_OPTIONS,
    READ,
    SNAPSHOT,
    START,
    STREAM_NAMES,
    STREAM_OPTIONS,
    Options,
    parse_accepted_changes,
    parse_seconds,
    parse_time,
)
from delta_sharing_client.spark.partition_plan import ExecutorOptions
from delta_sharing_client.transport.url_rules import is_loopback

#: Files of a batch of a stream if no limit is given.
MAX_FILES: Final = 1000
#: Versions that one request of a stream covers.
MAX_VERSIONS: Final = 100
#: Seconds between two requests for the table's version: the default, and the minimum for servers elsewhere.
INTERVAL: Final = 30.0
MIN_INTERVAL: Final = 10.0
#: Settings of a data source that Spark has found by itself.
NO_SETTINGS: Final = SourceSettings()

#: What a stream accepts: changes of any version, or of one.
Accepted: TypeAlias = int | Literal["always"] | None

#: Options that exclude each other.
_EXCLUSIVE: Final = (
    ("versionAsOf", "timestampAsOf"),
    ("startingVersion", "startingTimestamp"),
    ("endingVersion", "endingTimestamp"),
)


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """A batch query of the data source; the base of `StreamOptions`.

    Attributes:
        profile: the server's URL and the credential.
        transport: options of the HTTP client.
        credential_provider: returns tokens in place of the profile's credential.
        table: the table.
        query: a snapshot, or changes. Of a stream it has no version, time, filter or limit.
        executors: how executors read the files.
    """

    profile: Profile = field(repr=False)
    transport: TransportOptions
    credential_provider: CredentialProvider | None = field(repr=False)
    table: Table
    query: ScanOptions | ChangeOptions
    executors: ExecutorOptions

    def connect(self) -> RestClient:
        """Return a client of the sharing server."""
        return TableClient(RestClient(self.profile, self.transport, credential_provider=self.credential_provider))

    @property
    def subject(self) -> str:
        """The table, for messages."""
        return f"table {self.table.full_name}"

    @property
    def variant(self) -> VariantForm:
        """The form in which variants are read."""
        return self.query.variant


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
        check_table_every: the number of polls without a new version after which the table's id is requested too.
        ignore_deletes: accept versions that only delete.
        ignore_changes: accept versions that delete or rewrite, and read the files that they wrote, old rows
            included.
        skip_change_commits: skip versions that delete or rewrite.
        fail_on_data_loss: raise if the provider has removed versions that were not read; else skip them.
        repeated_version: ``always``, or the version whose files may be read again if it is unknown which of them
            were read.
        exclude: files with a match in the paths of their URLs are not read.
        schema_tracking: folder of the schema log.
        tracking_id: distinguishes schema logs of one table in one folder.
        allow_renames_and_drops, allow_renames, allow_drops, allow_type_changes: ``always``, or the version whose
            changes of columns are accepted.
    """

    starting_version: int | Literal["latest"] | None = None
    starting_timestamp: str | None = None
    max_files: int | None = None
    max_bytes: int | None = None
    max_versions: int = MAX_VERSIONS
    interval: float = INTERVAL
    check_table_every: int = CHECK_TABLE_EVERY
    ignore_deletes: bool = False
    ignore_changes: bool = False
    skip_change_commits: bool = False
    fail_on_data_loss: bool = True
    repeated_version: Accepted = None
    exclude: re.Pattern[str] | None = None
    schema_tracking: Path | None = None
    tracking_id: str | None = None
    allow_renames_and_drops: Accepted = None
    allow_renames: Accepted = None
    allow_drops: Accepted = None
    allow_type_changes: Accepted = None

    @property
    def read_change_feed(self) -> bool:
        """Whether the rows are those of the change feed, not those of added files."""
        return isinstance(self.query, ChangeOptions)

    def allows(self, change: ColumnChange, version: int) -> bool:
        """Whether the query accepts a change of a version."""
        accepted = {
            "renamed": (self.allow_renames, self.allow_renames_and_drops),
            "dropped": (self.allow_drops, self.allow_renames_and_drops),
            "type": (self.allow_type_changes,),
        }
        return change.additive or any(value in ("always", version) for value in accepted[change.kind])

    def repeats(self, version: int) -> bool:
        """Whether all files of a version may be read again."""
        return self.repeated_version in ("always", version)

    def reads(self, task: FileScanTask) -> bool:
        """Whether the query reads a file."""
        return self.exclude is None or not self.exclude.search(unquote(urlsplit(task.url.reveal()).path))


def parse_options(given: Mapping[str, str], settings: SourceSettings = NO_SETTINGS) -> SourceOptions:
    """Return the batch query that options describe.

    Args:
        given: options by name, in lower case as Spark passes them.
        settings: what the data source was registered with.

    Raises:
        ValueError: an option is unknown or malformed, or conflicts with another; no profile field is shown.
        TableNameError: `path` is missing or names no table.
        ProfileError: the profile cannot be used.
    """
    values = _parse_texts(given, settings, BATCH_NAMES)
    _refuse(values, STREAM_OPTIONS, "is for streams, spark.readStream; leave it out")
    query: ScanOptions | ChangeOptions
    if values.get("readChangeFeed", False):
        _refuse(values, SNAPSHOT, "means nothing with readChangeFeed; leave it out")
        if values.keys().isdisjoint(START):
            raise ValueError(
                "readChangeFeed takes exactly one of the options startingVersion and startingTimestamp"
            )
        if values.get("startingVersion") == "latest":
            raise ValueError("the option startingVersion is 'latest', which only streams take; give a version")
        query = ChangeOptions(commit_timestamp="timestamp", **_fields({**READ, **START, **END}, values))
    else:
        _refuse(values, (*START, *END), "means nothing without readChangeFeed; leave it out")
        query = ScanOptions(**_fields({**READ, **SNAPSHOT}, values))
    return SourceOptions(query=query, **_common_fields(values, settings))


def parse_stream_options(given: Mapping[str, str], settings: SourceSettings = NO_SETTINGS) -> StreamOptions:
    """Return the streaming query that options describe; raises as `parse_options`."""
    values = _parse_texts(given, settings, STREAM_NAMES)
    interval = "queryTableVersionIntervalSeconds"
    if interval not in values and INTERVAL_KEY in settings.configuration:
        values[interval] = parse_key(settings.configuration, INTERVAL_KEY, parse_seconds)
    for name, remedy in NOT_OF_STREAMS.items():
        _refuse(values, (name,), f"means nothing to a stream; {remedy}")
    changes = values.get("readChangeFeed", False)
    for name in ("ignoreDeletes", "ignoreChanges", "ignoreFileDeletion", "skipChangeCommits"):
        if changes and values.get(name, False):
            raise ValueError(
                f"the options {name} and readChangeFeed cannot be given together: the change feed has the rows "
                "that were deleted or updated, so there is nothing to ignore"
            )
    if changes and "excludeRegex" in values:
        raise ValueError(
            "the option excludeRegex does not go with readChangeFeed: it would separate updates' rows"
        )
    if values.pop("ignoreFileDeletion", False):
        values["ignoreChanges"] = True
    for name in (*ACCEPTED_CHANGES, "streamingSourceTrackingId"):
        if values.get(name) is not None and "schemaTrackingLocation" not in values:
            raise ValueError(f"the option {name} needs schemaTrackingLocation")
    for name, key in ACCEPTED_KEYS.items():
        if name not in values and key in settings.configuration:
            values[name] = parse_key(settings.configuration, key, parse_accepted_changes)
    read = _fields(READ, values)
    options = StreamOptions(
        query=ChangeOptions(commit_timestamp="timestamp", **read) if changes else ScanOptions(**read),
        **_fields({**START, **STREAM_OPTIONS}, values),
        **_common_fields(values, settings),
    )
    if options.interval < MIN_INTERVAL and not is_loopback(options.profile.endpoint):
        raise ValueError(f"{interval} is {options.interval:g}; servers require at least {MIN_INTERVAL:g} seconds")
    return options


def _parse_texts(given: Mapping[str, str], settings: SourceSettings, offered: Sequence[str]) -> dict[str, Any]:
    """Return the values of options by their exact names; `offered` are those that an error about another names."""
    if "owner" in given:  # Spark adds the owner of the table that it would create
        raise ValueError(
            "CREATE TABLE does not work with deltaSharing, because Spark drops its options; use "
            "CREATE TEMPORARY VIEW name USING deltaSharing OPTIONS (path '<profile>#<share>.<schema>.<table>')"
        )
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = KNOWN_NAMES.get(key.lower())
        if name is None:
            known = {key: name for key, name in KNOWN_NAMES.items() if name in (*offered, *PROFILE_OPTIONS)}
            close = difflib.get_close_matches(key.lower(), known, 1)
            listed = f"there are {', '.join(offered)}, and the fields of a profile"
            hint = f"is {known[close[0]]!r} meant?" if close else listed
            raise ValueError(f"the option {key!r} is unknown; {hint}")
        parse = ALL_OPTIONS[name][0]
        zone = [settings.configuration.get(TIME_ZONE)] if parse is parse_time else []
        try:
            value = parse(text, *zone)
        except ValueError as error:
            raise ValueError(f"the option {name} is {text!r}; {error}") from None
        if values.setdefault(name, value) != value:
            raise ValueError(f"the option {name} is given twice, with different values; {key!r} is one of them")
    for one, other in _EXCLUSIVE:
        if one in values and other in values:
            raise ValueError(f"the options {one} and {other} cannot be given together")
    return values


def _refuse(values: Mapping[str, Any], names: Iterable[str], problem: str) -> None:
    for name in names:
        if name in values:
            raise ValueError(f"the option {name} {problem}")


def _fields(options: Options, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of some options by the fields that they set."""
    return {field: values[name] for name, (_, field) in options.items() if name in values}


def _common_fields(values: Mapping[str, Any], settings: SourceSettings) -> dict[str, Any]:
    """Return the fields of `SourceOptions`, but for the query."""
    profile, table = _profile_and_table(values, external=settings.credential_provider is not None)
    transport = settings.transport
    if "asynchronousQueries" in values:
        transport = replace(transport, asynchronous_queries=values["asynchronousQueries"])
    if "callerOrg" in values:
        transport = replace(transport, user_agent=f"{transport.user_agent} callerOrg-{values['callerOrg']}")
    return {
        "profile": profile,
        "table": table,
        "transport": transport,
        "credential_provider": settings.credential_provider,
        "executors": ExecutorOptions(**_fields(EXECUTORS, values)),
    }


def _profile_and_table(values: Mapping[str, Any], *, external: bool) -> tuple[Profile, Table]:
    path = values.get("path")
    if path is None:
        raise ValueError("no table is given: .load('<profile>#<share>.<schema>.<table>'), or the option 'path'")
    fields = {name: values[name] for name in PROFILE_OPTIONS if name in values}
    if not fields:
        source, table = parse_table_url(path)
        return load_profile(source, external=external), table
    version = fields.setdefault("shareCredentialsVersion", "1")
    if version.strip().isdigit():
        fields["shareCredentialsVersion"] = int(version)
    return Profile.from_dict(fields, "in the options", external=external), parse_bare_table(path)
