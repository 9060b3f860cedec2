"""Scans: rows, columns, limits, filters, readers, counts, descriptions."""

from __future__ import annotations

import gc
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hint_servers import Reference
from loading_tables import File, column, count_from_here, load_threads, write_table
from waiting import wait_until

import delta_sharing_client as ds
from delta_sharing_client import SharingClient, TableScan
from delta_sharing_client.errors import ColumnError, DataError, DeltaSharingError, FilterError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer

FILES = 40
ROWS = 25


def small_file(number: int) -> File:
    ids = range(number * ROWS, (number + 1) * ROWS)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "word": [f"w{n % 7}" if n % 5 else None for n in ids]})
    stats: Any = {
        "numRecords": ROWS,
        "minValues": {"id": ids[0]},
        "maxValues": {"id": ids[-1]},
        "nullCount": {"id": 0},
    }
    # Neither in the order of their names nor of their rows; a third of them without statistics.
    return File(
        rows=rows,
        name=f"p={number % 4}/f{97 * (number + 3) % 101}.parquet",
        values={"p": str(number % 4)},
        stats=None if number % 3 == 0 else stats,
    )


ORDER = [number * 7 % FILES for number in range(FILES)]
COLUMNS = [column("id", "long"), column("word", "string"), column("p", "integer")]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("scans")


@pytest.fixture(scope="module")
def server(root: Path, serve: Callable[..., SharingServer]) -> SharingServer:
    damaged = write_table(
        root / "damaged", COLUMNS[:2], [File(rows=small_file(n).rows, name=f"{n}.parquet") for n in range(4)]
    )
    (damaged / "2.parquet").write_bytes(bytes((damaged / "2.parquet").stat().st_size))
    return serve(
        {
            "s.s.many": write_table(
                root / "many", COLUMNS, [small_file(number) for number in ORDER], partitions=["p"]
            ),
            "s.s.damaged": damaged,
        }
    )


@pytest.fixture(scope="module")
def client(server: SharingServer, connect: Callable[..., SharingClient]) -> SharingClient:
    return connect(server)


@pytest.fixture(scope="module")
def served(client: SharingClient) -> list[int]:
    """The ids in the order of the server's files, which need not be that of the log."""
    tasks = client.table("s.s.many").scan().files()
    firsts = {
        task.file_id: [batch["id"][0].as_py() for batch in read_one(client, n)] for n, task in enumerate(tasks)
    }
    return [first + n for task in tasks for first in firsts[task.file_id] for n in range(ROWS)]


def read_one(client: SharingClient, position: int) -> list[pa.RecordBatch]:
    """The batches of one file of the answer, read apart from the others."""
    from msgspec.structs import replace

    scan = client.table("s.s.many").scan(columns=["id"])
    plan = scan.plan()
    alone = replace(plan, tasks=[plan.tasks[position]])
    return list(alone.read(scan.table._rest, scan.table._storage))


@pytest.fixture
def scan(client: SharingClient) -> TableScan:
    return client.table("s.s.many").scan()


def file_requests(server: SharingServer) -> list[Any]:
    return [request for request in server.requests if request.is_file]


