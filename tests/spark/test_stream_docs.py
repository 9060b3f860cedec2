"""docs/streaming.md: its code runs, and its tables are those of the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from test_stream_planning import PASSES, deleting, rewriting

import delta_sharing_client as ds
from delta_sharing_client.cdf.options import CHECK_TABLE_EVERY
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import session as sessions
from delta_sharing_client.spark.data_source_options import (
    INTERVAL,
    MAX_FILES,
    MAX_VERSIONS,
    MIN_INTERVAL,
)
from delta_sharing_client.spark.option_parsers import OPTIONS, STREAM_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "streaming.md"
TEXT = PAGE.read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    lines = TEXT.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0].splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith("|"))
    found = []
    for line in lines[first + 2 :]:
        if not line.startswith("|"):
            break
        found.append([cell.strip() for cell in line.strip("|").split("|")])
    return found


def test_the_page_lists_every_option() -> None:
    rows = {row[0].strip("`"): row[2] for row in table("What is read")}
    batch_too = {"startingVersion", "startingTimestamp", "readChangeFeed"}
    assert rows.keys() == {*STREAM_OPTIONS, *batch_too}
    for name in set(OPTIONS) - batch_too - {"path"}:
        assert f"`{name}`" in TEXT
    assert rows["maxFilesPerTrigger"].startswith(f"{MAX_FILES},")
    assert rows["maxVersionsPerRpc"] == f"{MAX_VERSIONS}"
    assert rows["checkTableEvery"] == f"{CHECK_TABLE_EVERY}"
    assert rows["queryTableVersionIntervalSeconds"] == f"{INTERVAL:g}"
    assert f"at least {MIN_INTERVAL:g}, unless" in TEXT


def test_the_minimum_interval_is_that_of_pollers() -> None:
    from delta_sharing_client.cdf.options import MIN_INTERVAL as OF_POLLERS

    assert OF_POLLERS.total_seconds() == MIN_INTERVAL


def test_the_table_of_accepted_versions_is_that_of_the_code() -> None:
    """The table, compared with what `test_stream_planning` shows to be so."""
    rows = {row[0].strip("`").replace("none", ""): row[2:] for row in table("Versions that delete or rewrite")}
    assert rows.keys() == {*PASSES, "readChangeFeed"}
    for option, shown in PASSES.items():
        for commit, cell in zip((deleting, rewriting), rows[option], strict=True):
            ids = shown[commit]
            expected = "stops" if ids is None else "all rows" if ids else "no rows"
            assert cell.startswith(expected), (option, cell)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")
def test_the_code_of_the_page_runs(
    spark: SparkSession, sample_server: SharingServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if sessions.spark_version(spark) < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    # Spark's driver stands where it was started, so the paths of the page are made absolute.
    profile = sample_server.write_profile(tmp_path / "config.share")
    names: dict[str, Any] = {"spark": spark}
    for block in re.findall(r"^```python\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE) * 2:
        text = block.replace("config.share", str(profile)).replace("orders_c", f"{tmp_path}/orders_c")
        exec(compile(text, str(PAGE), "exec"), names)
    copy = spark.read.parquet(str(tmp_path / "orders_copy"))
    assert copy.columns == ["order_id", "region", "amount"]
    assert copy.count() == ds.SharingClient(sample_server.profile).table("retail.sales.orders").scan().count()
