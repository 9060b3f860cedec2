"""Options of the data source ``deltaSharing`` as typed queries, of batches and of streams.

The names are those of the JVM connector and of Delta's own streaming source.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from delta_sharing_client.auth.credential_provider import CredentialProvider
from delta_sharing_client.auth.profile import load_profile
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.model.names import Table, parse_bare_table, parse_table_url
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.option_texts import parse_boolean, parse_bytes, parse_number
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.spark.configuration import INTERVAL as INTERVAL_KEY
from delta_sharing_client.spark.configuration import SourceSettings, parse_key
from delta_sharing_client.spark.option_parsers import (
    parse_accepted_changes,
    parse_driver_folder,
    parse_names,
    parse_positive_number,
    parse_response_format,
    parse_seconds,
    parse_time,
    parse_variant,
    parse_version_or_latest,
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

#: Options by name: the parser of the text, and the field that the value sets.
Options: TypeAlias = Mapping[str, tuple[Callable[[str], Any], str]]

_READ: Final[Options] = {
    "columns": (parse_names, "columns"),
    "responseFormat": (parse_response_format, "response_format"),
    "variant": (parse_variant, "variant"),
}
_SNAPSHOT: Final[Options] = {
    "versionAsOf": (parse_number, "version"),
    "timestampAsOf": (parse_time, "timestamp"),
    "filters": (str, "filters"),
    "limit": (parse_number, "limit"),
}
_START: Final[Options] = {
    "startingVersion": (parse_version_or_latest, "starting_version"),
    "startingTimestamp": (parse_time, "starting_timestamp"),
}
_END: Final[Options] = {
    "endingVersion": (parse_number, "ending_version"),
    "endingTimestamp": (parse_time, "ending_timestamp"),
}
_EXECUTORS: Final[Options] = {
    "executorCredentials": (parse_boolean, "credentials"),
    "partitionSize": (parse_number, "partition_size"),
    "minPartitions": (parse_number, "min_partitions"),
}
#: Options of batch queries, some of them of streams too.
OPTIONS: Final[Options] = {
    "path": (str, "table"),
    "readChangeFeed": (parse_boolean, "query"),
    "asynchronousQueries": (parse_boolean, "transport"),
    **_EXECUTORS,
    **_READ,
    **_SNAPSHOT,
    **_START,
    **_END,
}
#: Options of streams alone.
STREAM_OPTIONS: Final[Options] = {
    "maxFilesPerTrigger": (parse_positive_number, "max_files"),
    "maxBytesPerTrigger": (parse_bytes, "max_bytes"),
    "maxVersionsPerRpc": (parse_positive_number, "max_versions"),
    "queryTableVersionIntervalSeconds": (parse_seconds, "interval"),
    "ignoreDeletes": (parse_boolean, "ignore_deletes"),
    "ignoreChanges": (parse_boolean, "ignore_changes"),
    "skipChangeCommits": (parse_boolean, "skip_change_commits"),
    "schemaTrackingLocation": (parse_driver_folder, "schema_tracking"),
    "allowSourceColumnRenameAndDrop": (parse_accepted_changes, "allow_changes"),
}
#: Fields of a profile that may be given as options, instead of a profile file.
PROFILE_OPTIONS: Final = (
    *("shareCredentialsVersion", "type", "endpoint", "bearerToken", "expirationTime"),
    *("tokenEndpoint", "clientId", "clientSecret", "scope", "audience", "username", "password"),
)
_ALL: Final[Options] = {**OPTIONS, **STREAM_OPTIONS, **{name: (str, name) for name in PROFILE_OPTIONS}}
_KNOWN: Final = {name.lower(): name for name in _ALL} | {"readchangedata": "readChangeFeed"}
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
        return RestClient(self.profile, self.transport, credential_provider=self.credential_provider)

    @property
    def what(self) -> str:
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
    values = _parse_texts(given)
    _refuse(values, STREAM_OPTIONS, "is for streams, spark.readStream; leave it out")
    query: ScanOptions | ChangeOptions
    if values.get("readChangeFeed", False):
        _refuse(values, _SNAPSHOT, "means nothing with readChangeFeed; leave it out")
        if values.keys().isdisjoint(_START):
            raise ValueError(
                "readChangeFeed takes exactly one of the options startingVersion and startingTimestamp"
            )
        if values.get("startingVersion") == "latest":
            raise ValueError("the option startingVersion is 'latest', which only streams take; give a version")
        query = ChangeOptions(commit_timestamp="timestamp", **_fields({**_READ, **_START, **_END}, values))
    else:
        _refuse(values, (*_START, *_END), "means nothing without readChangeFeed; leave it out")
        query = ScanOptions(**_fields({**_READ, **_SNAPSHOT}, values))
    return SourceOptions(query=query, **_common_fields(values, settings))


def parse_stream_options(given: Mapping[str, str], settings: SourceSettings = NO_SETTINGS) -> StreamOptions:
    """Return the streaming query that options describe; raises as `parse_options`."""
    values = _parse_texts(given)
    interval = "queryTableVersionIntervalSeconds"
    if interval not in values and INTERVAL_KEY in settings.configuration:
        values[interval] = parse_key(settings.configuration, INTERVAL_KEY, parse_seconds)
    _refuse(values, ("versionAsOf", "timestampAsOf", *_END), "means nothing to a stream; leave it out")
    _refuse(values, ("filters",), "means nothing to a stream; use where() on the DataFrame")
    _refuse(
        values,
        ("limit",),
        "means nothing to a stream; limit a batch with maxFilesPerTrigger or maxBytesPerTrigger",
    )
    changes = values.get("readChangeFeed", False)
    for name in ("ignoreDeletes", "ignoreChanges", "skipChangeCommits"):
        if changes and values.get(name, False):
            raise ValueError(
                f"the options {name} and readChangeFeed cannot be given together: the change feed has the rows "
                "that were deleted or updated, so there is nothing to ignore"
            )
    if values.get("allowSourceColumnRenameAndDrop") is not None and "schemaTrackingLocation" not in values:
        raise ValueError("the option allowSourceColumnRenameAndDrop needs schemaTrackingLocation")
    read = _fields(_READ, values)
    options = StreamOptions(
        query=ChangeOptions(commit_timestamp="timestamp", **read) if changes else ScanOptions(**read),
        **_fields({**_START, **STREAM_OPTIONS}, values),
        **_common_fields(values, settings),
    )
    if options.interval < MIN_INTERVAL and not is_loopback(options.profile.endpoint):
        raise ValueError(f"{interval} is {options.interval:g}; servers require at least {MIN_INTERVAL:g} seconds")
    return options


def _parse_texts(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options by their exact names."""
    if "owner" in given:  # Spark adds the owner of the table that it would create
        raise ValueError(
            "CREATE TABLE does not work with deltaSharing, because Spark drops its options; use "
            "CREATE TEMPORARY VIEW name USING deltaSharing OPTIONS (path '<profile>#<share>.<schema>.<table>')"
        )
    values: dict[str, Any] = {}
    for key, text in given.items():
        name = _KNOWN.get(key.lower())
        if name is None:
            close = difflib.get_close_matches(key.lower(), _KNOWN, 1)
            hint = f"is {_KNOWN[close[0]]!r} meant?" if close else f"there are {', '.join(OPTIONS)}"
            raise ValueError(f"the option {key!r} is unknown; {hint}")
        try:
            values[name] = _ALL[name][0](text)
        except ValueError as error:
            raise ValueError(f"the option {name} is {text!r}; {error}") from None
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
    return {
        "profile": profile,
        "table": table,
        "transport": transport,
        "credential_provider": settings.credential_provider,
        "executors": ExecutorOptions(**_fields(_EXECUTORS, values)),
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
