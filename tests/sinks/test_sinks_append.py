"""`append`: each row once, whatever is asked of the target's writers."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from change_tables import ChangeTable, column, rows
from sink_targets import Target, drain, in_order

import delta_sharing_client as ds
from delta_sharing_client.errors import DeltaLogError, SinkError
from delta_sharing_client.sinks import DeltaSink, DuckDBSink, SQLiteSink, WriteResult
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]


def remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()


class TestAppend:
    def test_changes_are_stored_with_their_change_columns(
        self, table: ChangeTable, share: Share, target: Target
    ) -> None:
        table.commit(table.remove("f1"), table.add("f2", rows(4)))
        with target.sink() as sink, share(table.root).poll_changes(starting_version="snapshot") as poller:
            assert drain(poller, sink) == [WriteResult(version=2, inserted=3)]
            table.commit(table.remove("f2"))
            assert drain(poller, sink) == [WriteResult(version=3, inserted=1)]
        assert target.names() == ["id", "s", "_change_type", "_commit_version", "_commit_timestamp"]
        expected = [(1, "insert", 2), (2, "insert", 2), (4, "insert", 2), (4, "delete", 3)]
        assert target.rows("id", "_change_type", "_commit_version") == in_order(expected)

    def test_once_each(self, table: ChangeTable, share: Share, target: Target, tmp_path: Path) -> None:
        shared = share(table.root)
        for _ in range(3):
            with (
                target.sink(change_columns=False) as sink,
                shared.poll_changes(tmp_path / "c", starting_version=0, max_versions=1) as poller,
            ):
                drain(poller, sink, commit=False)
        assert target.rows() == in_order([(1, "1"), (2, "2"), (3, "3")])

    def test_two_pollers(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink(change_columns=False) as sink:
            for _ in range(2):
                with shared.poll_changes(starting_version=0) as poller:
                    drain(poller, sink)
        assert len(target.rows()) == 6

    @pytest.mark.parametrize("mode", [{}, {"mode": "apply", "keys": ["id"]}])
    def test_a_target_that_vanished_is_refused(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path, mode: dict[str, Any]
    ) -> None:
        """A new target would lack the rows before."""
        poll = share(table.root).poll_changes
        with target.sink(**mode) as sink, poll(tmp_path / "c", starting_version="snapshot") as poller:
            drain(poller, sink)
        remove(target.path)
        table.commit(table.add("f2", rows(4)))
        with (
            target.sink(**mode) as sink,
            poll(tmp_path / "c") as poller,
            pytest.raises(SinkError, match=r"delete the poller's checkpoint|Use a new poller with its own"),
        ):
            drain(poller, sink)
        (tmp_path / "c").unlink()
        with target.sink(**mode) as sink, poll(tmp_path / "c", starting_version="snapshot") as poller:
            drain(poller, sink)
        assert {row[0] for row in target.rows("id")} == {1, 2, 3, 4}

    @pytest.mark.parametrize("target", ["duckdb", "sqlite"], indirect=True)
    def test_a_table_without_the_batches_before_is_refused(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        """Another poller has made the table again."""
        poll = share(table.root).poll_changes
        with target.sink() as sink, poll(tmp_path / "a", starting_version=0) as poller:
            drain(poller, sink)
        target.path.unlink()
        with target.sink() as sink, poll(tmp_path / "b", starting_version=0) as poller:
            drain(poller, sink)
        table.commit(table.add("f2", rows(4)))
        with (
            target.sink() as sink,
            poll(tmp_path / "a") as poller,
            pytest.raises(SinkError, match="no batch of this poller, and earlier batches were committed"),
        ):
            drain(poller, sink)
        assert len(target.rows()) == 3

    def test_a_poller_goes_on_in_a_new_target_if_asked_to(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        poll = share(table.root).poll_changes
        with poll(tmp_path / "c", starting_version=0) as poller:
            batch = poller.pull()
            assert batch is not None
            batch.commit()
        for at, name in enumerate(["f2", "f3"]):
            table.commit(table.add(name, rows(4 + at)))
            with target.sink() as sink, poll(tmp_path / "c", rebind=not at) as poller:
                drain(poller, sink)
        assert target.rows("id") == [(4,), (5,)]

    def test_a_first_batch_whose_checkpoint_was_lost(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        poll = share(table.root).poll_changes
        for _ in range(2):
            with target.sink() as sink, poll(tmp_path / "c", starting_version=0) as poller:
                drain(poller, sink)
            (tmp_path / "c").unlink()
        assert len(target.rows()) == 6  # another poller

    def test_batches_without_rows_are_a_beginning(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        """A Delta table has no commit of them."""
        table.commit()
        table.commit(table.add("f2", rows(4)))
        for _ in range(2):
            with (
                target.sink() as sink,
                share(table.root).poll_changes(tmp_path / "c", starting_version=2, max_versions=1) as poller,
            ):
                batch = poller.pull()
                assert batch is not None
                sink.write(batch)
                batch.commit()
        assert target.rows("id") == [(4,)]

    def test_a_target_of_the_other_mode_is_refused(
        self, table: ChangeTable, share: Share, target: Target, tmp_path: Path
    ) -> None:
        shared = share(table.root)
        with (
            target.sink(mode="apply", keys=["id"]) as sink,
            shared.poll_changes(tmp_path / "c", starting_version="snapshot") as poller,
        ):
            drain(poller, sink)
        copy = target.rows()
        table.commit(table.remove("f1"))
        with (
            target.sink() as sink,
            shared.poll_changes(tmp_path / "c") as poller,
            pytest.raises(SinkError, match=r"no column '_change_type', which .* use mode='apply' if"),
        ):
            drain(poller, sink)
        assert target.rows() == copy
        with target.sink(mode="apply", keys=["id"]) as sink, shared.poll_changes(tmp_path / "c") as poller:
            drain(poller, sink)
        assert target.rows() == in_order([(1, "1"), (2, "2")])

    def test_a_log_of_changes_is_no_copy(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink() as sink, shared.poll_changes(starting_version=0) as poller:
            drain(poller, sink)
        with (
            target.sink(mode="apply", keys=["id"]) as sink,
            shared.poll_changes(starting_version=0) as poller,
            pytest.raises(SinkError, match="it was written with mode='append' and has changes"),
        ):
            drain(poller, sink)
        assert len(target.rows("id")) == 3

    def test_inserts_alone(self, table: ChangeTable, share: Share, target: Target) -> None:
        table.commit(table.remove("f1"))
        shared = share(table.root)
        with (
            target.sink(change_columns=False) as sink,
            shared.poll_changes(starting_version=0, max_versions=2) as poller,
            pytest.raises(SinkError, match="version 2 has a row with the change type 'delete', and only inserts"),
        ):
            drain(poller, sink)
        assert target.rows() == in_order([(1, "1"), (2, "2"), (3, "3")])

    def test_a_column_that_the_batch_lacks_is_null(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink(change_columns=False) as sink:
            with shared.poll_changes(starting_version=0, max_versions=1) as poller:
                drain(poller, sink)
            with shared.poll_changes(starting_version=1, columns=["ID"]) as poller:
                drain(poller, sink)
        assert target.rows()[-1] == (3, None)
        assert target.names() == ["id", "s"]

    def test_a_batch_without_rows(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink() as sink, shared.poll_changes(starting_version=0) as poller:
            drain(poller, sink)
            table.commit(table.remove("f1", data_change=False), table.add("g", rows(3), data_change=False))
            assert drain(poller, sink) == [WriteResult(version=2)]
        assert len(target.rows()) == 3

    def test_an_unreadable_batch_changes_nothing(self, table: ChangeTable, share: Share, target: Target) -> None:
        shared = share(table.root)
        with target.sink(change_columns=False) as sink, shared.poll_changes(starting_version=0) as poller:
            drain(poller, sink)
            before = target.rows()
            table.commit(table.add("f2", rows(5)), table.add("f3", rows(6)))
            (table.root / "f3").write_bytes(b"no parquet")
            with pytest.raises(ds.DeltaSharingError, match="file"):
                drain(poller, sink)
            assert target.rows() == before
            if target.kind == "delta":
                assert len(list(target.path.glob("*.parquet"))) == 1

    def test_the_representation_of_a_sink(self, target: Target) -> None:
        with target.sink(mode="apply", keys=["id"]) as sink:
            kind = type(sink).__name__
            assert repr(sink) == f"{kind}({sink.target!r}, mode='apply', keys=['id'])"
            assert sink._repr_html_().startswith(f"<div><code>{kind}</code> <b>")


class TestDatabases:
    @pytest.mark.parametrize("kind", ["duckdb", "sqlite"])
    def test_a_table_by_another_spelling(
        self, table: ChangeTable, share: Share, tmp_path: Path, kind: str
    ) -> None:
        shared, path = share(table.root), tmp_path / "x"
        for name in ("Orders", "ORDERS"):
            make = DuckDBSink if kind == "duckdb" else SQLiteSink
            with make(path, name) as sink, shared.poll_changes(tmp_path / "c", starting_version=0) as poller:
                drain(poller, sink, commit=False)
        assert Target(kind, path).execute("SELECT count(*) FROM orders") == [(3,)]

    def test_a_primary_key_of_the_callers(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        shared = share(table.root)
        for kind in ("duckdb", "sqlite"):
            target = Target(kind, tmp_path / kind)
            number, text = ("BIGINT", "VARCHAR") if kind == "duckdb" else ("INTEGER", "TEXT")
            target.execute(f"CREATE TABLE t (id {number} PRIMARY KEY, s {text})")
            with (
                target.sink(mode="apply", keys=["id"]) as sink,
                shared.poll_changes(starting_version=0, max_versions=2) as poller,
            ):
                drain(poller, sink)
                name = f"f{table.version + 1}"
                table.commit(table.remove("f1" if kind == "duckdb" else "f2"), table.add(name, rows(3, text="x")))
                drain(poller, sink)
            assert target.rows() == in_order([(1, "1"), (2, "2"), (3, "x3")])

    def test_an_argument_that_is_no_batch_raises(self, table: ChangeTable, share: Share, target: Target) -> None:
        frame = share(table.root).changes(starting_version=0).to_arrow()
        with target.sink() as sink, pytest.raises(TypeError, match="batches of a poller, not Table"):
            sink.write(frame)  # type: ignore[arg-type]

    def test_a_connection_of_the_caller(self, table: ChangeTable, share: Share) -> None:
        import sqlite3

        shared = share(table.root)
        with duckdb.connect() as connection:
            with (
                DuckDBSink(connection, 'odd "name"', schema="copies", change_columns=False) as sink,
                shared.poll_changes(starting_version=0) as poller,
            ):
                drain(poller, sink)
            assert connection.sql('SELECT count(*) FROM copies."odd ""name"""').fetchall() == [(3,)]
        memory = sqlite3.connect(":memory:")
        with (
            SQLiteSink(memory, 'odd "name"', change_columns=False) as sqlite,
            shared.poll_changes(starting_version=0) as poller,
        ):
            drain(poller, sqlite)
        assert memory.execute('SELECT count(*) FROM "odd ""name"""').fetchall() == [(3,)]
        memory.close()

    def test_a_connection_within_a_transaction(self, table: ChangeTable, share: Share) -> None:
        import sqlite3

        batch = share(table.root).poll_changes(starting_version=0).pull()
        assert batch is not None
        with duckdb.connect() as connection:
            connection.begin()
            with pytest.raises(SinkError, match="transaction"):
                DuckDBSink(connection, "t").write(batch)
        memory = sqlite3.connect(":memory:", isolation_level=None)
        memory.execute("BEGIN")
        with pytest.raises(SinkError, match="within a transaction"):
            SQLiteSink(memory, "t").write(batch)
        memory.close()

    def test_a_database_that_is_none(self, tmp_path: Path) -> None:
        path = tmp_path / "x"
        path.write_bytes(b"nothing like a database, and long enough to show it" * 100)
        with pytest.raises(SinkError, match=f"{re.escape(str(path))} cannot be opened: .*; give a database"):
            DuckDBSink(path, "t")
        with SQLiteSink(path, "t") as sink, pytest.raises(SinkError, match="SQLite returned an error"):
            sink.last_version("p")

    def test_a_name_that_is_taken(self, tmp_path: Path) -> None:
        for name in ("", "_delta_sharing_sinks", "a\x00b"):
            with pytest.raises(ValueError, match="table"):
                SQLiteSink(tmp_path / "x", name)

    def test_rows_that_the_table_refuses(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        target = Target("sqlite", tmp_path / "x")
        target.execute("CREATE TABLE t (id INTEGER CHECK (id < 3), s TEXT)")
        with (
            target.sink(change_columns=False) as sink,
            share(table.root).poll_changes(starting_version=0) as poller,
            pytest.raises(SinkError, match="SQLite returned an error: CHECK constraint failed"),
        ):
            drain(poller, sink)
        assert target.rows() == []

    def test_a_column_without_a_type_of_the_target_raises(self, tmp_path: Path, share: Share) -> None:
        table = ChangeTable(tmp_path / "source", [column("id", "long"), column("v", "void")])
        table.commit(table.add("f", pa.table({"id": [1]})))
        for kind in ("duckdb", "sqlite"):
            target = Target(kind, tmp_path / kind)
            with (
                target.sink() as sink,
                share(table.root).poll_changes(starting_version=0) as poller,
                pytest.raises(ds.errors.UnsupportedTypeError, match="'v'"),
            ):
                drain(poller, sink)


def test_a_database_that_cannot_be_opened_names_its_path(tmp_path: Path) -> None:
    for sink, path in ((SQLiteSink, "no/such/x.db"), (DuckDBSink, "no/such/x.db")):
        file = tmp_path / path
        with pytest.raises(SinkError, match=f"{re.escape(str(file))} cannot be opened: .*; give a database"):
            sink(file, "t")


def test_a_file_is_no_directory_for_a_delta_table(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("notes")
    with pytest.raises(DeltaLogError, match=r"notes\.txt: this is a file, not a directory"):
        DeltaSink(tmp_path / "notes.txt")
