"""`head`, `export` and `changes`: rows, formats and files."""

from __future__ import annotations

import csv
import json
import math
import os
import stat
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from command_runs import run
from deltalake import write_deltalake

from delta_sharing_client import load_as_arrow, load_table_changes_as_arrow
from delta_sharing_client.server import SharingServer


class TestHead:
    def test_rows_as_json(self, orders):
        rows = json.loads(run("head", orders, "-n", "2", "--columns", "order_id,amount", "-o", "json").stdout)
        assert rows == [{"order_id": 0, "amount": "4.99"}, {"order_id": 1, "amount": "84.18"}]

    def test_nested_columns(self, customers):
        rows = json.loads(run("head", customers, "-n", "2", "-o", "json").stdout)
        assert rows[1]["address"] == {"city": "Lima", "postcode": "10007"}
        assert rows[1]["tags"] == ["new"]
        assert '"{""city"": ""Lima""' in run("head", customers, "-n", "2", "-o", "csv").stdout

    def test_a_table_for_people(self, orders):
        lines = run("head", orders, "-n", "3").stdout.splitlines()
        assert lines[0].split()[:2] == ["order_id", "order_date"]
        assert "null" in lines[2]
        assert len(lines) == 5

    def test_filter_and_version(self, orders):
        selected = "--filter", "region = 'Europe' AND order_id > 10", "--version", "0"
        rows = json.loads(run("head", orders, "-n", "5", *selected, "-o", "json").stdout)
        assert len(rows) == 5
        assert {row["region"] for row in rows} == {"Europe"}

    def test_no_rows(self, orders):
        assert json.loads(run("head", orders, "-n", "0", "-o", "json").stdout) == []
        assert run("head", orders, "-n", "0", "--columns", "region", "-o", "csv").stdout == '"region"\n'


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    if path.suffix == ".arrow":
        return pa.ipc.open_file(path).read_all()
    return pa.csv.read_csv(path)


class TestExport:
    @pytest.mark.parametrize("suffix", ["parquet", "arrow"])
    def test_every_row_and_type(self, orders, suffix):
        result = run("export", orders, f"orders.{suffix}")
        assert result.stdout == ""
        assert "59,990 rows" in result.stderr
        assert read(Path(f"orders.{suffix}")).equals(load_as_arrow(orders))

    def test_csv(self, orders):
        run("export", orders, "orders.csv", "--columns", "order_id", "--columns", "region,coupon")
        written, expected = (
            read(Path("orders.csv")),
            load_as_arrow(orders, columns=["order_id", "region", "coupon"]),
        )
        assert written.column_names == expected.column_names
        assert written["order_id"].to_pylist() == expected["order_id"].to_pylist()
        assert Path("orders.csv").read_text().splitlines()[2] == '1,"Europe",'

    def test_json_lines(self, customers):
        run("export", customers, "customers.jsonl", "--limit", "100")
        rows = [json.loads(line) for line in Path("customers.jsonl").read_text().splitlines()]
        expected = load_as_arrow(customers, limit=100).to_pylist()
        assert [row["address"] for row in rows] == [row["address"] for row in expected]
        assert [row["since"] for row in rows] == [row["since"].isoformat() for row in expected]

    def test_nested_columns_in_csv(self, customers):
        run("export", customers, "customers.csv", "--limit", "2", "--columns", "address,tags")
        lines = Path("customers.csv").read_text().splitlines()
        assert lines[1:] == [",", '"{""city"": ""Lima"", ""postcode"": ""10007""}","[""new""]"']

    def test_row_groups_hold_many_small_batches(self, orders):
        run("export", orders, "orders.parquet")
        assert pq.ParquetFile("orders.parquet").num_row_groups == 1

    def test_stdout(self, orders):
        rows = run("export", orders, "-", "--format", "csv", "--limit", "3", "--columns", "order_id").stdout
        assert rows == '"order_id"\n0\n1\n2\n'
        stream = run("export", orders, "-", "--format", "arrow", "--version", "0").stdout_bytes
        assert pa.ipc.open_stream(stream).read_all().num_rows == 10_000

    def test_parquet_is_not_written_to_stdout(self, orders):
        assert "stdout" in run("export", orders, "-", "--format", "parquet", code=2).stderr

    def test_the_format_is_needed(self, orders):
        assert "give the format" in run("export", orders, "orders.data", code=2).stderr

    def test_an_existing_file_is_kept(self, orders):
        Path("orders.csv").write_text("mine")
        assert "--overwrite" in run("export", orders, "orders.csv", code=1).stderr
        assert Path("orders.csv").read_text() == "mine"
        Path("orders.csv").chmod(0o600)
        run("export", orders, "orders.csv", "--overwrite", "--limit", "1")
        assert stat.S_IMODE(Path("orders.csv").stat().st_mode) == 0o600
        assert Path("orders.csv").read_text() != "mine"

    def test_a_link_stays_and_its_target_is_replaced(self, orders):
        Path("target.csv").write_text("mine")
        Path("link.csv").symlink_to("target.csv")
        assert "--overwrite" in run("export", orders, "link.csv", code=1).stderr
        run("export", orders, "link.csv", "--overwrite", "--limit", "1")
        assert Path("link.csv").is_symlink()
        assert Path("target.csv").read_text() != "mine"

    @pytest.mark.skipif(os.name == "nt", reason="Windows has no named pipes in folders")
    def test_a_pipe_is_not_replaced(self, orders):
        os.mkfifo("pipe.csv")
        assert "is a device or a pipe" in run("export", orders, "pipe.csv", "--overwrite", code=1).stderr
        assert stat.S_ISFIFO(Path("pipe.csv").stat().st_mode)

    def test_a_failed_export_leaves_no_file(self, orders):
        run("export", orders, "orders.csv", "--columns", "nope", code=2)
        assert list(Path().iterdir()) == []

    def test_a_folder_that_is_missing(self, orders):
        assert "nowhere" in run("export", orders, "nowhere/orders.csv", code=1).stderr


