"""`spark.readStream.format("deltaSharing")`: batches of a table that gains versions."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import HANG, wait_until

sys.path.append(str(Path(__file__).parents[1] / "cdf" / "feed"))

from change_tables import ChangeTable, rows

from delta_sharing_client import SharingClient
from delta_sharing_client.server import ServerOptions, SharingServer
from delta_sharing_client.spark import session as sessions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")


@pytest.fixture
def table(tmp_path: Path) -> ChangeTable:
    """Three versions: the rows 0 to 2, each in a file of its own."""
    table = ChangeTable(tmp_path / "t")
    for version in range(3):
        table.commit(table.add(f"f{version}", rows(version)))
    return table


@pytest.fixture
def server(table: ChangeTable, request: pytest.FixtureRequest) -> Iterator[SharingServer]:
    with SharingServer({"s.s.t": table.root}, options=getattr(request, "param", None)) as server:
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
        assert query.awaitTermination(HANG)
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


@pytest.mark.slow
@pytest.mark.parametrize(
    "server", [ServerOptions(), ServerOptions.like_reference()], ids=["protocol", "reference"], indirect=True
)
def test_each_run_reads_the_versions_since_the_last(follower: Follower, table: ChangeTable) -> None:
    """The whole table first, then new versions; a limit divides them into batches if Spark supports it."""
    limits = sessions.pyspark_version() >= (4, 2)
    query = follower.run(maxFilesPerTrigger=2) if limits else follower.run()
    assert follower.read() == [0, 1, 2]
    assert batches(query) == ([2, 1] if limits else [3])
    table.commit(table.add("f3", rows(3)))
    table.commit(table.add("f4", rows(4, 5)))
    follower.run()
    assert follower.read() == [0, 1, 2, 3, 4, 5]
    table.commit(table.remove("f4"))
    with pytest.raises(Exception, match=r"StreamError: table s\.s\.t: version 5 deletes files") as caught:
        follower.run()
    assert follower.fields["bearerToken"] not in str(caught.value)
    assert follower.read() == [0, 1, 2, 3, 4, 5]


@pytest.mark.slow
def test_a_checkpoint_of_an_earlier_release_goes_on_in_another_response_format(
    source: SparkSession, table: ChangeTable, tmp_path: Path
) -> None:
    """Its offset counts files by ids that the server no longer returns; the files after it are read."""
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format="delta") as server:
        follower = Follower(source, server, tmp_path)
        follower.run(maxFilesPerTrigger=9)
        with SharingClient(server.profile) as client:
            plan = client.table("s.s.t").scan(version=2, response_format="delta").plan()
    by_id = sorted(plan.tasks, key=lambda file: file.file_id)
    left = next(number for number in range(3) if f"/f{number}?" in by_id[2].url.reveal())
    log = follower.checkpoint / "offsets" / "0"
    *header, offset = log.read_text().splitlines()
    old = json.loads(offset) | {"version": 2, "index": 1, "isInitialSnapshot": True}
    old |= {"responseFormat": "delta", "fileId": by_id[1].file_id}
    for name in ("offsets", "commits"):
        for path in (follower.checkpoint / name).iterdir():
            if path.name != "0":
                path.unlink()
    # As if the first batch had read two of the three files; the other one is in the output twice.
    log.write_text("\n".join([*header, json.dumps(old, separators=(",", ":"))]))
    table.commit(table.add("f3", rows(3)))
    with SharingServer({"s.s.t": table.root}, file_ids_by_format=True, prefer_format="parquet") as server:
        follower.fields = {name: str(value) for name, value in server.profile.items()}
        follower.run()
    assert follower.read() == sorted([0, 1, 2, left, 3])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*once:FutureWarning", "ignore:.*once:DeprecationWarning")
def test_trigger_once_reads_everything_in_one_batch(follower: Follower, table: ChangeTable) -> None:
    """One batch with all rows, whatever the limits are."""
    limits = {"maxFilesPerTrigger": 1} if sessions.pyspark_version() >= (4, 2) else {}
    query = follower.run({"once": True}, **limits)
    assert batches(query) == [3]
    table.commit(table.add("f3", rows(3)))
    table.commit(table.add("f4", rows(4)))
    assert batches(follower.run({"once": True}, **limits)) == [2]
    assert follower.read() == [0, 1, 2, 3, 4]


def test_a_running_query_reads_new_changes(follower: Follower, table: ChangeTable) -> None:
    """Change rows in batches of one version or more."""
    writer = follower.stream(readChangeFeed="true", startingVersion=1).writeStream.format("parquet")
    writer = writer.option("checkpointLocation", str(follower.checkpoint)).trigger(processingTime="0 seconds")
    query = writer.start(str(follower.out))
    try:
        wait_for(query, rows_so_far=2)
        table.commit(table.add("f3", rows(3)))
        wait_for(query, rows_so_far=3)
        table.commit(table.remove("f1"))
        table.commit(table.remove("f2"), table.add("g2", rows(2, 20)))
        wait_for(query, rows_so_far=7)
        assert query.isActive
    finally:
        query.stop()
    found = follower.read("_commit_version", "_change_type", "id")
    assert found == sorted(
        [
            *((1, "insert", 1), (2, "insert", 2), (3, "insert", 3), (4, "delete", 1)),
            *((5, "delete", 2), (5, "insert", 2), (5, "insert", 20)),
        ]
    )
    requests = [request.path.rpartition("/")[2] for request in follower.server.requests if not request.is_file]
    assert requests.count("changes") <= 4  # one for each pull that found something


def wait_for(query: StreamingQuery, rows_so_far: int) -> None:
    """Wait until a query has read so many rows."""

    def read() -> bool:
        if query.exception() is not None:
            raise AssertionError(str(query.exception())[:3000])
        return sum(progress["numInputRows"] for progress in query.recentProgress) >= rows_so_far

    wait_until(read, lambda: query.recentProgress)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingVersion": 1, "startingTimestamp": "2024-01-01"}, "cannot be given together"),
        ({"maxFilesPerTrigger": 0}, "ValueError: the option maxFilesPerTrigger is '0'"),
        ({"readChangeFeed": "true", "ignoreDeletes": "true"}, "ignoreDeletes and readChangeFeed cannot"),
    ],
)
def test_conflicting_options_raise_at_load(follower: Follower, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message) as caught:
        follower.stream(**options)
    assert len(str(caught.value)) < 1500
    assert follower.fields["bearerToken"] not in str(caught.value)


def test_readers_sent_to_executors_have_no_credential(follower: Follower) -> None:
    """Spark sends the reader and the data source; the credential is in the job, where that is allowed."""
    from pyspark import cloudpickle
    from pyspark.sql.types import LongType, StructField, StructType

    from delta_sharing_client.spark.python_data_source import source_for

    given = follower.fields | {"path": "s.s.t", "executorCredentials": "false", "startingVersion": "0"}
    token = follower.fields["bearerToken"].encode()
    source = source_for(2)(given)
    assert token in cloudpickle.dumps(source)  # on its way to the driver's own worker
    reader = source.streamReader(StructType([StructField("id", LongType())]))
    start = reader.initialOffset()
    parts = reader.partitions(start, reader.latestOffset(start))
    assert len(parts) == 1
    for sent in (reader, source, parts):
        assert token not in cloudpickle.dumps(sent)
    copied = cloudpickle.loads(cloudpickle.dumps(reader))
    assert [row for batch in copied.read(parts[0]) for row in batch.column("id").to_pylist()] == [0, 1, 2]
    reader.stop()
