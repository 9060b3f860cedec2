"""Tables that are offered by their directory only, in Spark: batches, changes, streams, credentials, secrets."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from waiting import HANG

sys.path.append(str(Path(__file__).parents[1] / "scan" / "directory"))

from change_tables import ChangeTable, rows
from directory_store import SECRET, SESSION, DirectoryServer

import delta_sharing_client as ds
from delta_sharing_client.errors import DirectoryAccessError
from delta_sharing_client.spark import session as sessions
from delta_sharing_client.spark.executor import decoded_job, read_part
from delta_sharing_client.spark.job import Job, Part, decode, encode
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOKEN = "canary-profile-token"


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DirectoryServer]:
    with DirectoryServer(tmp_path / "table") as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.store.url)
        table = ChangeTable(server.path)
        for version in range(3):
            table.commit(table.add(f"f{version}", rows(version)))
        yield server


@pytest.fixture
def table(shared: DirectoryServer) -> ChangeTable:
    table = ChangeTable.__new__(ChangeTable)
    table.__dict__ = {
        "root": shared.path,
        "log": shared.path / "_delta_log",
        "version": 2,
        "_sizes": {},
        "_head": [],
    }
    return table


@pytest.fixture
def url(shared: DirectoryServer, tmp_path: Path) -> str:
    profile = tmp_path / "p.share"
    profile.touch(0o600)
    profile.write_text(json.dumps({**shared.api.profile, "bearerToken": TOKEN}))
    return f"{profile}#s.d.t"


@pytest.fixture
def cluster_environment(spark: SparkSession, shared: DirectoryServer) -> Iterator[None]:
    """Python workers inherit the environment of the session's Java, which began before this store."""
    context = spark.sparkContext
    context.environment["AWS_ENDPOINT_URL_S3"] = shared.store.url
    yield
    del context.environment["AWS_ENDPOINT_URL_S3"]


def ids(frame: Any) -> list[int]:
    return sorted(row["id"] for row in frame.select("id").collect())


@pytest.mark.usefixtures("cluster_environment")
def test_batches_and_changes_in_spark(spark: SparkSession, shared: DirectoryServer, url: str) -> None:
    frame = ds.load_as_spark(url, spark=spark)
    assert ids(frame) == [0, 1, 2]
    before = shared.asked
    shared.expired.update(shared.session(number) for number in range(1, shared.given + 1))
    assert ids(frame) == [0, 1, 2]  # executors requested other credentials
    assert shared.asked > before
    changes = ds.load_table_changes_as_spark(url, starting_version=1, spark=spark)
    assert ids(changes) == [1, 2]
    for one in (frame, changes):
        plan = one._sc._jvm.PythonSQLUtils.explainString(one._jdf.queryExecution(), "extended")
        assert all(secret not in plan for secret in (SECRET, SESSION, TOKEN))


def test_credentials_stay_in_their_field(shared: DirectoryServer, url: str) -> None:
    profile, _, name = url.rpartition("#")
    with ds.SharingClient(profile) as client:
        plan = client.table(name).scan().plan()
        job, parts = encode_plan(client._rest, plan, ExecutorOptions(), 2)
        with pytest.raises(DirectoryAccessError, match="executors need executorCredentials"):
            encode_plan(client._rest, plan, ExecutorOptions(credentials=False), 2)
    decoded: Job = decode(job)
    assert decoded.executor_credentials is not None
    assert TOKEN.encode() in decoded.executor_credentials
    others = [repr(decoded), *map(repr, map(decode, parts))]
    for secret in (SECRET, SESSION):
        assert secret.encode() not in decoded.executor_credentials
        assert all(secret not in other for other in others)
    bare = Job(**{**vars(decoded), "executor_credentials": None})
    import pickle

    for value in (bare, *map(decode, parts)):
        data = pickle.dumps(value)
        assert all(secret.encode() not in data for secret in (SECRET, SESSION, TOKEN))
    read = sorted(row for part in parts for batch in read_part(job, part) for row in batch["id"].to_pylist())
    assert read == [0, 1, 2]
    assert decoded_job(job).in_directory


def test_credentials_are_renewed_on_an_executor(shared: DirectoryServer, url: str) -> None:
    profile, _, name = url.rpartition("#")
    with ds.SharingClient(profile) as client:
        job, (part, *_) = encode_plan(client._rest, client.table(name).scan().plan(), ExecutorOptions(), 1)
    tasks = decode(part).tasks
    first, rest = (encode(Part(tasks=some)) for some in (tasks[:1], tasks[1:]))
    assert sum(batch.num_rows for batch in read_part(job, first)) == 1
    shared.expired.update(shared.session(number) for number in range(1, shared.given + 1))
    assert sum(batch.num_rows for batch in read_part(job, rest)) == 2


@pytest.mark.usefixtures("cluster_environment")
def test_the_data_source_and_streams(
    source: SparkSession, shared: DirectoryServer, table: ChangeTable, url: str, tmp_path: Path
) -> None:
    assert ids(source.read.format("deltaSharing").load(url)) == [0, 1, 2]

    def run(**options: Any) -> None:
        stream = source.readStream.format("deltaSharing").options(
            queryTableVersionIntervalSeconds="0.2", **options
        )
        writer = stream.load(url).select("id").writeStream.format("parquet").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start(str(tmp_path / "out"))
        assert query.awaitTermination(HANG)

    run()
    table.commit(table.add("f3", rows(3)))
    run()
    assert ids(source.read.parquet(str(tmp_path / "out"))) == [0, 1, 2, 3]
    assert sessions.spark_version(source) >= (4, 0)
