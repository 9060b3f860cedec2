"""docs/changes.md: its code runs, and its figures are those of the code."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path

import pytest
from test_readme import run_blocks

from delta_sharing_client.cdf.options import CHANGE_COLUMNS, CHECK_TABLE_EVERY, MIN_INTERVAL
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


def test_it_runs(root: Path, workplace: SharingServer, capsys: pytest.CaptureFixture[str]) -> None:
    path = root / "docs" / "changes.md"
    namespace = run_blocks(path)
    output = capsys.readouterr().out
    assert "update_postimage" in output
    assert "ChangeBatch('retail.sales.orders', versions 6 to 7," in output
    assert f"{len(namespace['changes'])} changes" in output
    assert len(namespace["frame"]) > 60_000
    assert Path("orders.checkpoint").is_file()
    again = run_blocks(path)
    for each in (namespace, again):
        each["orders"]._rest.close()
    assert "ChangeBatch(" not in capsys.readouterr().out  # the checkpoint has them


def test_its_figures_are_the_defaults(root: Path) -> None:
    text = (root / "docs" / "changes.md").read_text(encoding="utf-8")
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(SharedTable.poll_changes).parameters.items()
    }
    assert (defaults["poll_interval"], MIN_INTERVAL) == (timedelta(seconds=30), timedelta(seconds=10))
    assert defaults["max_versions"] == 100
    assert defaults["check_table_every"] == CHECK_TABLE_EVERY == 20
    assert "one in 20 of them" in text
    assert "every 30 seconds (`poll_interval`)" in text
    assert "Less than 10 seconds" in text
    assert "at most 100 versions (`max_versions`)" in text
    assert all(f"| `{name}` |" in text for name in CHANGE_COLUMNS)
