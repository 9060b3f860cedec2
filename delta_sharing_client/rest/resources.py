"""Resources of the sharing server: URL paths, names in messages, remedies by status."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from delta_sharing_client.model.names import Schema, Share, Table, check_name
from delta_sharing_client.wire.requests import (
    ChangesRequest,
    Timestamp,
    VersionsRequest,
    format_timestamp,
    wire_timestamp,
)

_FORBIDDEN: Final = "The token is valid, but not for this; ask the provider for access"


class Resource(Struct, frozen=True):
    """An object of the server, such as a table.

    Attributes:
        path: segments of its URL below the endpoint.
        subject: its name in error messages.
        advice: remedies for error messages, by status.
    """

    path: tuple[str, ...]
    subject: str
    advice: Mapping[int, str]

    def at(self, *segments: str) -> Resource:
        """Return the resource below this one at further path segments."""
        return replace(self, path=(*self.path, *segments))

    def with_advice(self, status: int, remedy: str | None) -> Resource:
        """Return the resource with a remedy for a status; unchanged if the remedy is None."""
        return self if remedy is None else replace(self, advice={**self.advice, status: remedy})


def share_resource(share: str | Share) -> Resource:
    """Return the resource of a share."""
    name = share.name if isinstance(share, Share) else share
    advice = {403: _FORBIDDEN, 404: "Check the name with list_shares()"}
    return Resource(("shares", check_name(name, "share")), f"share {name}", advice)


def schema_resource(schema: Schema) -> Resource:
    """Return the resource of a schema."""
    resource = share_resource(schema.share).at("schemas", check_name(schema.name, "schema"))
    advice = {403: _FORBIDDEN, 404: "Check the names with list_schemas()"}
    return replace(resource, subject=f"schema {schema.full_name}", advice=advice)


def table_resource(table: Table) -> Resource:
    """Return the resource of a table."""
    resource = share_resource(table.share).at("schemas", check_name(table.schema, "schema"))
    advice = {403: _FORBIDDEN, 404: "Check the name with list_all_tables()"}
    resource = resource.at("tables", check_name(table.name, "table"))
    return replace(resource, subject=f"table {table.full_name}", advice=advice)


def snapshot_advice(version: int | None, timestamp: Timestamp | None) -> str | None:
    """Return the remedy if the server refuses to read a version or a time of a table; None for the latest."""
    if version is not None:
        return (
            f"Version {version} was requested: leave the version out if the table is shared without its history, "
            "even for the latest; else request a version up to table.version()"
        )
    if timestamp is not None:
        return (
            f"The version at {format_timestamp(timestamp)} was requested: request a time from the first version "
            "to the latest, or on_future='latest'; without its history a table has the latest only"
        )
    return None


def changes_advice(request: ChangesRequest | VersionsRequest) -> str:
    """Return the remedy if the server refuses the range of versions or times of a request."""
    start: int | str | None = request.starting_version
    end: int | str | None = request.ending_version
    remedy = "and ask the provider to share the table with its history"
    if isinstance(request, ChangesRequest):
        start = start if request.starting_timestamp is None else wire_timestamp(request.starting_timestamp)
        end = end if request.ending_timestamp is None else wire_timestamp(request.ending_timestamp)
        remedy = "and ask the provider to share the table with its history and to enable its change data feed"
    first = f"version {start}" if isinstance(start, int) else start
    last = "the latest version" if end is None else f"version {end}" if isinstance(end, int) else end
    return f"The changes from {first} to {last} were requested: request versions up to table.version(), {remedy}"
