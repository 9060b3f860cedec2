"""Renewal of URLs of tables whose response format has changed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from msgspec.structs import replace

sys.path.append(str(Path(__file__).parents[1] / "cdf" / "feed"))

from change_tables import ChangeTable, rows
from msgspec import structs

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import StorageError
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.scan.url_renewal import UrlRenewer
from delta_sharing_client.server import SharingServer

VECTORS = ["deletionVectors"]
Source = Callable[[SharingClient], Any]


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    table = ChangeTable(tmp_path / "t")
    table.commit(*(table.add(f"f{number}", rows(number)) for number in range(5)))
    table.commit(table.add("f5", rows(5)))
    return table


@contextmanager
def serving(table: ChangeTable, before: SharingServer | None = None, **options: Any) -> Iterator[SharingServer]:
    """A server of file ids by format; where `before` was, whose URLs and refresh tokens it does not know."""
    options = {"file_ids_by_format": True} | options
    if before is not None:
        port = urlsplit(before.profile["endpoint"]).port
        options |= {"port": port, "token": str(before.profile["bearerToken"])}
    with SharingServer({"s.s.t": table.root}, **options) as server:
        yield server


def read(client: SharingClient, plan: ScanPlan) -> list[int]:
    """Read a plan whose URLs the store refuses, all of them."""
    rest, storage = client.table("s.s.t").scan()._connections()
    fresh = UrlRenewer(rest, plan.table, plan)
    tasks = [structs.replace(task, url=fresh.renew(task.file_id, task.url)) for task in plan.tasks]
    batches = replace(plan, tasks=tasks).read(rest, storage)
    return sorted(value for batch in batches for value in batch.column("id").to_pylist())


SNAPSHOT: Source = lambda client: client.table("s.s.t").scan()  # noqa: E731
VERSION: Source = lambda client: client.table("s.s.t").scan(version=1)  # noqa: E731
CHANGES: Source = lambda client: client.table("s.s.t").changes(starting_version=0)  # noqa: E731


@pytest.mark.parametrize("source", [SNAPSHOT, VERSION, CHANGES], ids=["snapshot", "version", "changes"])
@pytest.mark.parametrize("prefer", ["auto", "delta"])
def test_urls_are_renewed_in_the_format_of_their_plan(table: ChangeTable, source: Source, prefer: str) -> None:
    """The server prefers another format by now, or the table needs it."""
    with serving(table) as server, SharingClient(server.profile) as client:
        plan = source(client).plan()
    table.commit(table.protocol(VECTORS), table.add("f6", rows(60, 61), vector=table.vector(0)))
    with serving(table, server, prefer_format=prefer) as again, SharingClient(again.profile) as client:
        assert read(client, plan) == [0, 1, 2, 3, 4, 5]
        asked = {request.capabilities for request in again.requests if not request.is_file}
        views = ";cdfonviews=true" if source is CHANGES else ""
        assert asked == {f"responseformat=parquet;includeendstreamaction=true{views}"}


@pytest.mark.parametrize("by_format", [True, False])
def test_renewal_without_time_travel_may_change_the_format(table: ChangeTable, *, by_format: bool) -> None:
    """Files that have one id in both formats are found; of others nothing is guessed."""
    older: dict[str, Any] = {"history": False, "send_end_stream_action": False, "file_ids_by_format": by_format}
    with serving(table, **older) as server, SharingClient(server.profile) as client:
        plan = SNAPSHOT(client).plan()
    table.commit(table.protocol(VECTORS))
    with serving(table, server, **older) as again, SharingClient(again.profile) as client:
        if by_format:
            with pytest.raises(StorageError, match="the server does not list the file any more"):
                read(client, plan)
        else:
            assert read(client, plan) == [0, 1, 2, 3, 4, 5]
