"""Mirrors read by Spark's own Parquet reader, without delta-spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.errors import SparkError
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.mirror import mirror_dataframe

TABLES = Path(__file__).parents[1] / "golden" / "tables"
CASES = (
    "primitives",
    "nested",
    "partition_strings",
    "partition_strings_odd",
    "partition_types",
    "partition_timestamps",
    "partition_timestamps_plain",
    "partition_timestamp_ntz",
    "partition_binary",
    "partition_order",
    "special_partition_name",
    "special_names",
    "mixed_case",
    "void",
    "emptied",
    "schema_evolution",
    "dv_delete",
    "dv_shared_file",
    "dv_inline",
    "dv_partitioned_nested",
    "mapping_name",
    "mapping_swapped",
    "mapping_name_partition_dv",
    "timestamp_ntz",
)
REFUSED = {
    "mapping_id": "columns are mapped by id",
    "widening_integers": "types of its columns were widened",
}


@pytest.fixture(scope="module")
def client() -> Iterator[SharingClient]:
    tables = {f"golden.tables.{name}": TABLES / name / "table" for name in (*CASES, *REFUSED)}
    with SharingServer(tables) as server, SharingClient(server.profile) as client:
        yield client


def rows(frame: Any) -> list[str]:
    """Rows of a Spark frame as JSON, in any order."""
    from pyspark.sql import functions as F

    if not frame.columns:
        return ["{}"] * frame.count()
    quoted = []
    for field in frame.schema:
        column = F.col(f"`{field.name.replace('`', '``')}`")
        # In JSON a key that is a struct shows as an address in memory.
        odd = "map<struct" in field.dataType.simpleString()
        quoted.append(column.cast("string").alias(field.name) if odd else column)
    return sorted(row[0] for row in frame.select(F.to_json(F.struct(*quoted))).collect())


@pytest.mark.parametrize("name", CASES)
def test_the_rows_of_the_shared_table(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    table = client.table(f"golden.tables.{name}")
    mirror = table.mirror(tmp_path / "mirror with space")
    mirror.sync()
    frame = mirror_dataframe(mirror.scan(), spark)
    expected = table.scan().to_spark(spark)
    assert frame.columns == expected.columns
    assert [field.dataType for field in frame.schema] == [field.dataType for field in expected.schema]
    assert rows(frame) == rows(expected)


@pytest.mark.parametrize("name", REFUSED)
def test_what_spark_alone_cannot_do(name: str, spark: Any, client: SharingClient, tmp_path: Path) -> None:
    mirror = client.table(f"golden.tables.{name}").mirror(tmp_path / "mirror")
    mirror.sync()
    with pytest.raises(SparkError, match=f"cannot be read by Spark alone: .*{REFUSED[name]}.*delta-spark"):
        mirror_dataframe(mirror.scan(), spark)


def test_load_as_spark(spark: Any, sample_server: SharingServer, tmp_path: Path) -> None:
    profile = tmp_path / "p.share"
    profile.write_text(json.dumps(sample_server.profile))
    profile.chmod(0o600)
    url = f"{profile}#retail.sales.orders"
    plain = ds.load_as_spark(url, spark=spark, columns=["order_id", "amount"])
    frame = ds.load_as_spark(url, spark=spark, columns=["order_id", "amount"], mirror=tmp_path / "m")
    assert frame.count() == plain.count()
    assert frame.agg({"amount": "sum"}).first() == plain.agg({"amount": "sum"}).first()
    sample_server.reset_requests()
    assert frame.where("amount > 100").count() == plain.where("amount > 100").count()
    physical = frame.select("amount").where("amount > 100")._jdf.queryExecution().executedPlan().toString()
    # Spark's own reader: the one column is read, and the filter pushed down.
    assert "ReadSchema: struct<amount:" in physical
    assert "PushedFilters: [IsNotNull(amount), GreaterThan(amount," in physical
    with pytest.raises(ValueError, match="use where"):
        ds.load_as_spark(url, spark=spark, limit=3, mirror=tmp_path / "m")


def test_partitions_are_pruned(spark: Any, client: SharingClient, tmp_path: Path) -> None:
    mirror = client.table("golden.tables.dv_partitioned_nested").mirror(tmp_path / "mirror")
    mirror.sync()
    column = mirror.log.snapshot().metadata.partition_columns[0]
    frame = mirror_dataframe(mirror.scan(), spark)
    physical = frame.where(f"`{column}` IS NOT NULL")._jdf.queryExecution().executedPlan().toString()
    assert f"PartitionFilters: [isnotnull({column}" in physical
