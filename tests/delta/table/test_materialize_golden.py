"""Every golden table, copied to disk and read back by another engine or from another server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.table.materialize_snapshot import Materialized
from delta_sharing_client.log import DeltaLog, resolve_path
from delta_sharing_client.server import SharingServer

pytestmark = pytest.mark.slow

TABLES = Path(__file__).parents[2] / "golden" / "tables"
CASES = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(TABLES.glob("*/case.json"))}


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in CASES}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


def rows(table: pa.Table) -> list[Any]:
    """Rows that compare exactly, in an order that does not depend on how files are ordered."""
    columns = [[repr(plain(value)) for value in column] for column in table.columns]
    return sorted(zip(*columns, strict=True))


def plain(value: pa.Scalar) -> Any:
    """A value that compares exactly; times beyond those of Python as numbers."""
    kind = value.type
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date32(kind):
        return value.value
    if pa.types.is_struct(kind):
        return [plain(item) for item in value.values()]
    if pa.types.is_map(kind) or pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return [plain(item) for item in value.values] if len(value) else []
    return value.as_py()


@pytest.fixture(scope="module")
def copies(client: SharingClient, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Materialized]:
    directory = tmp_path_factory.mktemp("copies")
    return {
        name: client.table(f"golden.tables.{name}").scan().materialize(directory / name, progress=False)
        for name in CASES
    }


@pytest.fixture(scope="module")
def again(copies: dict[str, Materialized]) -> Iterator[SharingClient]:
    """A client of a server that shares the copies."""
    tables = {f"a.b.{name}": made.path for name, made in copies.items()}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


@pytest.mark.parametrize("name", CASES)
def test_a_copy_has_the_rows_of_the_shared_table(
    name: str, client: SharingClient, again: SharingClient, copies: dict[str, Materialized]
) -> None:
    shared, copied = client.table(f"golden.tables.{name}").scan(), again.table(f"a.b.{name}").scan()
    expected, found = shared.to_arrow(), copied.to_arrow()
    assert found.schema == expected.schema
    assert rows(found) == rows(expected)
    made = copies[name]
    assert (made.version, made.shared_version) == (0, CASES[name]["latest"])
    snapshot = DeltaLog.for_table(made.path).snapshot()
    assert made.files == len(snapshot.files)
    for file in snapshot.files:
        assert resolve_path(made.path, file.path).stat().st_size == file.size
    assert not (made.path / "_delta_sharing").exists()
    assert not [path for path in made.path.rglob("*") if path.name.startswith(".") or "part." in path.name]
    assert set(snapshot.protocol.reader_features) == set(snapshot.protocol.writer_features)
    properties = " ".join(snapshot.metadata.configuration).lower()
    for writers_only in ("constraints", "appendonly", "rowtracking", "changedatafeed", "icebergcompat", "feature"):
        assert writers_only not in properties


DELTALAKE = ("partition_types", "special_names", "dv_delete", "dv_shared_file", "dv_inline", "nested", "emptied")


@pytest.mark.parametrize("name", DELTALAKE)
def test_copies_are_read_by_deltalake(name: str, client: SharingClient, copies: dict[str, Materialized]) -> None:
    expected = client.table(f"golden.tables.{name}").scan().to_arrow()
    table = DeltaTable(copies[name].path)
    found = pa.table(QueryBuilder().register("t", table).execute("select * from t"))
    assert rows(found.select(expected.column_names)) == rows(expected)
