"""Mirrors loaded into a session with delta-spark: the rows are those of every other loader."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden.test_golden import CASES, READABLE, TABLES, Case, columns_of, ordered

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.local_dataframe import mirror_dataframe


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    tables = {case.table_name: TABLES / case.name / "table" for case in CASES.values()}
    with SharingServer(tables) as server:
        yield str(server.write_profile(tmp_path_factory.mktemp("golden") / "golden.share"))


@pytest.fixture(scope="module")
def client(profile: str) -> Iterator[SharingClient]:
    with SharingClient(profile) as client:
        yield client


def collected(frame: Any) -> pa.Table:
    batches = frame._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else frame.toArrow()


def same(frame: Any, expected: pa.Table, case: Case) -> None:
    found = collected(frame)
    assert columns_of(found) == columns_of(expected)
    assert ordered(found, case.key) == ordered(expected, case.key)


@pytest.mark.parametrize("case", READABLE)
def test_load_as_spark(case: Case, spark: Any, profile: str, client: SharingClient, tmp_path: Path) -> None:
    expected = client.table(case.table_name).scan(variant="json").to_arrow()
    url = f"{profile}#{case.table_name}"
    frame = ds.load_as_spark(url, spark=spark, mirror=tmp_path / "mirror", variant="json")
    same(frame, expected, case)
    chosen = [*case.key, expected.column_names[-1]]
    chosen = list(dict.fromkeys(chosen))
    part = ds.load_as_spark(url, spark=spark, mirror=tmp_path / "mirror", variant="json", columns=chosen)
    same(part, expected.select(chosen), case)


@pytest.mark.parametrize("name", ["dv_update", "mapping_id_partition_dv", "widening_integers"])
def test_older_versions(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    case = CASES[name]
    table = client.table(case.table_name)
    mirror = table.mirror(tmp_path / "mirror")
    for version in case.versions:
        mirror.sync(at_version=version, progress=False)
    for version in case.versions:
        frame = mirror_dataframe(mirror.scan(version=version), spark)
        same(frame, table.scan(version=version).to_arrow(), case)
