"""`spark.readStream.format("deltaSharing")`: what comes of a table that grows, batch by batch."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.append(str(Path(__file__).parents[1] / "changes"))

from change_tables import ChangeTable, rows

import delta_sharing_client as ds
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    if sessions.spark_version(spark) < (4, 0):
        pytest.skip("Spark 3.5 has no Python data sources")
    ds.spark.register(spark)
    return spark


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Three versions: the rows 0 to 2, each in a file of its own."""
    table = ChangeTable(tmp_path / "t")
    for version in range(3):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


@pytest.fixture
def server(table: ChangeTable) -> Iterator[SharingServer]:
    with SharingServer({"s.s.t": table.root}) as server:
        yield server


class Follower:
    """Runs a query over the table into Parquet files, again and again with the same checkpoint."""

    def __init__(self, spark: SparkSession, server: SharingServer, folder: Path) -> None:
        self.spark = spark
        self.server = server
        self.checkpoint = folder / "checkpoint"
        self.out = folder / "out"
        self.fields = {name: str(value) for name, value in server.profile.items()}

    def stream(self, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("deltaSharing").options(**self.fields)
        return reader.options(queryTableVersionIntervalSeconds=0.2, **options).load("s.s.t")

    def run(self, trigger: dict[str, Any] | None = None, **options: Any) -> StreamingQuery:
        """Run until all is read; raise what ended the query."""
        writer = (
            self.stream(**options).writeStream.format("parquet").trigger(**(trigger or {"availableNow": True}))
        )
        query = writer.option("checkpointLocation", str(self.checkpoint)).start(str(self.out))
        query.awaitTermination(60)
        assert not query.isActive
        return query

    def read(self, *columns: str) -> list[Any]:
        frame = self.spark.read.parquet(str(self.out)).select(*(columns or ("id",)))
        return sorted(tuple(row) if columns else row[0] for row in frame.collect())


@pytest.fixture
def follower(source: SparkSession, server: SharingServer, tmp_path: Path) -> Follower:
    return Follower(source, server, tmp_path)


def batches(query: StreamingQuery) -> list[int]:
    """How many rows each batch of a run had, those without any left out."""
    return [p["numInputRows"] for p in query.recentProgress if p["numInputRows"]]


def test_the_table_first_and_then_what_is_added(follower: Follower, table: ChangeTable) -> None:
    follower.run()
    assert follower.read() == [0, 1, 2]
    table.commit(table.add("f3", rows(3)))
    table.commit(table.add("f4", rows(4, 5)))
    follower.run()
    assert follower.read() == [0, 1, 2, 3, 4, 5]
    follower.run()
    assert follower.read() == [0, 1, 2, 3, 4, 5]
