"""A provider whose file lines have no `deletionVectorFileId`: an id helps the client, and is not needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from change_tables import ChangeTable, change_rows, expect, rows
from faults.server import FaultServer, Reply, Request
from waiting import HANG, WallClock

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable

FORWARDED = ("authorization", "delta-sharing-capabilities", "content-type")


class Provider:
    """The embedded server behind a proxy that removes the ids of deletion vectors from its answers.

    removed: how many were taken out.
    """

    def __init__(self, front: FaultServer, back: SharingServer) -> None:
        self.back = back
        self.removed = 0
        front.on("*", re.compile("."), self._forward)
        self.profile = {**back.profile, "endpoint": front.url}

    def _forward(self, request: Request) -> Reply:
        answer = requests.request(
            request.method,
            self.back.endpoint + request.target,
            headers={name: request.headers[name] for name in FORWARDED if name in request.headers},
            data=request.body,
            timeout=HANG,
        )
        lines = [self._without(json.loads(line)) for line in answer.content.splitlines()]
        names = ("delta-sharing-capabilities", "delta-table-version")
        headers = {name: answer.headers[name] for name in names if name in answer.headers}
        return Reply.of_lines(*lines, headers=headers, status=answer.status_code)

    def _without(self, line: dict[str, Any]) -> dict[str, Any]:
        self.removed += line.get("file", {}).pop("deletionVectorFileId", None) is not None
        return line


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """A file whose vector grows, shrinks, is removed, and is added under another name."""
    table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
    v1, v2, v3 = (
        table.vector(*positions, name=f"v{version}.bin")
        for version, positions in enumerate(([0, 1], [0, 1, 9], [9]))
    )
    table.commit(table.add("f", rows(*range(10))))
    table.commit(table.remove("f"), table.add("f", vector=v1))
    table.commit(table.remove("f", vector=v1), table.add("f", vector=v2))
    table.commit(table.remove("f", vector=v2), table.add("f", vector=v3))
    return table


EXPECTED = [
    expect(0, "insert", range(10)),
    expect(1, "delete", [0, 1]),
    expect(2, "delete", [9]),
    expect(3, "insert", [0, 1]),
]
HELD = [n for n in range(10) if n != 9]


@pytest.fixture
def provider(table: ChangeTable) -> Iterator[Provider]:
    lifetime = timedelta(minutes=10)
    with SharingServer({"s.s.t": table.root}, url_lifetime=lifetime) as back, FaultServer() as front:
        provider = Provider(front, back)
        yield provider
        assert provider.removed


@pytest.fixture
def shared(provider: Provider) -> Iterator[SharedTable]:
    with SharingClient(provider.profile) as client:
        yield client.table("s.s.t")


def ids(table: Any) -> list[int]:
    return sorted(table["id"].to_pylist())


def test_rows_and_changes(shared: SharedTable) -> None:
    assert ids(shared.scan().to_arrow()) == HELD
    assert change_rows(shared.changes(0).to_arrow()) == [row for version in EXPECTED for row in version]
    assert change_rows(shared.changes(2, 2).to_arrow()) == EXPECTED[2]


def test_a_poller(shared: SharedTable) -> None:
    with shared.poll_changes(
        starting_version=0, poll_interval=timedelta(milliseconds=1), max_versions=1
    ) as poller:
        for expected in EXPECTED:
            batch = poller.pull()
            assert batch is not None
            assert change_rows(batch.to_arrow()) == expected
            batch.commit()


def test_a_mirror_and_copies(shared: SharedTable, tmp_path: Path) -> None:
    mirror = shared.mirror(tmp_path / "mirror")
    for version in range(4):
        mirror.sync(at_version=version)
        assert ids(mirror.scan().to_arrow()) == ids(shared.scan(version=version).to_arrow())
    shared.scan().materialize(tmp_path / "copy")
    shared.changes(0).materialize(tmp_path / "changes")
    with (
        SharingServer({"s.s.copy": tmp_path / "copy", "s.s.changes": tmp_path / "changes"}) as server,
        SharingClient(server.profile) as client,
    ):
        assert ids(client.table("s.s.copy").scan().to_arrow()) == HELD
        assert change_rows(client.table("s.s.changes").changes(0).to_arrow()) == [
            row for v in EXPECTED for row in v
        ]


def test_urls_that_expire(shared: SharedTable, wall_clock: WallClock) -> None:
    scan, changes = shared.scan().to_record_batch_reader(), shared.changes(0).to_record_batch_reader()
    wall_clock.advance(600)
    assert ids(scan.read_all()) == HELD
    assert change_rows(changes.read_all()) == [row for version in EXPECTED for row in version]
