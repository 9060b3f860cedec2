"""`pull`, `mirror` and `serve`."""

from __future__ import annotations

import json
import signal
import sqlite3
import sys
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_runs import run, start
from deltalake import DeltaTable

from delta_sharing_client import SharingClient
from delta_sharing_client.server import write_sample_tables


class TestPull:
    def test_files(self, orders):
        pull = "pull", orders, "--checkpoint", "p", "--files", "out", "-o", "json"
        (result,) = json.loads(run(*pull, "--start", "5").stdout)
        assert result == {"first_version": 5, "last_version": 7, "rows_written": 10026}
        (path,) = Path("out").iterdir()
        assert path.name == f"orders-{5:020}-{7:020}.parquet"
        assert pq.read_table(path).num_rows == 10026
        assert json.loads(run(*pull).stdout) == []
        assert "Nothing new" in run(*pull[:-2]).stdout

    @staticmethod
    def _commit_one_version(orders):
        profile, _, name = orders.partition("#")
        with SharingClient(profile) as client:
            poller = client.table(name).poll_changes("p", starting_version=6, max_versions=1)
            with poller:
                poller.pull().commit()

    @pytest.mark.parametrize("option", ["--files", "--delta", "--duckdb", "--sqlite"])
    def test_a_target_that_vanished_is_refused(self, orders, option):
        self._commit_one_version(orders)
        pull = "pull", orders, "--checkpoint", "p", option, "out"
        error = run(*pull, code=1).stderr
        assert "earlier batches were committed: their rows would be missing" in error
        assert "with --rebind" in error
        assert "Nothing new" not in run(*pull, "--rebind").stdout
        assert "Nothing new" in run(*pull).stdout

    def test_a_folder_whose_files_were_taken_away(self, orders):
        self._commit_one_version(orders)
        Path("out").mkdir()
        run("pull", orders, "--checkpoint", "p", "--files", "out")
        assert [item.name for item in Path("out").iterdir()] == [f"orders-{7:020}-{7:020}.parquet"]

    def test_an_uncommitted_batch_replaces_its_file(self, orders):
        profile, _, name = orders.partition("#")
        with SharingClient(profile) as client, client.table(name).poll_changes("p", starting_version=6) as poller:
            assert poller.pull() is not None
        Path("out").mkdir()
        path = Path("out", f"orders-{6:020}-{7:020}.parquet")
        path.write_text("of a pull that was interrupted")
        run("pull", orders, "--checkpoint", "p", "--files", "out")
        assert [item.name for item in Path("out").iterdir()] == [path.name]
        assert pq.read_table(path).num_rows == 26

    def test_a_pull_that_finds_nothing_sends_one_request(self, orders, server):
        pull = "pull", orders, "--checkpoint", "p", "--files", "out"
        run(*pull, "--start", "7")
        server.reset_requests()
        run(*pull)
        assert len(server.requests) == 1

    def test_a_second_pull_with_the_checkpoint_fails(self, orders):
        profile, _, name = orders.partition("#")
        with SharingClient(profile) as client, client.table(name).poll_changes("p", starting_version=6) as poller:
            assert poller.pull() is not None
            error = run("pull", orders, "--checkpoint", "p", "--files", "out", code=1).stderr
            assert error.startswith("Error: checkpoint ")

    @pytest.mark.parametrize(
        ("option", "target"),
        [
            ("--sqlite", ":memory:"),
            ("--duckdb", ":memory:"),
            ("--duckdb", "f.csv"),
        ],
    )
    def test_database_in_memory_is_refused(self, orders, option, target):
        Path("f.csv").write_text("a,b\n1,2\n")
        pull = "pull", orders, "--checkpoint", "p", "--start", "6"
        error = run(*pull, option, target, code=1).stderr
        assert "cannot be opened" in error or "would be in memory only" in error
        assert run(*pull, "--sqlite", "shop.db", "-o", "csv").stdout.splitlines()[1].startswith("6,7,")

    def test_sqlite(self, orders):
        run("pull", orders, "--checkpoint", "p", "--sqlite", "shop.db", "--start", "6")
        with sqlite3.connect("shop.db") as connection:
            (count,) = connection.execute("SELECT count(*) FROM orders").fetchone()
        connection.close()
        assert count == 26

    def test_a_copy_in_duckdb(self, orders):
        arguments = "--duckdb", "shop.duckdb", "--into", "copy", "--mode", "apply", "--keys", "order_id"
        run("pull", orders, "--checkpoint", "p", *arguments)
        with duckdb.connect("shop.duckdb") as connection:
            assert connection.execute("SELECT count(*) FROM copy").fetchall() == [(59990,)]

    def test_a_checkpoint_is_for_one_target(self, orders):
        pull = "pull", orders, "--checkpoint", "p", "--start", "6"
        run(*pull, "--files", "one")
        assert "Nothing new" in run(*pull, "--files", "./one").stdout
        sqlite = *pull, "--sqlite", "shop.db"
        for other in (["--files", "two"], ["--delta", "one"], sqlite[-2:]):
            error = run(*pull, *other, code=1).stderr
            assert f"its batches are in files {Path('one').resolve()}, not in {other[0][2:]} " in error
            assert "--rebind goes on from its position" in error
        assert not Path("two").exists()
        assert "Nothing new" in run(*sqlite, "--rebind").stdout
        run(*sqlite, "--into", "copy", code=1)
        run(*pull, "--files", "one", code=1)
        assert "Nothing new" in run(*sqlite).stdout

    def test_a_checkpoint_of_an_earlier_release_is_bound(self, orders):
        profile, _, name = orders.partition("#")
        with SharingClient(profile) as client, client.table(name).poll_changes("p", starting_version=6) as poller:
            assert poller.pull() is not None  # without a target, as before
        run("pull", orders, "--checkpoint", "p", "--files", "one")
        run("pull", orders, "--checkpoint", "p", "--files", "two", code=1)

    @pytest.mark.parametrize("target", [["--files", "f"], ["--sqlite", "s.db"]])
    def test_the_output_counts_the_rows_of_changes(self, orders, target):
        shown = run("pull", orders, "--checkpoint", "p", "--start", "6", *target).stdout
        assert [line.split() for line in (shown.splitlines()[0], shown.splitlines()[2])] == [
            ["first", "version", "last", "version", "rows", "written"],
            ["6", "7", "26"],
        ]

    def test_the_output_counts_the_changes_that_are_applied(self, orders):
        apply = "--sqlite", "s.db", "--mode", "apply", "--keys", "order_id"
        (result,) = json.loads(run("pull", orders, "--checkpoint", "p", *apply, "-o", "json").stdout)
        assert result == {"first_version": 7, "last_version": 7, "inserted": 59990, "deleted": 0}

    def test_times_of_files_are_times(self, orders):
        run("pull", orders, "--checkpoint", "p", "--files", "out", "--start", "6")
        (path,) = Path("out").iterdir()
        assert str(pq.read_schema(path).field("_commit_timestamp").type) == "timestamp[us, tz=UTC]"

    def test_delta(self, orders):
        run("pull", orders, "--checkpoint", "p", "--delta", "lake", "--start", "7")
        assert DeltaTable("lake").to_pyarrow_table().num_rows == 16

    @pytest.mark.parametrize(
        "arguments",
        [
            [],
            ["--files", "a", "--delta", "b"],
            ["--files", "a", "--mode", "apply"],
            ["--files", "a", "--start", "x"],
            ["--files", "a", "--keys", "order_id"],
            ["--files", "a", "--into", "b"],
            ["--sqlite", "a", "--format", "csv"],
        ],
    )
    def test_wrong_usage(self, orders, arguments):
        run("pull", orders, "--checkpoint", "p", *arguments, code=2)
        assert list(Path().iterdir()) == []


