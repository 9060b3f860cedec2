"""Version, metadata, protocol and commands for tables that are offered by their directory only."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from click.testing import CliRunner
from deltalake import write_deltalake
from directory_store import DirectoryServer

import delta_sharing_client as ds
from delta_sharing_client.cli.app import cli
from delta_sharing_client.errors import BadRequestError
from delta_sharing_client.server import SharingServer

LATER = "2999-01-01T00:00:00Z"


@pytest.fixture
def source(shared: DirectoryServer) -> Path:
    for number in range(3):
        rows = pa.table({"p": [number % 2] * 4, "x": range(4)})
        properties = {"delta.enableChangeDataFeed": "true", "delta.enableDeletionVectors": "true"}
        write_deltalake(shared.path, rows, mode="append", partition_by=["p"], configuration=properties)
        # The store states whole seconds.
        os.utime(shared.path / "_delta_log" / f"{number:020}.json", (1_700_000_000 + number,) * 2)
    return shared.path


@pytest.fixture
def by_url(source: Path) -> Iterator[SharingServer]:
    with SharingServer({"s.d.t": source}) as server:
        yield server


@pytest.fixture(params=["listed", "named"])
def table(shared: DirectoryServer, source: Path, request: pytest.FixtureRequest) -> ds.SharedTable:
    client = ds.SharingClient(shared.api.profile)
    return client.table("s.d.t") if request.param == "named" else client.tables()[0]


def profile_of(server: Any, path: Path) -> str:
    path.touch(0o600)
    path.write_text(json.dumps(server.profile))
    return str(path)


def test_results_are_those_by_url(table: ds.SharedTable, by_url: SharingServer) -> None:
    other = ds.SharingClient(by_url.profile).table("s.d.t")
    assert table.version() == other.version() == 2
    assert table.version("2000-01-01") == other.version("2000-01-01") == 0
    assert table.schema() == other.schema()
    assert table.schema(version=1).partition_columns == ("p",)
    assert table.columns == ["p", "x"]
    assert table.protocol().reader_features == other.protocol().reader_features
    found, expected = table.metadata(), other.metadata()
    for name in ("id", "schema_string", "partition_columns", "configuration", "description"):
        assert getattr(found, name) == getattr(expected, name)
    assert found.access_modes == ("dir",)
    assert table.scan(["x"]).schema == other.scan(["x"]).schema
    assert table.changes(1).schema == other.changes(1).schema
    assert table.history() == other.history()
    assert table.to_dataset(columns=["x"]).count_rows() == 12
    assert table.to_polars_lazy().select("x").collect().height == 12


def test_times_after_the_last_commit(table: ds.SharedTable) -> None:
    with pytest.raises(BadRequestError):
        table.version(LATER)
    with pytest.raises(BadRequestError, match="or on_future='latest'"):
        table.metadata(timestamp=LATER)
    assert table.version(LATER, on_future="latest") == 2
    assert table.metadata(timestamp=LATER, on_future="latest") == table.metadata()
    assert table.changes(starting_timestamp=LATER, on_future="latest").count() == 0
    assert table.changes(0, ending_timestamp=LATER).count() == 12


def test_functions(shared: DirectoryServer, source: Path, tmp_path: Path) -> None:
    url = f"{profile_of(shared.api, tmp_path / 'config.share')}#s.d.t"
    assert ds.get_table_version(url) == 2
    assert ds.get_table_metadata(url).schema.names == ["p", "x"]
    assert ds.get_table_protocol(url).min_reader_version == 3


@pytest.mark.parametrize("command", ["show", "schema", "history", "count"])
def test_commands(shared: DirectoryServer, by_url: SharingServer, tmp_path: Path, command: str) -> None:
    shown = []
    for server, name in ((shared.api, "dir.share"), (by_url, "url.share")):
        url = f"{profile_of(server, tmp_path / name)}#s.d.t"
        done = CliRunner().invoke(cli, [command, url, "-o", "json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        shown.append(json.loads(done.stdout))
    assert shown[0] == shown[1]


def test_profile_check(shared: DirectoryServer, source: Path, tmp_path: Path) -> None:
    profile = profile_of(shared.api, tmp_path / "config.share")
    done = CliRunner().invoke(cli, ["profile", "check", profile, "-o", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    facts = json.loads(done.stdout)
    assert (facts["first_table"], facts["access"], facts["change_data_feed"]) == ("s.d.t", ["dir"], True)
