"""Commits of logs in object stores: exclusive creates, lost answers, concurrent writers, refused stores."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import faulty_store
import fsspec
import pytest
from faulty_store import SECRET, FaultyFileSystem
from handwritten_logs import PROTOCOL, V2, add, metadata
from waiting import HANG

import delta_sharing_client as ds
from delta_sharing_client.errors import (
    CommitConflictError,
    CommitUnknownError,
    DeltaLogError,
    ExclusiveCreateError,
    MissingDependencyError,
)
from delta_sharing_client.log import object_store

TABLE = "faulty://bucket/t"
FIRST = "/bucket/t/_delta_log/00000000000000000000.json"
SECOND = "/bucket/t/_delta_log/00000000000000000001.json"


@pytest.fixture(autouse=True)
def _faulty(monkeypatch: pytest.MonkeyPatch) -> None:
    fsspec.register_implementation("faulty", FaultyFileSystem, clobber=True)
    monkeypatch.setitem(object_store.EXCLUSIVE_DRIVERS, "faulty_store", (2026, 1))
    monkeypatch.setattr(object_store, "_PAUSE", 0.0)
    fsspec.filesystem("memory").store.clear()
    ds.DeltaLog.clear_cache()
    faulty_store.reset()


def log_of(url: str = TABLE, **options: Any) -> ds.DeltaLog:
    return ds.DeltaLog.for_table(url, **options)


def created(url: str = TABLE, **configuration: str) -> ds.DeltaLog:
    log = log_of(url)
    log.commit([PROTOCOL, metadata(**configuration)], "CREATE TABLE")
    return log


def paths(log: ds.DeltaLog) -> set[str]:
    return {file.path for file in log.snapshot().files}


def test_a_table_is_created_and_read_again() -> None:
    log = log_of()
    assert not log.table_exists
    assert log.snapshot().version == -1
    created().commit([add("a")])
    ds.DeltaLog.clear_cache()
    again = log_of()
    assert again is not log
    assert again.table_exists
    assert (again.latest_version(), paths(again)) == (1, {"a"})
    assert [info.operation for info in again.history()] == ["WRITE", "CREATE TABLE"]
    assert [commit.version for commit in again.changes(0)] == [0, 1]
    assert len({info.raw["txnId"] for info in again.history()}) == 2
    assert "/bucket/t/_delta_log/00000000000000000001.crc" in FaultyFileSystem.store
    assert not [name for name in FaultyFileSystem.store if "exclusive" in name]


@pytest.mark.parametrize("fault", [faulty_store.lost, faulty_store.repeated, faulty_store.delayed])
def test_a_commit_whose_answer_is_lost_is_not_repeated(fault: Any) -> None:
    log = created()
    FaultyFileSystem.faults.append(fault)
    assert log.commit([add("a")], max_retries=5) == 1
    assert not FaultyFileSystem.faults
    assert (log.latest_version(), paths(log)) == (1, {"a"})


def test_a_commit_that_does_not_reach_the_store_is_sent_again() -> None:
    log = created()
    FaultyFileSystem.faults.extend([faulty_store.dropped] * 3)
    assert log.commit([add("a")]) == 1
    assert log.latest_version() == 1


def test_a_commit_without_any_answer_is_reported_as_unknown() -> None:
    log = created()
    FaultyFileSystem.faults.extend([faulty_store.dropped] * 10)
    with pytest.raises(
        CommitUnknownError, match=r"00000000000000000001.json, which may be written.*reset"
    ) as caught:
        log.commit([add("a")], max_retries=3)
    assert not isinstance(caught.value, CommitConflictError)
    assert len(FaultyFileSystem.faults) == 6, "it was not repeated on top of other versions"
    assert caught.value.version == 1


def test_probes_of_killed_processes_are_removed() -> None:
    """Those of today may be running ones."""
    system, folder = fsspec.filesystem("faulty"), SECOND.rpartition("/")[0]
    for name, age in {"1": timedelta(days=2), "2": timedelta()}.items():
        path = f"{folder}/_exclusive_create_{name * 32}.tmp"
        system.create(path, b"first")
        system.store[path].created = datetime.now(UTC) - age
    created()
    assert [name for name in system.ls(folder, detail=False) if name.endswith(".tmp")] == [path]


def test_a_late_commit_is_recognised_by_its_identifier() -> None:
    log = created()
    sent: list[bytes] = []

    def hanging(system: FaultyFileSystem, path: str, data: bytes) -> None:
        sent.append(data)
        raise TimeoutError("no answer")

    FaultyFileSystem.faults.extend([hanging] * 4)
    with pytest.raises(CommitUnknownError) as caught:
        log.commit([add("a")])
    assert len(set(sent)) == 1
    fsspec.filesystem("faulty").create(SECOND, sent[0])
    assert log.history()[0].raw["txnId"] == caught.value.txn_id


def test_a_store_that_refuses_writes_is_named_without_credentials() -> None:
    log = log_of(storage_options={"key": SECRET, "nested": {"secret": SECRET}})
    FaultyFileSystem.probe_faults.append(faulty_store.refused)
    with pytest.raises(DeltaLogError, match=r"cannot be written: PermissionError: AccessDenied") as caught:
        log.commit([PROTOCOL, metadata()])
    assert not isinstance(caught.value, CommitUnknownError | ExclusiveCreateError)
    FaultyFileSystem.faults.extend([faulty_store.refused] * 4)
    with pytest.raises(CommitUnknownError, match="may be written now or later") as unknown:
        log.commit([PROTOCOL, metadata()])
    for error in (caught.value, unknown.value):
        assert SECRET not in repr(error) + repr(error.__cause__) + str(error.__dict__)
    assert SECRET not in repr(log) + repr(log.table_path) + repr(log.table_path.store) + str(vars(log))
    assert repr(log) == "DeltaLog('faulty://bucket/t')"
    for kept in (log, log.table_path, log.snapshot()):
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(kept)


@pytest.mark.parametrize("fault", ["overtaken", "exists"])
def test_the_commit_of_another_writer_is_a_conflict(fault: str) -> None:
    log = created()
    transaction = log.start_transaction()
    other = json.dumps({"commitInfo": {"operation": "DELETE", "engineInfo": "other"}}).encode()
    if fault == "exists":
        fsspec.filesystem("faulty").pipe_file(SECOND, other)
    else:
        FaultyFileSystem.faults.append(faulty_store.overtaken(other))
    with pytest.raises(CommitConflictError, match="DELETE by other") as caught:
        transaction.commit([add("a")])
    assert caught.value.commit_info["engineInfo"] == "other"
    assert FaultyFileSystem.store[SECOND].getvalue() == other


def test_two_writers_of_equal_actions_do_not_both_succeed(monkeypatch: pytest.MonkeyPatch) -> None:
    log = created()
    monkeypatch.setattr("time.time", lambda: 1_700_000_000.0)
    transactions = [log.start_transaction() for _ in range(2)]
    given = {"commitInfo": {"operation": "WRITE", "txnId": "same"}}
    assert transactions[0].commit([given, add("a")]) == 1
    with pytest.raises(CommitConflictError):
        transactions[1].commit([given, add("a")])


def test_a_stale_listing_delays_a_commit_and_loses_none() -> None:
    log = created()
    old = fsspec.filesystem("faulty").ls("/bucket/t/_delta_log")
    created_by_other = log_of().start_transaction()
    created_by_other.commit([add("b"), {"txn": {"appId": "x", "version": 1}}])
    transaction = log.start_transaction()
    FaultyFileSystem.stale.extend([old])
    stale = log.start_transaction()
    assert (transaction.read_version, stale.read_version) == (1, 0)
    FaultyFileSystem.stale.extend([old])
    assert stale.commit([add("c")], max_retries=3) == 2
    assert paths(log) == {"b", "c"}
    FaultyFileSystem.stale.extend([old])
    stale = log.start_transaction()
    FaultyFileSystem.stale.extend([old])
    with pytest.raises(CommitConflictError, match="version 1 has the same application 'x'"):
        stale.commit([{"txn": {"appId": "x", "version": 2}}], max_retries=3)


@pytest.mark.parametrize("where", ["memory://bucket/t", TABLE])
def test_concurrent_writers_in_threads_lose_no_commit(where: str) -> None:
    created(where, delta__checkpointInterval="4")

    def write(name: str) -> list[int]:
        log = ds.DeltaLog(log_of(where).table_path)
        return [log.commit([add(f"{name}-{number}")], max_retries=1_000) for number in range(3)]

    with ThreadPoolExecutor(6) as pool:
        versions = [version for found in pool.map(write, "abcdef") for version in found]
    assert sorted(versions) == list(range(1, 19))
    ds.DeltaLog.clear_cache()
    log = log_of(where)
    assert paths(log) == {f"{name}-{number}" for name in "abcdef" for number in range(3)}
    assert len(log.snapshot_at(18).files) == len({info.raw["txnId"] for info in log.history()}) - 1 == 18


WRITER = """
import sys
import delta_sharing_client as ds
log = ds.DeltaLog.for_table(sys.argv[1])
for number in range(5):
    action = {"path": f"{sys.argv[2]}-{number}", "partitionValues": {}, "size": 1, "modificationTime": 0}
    print(log.commit([{"add": action | {"dataChange": True}}], max_retries=1000))
