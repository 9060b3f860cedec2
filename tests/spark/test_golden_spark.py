"""Golden tables by `load_as_spark` and the data source, compared with the rows of the Arrow loader."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from golden.test_golden import CASES, CHANGES, READABLE, TABLES, Case, columns_of, ordered

import delta_sharing_client as ds
from delta_sharing_client import SharingClient
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark.session import spark_version

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with SharingServer({case.table_name: TABLES / case.name / "table" for case in CASES.values()}) as server:
        yield str(server.write_profile(tmp_path_factory.mktemp("golden") / "golden.share"))


@pytest.fixture(scope="module")
def client(profile: str) -> Iterator[SharingClient]:
    with SharingClient(profile) as client:
        yield client


def collected(frame: DataFrame) -> pa.Table:
    """The rows of a DataFrame in Arrow, as Spark converts them."""
    if hasattr(frame, "toArrow"):
        return frame.toArrow()
    from pyspark.sql.pandas.types import to_arrow_schema

    batches = frame._collect_as_arrow()
    return pa.Table.from_batches(batches) if batches else to_arrow_schema(frame.schema).empty_table()


def same_rows(actual: pa.Table, expected: pa.Table, key: list[str]) -> None:
    assert columns_of(actual) == columns_of(expected)
    assert ordered(actual, key) == ordered(expected, key)


@pytest.mark.parametrize("case", READABLE)
def test_load_as_spark_gives_the_rows_of_the_arrow_loader(
    spark: SparkSession, client: SharingClient, case: Case
) -> None:
    scan = client.table(case.table_name).scan(variant="json")
    same_rows(collected(scan.to_spark(spark)), scan.to_arrow(), case.key)


@pytest.mark.parametrize("case", READABLE)
def test_the_data_source_gives_the_rows_of_the_arrow_loader(
    spark: SparkSession, client: SharingClient, profile: str, case: Case
) -> None:
    if spark_version(spark) < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    ds.spark.register(spark)
    frame = spark.read.format("deltaSharing").option("variant", "json").load(f"{profile}#{case.table_name}")
    same_rows(collected(frame), client.table(case.table_name).scan(variant="json").to_arrow(), case.key)


@pytest.mark.parametrize(("case", "described"), CHANGES)
def test_changes_are_those_of_the_arrow_loader(
    spark: SparkSession, client: SharingClient, profile: str, case: Case, described: dict[str, Any]
) -> None:
    changes = client.table(case.table_name).changes(
        described["first"], described["last"], commit_timestamp="timestamp"
    )
    expected = changes.to_arrow()
    key = ["_commit_version", *case.key, "_change_type"]
    same_rows(collected(changes.to_spark(spark)), expected, key)
    if spark_version(spark) >= (4, 0):
        ds.spark.register(spark)
        options = {
            "readChangeFeed": True,
            "startingVersion": described["first"],
            "endingVersion": described["last"],
        }
        reader = spark.read.format("deltaSharing").options(**options)
        same_rows(collected(reader.load(f"{profile}#{case.table_name}")), expected, key)


@pytest.mark.parametrize("case", [param for param in READABLE if "variant" in str(param.id)])
def test_variants_are_variants_in_spark_4(spark: SparkSession, client: SharingClient, case: Case) -> None:
    if spark_version(spark) < (4, 0):
        pytest.skip("Spark 3.5 has no variant type")
    table = client.table(case.table_name)
    frame = table.scan().to_spark(spark)
    assert "variant" in frame.schema.simpleString()
    # Not toArrow: PySpark's own cast fails where a variant is null.
    actual, expected = pa.Table.from_batches(frame._collect_as_arrow()), table.scan().to_arrow()
    assert sorted(map(repr, map(in_order, actual.to_pylist()))) == sorted(
        map(repr, map(in_order, expected.to_pylist()))
    )
    for field in frame.schema.fields:
        if field.dataType.typeName() == "variant":  # Spark understands them, not only carries them
            texts = [row[0] for row in frame.selectExpr(f"to_json(`{field.name}`)").collect()]
            assert [text is None for text in texts] == [text is None for text in expected[field.name].to_pylist()]


def in_order(value: Any) -> Any:
    """A value whose fields are in the order of their names: Spark has those of a variant the other way round."""
    if isinstance(value, dict):
        return [(name, in_order(part)) for name, part in sorted(value.items())]
    return [in_order(part) for part in value] if isinstance(value, list | tuple) else value
