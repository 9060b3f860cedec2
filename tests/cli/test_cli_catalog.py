"""`ls`, `schema`, `show`, `count`, `history` and `profile check`."""

from __future__ import annotations

import csv
import io
import json
import socket
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from click.shell_completion import ShellComplete
from command_runs import run
from faults.server import FaultServer, Reply

from delta_sharing_client.cli.app import cli
from delta_sharing_client.server import ServerOptions, SharingServer, write_sample_tables


class TestLs:
    def test_shares(self, profile):
        assert json.loads(run("ls", profile, "-o", "json").stdout) == [{"share": "retail", "comment": None}]

    def test_names_in_backticks(self, profile):
        tables = run("ls", f"{profile}#retail.sales", "-o", "csv").stdout
        assert run("ls", f"{profile}#`retail`.`sales`", "-o", "csv").stdout == tables
        assert "ops" in run("ls", f"{profile}#`retail`").stdout
        assert run("count", f"{profile}#`retail`.`sales`.`orders`").stdout == "59990\n"

    def test_schemas_of_a_share(self, profile):
        rows = list(csv.DictReader(io.StringIO(run("ls", f"{profile}#retail", "-o", "csv").stdout)))
        assert rows == [{"share": "retail", "schema": "ops"}, {"share": "retail", "schema": "sales"}]

    def test_tables_of_a_schema(self, profile):
        rows = json.loads(run("ls", f"{profile}#retail.sales", "--output", "json").stdout)
        assert [row["table"] for row in rows] == ["customers", "orders"]

    @pytest.mark.parametrize("name", ["", "#retail"])
    def test_all_tables(self, profile, name):
        lines = run("ls", profile + name, "-r").stdout.splitlines()
        assert [line.split() for line in lines if "retail" in line] == [
            ["retail", "ops", "sensor_readings"],
            ["retail", "sales", "customers"],
            ["retail", "sales", "orders"],
        ]

    def test_a_share_whose_name_has_a_dot(self, tmp_path, profile):
        tables = write_sample_tables(tmp_path / "tables")
        with SharingServer({"a.b.sales.orders": tables["retail.sales.orders"]}) as dotted:
            path = dotted.write_profile(tmp_path / "dotted.share")
            rows = json.loads(run("ls", f"{path}#a.b", "-o", "json").stdout)
            assert rows == [{"share": "a.b", "schema": "sales"}]
            assert json.loads(run("ls", f"{path}#a.b.sales", "-o", "json").stdout)[0]["table"] == "orders"

    def test_the_profile_of_the_environment(self, server, monkeypatch, profile):
        monkeypatch.setenv("DELTA_SHARING_ENDPOINT", server.endpoint)
        monkeypatch.setenv("DELTA_SHARING_BEARER_TOKEN", server.profile["bearerToken"])
        assert "retail" in run("ls").stdout
        assert run("count", "retail.sales.orders").stdout == run("count", "#retail.sales.orders").stdout
        monkeypatch.setenv("DELTA_SHARING_PROFILE", profile)
        monkeypatch.setenv("DELTA_SHARING_BEARER_TOKEN", "wrong")
        assert "ops" in run("ls", "#retail").stdout


def test_schema(orders):
    rows = {row["name"]: row for row in json.loads(run("schema", orders, "-o", "json").stdout)}
    assert rows["amount"]["type"] == "decimal(12,2)"
    assert [name for name, row in rows.items() if row["partition"]] == ["order_date"]
    assert "decimal(12,2)" in run("schema", orders, "--version", "0").stdout


def test_show(orders):
    facts = json.loads(run("show", orders, "-o", "json").stdout)
    assert facts["version"] == 7
    assert facts["files"] == 6
    assert facts["bytes"] > 1_000_000
    assert facts["partition_columns"] == ["order_date"]
    assert any("ChangeDataFeed" in name for name in facts["properties"])
    text = run("show", orders).stdout
    assert "partition columns" in text
    assert f"{facts['bytes']:,}" in text
    assert "version,7" in run("show", orders, "-o", "csv").stdout.splitlines()


def test_show_lists_the_files_if_the_server_states_no_size(tmp_path, profile):
    tables = write_sample_tables(tmp_path / "tables")
    with SharingServer(tables, options=ServerOptions.like_reference()) as server:
        path = server.write_profile(tmp_path / "reference.share")
        facts = json.loads(run("show", f"{path}#retail.sales.orders", "-o", "json").stdout)
    assert facts["files"] == 6
    assert facts["bytes"] > 1_000_000


