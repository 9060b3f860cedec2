"""Parameters of requests: query strings and JSON bodies, validated by msgspec."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias

import msgspec
from msgspec import Meta, Struct

from delta_sharing_client.server.problems import bad_request

_Natural: TypeAlias = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Positive: TypeAlias = Annotated[int, Meta(ge=1, le=2**63 - 1)]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class Parameters(Struct, frozen=True, kw_only=True, rename="camel"):
    """Parameters by their names in the protocol; None for absent ones. Unknown ones are ignored."""

    #: Parameters that may differ between the pages of one query.
    paging: ClassVar = frozenset({"maxFiles", "pageToken"})

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate JSON values, or the texts of a query string; raise `Problem` (400).

        An empty text counts as absent.
        """
        given = {name: value for name, value in values.items() if value is not None and value != ""}
        try:
            return msgspec.convert(given, cls, strict=False)
        except msgspec.ValidationError as error:
            raise bad_request(f"A parameter of the request is not valid: {error}.") from None

    @property
    def digest(self) -> str:
        """A short text that is equal for the pages of one query."""
        values = {name: value for name, value in msgspec.to_builtins(self).items() if name not in self.paging}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:32]


class ListingParameters(Parameters, frozen=True):
    """Parameters of the listings of shares, schemas and tables."""

    max_results: _Natural | None = None
    page_token: str | None = None


class PointInTime(Parameters, frozen=True):
    """Parameters of `/version` and `/metadata`."""

    version: _Natural | None = None
    timestamp: str | None = None
    starting_timestamp: str | None = None


class Paging(Parameters, frozen=True):
    """Parameters of a query with pages, and the body of a request for a page of an asynchronous query."""

    max_files: _Positive | None = None
    page_token: str | None = None


class ChangesParameters(Paging, frozen=True):
    """Parameters of `/changes`."""

    starting_version: _Natural | None = None
    ending_version: _Natural | None = None
    starting_timestamp: str | None = None
    ending_timestamp: str | None = None
    include_historical_metadata: bool = False
    include_historical_protocol: bool = False


class QueryBody(Paging, frozen=True):
    """The body of `/query`."""

    paging: ClassVar = frozenset({"maxFiles", "pageToken", "includeRefreshToken", "refreshToken"})

    predicate_hints: list[str] | str = ""
    json_predicate_hints: str | None = None
    limit_hint: _Natural | None = None
    version: _Natural | None = None
    timestamp: str | None = None
    starting_version: _Natural | None = None
    ending_version: _Natural | None = None
    refresh_token: str | None = None
    include_refresh_token: bool = False
    include_historical_protocol: bool = False

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Self:
        """Validate the body; raise `Problem` (400) if a field is malformed or contradicts another."""
        body = super().parse(values)
        points = [body.version, body.timestamp, body.starting_version]
        if sum(point is not None for point in points) > 1:
            raise bad_request("Only one of version, timestamp and startingVersion can be given.")
        if body.ending_version is not None and body.starting_version is None:
            raise bad_request("endingVersion needs a startingVersion.")
        if body.refresh_token or body.include_refresh_token:
            if any(point is not None for point in points):
                raise bad_request("Refresh tokens are for the latest snapshot only.")
            if body.page_token:
                raise bad_request("Refresh tokens are for the first page only.")
        return body


def parse_timestamp(text: str, name: str) -> int:
    """Return a timestamp ("Timestamp Format") in milliseconds since the epoch; raise `Problem` (400)."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        parsed = None
    if parsed is None or parsed.tzinfo is None or "T" not in text.upper():
        raise bad_request(f"{name} must be an ISO 8601 timestamp in UTC, such as 2022-01-01T00:00:00Z.")
    return (parsed - _EPOCH) // timedelta(milliseconds=1)