class TestRows:
    def test_rows_are_in_the_order_of_the_server(
        self, scan: TableScan, served: list[int], response_format: Any
    ) -> None:
        assert sorted(served) == list(range(FILES * ROWS))
        assert served != sorted(served)
        for _ in range(3):
            assert scan.replace(response_format=response_format).to_arrow()["id"].to_pylist() == served

    @pytest.mark.parametrize("limit", [0, 1, ROWS - 1, ROWS, ROWS + 1, 3 * ROWS + 5, FILES * ROWS, 10**9])
    def test_a_limit_is_exact(self, scan: TableScan, served: list[int], limit: int, response_format: Any) -> None:
        limited = scan.replace(limit=limit, columns=["id"], response_format=response_format)
        assert limited.to_arrow()["id"].to_pylist() == served[:limit]

    def test_a_limit_counts_rows_after_the_filter(self, scan: TableScan, served: list[int]) -> None:
        found = scan.replace(limit=30, filters=[("word", "=", "w3")], columns=["id"]).to_arrow()
        assert found["id"].to_pylist() == [n for n in served if n % 7 == 3 and n % 5][:30]

    def test_a_small_file_takes_one_get(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        scan.to_arrow()
        requests = file_requests(server)
        assert len(requests) == FILES == len({request.path for request in requests})
        assert {(request.method, request.range, request.status) for request in requests} == {("GET", None, 200)}
        api = [
            (request.method, request.path.rpartition("/")[2]) for request in server.requests if not request.is_file
        ]
        assert api == [("POST", "query")]
        assert not any(request.has_authorization for request in requests)

    def test_a_limit_fetches_few_files(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        assert scan.replace(limit=ROWS, filters=[("word", "is not", None)]).to_arrow().num_rows == ROWS
        assert len(file_requests(server)) <= 8
        count_from_here(server)
        assert scan.replace(limit=0).to_arrow().num_rows == 0
        assert file_requests(server) == []

    def test_one_shot_iterables_are_kept(self, scan: TableScan, served: list[int]) -> None:
        """A filter is bound more than once, and a scan may be read more than once."""
        wanted = served[1:4]
        for values in (iter(wanted), (i for i in wanted), map(int, wanted)):
            some = scan.replace(columns=["id"], filters=[("id", "in", values)])
            assert some.count() == some.count() == len(wanted)
            assert sorted(some.to_arrow()["id"].to_pylist()) == sorted(wanted)
        rest = scan.replace(filters=[[("id", "not in", iter(wanted))]])
        assert rest.count() == len(served) - len(wanted)

    def test_a_filter_fetches_only_the_files_that_may_match(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        found = scan.replace(filters=[("p", "=", 1), ("id", ">=", 900)]).to_arrow()
        files = [number for number in range(FILES) if number % 4 == 1]
        assert sorted(found["id"].to_pylist()) == [n for n in range(900, 1000) if n // ROWS % 4 == 1]
        unknown = [number for number in files if number % 3 == 0]
        matching = [number for number in files if number >= 36 and number % 3]
        assert len(file_requests(server)) == len(unknown) + len(matching)

    @pytest.mark.parametrize(
        ("term", "kept"),
        [
            (("id", ">=", 900), range(36, FILES)),
            (("id", "!=", 7), range(FILES)),
            (("id", "in", [30, 31, 999]), [1, FILES - 1]),
        ],
    )
    def test_a_server_that_reads_statistics_can_prune_by_the_hints(
        self, server: SharingServer, root: Path, scan: TableScan, term: tuple[str, str, Any], kept: Sequence[int]
    ) -> None:
        """It leaves in the files that the client would read if it prunes on its own, as it does here."""
        unknown = {number for number in range(FILES) if number % 3 == 0}
        left_in = len(unknown.union(kept))
        count_from_here(server)
        assert f"{FILES - left_in} by statistics), {left_in} to read" in scan.replace(filters=[term]).explain()
        (body,) = [request.body for request in server.requests if request.body]
        files = DeltaLog.for_table(root / "many").snapshot().files
        hint = body["jsonPredicateHints"]
        assert sum(Reference({}, add.stats).keeps(hint) for add in files) == left_in

    def test_json_hints_prune_files_and_filter_no_rows(
        self, server: SharingServer, scan: TableScan, served: list[int]
    ) -> None:
        def hint(name: str, value: str) -> str:
            children = [
                {"op": "column", "name": name, "valueType": "int"},
                {"op": "literal", "value": value, "valueType": "int"},
            ]
            return json.dumps({"op": "equal", "children": children})

        count_from_here(server)
        found = scan.replace(json_predicate_hints=hint("p", "2"), columns=["id"]).to_arrow()
        assert found["id"].to_pylist() == [n for n in served if n // ROWS % 4 == 2]
        assert len(file_requests(server)) == FILES // 4
        (query,) = [request for request in server.requests if not request.is_file]
        assert query.body["jsonPredicateHints"] == hint("p", "2")
        assert set(query.body) == {"jsonPredicateHints", "includeRefreshToken"}
        by_id = scan.replace(json_predicate_hints=hint("id", "30"), columns=["id"]).to_arrow()["id"].to_pylist()
        assert set(range(25, 50)) <= set(by_id)
        for malformed in ("", "{not json", "[]", "null", "1", "[" * 10**5):
            with pytest.raises(FilterError, match="jsonPredicateHints is not a JSON object"):
                scan.replace(json_predicate_hints=malformed)
        both = scan.replace(json_predicate_hints=hint("p", "2"), filters=[("id", "<", 200)], columns=["id"])
        assert sorted(both.to_arrow()["id"].to_pylist()) == [n for n in range(200) if n // ROWS % 4 == 2]


class TestColumns:
    def test_columns_are_in_the_requested_order_in_any_case(self, scan: TableScan) -> None:
        assert scan.replace(columns=["P", "word", "ID"]).to_arrow().column_names == ["p", "word", "id"]
        assert list(scan.replace(columns=["p", "id"]).to_pandas().columns) == ["p", "id"]
        assert scan.replace(columns=["p", "id"]).schema == pa.schema([("p", pa.int32()), ("id", pa.int64())])

    def test_empty_list_of_columns(self, scan: TableScan) -> None:
        bare = scan.replace(columns=[])
        assert (bare.to_arrow().num_rows, bare.to_arrow().num_columns) == (FILES * ROWS, 0)
        assert bare.to_pandas().shape == (FILES * ROWS, 0)
        assert bare.replace(limit=33).to_arrow().num_rows == 33
        assert bare.replace(filters=[("id", "<", 33)]).to_pandas().shape == (33, 0)
        assert bare.to_record_batch_reader().read_all().num_rows == FILES * ROWS

    def test_only_partition_columns(self, scan: TableScan) -> None:
        values = scan.replace(columns=["p"]).to_arrow()["p"].to_pylist()
        assert sorted(values) == sorted([0, 1, 2, 3] * (FILES * ROWS // 4))

    @pytest.mark.parametrize(
        ("columns", "named"),
        [(["id", "ID"], "'ID' twice"), (["nope", "id", "no"], "'nope', 'no'; it has id, word, p")],
    )
    def test_duplicates_and_unknown_ones_are_named(
        self, server: SharingServer, scan: TableScan, columns: list[str], named: str
    ) -> None:
        count_from_here(server)
        for limit in (None, 0):
            with pytest.raises(ColumnError, match=named):
                scan.replace(columns=columns, limit=limit).to_arrow()
        assert file_requests(server) == []

    def test_single_text_as_columns_raises(self, scan: TableScan) -> None:
        with pytest.raises(TypeError, match=r"\['id'\]"):
            scan.replace(columns="id")


@pytest.mark.parametrize(
    ("filters", "error"),
    [
        ([("nope", "=", 1)], ColumnError),
        ([("id", "~", 1)], FilterError),
        ([("id", "=", "twelve")], FilterError),
        ([("id", "=", None)], FilterError),
        ([("id", "in", 5)], FilterError),
        ([("word", "=", 5)], FilterError),
        ([[]], FilterError),
        ([("id", "=")], FilterError),
        ([("id", "is", 5)], FilterError),
    ],
)
def test_invalid_filters_fetch_nothing(
    server: SharingServer, scan: TableScan, filters: Any, error: type[Exception]
) -> None:
    count_from_here(server)
    with pytest.raises(error) as caught:
        scan.replace(filters=filters).to_arrow()
    assert "\n" not in str(caught.value)
    assert file_requests(server) == []


class TestReader:
    def test_reader_streams_batches(self, server: SharingServer, scan: TableScan, served: list[int]) -> None:
        reader = scan.to_record_batch_reader()
        assert reader.schema == scan.schema
        count_from_here(server)
        seen: list[int] = []
        for batch in reader:
            assert batch.num_rows
            seen += batch["id"].to_pylist()
        assert seen == served
        assert len(file_requests(server)) == FILES

    def test_fetches_nothing_before_it_is_read(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        reader = scan.to_record_batch_reader()
        assert file_requests(server) == []
        del reader

    def test_abandoned_reader_leaves_no_thread(self, scan: TableScan) -> None:
        reader = scan.to_record_batch_reader()
        reader.read_next_batch()
        reader.close()
        del reader
        gc.collect()
        wait_until(lambda: not load_threads(), load_threads)

    def test_errors_of_the_query_are_raised_at_once(self, scan: TableScan) -> None:
        with pytest.raises(DeltaSharingError, match="there is no version 99"):
            scan.replace(version=99).to_record_batch_reader()

    def test_c_stream_can_be_exported_repeatedly(self, scan: TableScan, served: list[int]) -> None:
        for _ in range(2):
            assert pa.RecordBatchReader.from_stream(scan).read_all()["id"].to_pylist() == served
            assert pl.DataFrame(scan)["id"].to_list() == served
        assert pa.table(scan)["id"].to_pylist() == served


class TestAbout:
    def test_count(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        assert scan.count() == FILES * ROWS
        listed_without_statistics = len([number for number in range(FILES) if number % 3 == 0])
        assert len(file_requests(server)) == listed_without_statistics
        assert scan.replace(limit=7).count() == 7
        assert scan.replace(filters=[("id", ">=", 500), ("word", "is", None)]).count() == 100
        assert scan.replace(filters=[("word", "is", None)], limit=3).count() == 3
        assert scan.replace(columns=[]).count() == FILES * ROWS

    def test_files(self, scan: TableScan) -> None:
        tasks = scan.files()
        assert len(tasks) == FILES
        assert {task.num_records for task in tasks} == {None, ROWS}
        assert len(scan.replace(filters=[("p", "=", 3)]).files()) == FILES // 4

    def test_explain(self, server: SharingServer, scan: TableScan) -> None:
        count_from_here(server)
        text = scan.replace(filters=[("p", "in", [1, 2]), ("id", "<", 100)], columns=["word"]).explain()
        assert file_requests(server) == []
        assert "s.s.many, version 0" in text
        assert "word" in text
        expected = [number for number in range(FILES) if number % 4 in (1, 2) and (number < 4 or number % 3 == 0)]
        assert f"{len(expected)} to read" in text
        assert "?" not in text

    def test_replace(self, scan: TableScan) -> None:
        changed = scan.replace(columns=["id"], limit=3)
        options = changed.options
        assert (options.columns, options.limit, options.filters) == (("id",), 3, None)
        assert (scan.options.columns, scan.options.limit) == (None, None)
        assert changed.replace(limit=None, columns=None) == scan
        with pytest.raises(TypeError, match="colums"):
            scan.replace(colums=["id"])
        with pytest.raises(ValueError, match="together"):
            scan.replace(version=0, timestamp="2024-01-01T00:00:00Z")
        with pytest.raises(ValueError, match="limit is -1"):
            scan.replace(limit=-1)
        with pytest.raises(TypeError, match="limit is an int"):
            scan.replace(limit=1.5)
        with pytest.raises(ValueError, match="response_format"):
            scan.replace(response_format="csv")

    def test_equal_scans(self, client: SharingClient, scan: TableScan) -> None:
        assert scan == client.table(("s", "s", "many")).scan()
        assert scan != scan.replace(limit=1)


@pytest.fixture(scope="module")
def url(server: SharingServer, tmp_path_factory: pytest.TempPathFactory) -> str:
    profile = server.write_profile(tmp_path_factory.mktemp("profile") / "a#b.share")
    return f"{profile}#s.s.many"


class TestFunctions:
    """The functions of the official client, and those beside them."""

    def test_all_functions_return_the_same_rows(self, url: str, served: list[int]) -> None:
        wanted: dict[str, Any] = {"columns": ["id", "p"], "filters": [("id", ">=", 100)], "limit": 50}
        expected = [n for n in served if n >= 100][:50]
        assert ds.load_as_arrow(url, **wanted)["id"].to_pylist() == expected
        assert ds.load_as_pandas(url, **wanted)["id"].tolist() == expected
        assert ds.load_as_polars(url, **wanted)["id"].to_list() == expected
        with duckdb.connect() as connection:
            relation = ds.load_as_duckdb(url, connection, **wanted)
            assert [row[0] for row in relation.fetchall()] == expected

    def test_the_official_clients_arguments_in_its_order(self, url: str) -> None:
        hint = json.dumps({"op": "isNull", "children": [{"op": "column", "name": "p", "valueType": "int"}]})
        frame = ds.load_as_pandas(url, 5, None, None, hint, True, True)
        assert frame.empty
        assert ds.load_as_pandas(url, 5, 0, None, None, False).shape == (5, 3)
        assert ds.load_as_arrow(url, use_delta_format=True).num_rows == FILES * ROWS
        assert ds.get_table_version(url) == 0
        assert ds.get_table_protocol(url, use_delta_format=False).min_reader_version == 1
        assert ds.get_table_metadata(url).partition_columns == ("p",)

    def test_a_profile_of_the_environment(
        self, url: str, monkeypatch: pytest.MonkeyPatch, served: list[int]
    ) -> None:
        monkeypatch.setenv("DELTA_SHARING_PROFILE", url.rpartition("#")[0])
        assert ds.load_as_arrow("#s.s.many", limit=3)["id"].to_pylist() == served[:3]

    def test_duckdb_runs_the_scan_each_time(self, server: SharingServer, scan: TableScan) -> None:
        with duckdb.connect() as connection:
            relation = scan.replace(columns=["id", "p"], filters=[("p", "!=", 0)]).to_duckdb(connection)
            grouped = relation.aggregate("p, count(*) AS n, max(id) AS top").order("p")
            expected = [(1, 250, 949), (2, 250, 974), (3, 250, 999)]
            assert grouped.fetchall() == expected
            count_from_here(server)
            assert relation.aggregate("p, count(*) AS n, max(id) AS top").order("p").fetchall() == expected
            assert len(file_requests(server)) == FILES * 3 // 4

    def test_duckdb_has_no_relations_without_columns(self, url: str, scan: TableScan) -> None:
        with duckdb.connect() as connection:
            for load in (
                lambda: ds.load_as_duckdb(url, connection, columns=[]),
                lambda: scan.replace(columns=[]).to_duckdb(connection),
                lambda: scan.replace(columns=[], limit=0).to_duckdb(connection),
            ):
                with pytest.raises(ds.errors.ColumnError, match=r"at least one column.* count\(\)"):
                    load()

    def test_duckdb_error_for_columns_is_raised_unchanged(self, url: str, scan: TableScan) -> None:
        with duckdb.connect() as connection:
            with pytest.raises(ds.errors.NotFoundError, match="nowhere"):
                ds.load_as_duckdb(url.replace("s.s.many", "s.s.nowhere"), connection)
            with pytest.raises(ds.errors.ColumnError, match="no column 'nope'"):
                scan.replace(columns=["nope"]).to_duckdb(connection)

    def test_duckdb_can_stop_early(self, scan: TableScan) -> None:
        with duckdb.connect() as connection:
            assert len(scan.to_duckdb(connection).limit(5).fetchall()) == 5
        gc.collect()
        wait_until(lambda: not load_threads(), load_threads)


class TestDamage:
    def test_every_loader_raises_the_same_error(self, client: SharingClient) -> None:
        scan = client.table("s.s.damaged").scan()
        for load in (scan.to_arrow, scan.to_pandas, scan.to_polars):
            with pytest.raises(DataError, match="not a readable Parquet file") as caught:
                load()
            assert caught.value.file_id == scan.files()[2].file_id
        with duckdb.connect() as connection, pytest.raises(duckdb.Error, match="not a readable Parquet file"):
            scan.to_duckdb(connection).fetchall()

    def test_rows_before_the_damage_are_returned(self, client: SharingClient) -> None:
        scan = client.table("s.s.damaged").scan(limit=2 * ROWS)
        assert scan.to_arrow().num_rows == 2 * ROWS
        reader = scan.replace(limit=None).to_record_batch_reader()
        assert [reader.read_next_batch().num_rows for _ in range(2)] == [ROWS, ROWS]
        with pytest.raises(DataError, match="not a readable Parquet file"):
            reader.read_next_batch()


def test_pandas_reads_a_scan_through_the_c_stream(scan: TableScan, served: list[int]) -> None:
    assert pd.DataFrame.from_arrow(scan)["id"].tolist() == served


def test_every_loader_accepts_progress(scan: TableScan, capsys: pytest.CaptureFixture[str]) -> None:
    assert scan.to_arrow(progress=True).num_rows == FILES * ROWS
    shown = capsys.readouterr().err
    assert "many" in shown
    assert "B/s" in shown
    scan.to_arrow(progress=False)
    scan.to_pandas()
    assert capsys.readouterr().err == ""
