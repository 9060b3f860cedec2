"""Frozen requests: bodies of POST /query and query strings of GET /changes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from typing import Any, ClassVar, Final, Literal, Self, TypeAlias, TypeVar, final

from msgspec.structs import replace

from delta_sharing_client.errors import BadRequestError, ResponseFormatError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.actions import ResponseFormat
from delta_sharing_client.model.numbers import as_integer
from delta_sharing_client.model.redacted_struct import RedactedStruct
from delta_sharing_client.model.timestamps import parse_iso8601

logger = module_logger(__name__)

#: The accepted formats by default; delta first, because it supports more features.
ANY_FORMAT: tuple[ResponseFormat, ...] = ("delta", "parquet")

#: The response format as an option.
RequestedFormat: TypeAlias = Literal["auto", "delta", "parquet"]
#: A time as an option.
Timestamp: TypeAlias = str | datetime | date


def formats_for(response_format: str) -> tuple[ResponseFormat, ...]:
    """Return the formats to accept for ``auto``, ``delta`` or ``parquet``; raise `ValueError` otherwise."""
    accepted: dict[str, tuple[ResponseFormat, ...]] = {
        "auto": ANY_FORMAT,
        "delta": ("delta",),
        "parquet": ("parquet",),
    }
    if response_format not in accepted:
        raise ValueError(f"response_format is {response_format!r}; it takes 'auto', 'delta' or 'parquet'")
    return accepted[response_format]


def format_for(use_delta_format: bool | None) -> RequestedFormat:
    """Return the response format for the argument of the official client; None is the server's choice."""
    if use_delta_format is None:
        return "auto"
    return "delta" if checked_flag(use_delta_format) else "parquet"


def checked_flag(use_delta_format: bool) -> bool:
    """Return the flag; raise `TypeError` if it is not a bool."""
    if not isinstance(use_delta_format, bool):
        raise TypeError(f"use_delta_format is True, False or None, not {use_delta_format!r}")
    return use_delta_format


def format_timestamp(value: str | datetime | date, name: str = "timestamp") -> str:
    """Return a time in the protocol's "Timestamp Format", ISO 8601 in UTC; times without a zone are in UTC.

    Raises:
        ValueError: the text is not a time in ISO 8601; the message has the argument's name.
    """
    if isinstance(value, str):
        try:
            value = parse_iso8601(value.strip())
        except ValueError:
            raise ValueError(
                f"{name}: {value!r} is not a time in ISO 8601, such as 2024-01-31T12:00:00Z or 2024-01-31"
            ) from None
    if not isinstance(value, datetime):
        if not isinstance(value, date):
            raise TypeError(f"{name} is a str, datetime or date, not {type(value).__name__}")
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if value != value:  # pandas' NaT
        raise ValueError(f"{name} is not a time (NaT)")
    if value.tzinfo is not None:
        value = value.astimezone(UTC)
    return value.replace(tzinfo=None).isoformat() + "Z"


def wire_timestamp(value: Timestamp | None, name: str = "timestamp") -> str | None:
    """Return an optional time in the protocol's "Timestamp Format"; raises as `format_timestamp`."""
    return None if value is None else format_timestamp(value, name)


def check_version(value: int | None, name: str) -> int | None:
    """Return a table version as an int; raise `TypeError` or `ValueError` with the argument's name."""
    if (number := as_integer(value, name)) is None:
        return None
    if number < 0:
        raise ValueError(f"{name} is {number}; it starts at 0")
    if number >= 2**63:
        raise ValueError(f"{name} is {number}; it is at most {2**63 - 1}")
    return number


#: Fields of requests that are sent in headers.
_IN_HEADERS: Final = frozenset({"formats", "file_id_hash", "views"})


