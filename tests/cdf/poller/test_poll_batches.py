"""Batches of a poller, the times of its polls, and their requests."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from change_tables import COLUMNS, ChangeTable, change_rows, column, rows
from faults.server import FaultServer, Reply
from poller_helpers import FakeClock, ids, requested, spans
from waiting import FOREVER, HANG, NEVER, interrupt, meanwhile, wait_until

import delta_sharing_client as ds
from delta_sharing_client.cdf.clock import StopSignal, SystemClock
from delta_sharing_client.errors import BadRequestError, FutureVersionError, SchemaChangedError, ServerError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


class TestPull:
    def test_a_batch_has_at_most_max_versions(self, shared: SharedTable, server: SharingServer) -> None:
        poller = shared.poll_changes(starting_version=2, max_versions=3)
        batches = [batch for batch in (poller.pull() for _ in range(4)) if batch is not None]
        assert spans(batches) == [(2, 4), (5, 7), (8, 9)]
        assert [ids(batch) for batch in batches] == [[2, 3, 4], [5, 6, 7], [8, 9]]
        assert poller.committed_version is None
        batches[1].commit()
        assert poller.committed_version == 7
        batches[0].commit()
        assert poller.committed_version == 7

    def test_a_poll_without_a_new_version_is_one_request(self, shared: SharedTable, server: SharingServer) -> None:
        poller = shared.poll_changes(starting_version="latest")
        assert poller.pull() is None
        assert requested(server) == ["version", "metadata"]  # the id of the table
        for _ in range(3):
            assert poller.pull() is None
            assert requested(server) == ["version"]

    def test_fetches_only_the_files_of_new_versions(
        self, shared: SharedTable, server: SharingServer, table: ChangeTable
    ) -> None:
        poller = shared.poll_changes(starting_version="latest")
        assert poller.pull() is None
        requested(server)
        for version in range(10, 13):
            table.commit(table.add(f"f{version}", rows(version)))
        batch = poller.pull()
        assert batch is not None
        assert requested(server) == ["version", "changes"]
        assert ids(batch) == [10, 11, 12]
        assert requested(server) == ["file"] * 3

    def test_a_version_after_the_poll_is_in_the_next_batch(self, shared: SharedTable, table: ChangeTable) -> None:
        poller = shared.poll_changes(starting_version=0, max_versions=5)
        first = poller.pull()  # with a request for the latest version
        assert first is not None
        table.commit(table.add("f10", rows(10)))
        second = poller.pull()
        assert second is not None
        table.commit(table.add("f11", rows(11)))
        third = poller.pull()
        assert third is not None
        assert spans([first, second, third]) == [(0, 4), (5, 9), (10, 11)]
        assert [n for batch in (first, second, third) for n in ids(batch)] == list(range(12))

    def test_one_poll_serves_many_batches(self, shared: SharedTable, server: SharingServer) -> None:
        poller = shared.poll_changes(starting_version=0, max_versions=4)
        assert spans(filter(None, (poller.pull() for _ in range(3)))) == [(0, 3), (4, 7), (8, 9)]
        assert requested(server) == ["version", "changes", "changes", "changes"]

    def test_versions_without_changes_are_in_a_batch_without_rows(
        self, shared: SharedTable, table: ChangeTable
    ) -> None:
        table.commit(table.remove("f1", data_change=False), table.add("f1b", rows(1), data_change=False))
        batch = shared.poll_changes(starting_version=10).pull()
        assert batch is not None
        assert spans([batch]) == [(10, 10)]
        assert batch.to_arrow().num_rows == batch.count() == 0
        assert list(batch.to_pandas().columns) == batch.schema.names
        assert batch.schema == batch.to_arrow().schema

    def test_a_batch_loads_in_every_form(self, shared: SharedTable) -> None:
        import duckdb

        batch = shared.poll_changes(starting_version=8, columns=["id"], commit_timestamp="timestamp").pull()
        assert batch is not None
        whole = batch.to_arrow()
        assert whole.column_names == ["id", "_change_type", "_commit_version", "_commit_timestamp"]
        assert change_rows(whole) == [(8, "insert", 8), (9, "insert", 9)]
        assert batch.to_record_batch_reader().read_all().equals(whole)
        assert batch.to_polars().height == len(batch.to_pandas()) == 2
        with duckdb.connect() as connection:
            assert batch.to_duckdb(connection).aggregate("sum(id)").fetchall() == [(17,)]
        assert repr(batch) == "ChangeBatch('s.s.t', versions 8 to 9, 2 files)"
        assert "versions 8 to 9" in batch._repr_html_()


class TestStart:
    def test_starts_with_the_snapshot(
        self, shared: SharedTable, server: SharingServer, table: ChangeTable
    ) -> None:
        table.commit(table.remove("f3"))
        poller = shared.poll_changes(starting_version="snapshot")
        batch = poller.pull()
        assert batch is not None
        assert requested(server) == ["version", "query"]
        assert (batch.is_snapshot, spans([batch])) == (True, [(10, 10)])
        snapshot = batch.to_arrow()
        assert sorted(change_rows(snapshot)) == [(10, "insert", i) for i in range(10) if i != 3]
        assert set(snapshot.column("_commit_timestamp").to_pylist()) == {table.time(10)}
        assert poller.pull() is None
        table.commit(table.add("g", rows(11)))
        following = poller.pull()
        assert following is not None
        assert (following.is_snapshot, change_rows(following.to_arrow())) == (False, [(11, "insert", 11)])

    @pytest.mark.parametrize("vectors", [False, True])
    def test_snapshot_rows_are_those_of_the_table(
        self, tmp_path: Path, share: Callable[..., SharedTable], vectors: bool
    ) -> None:
        features = ["deletionVectors"] if vectors else []
        columns = [*COLUMNS, column("p", "integer")]
        table = ChangeTable(tmp_path / "u", columns, partitions=["p"], features=features)
        table.commit(
            table.add("f", rows(1, 2, 3), values={"p": "7"}, vector=table.vector(1) if vectors else None),
            table.add("g", rows(4), values={"p": None}),
        )
        shared = share(table.root)
        batch = shared.poll_changes(starting_version="snapshot").pull()
        assert batch is not None
        assert batch.to_arrow().select(["id", "s", "p"]).equals(shared.scan().to_arrow())
        assert batch.count() == (3 if vectors else 4)

    def test_starts_after_the_latest_version(self, shared: SharedTable, table: ChangeTable) -> None:
        poller = shared.poll_changes(starting_version="latest")
        assert poller.pull() is None
        table.commit(table.add("g", rows(10)))
        batch = poller.pull()
        assert batch is not None
        assert change_rows(batch.to_arrow()) == [(10, "insert", 10)]

    def test_starts_at_a_time(self, shared: SharedTable, table: ChangeTable) -> None:
        moment = datetime.fromtimestamp(table.time(6) / 1000, UTC) + timedelta(minutes=1)
        batch = shared.poll_changes(starting_timestamp=moment).pull()
        assert batch is not None
        assert spans([batch]) == [(7, 9)]
        with pytest.raises(BadRequestError, match="older"):
            shared.poll_changes(starting_timestamp=moment + timedelta(days=9)).pull()

    def test_starts_at_the_next_version(self, shared: SharedTable) -> None:
        assert shared.poll_changes(starting_version=10).pull() is None
        with pytest.raises(
            FutureVersionError,
            match=r"starting_version is 11, and the latest version of table s\.s\.t is 9: start at 10",
        ) as caught:
            shared.poll_changes(starting_version=11).pull()
        assert isinstance(caught.value, ValueError)
        assert (caught.value.version, caught.value.latest) == (11, 9)

    def test_without_a_start_raises(self, shared: SharedTable) -> None:
        with pytest.raises(ValueError, match="the poller has no start: give starting_version"):
            shared.poll_changes().pull()

    def test_a_table_without_history_raises(self, table: ChangeTable, share: Callable[..., SharedTable]) -> None:
        for start in (0, "snapshot"):
            with pytest.raises(BadRequestError, match="history is not shared"):
                share(table.root, history=False).poll_changes(starting_version=start).pull()  # type: ignore[arg-type]

    @pytest.mark.parametrize(
        ("arguments", "error", "word"),
        [
            ({"starting_version": "newest"}, ValueError, "a version, 'latest' or 'snapshot'"),
            ({"starting_version": -1}, ValueError, "starting_version is -1"),
            ({"starting_version": 1, "starting_timestamp": "2024-01-01"}, ValueError, "at most one"),
            ({"poll_interval": 30}, TypeError, r"a timedelta, as timedelta\(seconds=30\), not int"),
            ({"poll_interval": timedelta(0)}, ValueError, "positive"),
            ({"max_versions": 0}, ValueError, "max_versions is 0"),
            ({"schema_changes": "ignore"}, ValueError, "'raise' or 'follow'"),
            ({"columns": "id"}, TypeError, "list of names"),
            ({"commit_timestamp": "x"}, ValueError, "'long' or 'timestamp'"),
        ],
    )
    def test_invalid_arguments_raise(
        self, shared: SharedTable, arguments: dict[str, Any], error: type[Exception], word: str
    ) -> None:
        with pytest.raises(error, match=word):
            shared.poll_changes(**arguments)

    def test_an_interval_below_the_minimum_raises(self) -> None:
        profile = {"shareCredentialsVersion": 1, "endpoint": "https://sharing.invalid", "bearerToken": "t"}
        with ds.SharingClient(profile) as client:
            table = client.table("s.s.t")
            with pytest.raises(ValueError, match=r"poll_interval is 9\.5 s; servers require at least 10 s"):
                table.poll_changes(starting_version=0, poll_interval=timedelta(seconds=9.5))
            assert table.poll_changes(poll_interval=timedelta(seconds=10)).options.max_versions == 100


class TestIteration:
    def test_waits_between_polls(self, shared: SharedTable, server: SharingServer, table: ChangeTable) -> None:
        def grow() -> None:
            table.commit(table.add(f"f{table.version + 1}", rows(table.version + 1)))

        clock = FakeClock(grow, lambda: None, grow, lambda: None)
        poller = shared.poll_changes(starting_version=8, clock=clock)
        assert [ids(batch) for batch in poller] == [[8, 9], [10], [11]]
        assert clock.waits == [30.0] * 5
        assert requested(server).count("version") == 5

    def test_does_not_wait_while_it_is_behind(self, shared: SharedTable) -> None:
        clock = FakeClock()
        poller = shared.poll_changes(
            starting_version=0, max_versions=1, poll_interval=timedelta(minutes=2), clock=clock
        )
        assert spans(poller) == [(n, n) for n in range(10)]
        assert clock.waits == [120.0]

    def test_time_spent_on_a_batch_counts(self, shared: SharedTable) -> None:
        clock = FakeClock()
        for _ in shared.poll_changes(starting_version=9, clock=clock):
            clock.time += 12
        assert clock.waits == [18.0]

    def test_stop_ends_a_wait_at_once(self, shared: SharedTable) -> None:
        waits = threading.Event()

        class Announced(SystemClock):
            def wait(self, seconds: float, signal: StopSignal) -> None:
                waits.set()
                super().wait(seconds, signal)

        poller = shared.poll_changes(starting_version="latest", poll_interval=NEVER, clock=Announced())
        with meanwhile(lambda: waits.wait(HANG), poller.stop):
            assert list(poller) == []
        assert poller.pull() is None

    def test_stop_ends_a_request_without_an_answer(self, faults: FaultServer) -> None:
        faults.on("GET", "*", Reply(delay=FOREVER))
        with ds.SharingClient(faults.profile, options=TransportOptions(read_timeout=NEVER)) as client:
            poller = client.table("s.s.t").poll_changes(starting_version="latest")
            with meanwhile(lambda: wait_until(lambda: faults.requests), poller.stop):
                assert list(poller) == []
            faults.stopping.set()

    def test_stop_inside_the_loop_ends_it(self, shared: SharedTable, tmp_path: Path) -> None:
        poller = shared.poll_changes(tmp_path / "c", starting_version=0, max_versions=2)
        seen = []
        for batch in poller:
            seen.append(batch)
            poller.stop()
            batch.commit()
        assert spans(seen) == [(0, 1)]
        assert poller.committed_version == 1

    def test_continues_after_an_error(self, faults: FaultServer) -> None:
        schema = '{"type": "struct", "fields": []}'
        head = [
            {"protocol": {"minReaderVersion": 1}},
            {"metaData": {"id": "i", "format": {"provider": "parquet"}, "schemaString": schema}},
        ]
        faults.on("GET", "*", Reply(status=503), Reply.of_lines(*head, headers={"Delta-Table-Version": "3"}))
        options = TransportOptions(api_attempts=1)
        with ds.SharingClient(faults.profile, options=options) as client:
            poller = client.table("s.s.t").poll_changes(
                starting_version="latest", clock=(clock := FakeClock(lambda: None))
            )
            with pytest.raises(ServerError):
                next(iter(poller))
            assert list(poller) == []
            assert clock.waits == [30.0, 30.0]
            assert repr(poller) == "ChangePoller('s.s.t', next version 4)"

    def test_representations(self, shared: SharedTable) -> None:
        poller = shared.poll_changes(starting_version=3)
        assert repr(poller) == "ChangePoller('s.s.t', not started)"
        poller.pull()
        assert "next version 10" in poller._repr_html_()


class TestSchema:
    @pytest.fixture
    def evolving(self, tmp_path: Path) -> ChangeTable:
        """Version 1 adds a column, version 3 changes the type of another."""
        table = ChangeTable(tmp_path / "u")
        table.commit(table.add("a", rows(0)))
        table.commit(table.metadata([*COLUMNS, column("n", "long")]))
        table.commit(table.add("b", rows(2)))
        table.commit(table.metadata([COLUMNS[0], column("s", "binary"), column("n", "long")]))
        table.commit(table.add("c", rows(4)))
        return table

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_rows_before_a_schema_change_are_read_first(
        self, evolving: ChangeTable, share: Callable[..., SharedTable], size: int
    ) -> None:
        poller = share(evolving.root).poll_changes(starting_version=0, max_versions=size, clock=FakeClock())
        seen = []
        with pytest.raises(SchemaChangedError, match="schema_changes='follow'") as caught:
            for batch in poller:
                seen += ids(batch)
        assert seen == [0, 2]
        assert (caught.value.version, caught.value.columns) == (3, ("s",))

    @pytest.mark.parametrize("size", [1, 2, 3, 100])
    def test_schema_changes_are_followed(
        self, evolving: ChangeTable, share: Callable[..., SharedTable], size: int
    ) -> None:
        shared = share(evolving.root)
        poller = shared.poll_changes(
            starting_version=0, max_versions=size, schema_changes="follow", clock=FakeClock()
        )
        batches = list(poller)
        assert [i for batch in batches for i in ids(batch)] == [0, 2, 4]
        assert spans(batches)[-1][1] == 4
        assert str(batches[0].schema.field("s").type) == "string"
        assert str(batches[-1].schema.field("s").type) == "binary"

    def test_changes_of_columns_that_are_not_read_have_no_effect(
        self, evolving: ChangeTable, share: Callable[..., SharedTable]
    ) -> None:
        poller = share(evolving.root).poll_changes(starting_version=0, columns=["ID"], clock=FakeClock())
        assert [ids(batch) for batch in poller] == [[0, 2, 4]]

    def test_columns_are_stored_in_the_checkpoint(
        self, evolving: ChangeTable, share: Callable[..., SharedTable], tmp_path: Path
    ) -> None:
        shared = share(evolving.root)
        with shared.poll_changes(tmp_path / "c", starting_version=0) as poller:
            batch = poller.pull()
            assert batch is not None
            assert spans([batch]) == [(0, 2)]
            batch.commit()
        with shared.poll_changes(tmp_path / "c") as poller, pytest.raises(SchemaChangedError, match="version 3"):
            poller.pull()
        with shared.poll_changes(tmp_path / "c", schema_changes="follow") as poller:
            batch = poller.pull()
            assert batch is not None
            assert spans([batch]) == [(3, 4)]


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
def test_an_interrupt_leaves_the_stop_signal_usable() -> None:
    stop = StopSignal()

    def wake_elsewhere() -> None:
        with meanwhile(stop.wake):
            pass

    interrupt(lambda: stop.wait(0), 200, wake_elsewhere)
