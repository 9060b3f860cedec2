"""Changes of golden tables, copied to disk and read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from cdf.feed.change_tables import FIRST, HOUR, ChangeTable
from cdf.feed.change_tables import rows as span
from deltalake import DeltaTable

from delta_sharing_client import SharingClient
from delta_sharing_client.errors import BadRequestError, DeltaLogError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer

TABLES = Path(__file__).parents[2] / "golden" / "tables"
CASES = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(TABLES.glob("cdf*/case.json"))}
RANGES = [(name, span["first"], span["last"]) for name, case in CASES.items() for span in case["changes"]]


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in CASES}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


def rows(table: pa.Table) -> list[Any]:
    return sorted(zip(*([repr(value) for value in column.to_pylist()] for column in table.columns), strict=True))


@pytest.mark.parametrize(("name", "first", "last"), RANGES)
def test_a_copy_gives_the_same_changes(
    name: str, first: int, last: int, client: SharingClient, tmp_path: Path
) -> None:
    changes = client.table(f"golden.tables.{name}").changes(first, last)
    expected = changes.to_arrow()
    made = changes.materialize(tmp_path / "copy")
    assert (made.version, made.shared_version) == (last, last)
    with SharingServer({"a.b.c": made.path}) as server, SharingClient(server.profile) as other:
        found = other.table("a.b.c").changes(first, last).to_arrow()
    assert found.column_names == expected.column_names
    assert rows(found) == rows(expected)
    log = DeltaLog.for_table(made.path)
    assert [commit.version for commit in log.changes(first)] == list(range(first, last + 1))
    assert not (made.path / "_delta_sharing").exists()
    files = {path.name for path in (made.path / "_delta_log").iterdir()}
    assert (f"{first - 1:020}.checkpoint.parquet" in files) == (first > 0)
    with pytest.raises(DeltaLogError, match="already contains a Delta table"):
        changes.materialize(made.path)


@pytest.mark.parametrize("response_format", ["delta", "parquet"])
@pytest.mark.parametrize("name", ["cdf", "cdf_partitioned"])
def test_deltalake_reads_the_changes(
    name: str, response_format: Any, client: SharingClient, tmp_path: Path
) -> None:
    changes = client.table(f"golden.tables.{name}").changes(0, response_format=response_format)
    expected = changes.replace(commit_timestamp="timestamp").to_arrow()
    made = changes.materialize(tmp_path / "copy")
    found = pa.table(DeltaTable(made.path).load_cdf(starting_version=0).read_all())
    columns = [name for name in expected.column_names if name != "_commit_timestamp"]
    assert rows(found.select(columns)) == rows(expected.select(columns))
    times = {
        (row["_commit_version"], int(row["_commit_timestamp"].timestamp() * 1000)) for row in found.to_pylist()
    }
    assert times == {
        (row["_commit_version"], int(row["_commit_timestamp"].timestamp() * 1000)) for row in expected.to_pylist()
    }


def test_to_the_latest_version(client: SharingClient, tmp_path: Path) -> None:
    made = client.table("golden.tables.cdf").changes(2).materialize(tmp_path / "copy")
    assert made.version == CASES["cdf"]["latest"]


def test_whole_files_only(client: SharingClient, tmp_path: Path) -> None:
    table = client.table("golden.tables.cdf")
    column = table.schema().names[0]
    with pytest.raises(ValueError, match="the changes have columns"):
        table.changes(0, columns=[column]).materialize(tmp_path / "copy")
    with pytest.raises(BadRequestError):
        client.table("golden.tables.cdf_later").changes(0).materialize(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_old_commits_do_not_expire(tmp_path: Path) -> None:
    """The log of the copy has the times of the shared one; none of its commits is cleaned up as expired."""
    shared = ChangeTable(tmp_path / "shared")
    for version in range(25):
        shared.commit(shared.add(f"f{version}", span(version)))
    with SharingServer({"s.s.t": shared.root}) as server, SharingClient(server.profile) as client:
        changes = client.table("s.s.t").changes(0)
        made = changes.materialize(tmp_path / "copy")
        log = DeltaLog.for_table(made.path)
        assert [commit.timestamp for commit in log.changes(0)] == [FIRST + HOUR * version for version in range(25)]
        found = pa.table(DeltaTable(made.path).load_cdf(starting_version=0).read_all())
        assert sorted(found["id"].to_pylist()) == list(range(25)) == sorted(changes.to_arrow()["id"].to_pylist())