class Request(RedactedStruct, frozen=True, kw_only=True):
    """Base of the requests for files.

    Attributes:
        formats: accepted response formats, best first.
        max_files: files per page; by default the server decides.
        page_token: the page to read.
        file_id_hash: the format in whose scheme the server is to form the ids of files, if it can.
    """

    redacted_fields: ClassVar = frozenset({"page_token", "refresh_token"})

    formats: tuple[ResponseFormat, ...] = ANY_FORMAT
    max_files: int | None = None
    page_token: str | None = None
    file_id_hash: ResponseFormat | None = None

    def body(self) -> dict[str, Any]:
        """Return the request's fields, without unset ones, under their names in the protocol."""
        body: dict[str, Any] = {}
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if name in _IN_HEADERS or value is None or value is False or value == ():
                continue
            first, *words = name.split("_")
            if name.endswith("timestamp"):
                value = format_timestamp(value)
            body[first + "".join(map(str.capitalize, words))] = list(value) if isinstance(value, tuple) else value
        return body

    def params(self) -> Mapping[str, str]:
        """Return the same fields as a query string."""
        return {key: "true" if value is True else str(value) for key, value in self.body().items()}

    def page(self, token: str) -> Self:
        """Return the request for a later page."""
        return replace(self, page_token=token)

    def in_format(self, response_format: ResponseFormat) -> Self:
        """Return the request for the format of its answer, on which the ids of files depend."""
        return replace(self, formats=(response_format,))


@final
class QueryRequest(Request, frozen=True, kw_only=True):
    """A read of a table's snapshot: the body of POST /query ("Read Data from a Table").

    Attributes:
        predicate_hints: SQL comparisons, AND-ed; a hint.
        json_predicate_hints: the JSON predicate as text; a hint.
        limit_hint: how many rows will be read; a hint.
        version, timestamp: the snapshot to read; at most one of them, the latest without.
        include_refresh_token, refresh_token: request a refresh token; use one. Not sent for later pages.
    """

    predicate_hints: tuple[str, ...] = ()
    json_predicate_hints: str | None = None
    limit_hint: int | None = None
    version: int | None = None
    timestamp: Timestamp | None = None
    include_refresh_token: bool = False
    refresh_token: str | None = None

    def __post_init__(self) -> None:
        if self.version is not None and self.timestamp is not None:
            raise ValueError("version and timestamp cannot be given together")

    def without_hints(self) -> QueryRequest:
        """Return the request without hints; it selects the same rows."""
        return replace(self, predicate_hints=(), json_predicate_hints=None, limit_hint=None)

    def page(self, token: str) -> Self:
        """Return the request for a later page, which takes no refresh token."""
        return replace(self, page_token=token, include_refresh_token=False, refresh_token=None)


class ChangesRequest(Request, frozen=True, kw_only=True):
    """A read of a table's changes: the query string of GET /changes ("Read Change Data Feed from a Table").

    Attributes:
        starting_version, starting_timestamp: where to start, inclusive; exactly one of them.
        ending_version, ending_timestamp: where to end, inclusive; at most one, the latest version without.
        include_historical_metadata: request the metadata of each version that changed it.
        include_historical_protocol: request the protocol of each version that changed it (delta format).
        views: accept the changes of a view, which have no versions.
    """

    starting_version: int | None = None
    starting_timestamp: Timestamp | None = None
    ending_version: int | None = None
    ending_timestamp: Timestamp | None = None
    include_historical_metadata: bool = False
    include_historical_protocol: bool = False
    views: bool = False

    def __post_init__(self) -> None:
        if (self.starting_version is None) == (self.starting_timestamp is None):
            raise ValueError("give exactly one of starting_version and starting_timestamp")
        if self.ending_version is not None and self.ending_timestamp is not None:
            raise ValueError("give at most one of ending_version and ending_timestamp")


class VersionsRequest(Request, frozen=True, kw_only=True):
    """The files that versions of a table added and removed: POST /query with `startingVersion`.

    Unlike the change feed it needs no table property, and does not describe single rows. The answer has the
    metadata of each version that changed it ("Read Data from a Table").

    Attributes:
        starting_version: the first version.
        ending_version: the last version, inclusive; the latest without.
        include_historical_protocol: request the protocol of each version that changed it (delta format).
    """

    starting_version: int
    ending_version: int | None = None
    include_historical_protocol: bool = False


AnyRequest = TypeVar("AnyRequest", bound=Request)
Answer = TypeVar("Answer")


def send_in_format(
    request: AnyRequest, response_format: ResponseFormat | None, send: Callable[[AnyRequest], Answer]
) -> Answer:
    """Send a request in the response format of known ids, or in any format if the server refuses that one.

    Args:
        request: the request, with all accepted formats.
        response_format: the format of the known ids; None if no ids are known.
        send: sends a request; its errors are raised.
    """
    if response_format in request.formats:
        try:
            return send(request.in_format(response_format))
        except (BadRequestError, ResponseFormatError) as error:
            # The table may have gained a feature that needs the other one.
            logger.info("the server does not answer in %s format any more: %s", response_format, error)
    return send(request)
