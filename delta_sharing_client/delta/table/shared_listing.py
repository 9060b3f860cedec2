"""Listing of a shared table, the source of materialized tables and mirrors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from delta_sharing_client.model.actions import FileAction, Metadata, Protocol
from delta_sharing_client.model.names import Table
from delta_sharing_client.rest.client import RestClient
from delta_sharing_client.scan.data_skipping import read_spec
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import UrlRenewer, first_of
from delta_sharing_client.wire.requests import QueryRequest


@dataclass(frozen=True, kw_only=True)
class Listing:
    """A table's files at one version.

    Attributes:
        table: the table.
        version: the version, if the server reports it.
        protocol, metadata: the table's, at that version.
        files: its files, in the server's order.
        refresh: renews the URLs that expire meanwhile.
    """

    table: Table
    version: int | None
    protocol: Protocol
    metadata: Metadata
    files: Sequence[FileAction] = field(repr=False)
    refresh: UrlRenewer = field(repr=False)


def list_table(rest: RestClient, table: Table, request: QueryRequest) -> Listing:
    """Ask for a table's files: one request.

    Serves "Read Data from a Table".

    Args:
        rest: the server.
        table: the table.
        request: what to ask for.

    Raises:
        UnsupportedTableError: the table needs something that this release cannot read.
        DeltaSharingError: the server could not be asked, or its answer could not be used.
    """
    latest = request.version is None and request.timestamp is None
    request = replace(request, include_refresh_token=latest)
    answer = rest.query_table(table, request)
    answer.protocol.check_readable(f"table {table.full_name}")
    plan = ScanPlan(
        table=table,
        version=answer.version,
        protocol=answer.protocol,
        metadata=answer.metadata,
        spec=read_spec(answer.metadata, [], None, protocol=answer.protocol),
        tasks=(),
        skipped={},
        limit=None,
        request=answer.request,
        end=answer.end,
    )
    return Listing(
        table=table,
        version=answer.version,
        protocol=answer.protocol,
        metadata=answer.metadata,
        files=answer.items,
        refresh=UrlRenewer(rest, plan, first_of(file.expiration_timestamp for file in answer.items)),
    )
