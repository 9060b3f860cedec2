"""Names of partition values: their case may differ from the schema's, and they may be logical names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.model.partition_values import MISSING, partition_text
from delta_sharing_client.server import SharingServer

#: The names of the value of `Day` in the files, without column mapping and with it; the physical name is `col-D`.
SPELLED = {"none": ["Day", "day", "DAY"], "name": ["col-D", "COL-d", "Day", "dAY"]}
EXPECTED = [{"a": 0, "Day": None}, *({"a": n, "Day": f"d{n}"} for n in (1, 2, 3, 4))]


def table(root: Path, mode: str) -> Path:
    """A file for each spelling in turn; the value of the first one is null."""
    names = (SPELLED[mode] * 2)[: len(EXPECTED)]
    stored = "a" if mode == "none" else "col-a"
    files = [
        File(rows=pa.table({stored: [n]}), name=f"{n}.parquet", values={name: EXPECTED[n]["Day"]})
        for n, name in enumerate(names)
    ]
    fields = [column("a", "long"), column("Day", "string")]
    if mode == "none":
        return write_table(root / mode, fields, files, partitions=["Day"])
    for number, (field, physical) in enumerate(zip(fields, ("col-a", "col-D"), strict=True)):
        field["metadata"] |= {"delta.columnMapping.id": number + 1, "delta.columnMapping.physicalName": physical}
    properties = {"delta.columnMapping.mode": mode}
    return write_table(
        root / mode, fields, files, partitions=["Day"], configuration=properties, features=["columnMapping"]
    )


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {mode: table(tmp_path_factory.mktemp("spelled"), mode) for mode in SPELLED}


@pytest.fixture(scope="module")
def server(serve: Callable[..., SharingServer], roots: dict[str, Path]) -> SharingServer:
    return serve({f"s.s.{mode}": root for mode, root in roots.items()})


@pytest.fixture(params=list(SPELLED))
def mode(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture
def shared(server: SharingServer, connect: Callable[..., SharingClient], mode: str) -> ds.SharedTable:
    return connect(server).table(f"s.s.{mode}")


def in_order(rows: pa.Table) -> list[dict[str, Any]]:
    return sorted(rows.select(["a", "Day"]).to_pylist(), key=lambda row: row["a"])


def test_each_loader_has_the_values(shared: ds.SharedTable, tmp_path: Path) -> None:
    scan = shared.scan()
    assert in_order(scan.to_arrow()) == EXPECTED
    assert in_order(pl.DataFrame(scan.to_polars()).to_arrow()) == EXPECTED
    assert in_order(scan.to_dataset().to_table()) == EXPECTED
    with duckdb.connect() as connection:
        assert in_order(scan.to_duckdb(connection).to_arrow_table()) == EXPECTED


def test_a_filter_finds_the_rows(shared: ds.SharedTable) -> None:
    for row in EXPECTED:
        rows = in_order(shared.to_arrow(filters=[("Day", "is" if row["Day"] is None else "=", row["Day"])]))
        assert rows == [row]


def test_the_embedded_server_skips_files_by_hints(server: SharingServer, shared: ds.SharedTable) -> None:
    text = '{"op": "equal", "children": [{"op": "column", "name": "Day", "valueType": "string"}, %s]}'
    hints = text % '{"op": "literal", "value": "d3", "valueType": "string"}'
    assert shared.scan(json_predicate_hints=hints).to_arrow()["a"].to_pylist() == [3]


def test_local_tables_have_the_physical_names(shared: ds.SharedTable, mode: str, tmp_path: Path) -> None:
    """Other engines look values up by the exact names."""
    mirror = shared.mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    assert in_order(shared.scan().mirrored(tmp_path / "mirror").to_arrow()) == EXPECTED
    shared.scan().materialize(tmp_path / "files")
    for name in ("mirror", "files"):
        snapshot = ds.DeltaLog.for_table(tmp_path / name).snapshot()
        assert {tuple(file.partition_values) for file in snapshot.files} == {(SPELLED[mode][0],)}
        assert in_order(snapshot.to_arrow()) == EXPECTED


def test_a_snapshot_of_a_log_has_the_values(roots: dict[str, Path], mode: str) -> None:
    assert in_order(ds.DeltaLog.for_table(roots[mode]).snapshot().to_arrow()) == EXPECTED


def test_an_exact_name_comes_before_one_in_another_case() -> None:
    values = {"A": "1", "a": "2", "b": "3"}
    assert partition_text(values, "A", "b") == "1"
    assert partition_text(values, "a", "b") == "2"
    assert partition_text(values, "c", "B") == "3"
    assert partition_text(values, "c", "d") is MISSING
    assert partition_text({"B": None}, "c", "b") is None
