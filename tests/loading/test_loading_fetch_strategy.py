"""Fetch strategy for large files: fetched bytes, memory budget, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from faults.server import FaultServer, Reply, Request
from loading_faults import Share
from loading_tables import File, column, count_from_here, load_threads, write_table
from waiting import BRIEFLY, HANG, wait_for_rest, wait_until

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

GROUP = 50_000
GROUPS = 16
ROWS = GROUP * GROUPS
#: Uncompressed, so that bytes can be counted: 14.4 MB of 16 row groups.
PLAIN = {"compression": "none", "use_dictionary": ["tag"], "row_group_size": GROUP}
COLUMNS = [column("id", "long"), column("noise", "long"), column("tag", "string")]
#: What is fetched beside the chunks: the footer with what stands before it, and a little behind each chunk.
FOOTER = 64 * 1024
PADDING = 256


def rows(first: int, count: int) -> pa.Table:
    noise = np.random.default_rng(abs(first)).integers(0, 2**62, count)
    tags = pa.DictionaryArray.from_arrays(pa.array(np.arange(count) % 7, pa.int8()), [f"tag{n}" for n in range(7)])
    return pa.table({"id": np.arange(first, first + count), "noise": noise, "tag": tags.cast(pa.string())})


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    root = tmp_path_factory.mktemp("pieces")
    small = [File(rows=rows(10**6 * n, 2_000), name=f"small-{n}.parquet") for n in range(1, 7)]
    large = File(rows=rows(0, ROWS), name="large.parquet", options=PLAIN)
    vector = File(rows=rows(0, ROWS), name="v.parquet", options=PLAIN, vector=[0, GROUP, ROWS - 1, *range(7, 99)])
    return {
        "large": write_table(root / "large", COLUMNS, [large]),
        "large_first": write_table(root / "large_first", COLUMNS, [large, *small]),
        "small_first": write_table(root / "small_first", COLUMNS, [*small, large]),
        "vector": write_table(root / "vector", COLUMNS, [vector], features=["deletionVectors"]),
    }


@pytest.fixture(scope="module")
def server(paths: dict[str, Path], serve: Callable[..., SharingServer]) -> SharingServer:
    return serve({f"s.s.{name}": path for name, path in paths.items()})


@pytest.fixture(scope="module")
def client(server: SharingServer, connect: Callable[..., SharingClient]) -> SharingClient:
    return connect(server)


@pytest.fixture(scope="module")
def footer(paths: dict[str, Path]) -> pq.FileMetaData:
    return pq.read_metadata(paths["large"] / "large.parquet")


def chunk_bytes(footer: pq.FileMetaData, names: list[str], groups: range) -> int:
    positions = [COLUMNS.index(next(item for item in COLUMNS if item["name"] == name)) for name in names]
    return sum(footer.row_group(g).column(p).total_compressed_size for g in groups for p in positions)


def fetched(server: SharingServer) -> tuple[int, list[Any]]:
    requests = [request for request in server.requests if request.is_file]
    return sum(request.bytes_sent for request in requests), requests


class TestWhatIsFetched:
    def test_whole_file_is_fetched_once(
        self, server: SharingServer, client: SharingClient, paths: dict[str, Path]
    ) -> None:
        count_from_here(server)
        loaded = client.table("s.s.large").scan().to_arrow()
        assert loaded.equals(pq.read_table(paths["large"] / "large.parquet"))
        size = (paths["large"] / "large.parquet").stat().st_size
        total, requests = fetched(server)
        assert size - 16 <= total <= size + FOOTER
        assert len(requests) > 2
        assert {request.method for request in requests} == {"GET"}
        assert {request.status for request in requests} == {206}
        assert all(request.range and not request.range.startswith("bytes=-") for request in requests)

    @pytest.mark.parametrize("names", [["tag"], ["noise"], ["tag", "id"]])
    def test_some_columns_fetch_their_chunks(
        self, server: SharingServer, client: SharingClient, footer: pq.FileMetaData, names: list[str]
    ) -> None:
        count_from_here(server)
        loaded = client.table("s.s.large").scan(columns=names).to_arrow()
        assert (loaded.num_rows, loaded.column_names) == (ROWS, names)
        total, _ = fetched(server)
        wanted = chunk_bytes(footer, names, range(GROUPS))
        assert wanted - FOOTER <= total <= wanted + FOOTER + GROUPS * len(names) * PADDING

    def test_filter_fetches_matching_row_groups(
        self, server: SharingServer, client: SharingClient, footer: pq.FileMetaData
    ) -> None:
        count_from_here(server)
        wanted = [("id", ">=", 5 * GROUP + 3), ("id", "<", 6 * GROUP + 1)]
        loaded = client.table("s.s.large").scan(filters=wanted, columns=["id", "tag"]).to_arrow()
        assert loaded["id"].to_pylist() == list(range(5 * GROUP + 3, 6 * GROUP + 1))
        total, _ = fetched(server)
        assert total <= chunk_bytes(footer, ["id", "tag"], range(5, 7)) + FOOTER + 4 * PADDING

    def test_limit_fetches_the_first_row_groups(
        self, server: SharingServer, client: SharingClient, footer: pq.FileMetaData
    ) -> None:
        count_from_here(server)
        loaded = client.table("s.s.large").scan(limit=GROUP + 1).to_arrow()
        assert loaded["id"].to_pylist() == list(range(GROUP + 1))
        total, _ = fetched(server)
        assert total <= chunk_bytes(footer, ["id", "noise", "tag"], range(2)) + FOOTER + 2 * PADDING

    def test_no_columns_fetch_the_footer(self, server: SharingServer, client: SharingClient) -> None:
        count_from_here(server)
        assert client.table("s.s.large").scan(columns=[]).to_arrow().num_rows == ROWS
        total, requests = fetched(server)
        assert len(requests) == 1
        assert total <= FOOTER

    def test_explain_predicts_the_fetched_bytes(self, server: SharingServer, client: SharingClient) -> None:
        scan = client.table("s.s.large").scan(columns=["tag"], filters=[("id", "<", 2 * GROUP)])
        text = scan.explain()
        count_from_here(server)
        scan.to_arrow()
        total, requests = fetched(server)
        assert f"{total:,} to fetch" in text
        assert f"in {len(requests)} requests" in text
        assert f"{GROUPS - 2} of their {GROUPS} row groups skipped" in text

    def test_deletion_vector_applies_to_every_row_group(self, client: SharingClient) -> None:
        deleted = {0, GROUP, ROWS - 1, *range(7, 99)}
        scan = client.table("s.s.vector").scan(columns=["id"])
        loaded = scan.to_arrow()["id"].to_numpy()
        assert len(loaded) == ROWS - len(deleted) == scan.count()
        assert not deleted & set(loaded[: 2 * GROUP].tolist())
        assert loaded[-1] == ROWS - 2
        assert scan.replace(limit=GROUP).to_arrow()["id"][-1].as_py() == GROUP + len(deleted) - 2
        around = scan.replace(filters=[("id", ">=", GROUP), ("id", "<", GROUP + 3)]).to_arrow()
        assert around["id"].to_pylist() == [GROUP + 1, GROUP + 2]


class TestMemoryBudget:
    @pytest.mark.parametrize("budget", [1, 5_000_000, 30_000_000])
    @pytest.mark.parametrize("table", ["large_first", "small_first"])
    def test_any_budget_gives_the_same_rows(
        self,
        server: SharingServer,
        client: SharingClient,
        connect: Callable[..., SharingClient],
        table: str,
        budget: int,
    ) -> None:
        """The file whose rows are wanted next always gets on, whatever those behind it hold of the budget."""
        loaded = connect(server, memory_budget=budget).table(f"s.s.{table}").scan(columns=["id"]).to_arrow()
        assert loaded.num_rows == ROWS + 6 * 2_000
        assert loaded.equals(client.table(f"s.s.{table}").scan(columns=["id"]).to_arrow())

    @pytest.mark.parametrize(("files_at_a_time", "most"), [(1, 1), (3, 3), (None, 12)])
    def test_budget_bounds_the_bytes_in_flight(
        self, faults: FaultServer, connect: Callable[..., SharingClient], files_at_a_time: int | None, most: int
    ) -> None:
        """A file counts with the bytes that its rows are thought to take: three times its own."""
        contents = {f"f{n}": rows(n * 1000, 1000) for n in range(12)}
        share = Share(faults, COLUMNS, contents)
        lock, four = threading.Lock(), threading.Event()
        now = highest = 0

        def serve_file(request: Request, answer: Callable[[Request], Reply]) -> Reply:
            nonlocal now, highest
            with lock:
                now += 1
                highest = max(highest, now)
                if highest == 4:
                    four.set()
            four.wait(HANG if files_at_a_time is None else BRIEFLY)
            with lock:
                now -= 1
            return answer(request)

        share.serve_files_with(serve_file)
        size = max(len(data) for data in share.data.values())
        budget = {} if files_at_a_time is None else {"memory_budget": 3 * size * files_at_a_time}
        loaded = connect(faults, **budget).table("s.s.t").scan().to_arrow()
        assert loaded.equals(pa.concat_tables(contents.values()))
        assert highest <= most

    def test_unread_reader_stops_fetching(
        self, server: SharingServer, connect: Callable[..., SharingClient]
    ) -> None:
        frugal = connect(server, memory_budget=4_000_000)
        count_from_here(server)
        reader = frugal.table("s.s.large").scan().to_record_batch_reader()
        first = reader.read_next_batch()
        total, _ = wait_for_rest(lambda: fetched(server))
        assert total <= 8 * 1024 * 1024 + FOOTER + PADDING
        assert first.num_rows + sum(batch.num_rows for batch in reader) == ROWS


class TestThreads:
    def test_loads_side_by_side_from_one_client(self, client: SharingClient) -> None:
        scans = [
            client.table("s.s.large").scan(columns=["id"]),
            client.table("s.s.small_first").scan(columns=["tag"]),
            client.table("s.s.large").scan(limit=10),
            client.table("s.s.large_first").scan(filters=[("id", "<", 100)]),
        ]
        expected = [scan.to_arrow() for scan in scans]
        with ThreadPoolExecutor(8) as pool:
            loaded = list(pool.map(lambda scan: scan.to_arrow(), scans * 2))
        assert all(one.equals(other) for one, other in zip(loaded, expected * 2, strict=True))

    def test_no_thread_outlives_its_load(self, client: SharingClient) -> None:
        client.table("s.s.large_first").scan(columns=["tag"]).to_arrow()
        client.table("s.s.large").scan(limit=1).to_pandas()
        client.table("s.s.small_first").scan(filters=[("id", "=", 5)]).to_polars()
        wait_until(lambda: not load_threads(), load_threads)
