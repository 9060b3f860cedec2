"""URLs that expire between planning and reading: renewed on executors, once per host, or refused."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import stat
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from loading.loading_tables import File, column, write_table
from waiting import WallClock

import delta_sharing_client as ds
from delta_sharing_client import SharingClient, TransportOptions
from delta_sharing_client.errors import SparkError, StorageError, UrlExpiredError
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.spark import partition_plan as plans
from delta_sharing_client.spark.executor import read_part
from delta_sharing_client.spark.executor_url_renewal import HostUrlRenewer
from delta_sharing_client.spark.job import decode
from delta_sharing_client.spark.partition_plan import ExecutorOptions, encode_plan

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

LIFETIME = timedelta(minutes=10)
CLOCK = WallClock()


@pytest.fixture(autouse=True)
def own_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Renewed URLs of this process lie in a folder of the test's own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve files of ten rows; one has a deletion vector in a file of its own."""
    files = [
        File(
            rows=pa.table({"id": range(10 * i, 10 * i + 10)}),
            name=f"{i}.parquet",
            vector=[0, 9] if i == 3 else None,
        )
        for i in range(12)
    ]
    features = ["deletionVectors"]
    return write_table(tmp_path_factory.mktemp("t") / "t", [column("id", "long")], files, features=features)


@pytest.fixture(scope="module", autouse=True)
def clock() -> Iterator[None]:
    """The clock of the server and of this process; Spark's workers have their own processes, and a real clock."""
    # A module that is first imported while the clock is patched would keep it as the default of a parameter.
    for name in (
        "auth.credential_provider",
        "auth.oauth",
        "auth.renewal",
        "storage.directory",
    ):
        importlib.import_module(f"delta_sharing_client.{name}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", CLOCK)
        yield


@pytest.fixture(scope="module")
def server(root: Path) -> Iterator[SharingServer]:
    with SharingServer({"s.d.t": root}, url_lifetime=LIFETIME) as server:
        yield server


@pytest.fixture
def client(server: SharingServer) -> Iterator[SharingClient]:
    with SharingClient(server.profile) as client:
        server.reset_requests()
        yield client


ROWS = [i for i in range(120) if i not in (30, 39)]


def queries(server: SharingServer) -> int:
    return sum(request.path.endswith("/query") for request in server.requests)


def encoded(client: SharingClient, *, credentials: bool = True) -> tuple[bytes, list[bytes]]:
    """A plan as it travels, one file to a partition."""
    plan = client.table("s.d.t").scan().plan()
    return encode_plan(client._rest, plan, ExecutorOptions(partition_size=1, credentials=credentials))


def expire() -> None:
    CLOCK.advance(LIFETIME.total_seconds())


# -- through Spark


def test_a_frame_outlives_its_urls(spark: SparkSession, client: SharingClient, server: SharingServer) -> None:
    frame = client.table("s.d.t").scan().to_spark(spark, partition_size=1)
    assert frame.rdd.getNumPartitions() == 12
    for _ in range(2):
        expire()
        server.reset_requests()
        assert sorted(row["id"] for row in frame.collect()) == ROWS
        assert 1 <= queries(server) < 12  # the workers share one listing


@pytest.mark.slow
def test_the_data_source_outlives_its_urls(spark: SparkSession, server: SharingServer) -> None:
    if not hasattr(spark, "dataSource"):
        pytest.skip("Spark 3.5 has no Python data sources")
    ds.spark.register(spark)
    fields = {name: str(value) for name, value in server.profile.items()}
    frame = spark.read.format("deltaSharing").options(**fields, partitionSize=1).load("s.d.t")
    assert frame.count() == len(ROWS)
    expire()
    assert sorted(row["id"] for row in frame.collect()) == ROWS


def test_an_expired_url_without_executor_credentials_raises(spark: SparkSession, client: SharingClient) -> None:
    frame = client.table("s.d.t").scan().to_spark(spark, executor_credentials=False)
    expire()
    with pytest.raises(Exception, match=r"UrlExpiredError: file .*executorCredentials is off") as caught:
        frame.collect()
    assert "Signature" not in str(caught.value)


# -- the executor's side, in this process


def test_one_listing_serves_all_partitions_of_a_host(
    client: SharingClient, server: SharingServer, own_folder: Path
) -> None:
    job, parts = encoded(client)
    expire()
    server.reset_requests()
    with ThreadPoolExecutor(4) as pool:  # each thread has a renewer of its own, as each worker process has
        credentials = decode(job).executor_credentials
        renewed = list(pool.map(lambda part: pickle.loads(credentials).renew(*requested(part)), parts))
    assert queries(server) == 1
    assert len(set(renewed)) == 12
    (folder,) = own_folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def requested(part: bytes) -> tuple[str, SecretUrl]:
    (task,) = decode(part).tasks
    return task.file_id, task.url


def test_a_url_that_expired_again_is_asked_for_again(client: SharingClient, server: SharingServer) -> None:
    job, parts = encoded(client)
    renewal: HostUrlRenewer = pickle.loads(decode(job).executor_credentials)
    file_id, url = requested(parts[0])
    first = renewal.renew(file_id, url)
    assert renewal.renew(file_id, url) == first
    server.reset_requests()
    expire()  # the next URL has another expiration time, so another signature
    second = renewal.renew(file_id, first)
    assert second != first
    assert queries(server) == 1


def test_the_renewal_lists_the_planned_version(client: SharingClient, server: SharingServer) -> None:
    job, parts = encoded(client)
    pickle.loads(decode(job).executor_credentials).renew(*requested(parts[0]))
    bodies = [request.body or {} for request in server.requests if request.path.endswith("/query")]
    # By the refresh token of the first answer, which stands for the version.
    assert ["refreshToken" in body for body in bodies] == [False, True]


