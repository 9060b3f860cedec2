"""Options of the data source ``deltaSharing``, named as in the JVM connector, parsed into a typed query."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal
from urllib.parse import unquote, urlsplit

from delta_sharing_client.auth.profile import load_profile
from delta_sharing_client.cdf.options import ChangeOptions
from delta_sharing_client.model.names import Table, parse_bare_table, parse_table_url
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.tasks import VariantForm
from delta_sharing_client.scan.options import ScanOptions
from delta_sharing_client.spark.partition_plan import check_partition_size
from delta_sharing_client.wire.requests import RequestedFormat, format_timestamp

_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}


def _boolean(text: str) -> bool:
    if text.strip().lower() not in ("true", "false"):
        raise ValueError("it takes true or false")
    return text.strip().lower() == "true"


def _number(text: str) -> int:
    if not text.strip().isascii() or not text.strip().isdigit():
        raise ValueError("it takes a whole number, 0 or more")
    return int(text)


def _positive_number(text: str) -> int:
    number = _number(text)
    if number < 1:
        raise ValueError("it takes 1 or more")
    return number


def _version_or_latest(text: str) -> int | Literal["latest"]:
    if text.strip().lower() == "latest":
        return "latest"
    try:
        return _number(text)
    except ValueError:
        raise ValueError("it takes a version, or 'latest'") from None


def _bytes(text: str) -> int:
    """Parse a number of bytes with or without a unit, as Delta does: ``10m`` is 10 * 1024 * 1024."""
    match = re.fullmatch(r"(\d+)\s*([kmgt]?)b?", text.strip().lower(), re.ASCII)
    if match is None or int(match[1]) < 1:
        raise ValueError("it takes a number of bytes such as 1000000 or 10m")
    return int(match[1]) << _SHIFTS[match[2]]


def _seconds(text: str) -> float:
    try:
        seconds = float(text.strip().removesuffix("s"))
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise ValueError("it takes a number of seconds, more than 0")
    return seconds


def _names(text: str) -> tuple[str, ...]:
    names: Any = [part.strip() for part in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError("it takes names with commas between them, or a JSON list of names")
    return tuple(names)


def _time(text: str) -> str:
    try:
        return format_timestamp(text)
    except ValueError:
        raise ValueError("it takes a time in ISO 8601, such as 2024-01-31T12:00:00Z or 2024-01-31") from None


def _response_format(text: str) -> RequestedFormat:
    text = text.replace(" ", "").lower()
    if text in ("delta", "parquet"):
        return "delta" if text == "delta" else "parquet"
    if text not in ("auto", "delta,parquet", "parquet,delta"):
        raise ValueError("it takes 'auto', 'delta' or 'parquet'")
    return "auto"


def _variant(text: str) -> VariantForm:
    if text not in ("variant", "json"):
        raise ValueError("it takes 'variant' or 'json'")
    return "json" if text == "json" else "struct"


def _driver_folder(text: str) -> Path:
    parts = urlsplit(text)
    path = Path(unquote(parts.path) if parts.scheme == "file" and parts.netloc in ("", "localhost") else text)
    if not path.is_absolute():
        raise ValueError(
            "it takes an absolute path of a folder that the driver can write to, by convention one under the "
            "query's checkpoint location"
        )
    return path


def _accepted_changes(text: str) -> int | Literal["always"] | None:
    text = text.strip().lower()
    if text in ("always", "true"):
        return "always"
    if text == "false":
        return None
    if not text.isascii() or not text.isdigit():
        raise ValueError("it takes 'always', or the version that the error names")
    return int(text)


Parser = Callable[[str], Any]

#: Options of batch queries, some of them of streams too, and how the text of each is parsed.
OPTIONS: Final[Mapping[str, Parser]] = {
    "path": str,
    "versionAsOf": _number,
    "timestampAsOf": _time,
    "readChangeFeed": _boolean,
    "startingVersion": _version_or_latest,
    "endingVersion": _number,
    "startingTimestamp": _time,
    "endingTimestamp": _time,
    "responseFormat": _response_format,
    "columns": _names,
    "filters": str,
    "limit": _number,
    "variant": _variant,
    "executorCredentials": _boolean,
    "asynchronousQueries": _boolean,
    "partitionSize": _number,
    "minPartitions": _number,
}
#: Options of streams alone.
STREAM_OPTIONS: Final[Mapping[str, Parser]] = {
    "maxFilesPerTrigger": _positive_number,
    "maxBytesPerTrigger": _bytes,
    "maxVersionsPerRpc": _positive_number,
    "queryTableVersionIntervalSeconds": _seconds,
    "ignoreDeletes": _boolean,
    "ignoreChanges": _boolean,
    "skipChangeCommits": _boolean,
    "schemaTrackingLocation": _driver_folder,
    "allowSourceColumnRenameAndDrop": _accepted_changes,
}
#: Fields of a profile that may be given as options, instead of a profile file.
PROFILE_OPTIONS: Final = (
    *("shareCredentialsVersion", "type", "endpoint", "bearerToken", "expirationTime"),
    *("tokenEndpoint", "clientId", "clientSecret", "scope", "audience", "username", "password"),
)
_PARSERS: Final[Mapping[str, Parser]] = {**OPTIONS, **STREAM_OPTIONS, **dict.fromkeys(PROFILE_OPTIONS, str)}
_KNOWN: Final = {name.lower(): name for name in _PARSERS} | {"readchangedata": "readChangeFeed"}
_CHANGES_ONLY: Final = ("startingVersion", "endingVersion", "startingTimestamp", "endingTimestamp")
_SNAPSHOT_ONLY: Final = ("versionAsOf", "timestampAsOf", "filters", "limit")


@dataclass(frozen=True, kw_only=True)
class SourceOptions:
    """A batch query of the data source; the base of `StreamOptions`.

    Attributes:
        profile: the server's URL and the credential.
        transport: options of the HTTP client.
        table: the table.
        query: a snapshot, or changes. Of a stream it has no version, time, filter or limit.
        executor_credentials: whether executors may renew URLs.
        partition_size: bytes of files that make one partition.
        min_partitions: minimum number of partitions, if the files are large enough; the number of cores if None.
    """

    profile: Profile = field(repr=False)
    transport: TransportOptions
    table: Table
    query: ScanOptions | ChangeOptions
    executor_credentials: bool
    partition_size: int
    min_partitions: int | None

    @property
    def what(self) -> str:
        """The table, for messages."""
        return f"table {self.table.full_name}"

    @property
    def variant(self) -> VariantForm:
        """The form in which variants are read."""
        return self.query.variant


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Return the batch query that options describe.

    Args:
        given: options by name, in lower case as Spark passes them.

    Raises:
        ValueError: an option is unknown or malformed, or conflicts with another; no profile field is shown.
        TableNameError: `path` is missing or names no table.
        ProfileError: the profile cannot be used.
    """
    values = parse_texts(given)
    for name in STREAM_OPTIONS:
        if name in values:
            raise ValueError(f"the option {name} is for streams, spark.readStream; leave it out")
    changes = values.get("readChangeFeed", False)
    refuse_together(values, "startingVersion", "startingTimestamp")
    for name in _SNAPSHOT_ONLY if changes else _CHANGES_ONLY:
        if name in values:
            when = "with" if changes else "without"
            raise ValueError(f"the option {name} means nothing {when} readChangeFeed; leave it out")
    return SourceOptions(query=_changes(values) if changes else _snapshot(values), **common_options(values))


