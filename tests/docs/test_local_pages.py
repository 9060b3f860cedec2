"""docs/mirror.md and docs/delta_log.md: their code runs, and their figures are those of the code."""

from __future__ import annotations

import inspect
from datetime import timedelta
from pathlib import Path

import pytest
from test_readme import run_blocks

from delta_sharing_client import DeltaLog
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.log.checkpoint_writer import DELETED_FILE_RETENTION
from delta_sharing_client.log.log_cache import EXPIRY
from delta_sharing_client.log.metadata_cleanup import LOG_RETENTION
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import parquet_frame
from delta_sharing_client.spark.stored_columns import VARIANT_FILES_SINCE


def test_the_page_about_mirrors_runs(
    root: Path, workplace: SharingServer, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = run_blocks(root / "docs" / "mirror.md")
    output = capsys.readouterr().out
    assert "False" in output  # the loads before had synced it
    assert namespace["result"].bytes_fetched == 0
    assert "True\n0 old files removed" in output
    assert set(namespace["europe"].columns) == {"order_id", "amount"}
    assert len(namespace["europe"])
    assert DeltaLog.for_table("copies/orders").snapshot().version == 0
    namespace["orders"]._rest.close()
    run_blocks(root / "docs" / "mirror.md")["orders"]._rest.close()  # a second run


def test_the_page_about_logs_runs(root: Path, workplace: SharingServer) -> None:
    namespace = run_blocks(root / "docs" / "delta_log.md")
    assert namespace["new"].latest_version() == 2
    assert namespace["new"].snapshot().transactions["my-job"].version == 7
    run_blocks(root / "docs" / "delta_log.md")  # a second run


def test_their_figures_are_the_defaults(root: Path) -> None:
    mirrors, logs = ((root / "docs" / f"{name}.md").read_text("utf-8") for name in ("mirror", "delta_log"))
    assert inspect.signature(Mirror.vacuum).parameters["retain"].default == timedelta(days=7)
    assert "7 days by default" in mirrors
    assert timedelta(hours=1) == EXPIRY
    assert timedelta(days=7) == DELETED_FILE_RETENTION
    assert timedelta(days=30) == LOG_RETENTION
    assert "30 days" in logs
    assert "30 days" in mirrors
    assert f"more than {parquet_frame._MOST_DELETED:,} deleted rows" in mirrors
    assert f"more than {parquet_frame._MOST_GROUPS} kinds of files" in mirrors
    assert f"before Spark {'.'.join(map(str, VARIANT_FILES_SINCE))}" in mirrors
    assert "for an hour" in logs
    for name in ("sync", "scan", "verify", "vacuum", "shared_version", "log"):
        assert f"| `{name}" in mirrors
        assert hasattr(Mirror, name)
    public = [n for n in dir(DeltaLog) if not n.startswith("_") and n != "checkpoint_if_due"]
    described = {"latest_version", "commit_timestamp", "version_at_or_after", "version_at_or_before"}
    for name in set(public) - described:
        assert name in logs