@pytest.mark.parametrize("asynchronous", [False, True])
def test_the_renewal_has_the_options_of_the_client(root: Path, asynchronous: bool) -> None:
    """An option of the client, asynchronous queries, is sent with the job."""
    options = TransportOptions(asynchronous_queries=asynchronous)
    with (
        SharingServer({"s.d.t": root}, query_time=timedelta(seconds=0.05)) as server,
        SharingClient(server.profile, options=options) as client,
    ):
        job, parts = encoded(client)
        server.reset_requests()
        assert (
            pickle.loads(decode(job).executor_credentials).renew(*requested(parts[0])).reveal().startswith("http")
        )
        assert queries(server) == 1
        assert any("/queries/" in request.path for request in server.requests) == asynchronous


def test_a_file_that_is_no_longer_listed_raises(client: SharingClient) -> None:
    job, _ = encoded(client)
    renewal = pickle.loads(decode(job).executor_credentials)
    with pytest.raises(StorageError, match=r"table s\.d\.t is now at a later version than 0; load it again"):
        renewal.renew("another id", "")


def test_a_folder_that_others_can_read_is_not_used(
    client: SharingClient, server: SharingServer, own_folder: Path
) -> None:
    (own_folder / f"delta-sharing-{os.getuid()}").mkdir(mode=0o777)
    (own_folder / f"delta-sharing-{os.getuid()}").chmod(0o777)
    job, parts = encoded(client)
    assert pickle.loads(decode(job).executor_credentials).renew(*requested(parts[0])).reveal().startswith("http")
    assert list((own_folder / f"delta-sharing-{os.getuid()}").iterdir()) == []


@pytest.mark.parametrize("limit", [10, 100])
def test_a_full_disk_does_not_lose_renewed_urls(
    client: SharingClient, server: SharingServer, own_folder: Path, limit: int
) -> None:
    """The system limits the size of files: that of the lock, or that of the URLs."""
    resource = pytest.importorskip("resource")
    job, parts = encoded(client)
    renewal = pickle.loads(decode(job).executor_credentials)
    server.reset_requests()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    try:
        assert renewal.renew(*requested(parts[0])).reveal().startswith("http")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert queries(server) == 1
    (folder,) = own_folder.iterdir()
    assert [path.suffix for path in folder.iterdir()] == [".lock"]


def test_old_files_of_urls_are_deleted(client: SharingClient, own_folder: Path) -> None:
    folder = own_folder / f"delta-sharing-{os.getuid()}"
    folder.mkdir(mode=0o700)
    old, new = folder / "old.json", folder / "new.json"
    for path, age in ((old, 25 * 3600), (new, 3600)):
        path.write_text("{}")
        os.utime(path, (time.time() - age, time.time() - age))
    job, parts = encoded(client)
    pickle.loads(decode(job).executor_credentials).renew(*requested(parts[0]))
    assert not old.exists()
    assert new.exists()


def test_a_damaged_file_of_urls_is_replaced(client: SharingClient, own_folder: Path) -> None:
    job, parts = encoded(client)
    pickle.loads(decode(job).executor_credentials).renew(*requested(parts[0]))
    (path,) = (own_folder / f"delta-sharing-{os.getuid()}").glob("*.json")
    assert len(json.loads(path.read_bytes())) == 13  # the files and the deletion vector
    path.write_bytes(b"{")
    assert pickle.loads(decode(job).executor_credentials).renew(*requested(parts[1])).reveal().startswith("http")


def test_the_representation_of_a_renewal_has_no_credential(client: SharingClient, server: SharingServer) -> None:
    renewal = pickle.loads(decode(encoded(client)[0]).executor_credentials)
    assert repr(renewal) == "HostUrlRenewer(s.d.t)"
    assert server.profile["bearerToken"] not in repr(vars(renewal))


# -- plans that are too large


def test_a_plan_that_is_too_large_is_sent_without_urls(
    monkeypatch: pytest.MonkeyPatch, client: SharingClient, server: SharingServer
) -> None:
    whole = sum(map(len, encoded(client)[1]))
    monkeypatch.setattr(plans, "MAX_PLAN", whole * 9 // 10)
    job, parts = encoded(client)
    assert not any(task.url for part in parts for task in decode(part).tasks)
    vectors = [task.deletion_vector for part in parts for task in decode(part).tasks if task.deletion_vector]
    assert [vector.path_or_inline.reveal() for vector in vectors] == [""]
    server.reset_requests()
    found = [row for part in parts for batch in read_part(job, part) for row in batch["id"].to_pylist()]
    assert found == ROWS
    assert queries(server) <= 2


def test_a_plan_that_is_too_large_without_urls_raises(
    monkeypatch: pytest.MonkeyPatch, client: SharingClient
) -> None:
    monkeypatch.setattr(plans, "MAX_PLAN", 10)
    with pytest.raises(SparkError, match=r"12 files make a plan of more than the 10 bytes that Spark accepts"):
        encoded(client)
    with pytest.raises(SparkError, match="turn executorCredentials on"):
        encoded(client, credentials=False)


def test_a_partition_with_expired_urls_without_executor_credentials_raises(client: SharingClient) -> None:
    job, parts = encoded(client, credentials=False)
    assert decode(job).executor_credentials is None
    expire()
    with pytest.raises(UrlExpiredError, match="executorCredentials is off"):
        list(read_part(job, parts[0]))