def test_count(orders):
    assert run("count", orders).stdout == "59990\n"
    assert run("count", orders, "--version", "0").stdout == "10000\n"
    assert json.loads(run("count", orders, "-o", "json").stdout) == [{"count": 59990}]
    filtered = run("count", orders, "--filter", "order_date = '2024-01-02' AND order_id < 10005").stdout
    assert filtered == "5\n"


class TestHistory:
    def test_versions_and_their_rows(self, orders):
        rows = json.loads(run("history", orders, "-o", "json").stdout)
        assert [row["version"] for row in rows] == [7, 6, 5, 4, 3, 2, 1, 0]
        changed = [(row["inserted"], row["updated"], row["deleted"]) for row in rows]
        assert changed[:3] == [(0, 8, 0), (0, 0, 10), (10000, 0, 0)]

    def test_latest_versions(self, orders):
        assert [row["version"] for row in json.loads(run("history", orders, "-n", "2", "-o", "json").stdout)] == [
            7,
            6,
        ]

    def test_a_table_without_a_change_data_feed(self, customers):
        assert run("history", customers, code=1).stderr.startswith("Error: table retail.sales.customers")


class TestProfileCheck:
    def test_a_valid_profile(self, profile):
        facts = json.loads(run("profile", "check", profile, "-o", "json").stdout)
        assert facts["shares"] == ["retail"]
        assert facts["type"] == "bearer_token"
        assert "hours left" in facts["valid_until"]
        assert facts["response_format"] in ("delta", "parquet")
        assert abs(facts["clock_skew_seconds"]) <= 60

    @pytest.mark.parametrize(
        ("name", "options", "found"),
        [
            ("retail.sales.orders", {"prefer_format": "parquet"}, True),
            ("retail.sales.orders", {"prefer_format": "delta"}, True),
            ("retail.sales.customers", {"prefer_format": "parquet"}, None),
            ("retail.sales.customers", {"prefer_format": "delta"}, False),
        ],
    )
    def test_the_change_data_feed(self, tmp_path, name, options, found):
        table = write_sample_tables(tmp_path / "warehouse")[name]
        with SharingServer({name: table}, **options) as server:
            path = str(server.write_profile(tmp_path / "p.share"))
            assert json.loads(run("profile", "check", path, "-o", "json").stdout)["change_data_feed"] is found
            assert ("unknown" in run("profile", "check", path).stdout) == (found is None)

    def test_a_server_whose_clock_is_an_hour_ahead(self, tmp_path):
        path = tmp_path / "ahead.share"
        headers = {"Date": format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)}
        with FaultServer() as faults:
            faults.on("GET", "*", Reply.of_json({"items": []}).but(headers=headers))
            path.write_text(json.dumps(faults.profile))
            path.chmod(0o600)
            facts = json.loads(run("profile", "check", str(path), "-o", "json").stdout)
        assert facts["clock_skew_seconds"] == pytest.approx(3600, abs=60)
        assert facts["first_table"] is None

    def test_the_token_is_not_shown(self, profile, server):
        assert server.profile["bearerToken"] not in run("profile", "check", profile).output

    def test_a_wrong_token(self, server, tmp_path):
        path = tmp_path / "wrong.share"
        path.write_text(json.dumps({**server.profile, "bearerToken": "wrong-token-text"}))
        path.chmod(0o600)
        result = run("profile", "check", str(path), code=4)
        assert "401" in result.stderr
        assert "wrong-token-text" not in result.output

    def test_no_server(self, tmp_path, monkeypatch):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        monkeypatch.setenv("DELTA_SHARING_ENDPOINT", f"http://127.0.0.1:{port}/")
        monkeypatch.setenv("DELTA_SHARING_BEARER_TOKEN", "token")
        monkeypatch.delenv("DELTA_SHARING_PROFILE", raising=False)
        assert "127.0.0.1" in run("profile", "check", code=5).stderr


class TestCompletion:
    """What click offers to the shell."""

    @staticmethod
    def offered(text: str) -> list[tuple[str, str]]:
        found = ShellComplete(cli, {}, "delta-sharing", "_COMPLETE").get_completions(["head"], text)
        return [(item.type, item.value) for item in found]

    def test_tables_of_a_profile(self, profile):
        assert self.offered(f"{profile}#retail.sales.o") == [("plain", f"{profile}#retail.sales.orders")]

    def test_tables_of_the_environment_besides_files(self, profile, monkeypatch):
        monkeypatch.setenv("DELTA_SHARING_PROFILE", profile)
        assert self.offered("retail.sales.o") == [("file", "retail.sales.o"), ("plain", "retail.sales.orders")]

    def test_files_without_a_profile(self, profile):
        assert self.offered("conf") == [("file", "conf")]
        assert self.offered("missing.share#") == []
