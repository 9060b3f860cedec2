"""Names of the data source's options, and parsers of their texts.

The names are those of the JVM connector and of Delta's own streaming source. A parser raises `ValueError` with the
values that are allowed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import timedelta, timezone, tzinfo
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.option_texts import parse_boolean, parse_bytes, parse_duration, parse_number
from delta_sharing_client.paths import local_path
from delta_sharing_client.wire.requests import format_timestamp

#: An offset as a time zone; Spark accepts a prefix.
_OFFSET: Final = re.compile(
    r"(?:UTC|GMT|UT)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2})(?::?(?P<seconds>\d{2}))?)?|Z"
)


def one_of(
    words: Mapping[str, Any], described: str, otherwise: Callable[[str], Any] | None = None
) -> Callable[[str], Any]:
    """Return a parser of words in any case, else of the values that `otherwise` parses."""

    def parse(text: str) -> Any:
        word = text.replace(" ", "").lower()
        if word in words:
            return words[word]
        if otherwise is not None:
            try:
                return otherwise(text)
            except ValueError:
                pass
        raise ValueError(f"it takes {described}")

    return parse


def parse_seconds(text: str) -> float:
    """Parse a duration, by default in seconds, as seconds."""
    return parse_duration(text).total_seconds()


def parse_names(text: str) -> tuple[str, ...]:
    """Parse names with commas between them, or a JSON list of names."""
    names: Any = [part.strip() for part in text.split(",")]
    if text.lstrip().startswith("["):
        try:
            names = json.loads(text)
        except ValueError:
            names = None
    if not isinstance(names, list) or not names or not all(isinstance(n, str) and n for n in names):
        raise ValueError("it takes names with commas between them, or a JSON list of names")
    return tuple(names)


def parse_time(text: str, zone: str | None = None) -> str:
    """Parse a time in ISO 8601, as the text of a request; without a zone it is in that of the Spark session."""
    try:
        moment = parse_iso8601(text.strip(), None if zone is None else parse_zone(zone))
    except ZoneInfoNotFoundError:
        raise ValueError(
            f"spark.sql.session.timeZone, {zone!r}, is unknown to Python: give a time with a zone"
        ) from None
    except ValueError:
        raise ValueError("it takes a time in ISO 8601, such as 2024-01-31T12:00:00Z or 2024-01-31") from None
    if moment.tzinfo is None:
        raise ValueError(
            "it has no zone, and the session's zone is known only after "
            "delta_sharing_client.spark.register(spark): register, or give a time with a zone, such as "
            "2024-01-31T12:00:00Z"
        )
    return format_timestamp(moment)


def parse_zone(text: str) -> tzinfo:
    """Parse a time zone of Spark's configuration: a region, or an offset such as ``+01:00`` or ``GMT+1``.

    Raises:
        ZoneInfoNotFoundError: the zone is unknown.
    """
    match = _OFFSET.fullmatch(text.strip())
    if match is None:
        try:
            return ZoneInfo(text.strip())
        except (ValueError, OSError):  # a name that is no path
            raise ZoneInfoNotFoundError(text) from None
    hours, minutes, seconds = (int(match[name] or 0) for name in ("hours", "minutes", "seconds"))
    offset = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    return timezone(-offset if match["sign"] == "-" else offset)


def parse_regex(text: str) -> re.Pattern[str]:
    """Parse a regular expression."""
    try:
        return re.compile(text)
    except re.error as error:
        raise ValueError(f"it takes a regular expression: {error}") from None


def parse_caller(text: str) -> str:
    """Parse the name of an organization, which a header can contain."""
    if not text.strip() or not text.isascii() or not text.isprintable():
        raise ValueError("it takes a name of printable ASCII characters")
    return text.strip()


def parse_name(text: str) -> str:
    """Parse a name that can be a part of the name of a file."""
    if not re.fullmatch(r"[\w.-]+", text):
        raise ValueError("it takes a name of letters, digits, '_', '-' and '.'")
    return text


def parse_driver_folder(text: str) -> Path:
    """Parse the absolute path of a folder, or its ``file:`` URL."""
    supported = (
        "an absolute path of a folder that the driver can write to, by convention one under the query's "
        "checkpoint location"
    )
    path = local_path(text, "it", supported=supported)
    if not path.is_absolute():
        raise ValueError(f"it takes {supported}")
    return path


parse_positive_number = partial(parse_number, least=1)
parse_on_future = one_of({"raise": "raise", "latest": "latest"}, "'raise' or 'latest'")
parse_variant = one_of({"variant": "struct", "json": "json"}, "'variant' or 'json'")
parse_version_or_latest = one_of({"latest": "latest"}, "a version, or 'latest'", parse_number)
parse_response_format = one_of(
    {"delta": "delta", "parquet": "parquet", **dict.fromkeys(("auto", "delta,parquet", "parquet,delta"), "auto")},
    "'auto', 'delta' or 'parquet'",
)
parse_accepted_changes = one_of(
    {"always": "always", "true": "always", "false": None},
    "'always', or the version that the error names",
    parse_number,
)

#: Options by name: the parser of the text, and the field that the value sets.
Options: TypeAlias = Mapping[str, tuple[Callable[[str], Any], str]]

READ: Final[Options] = {
    "columns": (parse_names, "columns"),
    "responseFormat": (parse_response_format, "response_format"),
    "variant": (parse_variant, "variant"),
    "onFuture": (parse_on_future, "on_future"),
}
SNAPSHOT: Final[Options] = {
    "versionAsOf": (parse_number, "version"),
    "timestampAsOf": (parse_time, "timestamp"),
    "filters": (str, "filters"),
    "limit": (parse_number, "limit"),
}
START: Final[Options] = {
    "startingVersion": (parse_version_or_latest, "starting_version"),
    "startingTimestamp": (parse_time, "starting_timestamp"),
}
END: Final[Options] = {
    "endingVersion": (parse_number, "ending_version"),
    "endingTimestamp": (parse_time, "ending_timestamp"),
}
EXECUTORS: Final[Options] = {
    "executorCredentials": (parse_boolean, "credentials"),
    "partitionSize": (parse_number, "partition_size"),
    "minPartitions": (parse_number, "min_partitions"),
}
#: Options of batch queries, some of them of streams too.
OPTIONS: Final[Options] = {
    "path": (str, "table"),
    "readChangeFeed": (parse_boolean, "query"),
    "asynchronousQueries": (parse_boolean, "transport"),
    "callerOrg": (parse_caller, "transport"),
    **EXECUTORS,
    **READ,
    **SNAPSHOT,
    **START,
    **END,
}
#: Options that accept changes of the table's columns; Spark's configuration may set them too.
ACCEPTED_CHANGES: Final[Options] = {
    "allowSourceColumnRenameAndDrop": (parse_accepted_changes, "allow_renames_and_drops"),
    "allowSourceColumnRename": (parse_accepted_changes, "allow_renames"),
    "allowSourceColumnDrop": (parse_accepted_changes, "allow_drops"),
    "allowSourceColumnTypeChange": (parse_accepted_changes, "allow_type_changes"),
}
#: Options of streams alone.
STREAM_OPTIONS: Final[Options] = {
    "maxFilesPerTrigger": (parse_positive_number, "max_files"),
    "maxBytesPerTrigger": (parse_bytes, "max_bytes"),
    "maxVersionsPerRpc": (parse_positive_number, "max_versions"),
    "queryTableVersionIntervalSeconds": (parse_seconds, "interval"),
    "checkTableEvery": (parse_positive_number, "check_table_every"),
    "ignoreDeletes": (parse_boolean, "ignore_deletes"),
    "ignoreChanges": (parse_boolean, "ignore_changes"),
    "skipChangeCommits": (parse_boolean, "skip_change_commits"),
    "ignoreFileDeletion": (parse_boolean, "ignore_changes"),
    "failOnDataLoss": (parse_boolean, "fail_on_data_loss"),
    "allowRepeatedVersion": (parse_accepted_changes, "repeated_version"),
    "excludeRegex": (parse_regex, "exclude"),
    "schemaTrackingLocation": (parse_driver_folder, "schema_tracking"),
    "streamingSourceTrackingId": (parse_name, "tracking_id"),
    **ACCEPTED_CHANGES,
}
#: Options that are not those of streams, and what to do instead.
NOT_OF_STREAMS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("versionAsOf", "timestampAsOf", "onFuture", *END), "leave it out"),
    "filters": "use where() on the DataFrame",
    "limit": "limit a batch with maxFilesPerTrigger or maxBytesPerTrigger",
}
#: The options of a batch query, and those of a stream, without the fields of a profile.
BATCH_NAMES: Final = tuple(OPTIONS)
STREAM_NAMES: Final = tuple(name for name in {**OPTIONS, **STREAM_OPTIONS} if name not in NOT_OF_STREAMS)
#: Fields of a profile that may be given as options, instead of a profile file.
PROFILE_OPTIONS: Final = (
    *("shareCredentialsVersion", "type", "endpoint", "bearerToken", "expirationTime"),
    *("tokenEndpoint", "clientId", "clientSecret", "scope", "audience", "username", "password"),
)
ALL_OPTIONS: Final[Options] = {**OPTIONS, **STREAM_OPTIONS, **{name: (str, name) for name in PROFILE_OPTIONS}}
#: Exact names by those in lower case, and other names of Delta and the connector for the same.
KNOWN_NAMES: Final = {name.lower(): name for name in ALL_OPTIONS} | {
    "readchangedata": "readChangeFeed",
    "schemalocation": "schemaTrackingLocation",
    "sharecredentialstype": "type",
}