def test_mirror(orders):
    facts = json.loads(run("mirror", orders, "copy", "-o", "json").stdout)
    assert (facts["shared_version"], facts["commits"], facts["files_added"]) == (7, 1, 6)
    assert json.loads(run("mirror", orders, "copy", "-o", "json").stdout)["commits"] == 0
    assert "bytes fetched" in run("mirror", orders, "copy", "--repair").stdout


class TestServe:
    def test_it_serves_until_ctrl_c(self, tmp_path):
        write_sample_tables(tmp_path / "warehouse")
        profile = tmp_path / "served.share"
        with start("serve", str(tmp_path / "warehouse"), "--profile", str(profile)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if b"Ctrl-C" in line:
                    break
            assert run("count", f"{profile}#retail.sales.orders").stdout == "59990\n"
            process.send_signal(signal.SIGINT)
            process.communicate()
        assert process.returncode == 0

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ([], "Error: {folder}: "),
            (
                ["--token-file", "none.txt"],
                "Error: --token-file none.txt cannot be read: No such file or",
            ),
            (["--host", "192.0.2.1"], "Error: cannot listen on 192.0.2.1, port 0 ("),
            (["--profile", "."], "Error: --profile: . exists and is not a profile"),
        ],
    )
    def test_what_cannot_be_served(self, tmp_path, monkeypatch, capfd, arguments, message):
        monkeypatch.chdir(tmp_path)
        folder = tmp_path / "empty"
        folder.mkdir()
        if "--host" in arguments:
            DeltaTable.create(folder / "t", schema=pa.schema([("a", pa.int64())]))
        assert run("serve", str(folder), *arguments, code=1).stderr.startswith(message.format(folder=folder))

    @pytest.mark.parametrize("package", ["starlette", "uvicorn"])
    def test_without_the_extra(self, tmp_path, monkeypatch, package):
        DeltaTable.create(tmp_path / "t", schema=pa.schema([("a", pa.int64())]))
        monkeypatch.setitem(sys.modules, package, None)
        error = run("serve", str(tmp_path), "--profile", str(tmp_path / "p.share"), code=1).stderr
        assert error.startswith(f"Error: The embedded sharing server needs {package}, which is not installed: pip")
