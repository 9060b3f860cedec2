"""The functions and the command line with the Iceberg catalog; what is not available through it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest
from click.testing import CliRunner
from iceberg_server import IcebergServer

import delta_sharing_client as ds
from delta_sharing_client.cli.app import cli
from delta_sharing_client.errors import IcebergError

ORDERS = pa.table({"id": [1, 2, 3], "region": ["Europe", None, "Asia"]})


@pytest.fixture
def profile(iceberg: IcebergServer, tmp_path: Path) -> str:
    iceberg.create("sales.orders", ORDERS)
    path = tmp_path / "config.share"
    path.write_text(json.dumps(iceberg.profile()))
    path.chmod(0o600)
    return str(path)


@pytest.fixture
def url(profile: str) -> str:
    return f"{profile}#retail.sales.orders"


def test_functions_take_the_catalog(url: str) -> None:
    given: dict[str, Any] = {"columns": ["id"], "filters": [("id", ">", 1)], "limit": 1, "catalog": "iceberg"}
    assert ds.load_as_arrow(url, **given).to_pydict() == {"id": [2]}
    pd.testing.assert_frame_equal(ds.load_as_pandas(url, **given), pd.DataFrame({"id": [2]}))
    assert ds.load_as_polars(url, **given)["id"].to_list() == [2]
    assert ds.scan_polars(url, **given).collect()["id"].to_list() == [2]
    assert ds.load_as_duckdb(url, **given).fetchall() == [(2,)]


def test_an_unknown_catalog(url: str) -> None:
    with pytest.raises(ValueError, match="'delta' or 'iceberg'"):
        ds.load_as_pandas(url, catalog="hive")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "arguments", [{"mirror": "folder"}, {"use_delta_format": True}, {"jsonPredicateHints": '{"op": "isNull"}'}]
)
def test_arguments_of_the_protocol_are_refused(url: str, arguments: Any) -> None:
    with pytest.raises(IcebergError, match="Iceberg catalog"):
        ds.load_as_pandas(url, catalog="iceberg", **arguments)


@pytest.mark.parametrize(
    ("call", "subject"),
    [
        (lambda table: table.changes(0), "changes"),
        (lambda table: table.poll_changes(), "changes"),
        (lambda table: table.history(), "changes"),
        (lambda table: table.metadata(), "metadata"),
        (lambda table: table.protocol(), "protocol"),
        (lambda table: table.mirror("folder"), "mirrors"),
        (lambda table: table.to_spark(), "Spark"),
        (lambda table: table.scan().to_dask(), "Dask"),
        (lambda table: table.scan().to_ray(), "Ray"),
        (lambda table: table.scan().materialize("folder"), "materialized"),
        (lambda table: table.scan().mirrored("folder"), "mirrors"),
        (lambda table: table.scan().explain(), "explanations"),
    ],
)
def test_what_iceberg_does_not_have(
    iceberg: IcebergServer, profile: str, call: Callable[[ds.IcebergTable], Any], subject: str
) -> None:
    with ds.SharingClient(profile) as client, pytest.raises(IcebergError) as caught:
        call(client.iceberg.table("retail.sales.orders"))
    assert f"retail.sales.orders: {subject}" in str(caught.value).replace("Delta's ", "").replace(
        "metadata and protocol", subject
    )
    assert "use client.table('retail.sales.orders')" in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["ls", "{profile}"], [{"share": "retail", "comment": None}]),
        (["ls", "{profile}#retail"], [{"share": "retail", "schema": "sales"}]),
        (["ls", "{profile}#retail.sales"], [{"share": "retail", "schema": "sales", "table": "orders"}]),
        (["ls", "{profile}", "--recursive"], [{"share": "retail", "schema": "sales", "table": "orders"}]),
        (["head", "{url}", "-n", "1"], [{"id": 1, "region": "Europe"}]),
        (["head", "{url}", "--columns", "id", "--filter", "region = 'Asia'"], [{"id": 3}]),
        (["count", "{url}"], [{"count": 3}]),
    ],
)
def test_commands_take_the_catalog(profile: str, url: str, arguments: list[str], expected: Any) -> None:
    given = [text.format(profile=profile, url=url) for text in arguments]
    done = CliRunner().invoke(cli, [*given, "--catalog", "iceberg", "--output", "json"], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == expected


def test_the_schema_and_exports_of_the_command_line(profile: str, url: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(cli, ["schema", url, "--catalog", "iceberg", "-o", "json"], catch_exceptions=False)
    assert [(column["name"], column["type"]) for column in json.loads(shown.stdout)] == [
        ("id", "long"),
        ("region", "string"),
    ]
    target = tmp_path / "orders.parquet"
    CliRunner().invoke(cli, ["export", url, str(target), "--catalog", "iceberg"], catch_exceptions=False)
    assert pd.read_parquet(target).id.tolist() == [1, 2, 3]


def test_facts_of_the_command_line(iceberg: IcebergServer, url: str) -> None:
    table = iceberg.catalog.load_table("sales.orders")
    with table.transaction() as change:
        change.set_properties(owner="sales", comment="all orders")
    shown = CliRunner().invoke(cli, ["show", url, "--catalog", "iceberg", "-o", "json"], catch_exceptions=False)
    assert shown.exit_code == 0, shown.output
    facts = json.loads(shown.stdout)
    (file,) = table.scan().plan_files()
    assert facts == {
        "table": "retail.sales.orders",
        "description": "all orders",
        "id": str(table.metadata.table_uuid),
        "version": table.current_snapshot().snapshot_id,
        "files": 1,
        "bytes": file.file.file_size_in_bytes,
        "columns": 2,
        "partition_columns": [],
        "format": "iceberg",
        "reader_version": table.format_version,
        "reader_features": [],
        "properties": {"owner": "sales", "comment": "all orders"},
    }


def test_representations(profile: str) -> None:
    with ds.SharingClient(profile) as client:
        table = client.iceberg.table(("retail", "sales", "orders"))
        assert repr(table) == "IcebergTable('retail.sales.orders')"
        assert repr(client.iceberg).startswith("IcebergCatalog('http://127.0.0.1:")
        assert "retail.sales.orders" in table.scan(limit=3)._repr_html_()
        assert client.iceberg["retail.sales.orders"] == table