LATER = ("--timestamp", "2999-01-01T00:00:00Z")


@pytest.mark.parametrize("command", [["head"], ["count"], ["schema"], ["export", "-", "--format", "csv"]])
def test_a_time_after_the_last_commit(orders, command):
    name, *more = command
    assert "--on-future latest" in run(name, orders, *more, *LATER, code=1).stderr
    future = run(name, orders, *more, *LATER, "--on-future", "latest")
    assert future.stdout == run(name, orders, *more).stdout


class TestChanges:
    def test_first_rows(self, orders):
        result = run("changes", orders, "--from", "6", "-n", "3", "-o", "json")
        rows = json.loads(result.stdout)
        assert [row["_change_type"] for row in rows] == ["delete"] * 3
        assert "more changes" in result.stderr

    def test_all_rows_of_a_range(self, orders):
        rows = json.loads(run("changes", orders, "--from", "6", "--to", "6", "-o", "json").stdout)
        assert len(rows) == 10
        assert {row["_commit_version"] for row in rows} == {6}

    def test_a_file(self, orders):
        run("changes", orders, "changes.parquet", "--from", "5")
        expected = load_table_changes_as_arrow(orders, starting_version=5, commit_timestamp="timestamp")
        assert read(Path("changes.parquet")).equals(expected)

    def test_a_time(self, orders):
        rows = run(
            "changes", orders, "--from", "2020-01-01T00:00:00Z", "--columns", "order_id", "-o", "csv"
        ).stdout
        names = "order_id", "_change_type", "_commit_version", "_commit_timestamp"
        assert next(csv.reader(rows.splitlines())) == [*names]

    def test_after_the_last_commit(self, orders):
        assert "--on-future latest" in run("changes", orders, "--from", "2999-01-01T00:00:00Z", code=1).stderr
        later = run("changes", orders, "--from", "2999-01-01", "--on-future", "latest", "-o", "json")
        assert json.loads(later.stdout) == []

    def test_a_table_begins_with_the_change(self, orders):
        lines = run("changes", orders, "--from", "6", "-n", "1").stdout.splitlines()
        assert lines[0].split()[:4] == ["_change_type", "_commit_version", "_commit_timestamp", "order_id"]

    def test_a_start_is_needed(self, orders):
        assert "--from" in run("changes", orders, code=2).stderr


def test_csv_has_one_form_of_times_and_of_nan(tmp_path, profile):
    """Of `head`, `changes`, `export`, `pull` and `history`."""
    rows = pa.table({"x": [math.nan, math.inf, 1.5], "t": [datetime(2024, 1, 31, tzinfo=UTC)] * 3})
    write_deltalake(tmp_path / "t", rows, configuration={"delta.enableChangeDataFeed": "true"})
    with SharingServer({"s.d.t": tmp_path / "t"}) as server:
        url = f"{server.write_profile(tmp_path / 'other.share')}#s.d.t"
        shown = list(csv.reader(run("head", url, "-o", "csv").stdout.splitlines()))
        time = "2024-01-31 00:00:00.000000Z"
        assert shown == [["x", "t"], ["nan", time], ["inf", time], ["1.5", time]]
        assert run("export", url, "-", "--format", "csv").stdout == run("head", url, "-o", "csv").stdout
        changes = run("changes", url, "--from", "0", "-o", "csv").stdout
        assert changes == run("changes", url, "-", "--from", "0", "--format", "csv").stdout
        assert [row[:2] for row in csv.reader(changes.splitlines())] == shown
        run("pull", url, "--checkpoint", "p", "--files", "out", "--format", "csv", "--start", "0")
        assert next(Path("out").iterdir()).read_text() == changes
        (history,) = csv.DictReader(run("history", url, "-o", "csv").stdout.splitlines())
        commit = next(csv.DictReader(changes.splitlines()))
        assert (history["version"], history["time"]) == (commit["_commit_version"], commit["_commit_timestamp"])
