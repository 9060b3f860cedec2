"""Materialized and mirrored golden tables, read by delta-spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer

TABLES = Path(__file__).parents[1] / "golden" / "tables"
CASES = {path.parent.name: json.loads(path.read_text("utf-8")) for path in sorted(TABLES.glob("*/case.json"))}
FOLLOWED = [name for name, facts in CASES.items() if len(facts["versions"]) > 1]


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in CASES}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


def rows(spark: Any, path: Path, version: int | None = None) -> list[str]:
    """What delta-spark reads, each row as JSON."""
    reader = spark.read.format("delta")
    return as_json((reader if version is None else reader.option("versionAsOf", version)).load(str(path)))


def as_json(frame: Any) -> list[str]:
    """The rows of a frame as JSON, in any order."""
    from pyspark.sql import functions as F

    if not frame.columns:
        return ["{}"] * frame.count()
    columns = []
    for field in sorted(frame.schema, key=lambda field: field.name):
        column = F.col(f"`{field.name.replace('`', '``')}`")
        # In JSON a key that is a struct shows as an address in memory.
        odd = "map<struct" in field.dataType.simpleString()
        columns.append(column.cast("string").alias(field.name) if odd else column)
    return sorted(row[0] for row in frame.select(F.to_json(F.struct(*columns))).collect())


@pytest.mark.parametrize("name", CASES)
def test_materialized_snapshot(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    made = client.table(f"golden.tables.{name}").scan().materialize(tmp_path / "copy", progress=False)
    assert rows(spark, made.path) == rows(spark, TABLES / name / "table")


@pytest.mark.parametrize("name", FOLLOWED)
def test_mirror(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    mirror = client.table(f"golden.tables.{name}").mirror(tmp_path / "mirror")
    versions = sorted(map(int, CASES[name]["versions"]))
    for version in versions:
        mirror.sync(at_version=version, progress=False)
    for local, version in enumerate(versions):
        assert rows(spark, mirror.directory, local) == rows(spark, TABLES / name / "table", version)


FEEDS = [
    (name, facts["first"], facts["last"]) for name, case in CASES.items() for facts in case.get("changes", [])
]


def change_rows(spark: Any, path: Path, first: int, last: int) -> list[str]:
    """The change rows that delta-spark reads, with versions and times, each as JSON."""
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    return as_json(reader.option("startingVersion", first).option("endingVersion", last).load(str(path)))


@pytest.mark.parametrize(("name", "first", "last"), FEEDS)
def test_materialized_changes(
    name: str, first: int, last: int, spark: Any, client: SharingClient, tmp_path: Path
) -> None:
    made = (
        client.table(f"golden.tables.{name}").changes(first, last).materialize(tmp_path / "copy", progress=False)
    )
    expected = change_rows(spark, TABLES / name / "table", first, last)
    assert change_rows(spark, made.path, first, last) == expected
