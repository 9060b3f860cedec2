"""Deletion vectors in changes: files that carry one, and what replacing one deletes and restores."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_tables import ChangeTable, change_rows, expect, rows

import delta_sharing_client as ds
from delta_sharing_client.parquet.tasks import SelectionVector
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]


@pytest.fixture(params=["inline", "stored"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> ChangeTable:
    """A file of ten rows whose vector grows, shrinks, moves and is removed; then the file is removed."""
    table = ChangeTable(tmp_path / "t", features=["deletionVectors"])

    def vector(version: int, *positions: int) -> dict[str, Any]:
        return table.vector(*positions, name=f"v{version}.bin" if request.param == "stored" else None)

    v1, v2, v3, v4 = vector(1, 0, 1), vector(2, 0, 1, 9), vector(3, 9), vector(4, 3, 4)
    table.commit(table.add("f", rows(*range(10))))
    table.commit(table.remove("f"), table.add("f", vector=v1))
    table.commit(table.add("f", vector=v2), table.remove("f", vector=v1))
    table.commit(table.remove("f", vector=v2), table.add("f", vector=v3))
    table.commit(table.remove("f", vector=v3), table.add("f", vector=v4))
    table.commit(table.remove("f", vector=v4), table.add("f", vector=v4))
    table.commit(table.remove("f", vector=v4), table.add("f"))
    table.commit(table.remove("f"), table.add("f", vector=v1), table.add("g", rows(20)))
    table.commit(table.remove("f", vector=v1))
    table.commit(table.add("f", vector=v3))
    return table


EXPECTED = {
    0: expect(0, "insert", range(10)),
    1: expect(1, "delete", [0, 1]),
    2: expect(2, "delete", [9]),
    3: expect(3, "insert", [0, 1]),
    4: [*expect(4, "delete", [3, 4]), (4, "insert", 9)],
    5: [],
    6: expect(6, "insert", [3, 4]),
    7: [*expect(7, "delete", [0, 1]), (7, "insert", 20)],
    8: expect(8, "delete", range(2, 10)),
    9: expect(9, "insert", range(9)),
}


def test_each_version(table: ChangeTable, share: Share) -> None:
    shared = share(table.root)
    for version, expected in EXPECTED.items():
        changes = shared.changes(version, version)
        assert change_rows(changes.to_arrow()) == expected
        assert changes.count() == len(expected)


def test_the_whole_range(table: ChangeTable, share: Share) -> None:
    shared = share(table.root)
    changes = shared.changes(0).to_arrow()
    assert change_rows(changes) == [row for version in EXPECTED.values() for row in version]
    assert changes.column("s").to_pylist() == [str(i) for i in changes.column("id").to_pylist()]
    paged = share(table.root, max_files_per_page=1).changes(0).to_arrow()
    assert change_rows(paged) == change_rows(changes)


def test_applying_all_changes_gives_the_table(table: ChangeTable, share: Share) -> None:
    shared = share(table.root)
    held: set[int] = set()
    for version in EXPECTED:
        for _, kind, i in change_rows(shared.changes(version, version).to_arrow()):
            (held.add if kind == "insert" else held.remove)(i)
        assert sorted(shared.scan(version=version).to_arrow().column("id").to_pylist()) == sorted(held)


def test_a_file_without_restored_rows_is_not_fetched(tmp_path: Path) -> None:
    table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
    old, new = table.vector(0), table.vector(0, 5)
    table.commit(table.add("f", rows(*range(10)), vector=old))
    table.commit(table.remove("f", vector=old), table.add("f", vector=new))
    with SharingServer({"s.s.t": table.root}) as server, ds.SharingClient(server.profile) as client:
        assert change_rows(client.table("s.s.t").changes(1).to_arrow()) == [(1, "delete", 5)]
        assert sum(request.is_file for request in server.requests) == 1


def test_a_large_file_is_fetched_only_where_rows_changed(tmp_path: Path) -> None:
    """Of a file in pieces, row groups without a changed row stay where they are."""
    table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
    count = 400_000
    wide = pa.table(
        {"id": pa.array(range(count), pa.int64()), "s": [f"{i * 7919 % 999_983:x}" * 8 for i in range(count)]}
    )
    vector = table.vector(3, count - 2)
    table.commit(table.add("f", wide, row_group_size=20_000, compression="none", use_dictionary=False))
    table.commit(table.remove("f"), table.add("f", vector=vector))
    size = (table.root / "f").stat().st_size
    assert size > 12 * 1024 * 1024
    with SharingServer({"s.s.t": table.root}) as server, ds.SharingClient(server.profile) as client:
        changes = client.table("s.s.t").changes(1).to_arrow()
        fetched = sum(request.bytes_sent for request in server.requests if request.is_file)
    assert change_rows(changes) == expect(1, "delete", [3, count - 2])
    assert changes.column("s").to_pylist() == [wide.column("s")[i].as_py() for i in (3, count - 2)]
    assert fetched < size / 5


def test_tasks_have_selection_vectors(table: ChangeTable, share: Share) -> None:
    first, second = share(table.root).changes(4, 4).files()
    assert [task.constants["_change_type"] for task in (first, second)] == ["delete", "insert"]
    assert isinstance(first.selection, SelectionVector)
    assert (first.selection.vector.cardinality, first.deletion_vector and first.deletion_vector.cardinality) == (
        2,
        1,
    )
    assert first.row_count is None
    (restored,) = share(table.root).changes(6, 6).files()
    assert (restored.row_count, restored.deletion_vector) == (2, None)


def test_a_vector_beyond_the_end_of_its_file_raises(tmp_path: Path, share: Share) -> None:
    table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
    table.commit(table.add("f", rows(1, 2)))
    table.commit(table.remove("f"), table.add("f", vector=table.vector(7)))
    with pytest.raises(ds.errors.DataError, match="row 7 of a file of 2 rows"):
        share(table.root).changes(1).to_arrow()
