"""Resources of the sharing server: URL paths, names in messages, remedies by status."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from delta_sharing_client.model.names import Schema, Share, Table, check_name

_FORBIDDEN: Final = "The token is valid, but not for this; ask the provider for access"


@dataclass(frozen=True, slots=True)
class Resource:
    """An object of the server, such as a table.

    Attributes:
        path: segments of its URL below the endpoint.
        what: its name in error messages.
        advice: remedies for error messages, by status.
    """

    path: tuple[str, ...]
    what: str
    advice: Mapping[int, str]

    def at(self, *segments: str) -> Resource:
        """Return the resource below this one at further path segments."""
        return replace(self, path=(*self.path, *segments))


def share_resource(share: str | Share) -> Resource:
    """Return the resource of a share."""
    name = share.name if isinstance(share, Share) else share
    advice = {403: _FORBIDDEN, 404: "Check the name with list_shares()"}
    return Resource(("shares", check_name(name, "share")), f"share {name}", advice)


def schema_resource(schema: Schema) -> Resource:
    """Return the resource of a schema."""
    resource = share_resource(schema.share).at("schemas", check_name(schema.name, "schema"))
    advice = {403: _FORBIDDEN, 404: "Check the names with list_schemas()"}
    return replace(resource, what=f"schema {schema.full_name}", advice=advice)


def table_resource(table: Table) -> Resource:
    """Return the resource of a table."""
    resource = share_resource(table.share).at("schemas", check_name(table.schema, "schema"))
    advice = {403: _FORBIDDEN, 404: "Check the name with list_all_tables()"}
    resource = resource.at("tables", check_name(table.name, "table"))
    return replace(resource, what=f"table {table.full_name}", advice=advice)
