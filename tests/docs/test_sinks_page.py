"""docs/sinks.md: its code runs, and its figures are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import duckdb
import pytest
from test_readme import run_blocks

import delta_sharing_client as ds
from delta_sharing_client.model.schema import PRIMITIVES
from delta_sharing_client.server import SharingServer
from delta_sharing_client.sinks.sql import BOOKKEEPING


def test_it_runs(root: Path, workplace: SharingServer, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "docs" / "sinks.md"
    namespace = run_blocks(path)
    output = capsys.readouterr().out
    orders = namespace["orders"]
    assert isinstance(orders, ds.SharedTable)
    count = orders.scan().count()
    assert f"WriteResult(version=7, skipped=False, inserted={count}, deleted=0)" in output
    assert BOOKKEEPING in path.read_text(encoding="utf-8")
    with duckdb.connect("shop.duckdb") as connection:
        assert connection.sql("SELECT count(*) FROM orders").fetchall() == [(count,)]
    log = ds.DeltaLog.for_table("lake/order_changes").snapshot()
    assert [item.version for item in log.transactions.values()] == [7]
    orders._rest.close()
    run_blocks(path)["orders"]._rest.close()  # a second run finds nothing new
    assert "WriteResult(" not in capsys.readouterr().out


def test_its_figures_are_the_defaults(root: Path) -> None:
    text = (root / "docs" / "sinks.md").read_text(encoding="utf-8")
    for sink in (ds.sinks.DeltaSink, ds.sinks.DuckDBSink, ds.sinks.SQLiteSink):
        parameters = inspect.signature(sink).parameters
        assert parameters["mode"].default == "append"
        assert parameters["change_columns"].default is True
        assert parameters["add_columns"].default is True
        assert f"`{sink.__name__}(" in text
    assert '| `mode="append"` (default) |' in text


def test_its_table_has_every_type(root: Path) -> None:
    text = (root / "docs" / "sinks.md").read_text(encoding="utf-8")
    lines = text.split("| shared table |")[1].split("\n\n")[0].splitlines()[2:]
    named = {name for line in lines for name in re.findall(r"`([a-z_]+)", line.split("|")[1])}
    assert named == {*PRIMITIVES, "decimal", "array", "struct", "map"}
