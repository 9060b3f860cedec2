"""Changes, pollers, mirrors and copies of tables that are offered by their directory only."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from directory_store import PATH, DirectoryServer

sys.path.append(str(Path(__file__).parents[2] / "cdf" / "feed"))

from change_tables import COLUMNS, ChangeTable, rows

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.cli.app import cli
from delta_sharing_client.errors import BadRequestError, ChangesGoneError, DirectoryAccessError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture
def source(shared: DirectoryServer) -> ChangeTable:
    """Rows inserted, updated through a change file, deleted with a file, and deleted by a deletion vector."""
    table = ChangeTable(shared.path, features=["deletionVectors"])
    table.commit(table.add("f0", rows(0, 1)))
    table.commit(table.add("f1", rows(2, 3)))
    table.commit(table.remove("f0"), table.add("f2", rows(0)), table.cdc("c2", rows(1), ["delete"]))
    table.commit(table.remove("f1"))
    table.commit(table.add("f4", rows(4, 5)))
    return table


@pytest.fixture(params=["listed", "named"])
def table(shared: DirectoryServer, source: ChangeTable, request: pytest.FixtureRequest) -> SharedTable:
    client = SharingClient(shared.api.profile)
    if request.param == "named":
        return client.table("s.d.t")
    (listed,) = client.list_all_tables()
    return client.table(listed)


def by_url(source: ChangeTable, load: Any) -> pa.Table:
    with SharingServer({"s.d.t": source.root}) as server, SharingClient(server.profile) as client:
        found: pa.Table = load(client.table("s.d.t"))
        return found


def ordered(found: pa.Table) -> list[dict[str, Any]]:
    return sorted(found.to_pylist(), key=lambda row: (row["_commit_version"], row["_change_type"], row["id"]))


@pytest.mark.parametrize(
    "given",
    [
        {"starting_version": 0},
        {"starting_version": 1, "ending_version": 3},
        {"starting_version": 2, "columns": ["id"]},
        {"starting_timestamp": "2023-11-15T00:00:00Z", "ending_timestamp": "2023-11-15T01:30:00Z"},
    ],
)
def test_changes_are_those_by_url(table: SharedTable, source: ChangeTable, given: dict[str, Any]) -> None:
    expected = by_url(source, lambda other: other.changes(**given).to_arrow())
    assert expected.num_rows
    found = table.changes(**given).to_arrow()
    assert found.schema.equals(expected.schema)
    assert ordered(found) == ordered(expected)


def test_deletion_vectors_and_new_columns(table: SharedTable, source: ChangeTable) -> None:
    from change_tables import column

    source.commit(source.metadata([*COLUMNS, column("n", "integer")]))
    source.commit(source.remove("f4"), source.add("f4", vector=source.vector(0)))
    expected = by_url(source, lambda other: other.changes(starting_version=3).to_arrow())
    found = table.changes(starting_version=3).to_arrow()
    assert ordered(found) == ordered(expected)
    assert [row["id"] for row in found.to_pylist() if row["_commit_version"] == 6] == [4]


def test_credentials_are_renewed_between_plan_and_read(table: SharedTable, shared: DirectoryServer) -> None:
    changes = table.changes(starting_version=0)
    plan = changes.plan()
    shared.expired.update(shared.session(number) for number in range(1, shared.given + 1))
    assert sum(batch.num_rows for batch in changes._batches(plan, None)) == 9


def test_a_version_that_is_not_there(table: SharedTable) -> None:
    message = r"^table s\.d\.t \(its directory\): there is no version 9; the latest is 4\. A range after"
    with pytest.raises(BadRequestError, match=message):
        table.changes(starting_version=9).to_arrow()


@pytest.mark.parametrize(
    "arguments",
    [
        ["head", "--version", "9"],
        ["head", "--timestamp", "1999-01-01T00:00:00Z"],
        ["head", "--timestamp", "2999-01-01T00:00:00Z"],
        ["changes", "--from", "9"],
    ],
)
def test_exit_codes_are_those_of_a_table_with_urls(
    shared: DirectoryServer, source: ChangeTable, tmp_path: Path, arguments: list[str]
) -> None:
    codes = []
    with SharingServer({"s.d.t": source.root}) as server:
        for number, profile in enumerate((shared.api.profile, server.profile)):
            path = tmp_path / f"{number}.share"
            path.touch(0o600)
            path.write_text(json.dumps(profile))
            codes.append(CliRunner().invoke(cli, [arguments[0], f"{path}#s.d.t", *arguments[1:]]).exit_code)
    assert codes == [1, 1]


def test_a_feed_that_is_not_enabled(table: SharedTable, source: ChangeTable) -> None:
    source.commit(source.metadata(COLUMNS, {}))
    with pytest.raises(BadRequestError, match="the change data feed of version 5 is not enabled"):
        table.changes(starting_version=3).to_arrow()


def test_a_poller_follows_and_restarts(table: SharedTable, source: ChangeTable, tmp_path: Path) -> None:
    checkpoint = tmp_path / "p.checkpoint"
    with table.poll_changes(checkpoint, starting_version="snapshot") as poller:
        batch = poller.pull()
        assert batch is not None
        assert sorted(batch.to_arrow()["id"].to_pylist()) == [0, 4, 5]
        batch.commit()
        assert poller.pull() is None
        source.commit(source.add("f5", rows(6)))
    with table.poll_changes(checkpoint) as poller:
        batch = poller.pull()
        assert batch is not None
        assert batch.to_arrow()["id"].to_pylist() == [6]
        batch.commit()
        for version in range(7):
            (source.log / f"{version:020}.json").unlink(missing_ok=True)
        source.version = 8
        source._head = [source.protocol(["deletionVectors"]), source.metadata(COLUMNS)]
        write_checkpoint_at(source, 8)
        with pytest.raises(ChangesGoneError):
            poller.pull()


def write_checkpoint_at(source: ChangeTable, version: int) -> None:
    """Write a table whose log begins with a checkpoint of a later version."""
    from delta_sharing_client.log.checkpoint_writer import write_checkpoint

    source.version = -1
    source.commit(source.add("f9", rows(9)))
    write_checkpoint(ds.DeltaLog(source.root).snapshot())
    for path in list(source.log.iterdir()):
        if path.name.startswith(f"{0:020}."):
            path.rename(source.log / path.name.replace(f"{0:020}", f"{version:020}"))


def test_a_mirror_follows(table: SharedTable, source: ChangeTable, tmp_path: Path) -> None:
    mirror = table.mirror(tmp_path / "mirror")
    assert mirror.sync().changed
    assert sorted(mirror.scan().to_arrow()["id"].to_pylist()) == [0, 4, 5]
    assert not mirror.sync().changed
    source.commit(source.add("f5", rows(6)), source.remove("f2"))
    result = mirror.sync()
    assert (result.files_added, result.files_removed, result.shared_version) == (1, 1, 5)
    assert sorted(mirror.scan().to_arrow()["id"].to_pylist()) == [4, 5, 6]


def test_copies(table: SharedTable, tmp_path: Path) -> None:
    table.scan().materialize(tmp_path / "copy")
    assert len(list(ds.DeltaLog.for_table(tmp_path / "copy").snapshot().files)) == 2
    table.changes(starting_version=0).materialize(tmp_path / "changes")


def test_urls_cannot_be_written_down(table: SharedTable, tmp_path: Path) -> None:
    with pytest.raises(DirectoryAccessError, match=r"data='urls'"):
        table.scan().materialize(tmp_path / "copy", data="urls")


def test_a_table_by_url_is_not_asked_for_its_directory(shared: DirectoryServer, source: ChangeTable) -> None:
    with SharingServer({"s.d.t": source.root}) as server, SharingClient(server.profile) as client:
        poller = client.table("s.d.t").poll_changes(starting_version=0)
        assert poller.pull() is not None
        assert [request.path.rpartition("/")[2] for request in server.requests] == ["version", "changes"]
    assert shared.api.seen(f"{PATH}/temporary-table-credentials") == []