"""


def test_concurrent_processes_commit_to_a_file_url(tmp_path: Path) -> None:
    url = (tmp_path / "a table").as_uri()
    log = created(url)
    assert log.data_path == tmp_path / "a table"
    started = [
        subprocess.Popen([sys.executable, "-c", WRITER, url, name], stdout=subprocess.PIPE, text=True)
        for name in "abc"
    ]
    printed = [process.communicate(timeout=HANG)[0] for process in started]
    assert sorted(map(int, "".join(printed).split())) == list(range(1, 16))
    assert len(paths(log)) == 15


def test_checkpoints_are_written_and_replaced() -> None:
    log = created(delta__checkpointInterval="2")
    for number in range(4):
        log.commit([add(f"f{number}")])
    names = {name.rpartition("/")[2] for name in FaultyFileSystem.store}
    assert {"00000000000000000002.checkpoint.parquet", "00000000000000000004.checkpoint.parquet"} <= names
    last = json.loads(FaultyFileSystem.store["/bucket/t/_delta_log/_last_checkpoint"].getvalue())
    assert last["version"] == 4
    del FaultyFileSystem.store[FIRST], FaultyFileSystem.store[SECOND]
    ds.DeltaLog.clear_cache()
    assert paths(log_of()) == {"f0", "f1", "f2", "f3"}
    assert log_of().checkpoint().name == "00000000000000000004.checkpoint.parquet"


def test_v2_checkpoints_and_clean_up() -> None:
    log = log_of()
    log.commit([V2, metadata(delta__checkpointPolicy="v2", delta__logRetentionDuration="interval 0 days")])
    log.commit([add("a")])
    log.checkpoint()
    for second, file in enumerate(FaultyFileSystem.store.values()):  # as if they were written long ago
        file.created = datetime(2020, 1, 1, 0, 0, second, tzinfo=UTC)
    log.commit([add("b")])
    log.commit([{"metaData": dict(log.metadata.raw) | {"configuration": {"delta.checkpointInterval": "1"}}}])
    assert FIRST not in FaultyFileSystem.store
    assert any("_sidecars/" in name for name in FaultyFileSystem.store)
    ds.DeltaLog.clear_cache()
    assert paths(log_of()) == {"a", "b"}


def test_small_commits_are_read_once_and_concurrently() -> None:
    log = created()
    for number in range(5):
        log.commit([add(f"f{number}")])
    ds.DeltaLog.clear_cache()
    FaultyFileSystem.reads.clear()
    again = log_of()
    assert len(again.snapshot().files) == len(again.history()) - 1 == 5
    assert len(list(again.changes(0))) == 6
    commits = [name for name in FaultyFileSystem.reads if name.endswith(".json")]
    assert len(commits) == len(set(commits)) == 6


def test_a_store_that_ignores_the_condition_is_refused_before_the_commit() -> None:
    FaultyFileSystem.obeys = False
    with pytest.raises(ExclusiveCreateError, match="lets a second create replace a file; the table can be read"):
        log_of().commit([PROTOCOL, metadata()])
    assert not FaultyFileSystem.store
    FaultyFileSystem.obeys = True
    created().commit([add("a")])
    FaultyFileSystem.obeys = False
    ds.DeltaLog.clear_cache()
    log = log_of()
    assert paths(log) == {"a"}
    for write in (lambda: log.commit([add("b")]), log.checkpoint):
        with pytest.raises(ExclusiveCreateError):
            write()
    assert log.latest_version() == 1


@pytest.mark.parametrize(
    ("drivers", "reason"),
    [
        ({}, "the driver faulty_store is not known to create files exclusively"),
        ({"faulty_store": (2026, 2)}, "faulty_store 2026.1.0 is too old, update it to 2026.2 or later"),
    ],
)
def test_unknown_and_old_drivers_only_read(
    monkeypatch: pytest.MonkeyPatch, drivers: dict[str, tuple[int, int]], reason: str
) -> None:
    created().commit([add("a")])
    ds.DeltaLog.clear_cache()
    monkeypatch.setattr(object_store, "EXCLUSIVE_DRIVERS", drivers)
    before = dict(FaultyFileSystem.store)
    with pytest.raises(ExclusiveCreateError, match=reason):
        log_of().commit([add("b")])
    assert before == FaultyFileSystem.store
    assert paths(log_of()) == {"a"}


def test_a_commit_that_is_sent_in_parts_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    log = created()
    monkeypatch.setattr(object_store, "LARGEST_CREATE", 1_000)
    with pytest.raises(DeltaLogError, match="has at most 1,000 bytes"):
        log.commit([add("a" * 2_000)])
    assert log.commit([add("a")]) == 1


@pytest.mark.parametrize(
    ("url", "package", "extra"),
    [
        ("s3://b/t", "s3fs", "s3"),
        ("gs://b/t", "gcsfs", "gcs"),
        ("abfss://c@a.dfs.core.windows.net/t", "adlfs", "abfs"),
        ("s3://b/t", "fsspec", "remote"),
    ],
)
def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, url: str, package: str, extra: str) -> None:
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, url.partition(":")[0], raising=False)
    for module in [module for module in sys.modules if module.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependencyError, match=rf"needs {package}, which is not installed") as caught:
        ds.DeltaLog.for_table(url)
    assert caught.value.extra == extra


@pytest.mark.parametrize(
    "url",
    [
        "unknown://b/t",
        "filecache::s3://b/t",
        "s3://b/t?sig=secret",
        "file://elsewhere/t",
        "dbfs:/b/t?sig=secret",
        Path("s3://b/t"),
    ],
)
def test_other_urls_are_refused(url: str | Path) -> None:
    reasons = r"fsspec cannot open it|chained URLs|of this machine"
    with pytest.raises((DeltaLogError, ValueError), match=reasons) as caught:
        ds.DeltaLog.for_table(url)
    assert "sig=secret" not in str(caught.value)


def test_an_endpoint_is_shown_without_its_credentials() -> None:
    endpoint = f"http://someone:{SECRET}@host:9000/b?sv=2&t=abcdefgh"
    store = object_store.ObjectStore(TABLE, {"endpoint": endpoint})
    shown = store._detail(ValueError(f"no answer of '{endpoint}', with {SECRET} and abcdefgh"))
    assert shown == "ValueError: no answer of 'http://host:9000/b?***', with *** and ***"


def test_schemes_are_read_in_any_case() -> None:
    created("Faulty://bucket/t").commit([add("a")])
    assert log_of("FAULTY://bucket/t") is log_of()
    assert paths(log_of()) == {"a"}


def test_options_that_are_no_mapping_are_refused(tmp_path: Path) -> None:
    for place in (TABLE, tmp_path):
        with pytest.raises(TypeError, match="storage_options is a dict, not str"):
            ds.DeltaLog.for_table(place, storage_options="key=1")  # type: ignore[arg-type]


def test_options_of_a_local_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="storage_options are for URLs"):
        ds.DeltaLog.for_table(tmp_path, storage_options={"a": 1})


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_logs_are_cached_by_their_options_and_process() -> None:
    assert log_of() is log_of(TABLE + "/")
    assert log_of(storage_options={"key": "a"}) is not log_of(storage_options={"key": "b"})
    kept = log_of()
    child = os.fork()
    if not child:
        os._exit(int(log_of() is kept))
    assert os.waitpid(child, 0)[1] == 0
    assert log_of() is kept
    ds.DeltaLog.invalidate_cache(TABLE)
    assert log_of() is not kept
