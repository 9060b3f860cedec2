"""Mirrors loaded into a session with delta-spark, which reads them as Delta tables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from golden.test_golden import CASES, READABLE, TABLES, Case, columns_of, ordered

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.delta.mirror.mirror_scan import MirrorScan
from delta_sharing_client.scan.planner import ScanPlan
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import mirror_files
from delta_sharing_client.spark.mirror import mirror_dataframe


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


def reads_delta(frame: Any) -> bool:
    """Whether delta-spark reads a frame's files, and not Spark alone."""
    return "DeltaFileIndex" in frame._jdf.queryExecution().executedPlan().toString()


def same(frame: Any, expected: pa.Table, case: Case) -> None:
    found = collected(frame)
    assert columns_of(found) == columns_of(expected)
    assert ordered(found, case.key) == ordered(expected, case.key)


#: Delta-spark fills texts of char(n) up with blanks; for variants inside of lists it can call no function.
NOT_BY_DELTA = ("primitives", "partition_char", "variant_nested", "variant_shredded_nested")


@pytest.mark.parametrize("case", READABLE)
def test_load_as_spark(case: Case, spark: Any, profile: str, client: SharingClient, tmp_path: Path) -> None:
    expected = client.table(case.table_name).scan(variant="json").to_arrow()
    url = f"{profile}#{case.table_name}"
    frame = ds.load_as_spark(url, spark=spark, mirror=tmp_path / "mirror", variant="json")
    assert reads_delta(frame) == (case.name not in NOT_BY_DELTA)
    same(frame, expected, case)
    chosen = [*case.key, expected.column_names[-1]]
    chosen = list(dict.fromkeys(chosen))
    part = ds.load_as_spark(url, spark=spark, mirror=tmp_path / "mirror", variant="json", columns=chosen)
    same(part, expected.select(chosen), case)


@pytest.mark.parametrize("case", [param for param in READABLE if "variant" in str(param.id)])
def test_variants_of_sparks_own_type(
    case: Case, spark: Any, profile: str, client: SharingClient, tmp_path: Path
) -> None:
    frame = ds.load_as_spark(f"{profile}#{case.table_name}", spark=spark, mirror=tmp_path / "mirror")
    assert reads_delta(frame)
    assert "variant" in frame.schema.simpleString()
    alone = mirror_files.MirrorFiles(spark, *planned(client.table(case.table_name).mirror(tmp_path / "mirror")))
    texts = [
        sorted(repr(row) for row in each.selectExpr("to_json(struct(*))").collect())
        for each in (frame, alone.frame())
    ]
    assert texts[0] == texts[1]


def planned(mirror: Mirror) -> tuple[MirrorScan, ScanPlan]:
    scan = mirror.scan()
    return scan, scan.plan()


@pytest.mark.parametrize("name", ["dv_update", "mapping_id_partition_dv", "widening_integers"])
def test_older_versions(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    case = CASES[name]
    table = client.table(case.table_name)
    mirror = table.mirror(tmp_path / "mirror")
    for version in case.versions:
        mirror.sync(at_version=version, progress=False)
    for version in case.versions:
        frame = mirror_dataframe(mirror.scan(version=version), spark)
        assert reads_delta(frame)
        same(frame, table.scan(version=version).to_arrow(), case)


def test_a_feature_that_this_delta_spark_does_not_know(spark: Any, client: SharingClient, tmp_path: Path) -> None:
    """Such a mirror is read without it."""
    case = CASES["timestamp_ntz"]
    table = client.table(case.table_name)
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    protocol = dict(mirror.log.snapshot().protocol.raw)
    for kind in ("readerFeatures", "writerFeatures"):
        protocol[kind] = [*protocol[kind], "typeWidening-dev"]
    mirror.log.commit([{"protocol": protocol}])
    with pytest.raises(Exception, match="typeWidening-dev"):
        spark.read.format("delta").load(str(mirror.directory)).collect()
    frame = mirror_dataframe(mirror.scan(), spark)
    assert not reads_delta(frame)
    same(frame, table.scan().to_arrow(), case)