def _snapshot(values: Mapping[str, Any]) -> ScanOptions:
    refuse_together(values, "versionAsOf", "timestampAsOf")
    return ScanOptions(
        filters=values.get("filters"),
        limit=values.get("limit"),
        version=values.get("versionAsOf"),
        timestamp=values.get("timestampAsOf"),
        **read_options(values),
    )


def _changes(values: Mapping[str, Any]) -> ChangeOptions:
    refuse_together(values, "endingVersion", "endingTimestamp")
    if values.keys().isdisjoint(("startingVersion", "startingTimestamp")):
        raise ValueError("readChangeFeed takes exactly one of the options startingVersion and startingTimestamp")
    if values.get("startingVersion") == "latest":
        raise ValueError("the option startingVersion is 'latest', which only streams take; give a version")
    return ChangeOptions(
        starting_version=values.get("startingVersion"),
        starting_timestamp=values.get("startingTimestamp"),
        ending_version=values.get("endingVersion"),
        ending_timestamp=values.get("endingTimestamp"),
        commit_timestamp="timestamp",
        **read_options(values),
    )


def parse_texts(given: Mapping[str, str]) -> dict[str, Any]:
    """Return the values of options by their exact names.

    Raises:
        ValueError: an option is unknown or malformed.
    """
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
            values[name] = _PARSERS[name](text)
        except ValueError as error:
            raise ValueError(f"the option {name} is {text!r}; {error}") from None
    return values


def refuse_together(values: Mapping[str, Any], one: str, other: str) -> None:
    """Raise if both of two options are given."""
    if one in values and other in values:
        raise ValueError(f"the options {one} and {other} cannot be given together")


def read_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `ScanOptions` and `ChangeOptions` share."""
    names = {"columns": "columns", "response_format": "responseFormat", "variant": "variant"}
    return {argument: values[name] for argument, name in names.items() if name in values}


def common_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that `SourceOptions` and `StreamOptions` share, but for the query."""
    profile, table = _profile_and_table(values)
    return {
        "profile": profile,
        "table": table,
        "transport": TransportOptions(asynchronous_queries=values.get("asynchronousQueries", False)),
        "executor_credentials": values.get("executorCredentials", True),
        "partition_size": check_partition_size(values.get("partitionSize")),
        "min_partitions": values.get("minPartitions"),
    }


def _profile_and_table(values: Mapping[str, Any]) -> tuple[Profile, Table]:
    path = values.get("path")
    if path is None:
        raise ValueError("no table is given: .load('<profile>#<share>.<schema>.<table>'), or the option 'path'")
    fields = {name: values[name] for name in PROFILE_OPTIONS if name in values}
    if not fields:
        source, table = parse_table_url(path)
        return load_profile(source), table
    version = fields.setdefault("shareCredentialsVersion", "1")
    if version.strip().isdigit():
        fields["shareCredentialsVersion"] = int(version)
    return Profile.from_dict(fields, "in the options"), parse_bare_table(path)
