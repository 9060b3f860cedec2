"""Golden tables followed through their history: deletion vectors, column mapping, new columns, rewrites."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from growing_tables import data_files

from delta_sharing_client import SharingClient
from delta_sharing_client.server import ServerOptions, SharingServer

pytestmark = pytest.mark.slow

TABLES = Path(__file__).parents[2] / "golden" / "tables"
CASES = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(TABLES.glob("*/case.json"))}
FOLLOWED = [name for name, expected in CASES.items() if len(expected["versions"]) > 1]


SERVERS = {"protocol": ServerOptions(), "reference": ServerOptions.like_reference()}


@pytest.fixture(scope="module", params=["protocol", "reference"])
def client(request: pytest.FixtureRequest) -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in CASES}
    with SharingServer(tables, options=SERVERS[request.param]) as server, SharingClient(server.profile) as client:
        yield client


def rows(table: pa.Table) -> list[Any]:
    return sorted(zip(*([repr(value) for value in column] for column in table.columns), strict=True))


@pytest.mark.parametrize("name", FOLLOWED)
def test_a_mirror_follows_a_golden_table(name: str, client: SharingClient, tmp_path: Path) -> None:
    table = client.table(f"golden.tables.{name}")
    mirror = table.mirror(tmp_path / "mirror")
    versions = sorted(map(int, CASES[name]["versions"]))
    for version in versions:
        mirror.sync(at_version=version)
        expected, found = table.scan(version=version).to_arrow(), mirror.scan().to_arrow()
        assert found.schema == expected.schema
        assert rows(found) == rows(expected)
    assert mirror.verify().ok
    for version in versions:
        assert rows(mirror.scan(version=version).to_arrow()) == rows(table.scan(version=version).to_arrow())
    assert mirror.sync().shared_version == CASES[name]["latest"]


def test_new_deletion_vector_fetches_no_data_file(client: SharingClient, tmp_path: Path) -> None:
    table = client.table("golden.tables.dv_update")
    mirror = table.mirror(tmp_path / "mirror")
    versions = sorted(map(int, CASES["dv_update"]["versions"]))
    mirror.sync(at_version=versions[0])
    before = data_files(mirror.directory)
    mirror.sync(at_version=versions[-1])
    new = data_files(mirror.directory) - before
    assert {name for name in new if name.endswith(".bin")}
    kept = {file.path for file in mirror.log.snapshot().files} & {
        file.path for file in mirror.log.snapshot_at(0).files
    }
    assert kept
