"""Limits on servers that count deleted rows for `limitHint`: the result has as many rows as the table has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pytest
from loading_tables import File, column, write_table

from delta_sharing_client import SharedTable, SharingClient
from delta_sharing_client.server import ServerOptions, SharingServer
from delta_sharing_client.table.table_scan import TableScan

COLUMNS: Final = [column("id", "long")]
FEATURES: Final = ["deletionVectors"]
#: Of ten rows each, one is left in the first three files, and all in the fourth.
LEFT: Final = [0, 10, 20, *range(30, 40)]


def files(stats: Any = "rows", vector: list[int] | None = None, **options: Any) -> list[File]:
    made = []
    for n in range(4):
        rows = pa.table({"id": pa.array(range(n * 10, n * 10 + 10), pa.int64())})
        deleted = vector if n < 3 else None
        made.append(File(rows=rows, name=f"{n}.parquet", stats=stats, vector=deleted, **options))
    return made


@pytest.fixture(scope="module", params=[None, 2], ids=["one page", "pages"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, serve: Callable[..., SharingServer]
) -> SharingServer:
    root = tmp_path_factory.mktemp("tables")
    most = list(range(1, 10))
    tables = {
        "s.s.vectors": write_table(root / "vectors", COLUMNS, files(vector=most), features=FEATURES),
        "s.s.unknown": write_table(root / "unknown", COLUMNS, files(stats=None, vector=most), features=FEATURES),
        "s.s.plain": write_table(root / "plain", COLUMNS, files()),
        "s.s.small": write_table(root / "small", COLUMNS, files(vector=most)[:2], features=FEATURES),
    }
    return serve(tables, options=ServerOptions(limit_counts_deleted_rows=True, max_files_per_page=request.param))


@pytest.fixture
def table(server: SharingServer, connect: Callable[..., SharingClient]) -> SharedTable:
    server.reset_requests()
    return connect(server).table("s.s.vectors")


def hints(server: SharingServer) -> list[int | None]:
    """The limit hints of the queries, without those of further pages."""
    bodies = [request.body for request in server.requests if request.path.endswith("/query")]
    return [body.get("limitHint") for body in bodies if "pageToken" not in body]


LOADS: Final[dict[str, Callable[[TableScan, int], int]]] = {
    "arrow": lambda scan, limit: scan.replace(limit=limit).to_arrow().num_rows,
    "pandas": lambda scan, limit: len(scan.replace(limit=limit).to_pandas()),
    "count": lambda scan, limit: scan.replace(limit=limit).count(),
    "head": lambda scan, limit: len(scan.table.head(limit)),
    "batches": lambda scan, limit: scan.replace(limit=limit).to_record_batch_reader().read_all().num_rows,
    "dataset": lambda scan, limit: scan.to_dataset().head(limit).num_rows,
    "polars": lambda scan, limit: scan.to_polars_lazy().head(limit).collect().height,
    "files": lambda scan, limit: min(
        limit, sum(file.row_count or 0 for file in scan.replace(limit=limit).files())
    ),
}


@pytest.mark.parametrize("load", LOADS.values(), ids=LOADS)
def test_every_load_has_as_many_rows(
    server: SharingServer, table: SharedTable, load: Callable[[TableScan, int], int]
) -> None:
    for limit in (1, 2, 5, 12, 13, 14, 10**9):
        server.reset_requests()
        assert load(table.scan(), limit) == min(limit, len(LEFT))
        sent = min(limit, 2**31 - 1)
        # The first listed file has one row left, and so has each of the next two; the last limit lists all files.
        assert hints(server) == ([sent] if limit in (1, 10**9) else [sent, None])


def test_the_rows_are_the_first_ones(table: SharedTable) -> None:
    for limit in (1, 2, 5, 12, 13, 14):
        assert table.to_arrow(limit=limit)["id"].to_pylist() == LEFT[:limit]


def test_only_the_files_of_the_first_rows_are_planned(server: SharingServer, table: SharedTable) -> None:
    assert len(table.scan(limit=2).files()) == 2
    assert "2" in str(table.scan(limit=2).explain())
    server.reset_requests()
    assert table.to_arrow(limit=2).num_rows == 2
    assert len({request.path for request in server.requests if request.is_file}) <= 4  # with two vectors


def test_files_without_row_counts(server: SharingServer, connect: Callable[..., SharingClient]) -> None:
    table = connect(server).table("s.s.unknown")
    for limit in (1, 5, 13, 20):
        assert table.to_arrow(limit=limit)["id"].to_pylist() == LEFT[:limit]
        assert table.count(limit=limit) == min(limit, len(LEFT))


def test_a_table_with_fewer_rows(server: SharingServer, connect: Callable[..., SharingClient]) -> None:
    server.reset_requests()
    assert connect(server).table("s.s.small").to_arrow(limit=5)["id"].to_pylist() == LEFT[:2]
    assert hints(server) == [5, None]


def test_without_deletion_vectors_one_request_is_enough(
    server: SharingServer, connect: Callable[..., SharingClient]
) -> None:
    for limit in (1, 15, 40, 41):
        server.reset_requests()
        assert connect(server).table("s.s.plain").count(limit=limit) == min(limit, 40)
        assert hints(server) == [limit]


def test_too_few_rows_of_a_table_without_a_number_of_files(
    tmp_path: Path, serve: Callable[..., SharingServer], connect: Callable[..., SharingClient]
) -> None:
    tables = {
        "s.s.plain": write_table(tmp_path / "plain", COLUMNS, files()),
        "s.s.unknown": write_table(tmp_path / "unknown", COLUMNS, files(stats=None)),
    }
    server = serve(tables, options=ServerOptions(totals="none"))
    for name, limit, sent in (
        ("plain", 40, [40]),
        ("plain", 41, [41, None]),
        ("unknown", 41, [41]),  # the server could not count rows either
    ):
        server.reset_requests()
        assert connect(server).table(f"s.s.{name}").to_arrow(limit=limit).num_rows == 40
        assert hints(server) == sent


def test_a_version(server: SharingServer, table: SharedTable) -> None:
    assert table.to_arrow(limit=5, version=0)["id"].to_pylist() == LEFT[:5]
    assert hints(server) == [5, None]


def test_spark_partitions(table: SharedTable) -> None:
    from delta_sharing_client.spark.partition_plan import divide

    parts = divide(table.scan(limit=5).plan(), 1)
    assert [(len(part.tasks), part.limit) for part in parts] == [(3, None), (1, 2)]
