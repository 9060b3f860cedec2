"""A copy that goes on after a crash from a server that prefers another response format by now."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from cdf.feed.change_tables import ChangeTable, rows

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import FileGoneError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import SharingServer

SNAPSHOT: Callable[[SharingClient], Any] = lambda client: client.table("s.s.t").scan()  # noqa: E731
CHANGES: Callable[[SharingClient], Any] = lambda client: client.table("s.s.t").changes(0)  # noqa: E731


@pytest.mark.parametrize("source", [SNAPSHOT, CHANGES], ids=["snapshot", "changes"])
@pytest.mark.parametrize("gained", [True, False])
def test_failed_run_resumes_in_its_response_format(
    source: Callable[[SharingClient], Any], tmp_path: Path, *, gained: bool
) -> None:
    """Local files are named by their ids, which depend on the response format."""
    table, target = ChangeTable(tmp_path / "t"), tmp_path / "copy"
    for number in range(4):
        table.commit(table.add(f"f{number}", rows(number)))
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True) as server:
        (table.root / "f3").rename(tmp_path / "away")
        one_by_one = TransportOptions(max_connections=1)
        with SharingClient(server.profile, options=one_by_one) as client, pytest.raises(FileGoneError):
            source(client).materialize(target, progress=False)
        port, token = urlsplit(server.profile["endpoint"]).port, str(server.profile["bearerToken"])
    note = json.loads((target / "_delta_sharing" / "pending.json").read_text())
    assert note == {"responseFormat": "parquet"}
    (tmp_path / "away").rename(table.root / "f3")
    if gained:  # then the other format it is, and every file is fetched
        table.commit(table.protocol(["deletionVectors"]))
    with (
        SharingServer(
            {"s.s.t": table.root}, file_ids_by_format=True, prefer_format="delta", port=port, token=token
        ) as server,
        SharingClient(server.profile) as client,
    ):
        made = source(client).materialize(target, progress=False)
    assert made.files == 4
    fetched = range(4) if gained else range(3, 4)
    assert made.bytes_fetched == sum((table.root / f"f{number}").stat().st_size for number in fetched)
    assert not (target / "_delta_sharing").exists()
    with SharingServer({"s.s.t": target}) as server, SharingClient(server.profile) as client:
        again = source(client).to_arrow()
    assert sorted(again.column("id").to_pylist()) == [0, 1, 2, 3]
