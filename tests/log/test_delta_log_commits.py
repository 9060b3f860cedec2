from __future__ import annotations

import errno
import json
import os
import pickle
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from handwritten_logs import PROTOCOL, LogWriter, add, metadata, open_log, remove
from waiting import HANG

from delta_sharing_client import DeltaLog as PublicLog
from delta_sharing_client.errors import (
    CommitConflictError,
    DeltaLogError,
    DiskFullError,
    UnsupportedFeatureError,
)
from delta_sharing_client.log import AddFile, DeletionVector, DeltaLog, resolve_path, uri_of
from delta_sharing_client.log.log_cache import LogCache
from delta_sharing_client.log.paths import deletion_vector_path, encode_uuid
from delta_sharing_client.secrets import SecretUrl


@pytest.fixture
def log(tmp_path: Path) -> DeltaLog:
    log = open_log(tmp_path / "table")
    assert log.commit([PROTOCOL, metadata()], "CREATE TABLE") == 0
    return log


def names(log: DeltaLog) -> list[str]:
    return sorted(file.path for file in log.snapshot().files)


def lines_of(log: DeltaLog, version: int) -> list[dict[str, Any]]:
    text = (log.table_path / "_delta_log" / f"{version:020}.json").read_text()
    return [json.loads(line) for line in text.splitlines()]


def test_first_commit_creates_a_table(log: DeltaLog) -> None:
    assert log.table_exists
    assert log.commit([add("a"), {"txn": {"appId": "app", "version": 4}}]) == 1
    assert log.commit([remove("a"), add("b", unheardOf={"x": 1})], "MERGE", {"how": ["so"], "why": "t"}) == 2
    assert names(log) == ["b"]
    assert names(DeltaLog.for_table(log.table_path)) == ["b"]
    assert lines_of(log, 2)[2]["add"]["unheardOf"] == {"x": 1}
    assert [info.operation for info in log.history()] == ["MERGE", "WRITE", "CREATE TABLE"]
    (newest,) = log.history(limit=1)
    assert newest.operation_parameters == {"how": '["so"]', "why": "t"}
    assert newest.raw["readVersion"] == 1
    assert newest.timestamp == log.commit_timestamp(2)
    transaction = log.start_transaction()
    assert (transaction.read_version, transaction.txn_version("app"), transaction.txn_version("x")) == (2, 4, -1)
    assert [path.name for path in (log.table_path / "_delta_log").iterdir() if "tmp" in path.name] == []


def test_typed_actions_and_their_own_commit_info(log: DeltaLog) -> None:
    log.commit([add("a")])
    (file,) = log.snapshot().files
    assert isinstance(file, AddFile)
    log.commit([file, {"commitInfo": {"operation": "MINE", "mine": 1}}])
    assert (log.history()[0].operation, log.history()[0].raw["mine"]) == ("MINE", 1)


class TestRetries:
    """A commit that conflicts with nothing is repeated on top of those of other writers."""

    def test_appends_of_two_writers(self, log: DeltaLog) -> None:
        first, second = log.start_transaction(), log.start_transaction()
        first.commit([add("a"), {"txn": {"appId": "one", "version": 1}}])
        log.commit([add("b")])
        log.commit([remove("b")])
        actions = [add("c"), {"txn": {"appId": "two", "version": 1}}]
        assert second.commit(actions, max_retries=1) == 4
        assert names(log) == ["a", "c"]
        assert log.history(limit=1)[0].raw["readVersion"] == 3

    def test_many_writers(self, log: DeltaLog) -> None:
        def write(writer: int) -> None:
            for number in range(5):
                log.commit([add(f"{writer}-{number}")], max_retries=1000)

        threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(names(log)) == 20
        assert log.latest_version() == 20

    @pytest.mark.parametrize(
        ("theirs", "ours", "reason"),
        [
            ([add("x")], [remove("old")], "it removes files"),
            ([add("x")], [metadata()], "it changes the protocol or the metadata"),
            ([metadata(a="b")], [add("y")], "version 2 changed the protocol or the metadata"),
            ([add("y")], [add("y")], "version 2 has the same file 'y'"),
            ([remove("old")], [add("old", size=11)], "version 2 has the same file 'old'"),
            (
                [{"txn": {"appId": "app", "version": 1}}],
                [add("y"), {"txn": {"appId": "app", "version": 1}}],
                "version 2 has the same application 'app'",
            ),
        ],
    )
    def test_conflicts(self, log: DeltaLog, theirs: list[Any], ours: list[Any], reason: str) -> None:
        log.commit([add("old")])
        transaction = log.start_transaction()
        log.commit(theirs)
        before = log.latest_version()
        with pytest.raises(CommitConflictError, match=f"it is not repeated, because {reason}") as caught:
            transaction.commit(ours, max_retries=3)
        assert caught.value.version == 2
        assert caught.value.commit_info["operation"] == "WRITE"
        assert log.latest_version() == before

    def test_the_retries_are_counted(self, log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
        """Each new snapshot is overtaken by another writer again."""
        transaction, snapshot = log.start_transaction(), log.snapshot
        log.commit([add("other")])

        def overtaken() -> Any:
            found = snapshot()
            name = f"{found.version + 1:020}.json"
            (log.table_path / "_delta_log" / name).write_text(json.dumps(add(f"other-{found.version}")) + "\n")
            return found

        monkeypatch.setattr(log, "snapshot", overtaken)
        with pytest.raises(CommitConflictError, match=r"\(unknown\)") as caught:
            transaction.commit([add("mine")], max_retries=2)
        assert (caught.value.version, caught.value.commit_info) == (3, {})


def test_two_writers(log: DeltaLog) -> None:
    first, second = log.start_transaction(), log.start_transaction()
    assert first.commit([add("a")]) == 1
    with pytest.raises(CommitConflictError, match="version 1 was committed by another writer") as caught:
        second.commit([add("b")])
    assert caught.value.version == 1
    assert pickle.loads(pickle.dumps(caught.value)).version == 1
    (winner,) = log.history(limit=1)
    assert caught.value.commit_info == winner.raw
    assert pickle.loads(pickle.dumps(caught.value)).commit_info["operation"] == "WRITE"
    assert "WRITE by delta-sharing-client/" in str(caught.value)
    assert names(log) == ["a"]


def test_many_writers_lose_no_commit(log: DeltaLog) -> None:
    def write(name: str) -> None:
        for number in range(5):
            while True:
                try:
                    log.start_transaction().commit([add(f"{name}{number}")])
                    break
                except CommitConflictError:
                    pass

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert names(log) == [f"{name}{number}" for name in "abcd" for number in range(5)]
    assert log.latest_version() == 20
    assert open_log(log.table_path).snapshot().version == 20


TWO_COLUMNS = json.dumps(
    {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {}},
            {"name": "P", "type": "string", "nullable": True, "metadata": {}},
        ],
    }
)
VECTOR = {"storageType": "i", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1}


def described(**changes: Any) -> dict[str, Any]:
    return {"metaData": metadata()["metaData"] | changes}


def protocol(reader: int, writer: int, **features: list[str]) -> dict[str, Any]:
    return {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer, **features}}


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([described(), described()], "two metaData actions"),
        ([PROTOCOL, PROTOCOL], "two protocol actions"),
        ([{"txn": {"appId": "x", "version": 1}}] * 2, "two txn actions for 'x'"),
        ([{"domainMetadata": {"domain": "d"}}] * 2, "two domainMetadata actions for 'd'"),
        ([add("f"), add("f", size=3)], "two add actions for 'f'"),
        ([add("f"), remove("f")], "adds and removes the same file 'f'"),
        ([{"add": {"path": "f", "dataChange": True}}], "'f' lacks partitionValues, size, modificationTime"),
        ([{"add": {"path": "f"}, "remove": {"path": "g"}}], "object with one key"),
        ([add("f", partitionValues={"p": "1"})], "values for the partition columns p; the table has none"),
        ([add("s3://bucket/f?X-Amz-Signature=secret")], "absolute path; open the log with allow_absolute_paths"),
        ([add("/etc/passwd")], "absolute path"),
        ([add("a b")], "not percent-encoded"),
        ([add("a%2Gb")], "not percent-encoded"),
        ([remove("x/%2e%2e/../f")], "leads out of the table's directory"),
        ([add("f", deletionVector=VECTOR)], "deletion vector, which the protocol does not list"),
        ([{"cdc": {"path": "c", "partitionValues": {}}}], "does not list changeDataFeed"),
        ([described(schemaString="{}")], "schemaString is not a schema"),
        ([described(configuration=None)], "the metadata lacks configuration"),
        ([described(partitionColumns=["b"])], "partition column 'b' is not in the schema"),
        ([described(schemaString=None)], "lacks schemaString"),
        ([described(format={"provider": "orc"})], "have the format 'orc'"),
        ([described(partitionColumns=["a"])], "every column is a partition column"),
        ([described(schemaString=TWO_COLUMNS.replace('"P"', '"A"'))], "column 'A' twice"),
        ([described(configuration={"delta.enableDeletionVectors": "true"})], "require deletionVectors"),
        ([described(configuration={"delta.columnMapping.mode": "name"})], "has no id or no physical name"),
        ([protocol(3, 2)], "readerFeatures belong to reader version 3"),
        ([protocol(1, 7)], "writerFeatures belong to writer version 7"),
        ([protocol(0, 2)], "begin at 1"),
        ([protocol(3, 7, readerFeatures=["x"], writerFeatures=[])], "reader features x are not among"),
    ],
)
def test_rules_of_a_commit(log: DeltaLog, actions: list[dict[str, Any]], reason: str) -> None:
    before = sorted((log.table_path / "_delta_log").iterdir())
    with pytest.raises(DeltaLogError, match=reason) as caught:
        log.commit(actions)
    assert "secret" not in str(caught.value)
    assert sorted((log.table_path / "_delta_log").iterdir()) == before


@pytest.mark.parametrize(
    ("actions", "reason"),
    [
        ([{"Add": add("f")["add"]}], "action 'Add': no such action; a commit has add, remove, cdc, metaData"),
        ([add("f", stats={"numRecords": 1})], "action 'add': field 'stats': Expected `str"),
        ([add("f", stats="{numRecords: 1}")], "action 'add': field 'stats': Expected the text of a JSON object"),
        ([add("f", stats="[1]")], "field 'stats': Expected the text of a JSON object"),
        ([add("f", dataChange="yes")], "field 'dataChange': Expected `bool"),
        ([add("f", size="5")], "field 'size': Expected `int"),
        ([add("f", size=-5)], "field 'size': Expected `int` >= 0"),
        ([add("f", size=2**63)], "field 'size': Expected `int` <= "),
        ([add("f", modificationTime=1.5)], "field 'modificationTime': Expected `int"),
        ([add("f", partitionValues={"a": 1})], "field 'partitionValues.*': Expected `str"),
        ([add("f", tags="x")], "field 'tags': Expected `object"),
        ([add("f", deletionVector={"storageType": "i"})], "field 'deletionVector': .* `pathOrInlineDv`"),
        ([add("f", other={1, 2})], "action 'add': a field is no JSON value: Object of type set"),
        ([add("f", other=float("nan"))], "action 'add': a field is no JSON value"),
        ([{"add": {}}], "action 'add': Object missing required field `path`"),
        ([{"add": None}], "action 'add': Expected `object`"),
        ([{"remove": {"path": ""}}], "action 'remove': field 'path'"),
        ([{"txn": {"appId": "x", "version": "7"}}], "action 'txn': field 'version': Expected `int`, got `str`"),
        ([described(partitionColumns="a")], "action 'metaData': field 'partitionColumns': Expected `array"),
        ([described(configuration={"x": True})], "field 'configuration.*': Expected `str"),
        ([{"protocol": {"minReaderVersion": 1}}], "action 'protocol': Object missing .* `minWriterVersion`"),
        ([{"commitInfo": {"timestamp": "now"}}], "action 'commitInfo': field 'timestamp'"),
        ({"add": {}}, "among its actions is a str; it takes a list of actions"),
        (["x"], "among its actions is a str"),
    ],
)
def test_malformed_actions_are_refused_before_anything_is_written(
    log: DeltaLog, actions: Any, reason: str
) -> None:
    before = sorted((log.table_path / "_delta_log").iterdir())
    with pytest.raises(DeltaLogError, match=f"the commit is refused: .*{reason}"):
        log.commit(actions)
    assert sorted((log.table_path / "_delta_log").iterdir()) == before


@pytest.mark.parametrize(("actions", "missing"), [([PROTOCOL], "metaData"), ([metadata()], "protocol")])
def test_the_first_commit(tmp_path: Path, actions: list[dict[str, Any]], missing: str) -> None:
    log = open_log(tmp_path / "new")
    with pytest.raises(DeltaLogError, match=f"needs a {missing} action"):
        log.commit(actions)
    assert not log.table_exists
    assert not (tmp_path / "new").exists()


def test_append_only(log: DeltaLog) -> None:
    log.commit([metadata(delta__appendOnly="true"), add("a")])
    with pytest.raises(DeltaLogError, match="append-only, and 'a' would be removed"):
        log.commit([remove("a")])
    log.commit([remove("a", dataChange=False), add("b", dataChange=False)])
    assert names(log) == ["b"]


def test_partition_values_by_physical_name(tmp_path: Path) -> None:
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, described(schemaString=TWO_COLUMNS, partitionColumns=["p"])])
    log.commit([add("f", partitionValues={"P": None})])
    with pytest.raises(DeltaLogError, match="the partition columns none; the table has P"):
        log.commit([add("g")])


@pytest.mark.parametrize("feature", ["checkConstraints", "rowTracking", "identityColumns", "clustering"])
def test_features_about_rows_concern_only_new_rows(log: DeltaLog, feature: str) -> None:
    listed = protocol(1, 7, writerFeatures=[feature, "appendOnly"])
    field = {"name": "a", "type": "long", "nullable": True, "metadata": {"delta.identity.start": 1}}
    schema = json.dumps({"type": "struct", "fields": [field]})
    log.commit([add("old")])
    log.commit([listed, described(schemaString=schema, configuration={"delta.constraints.c": "a > 0"})])
    with pytest.raises(UnsupportedFeatureError, match=rf"cannot be given new rows.*features {feature}") as caught:
        log.commit([add("f")])
    assert caught.value.features == (feature,)
    log.commit([remove("old")])
    assert names(log) == []


def test_unknown_writer_features_refuse_every_commit(log: DeltaLog) -> None:
    writer = LogWriter.__new__(LogWriter)
    writer.log = log.table_path / "_delta_log"
    writer.commit(1, [protocol(1, 7, writerFeatures=["newThing", "otherThing", "appendOnly"]), add("a")])
    assert names(log) == ["a"]
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be committed to.*newThing, otherThing"):
        log.commit([remove("a")])
    writer.commit(2, [protocol(1, 8, writerFeatures=[])])
    with pytest.raises(DeltaLogError, match="needs writer version 8, this release writes up to 7"):
        log.commit([])


def test_unknown_reader_features_refuse_reading(writer: LogWriter) -> None:
    features = ["deletionVectors", "newThing", "variantType-preview"]
    writer.commit(0, [protocol(3, 7, readerFeatures=features, writerFeatures=features), metadata(), add("a")])
    with pytest.raises(UnsupportedFeatureError, match=r"cannot be read.*features newThing;") as caught:
        open_log(writer.table).snapshot()
    assert caught.value.features == ("newThing",)
    assert DeltaLog.for_table(writer.table, any_features=True).snapshot().version == 0
    writer.commit(1, [protocol(4, 7, readerFeatures=[], writerFeatures=[])])
    with pytest.raises(DeltaLogError, match="needs reader version 4, this release reads up to 3"):
        open_log(writer.table).snapshot()


def test_absolute_paths_only_when_allowed(log: DeltaLog) -> None:
    url = "https://store/f?X-Amz-Signature=abcdef"
    allowed = DeltaLog.for_table(log.table_path, allow_absolute_paths=True)
    assert allowed is not log
    allowed.commit([add(url)])
    assert names(allowed) == [url]
    with pytest.raises(DeltaLogError, match="absolute paths, outside the table's directory") as caught:
        _ = log.snapshot().files
    assert "abcdef" not in str(caught.value)


def test_in_commit_timestamps_grow(tmp_path: Path) -> None:
    log = open_log(tmp_path / "table")
    properties = {"delta.enableInCommitTimestamps": "true"}
    log.commit([protocol(1, 7, writerFeatures=["inCommitTimestamp"]), described(configuration=properties)])
    for number in range(3):
        log.commit([add(f"f{number}")])
    times = [log.commit_timestamp(version) for version in range(4)]
    assert times == sorted(set(times))
    assert next(iter(lines_of(log, 3)[0]["commitInfo"])) == "inCommitTimestamp"


def test_in_commit_timestamps_enabled_later(log: DeltaLog) -> None:
    listed = protocol(1, 7, writerFeatures=["inCommitTimestamp"])
    properties = {"delta.enableInCommitTimestamps": "true"}
    with pytest.raises(DeltaLogError, match=r"set .*EnablementVersion and .*EnablementTimestamp to it"):
        log.commit([listed, described(configuration=properties)])
    properties |= {
        "delta.inCommitTimestampEnablementVersion": "1",
        "delta.inCommitTimestampEnablementTimestamp": "1",
    }
    assert log.commit([listed, described(configuration=properties)]) == 1


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EPERM])
@pytest.mark.parametrize("call", ["fsync", "link"])
def test_a_commit_that_cannot_be_written(
    log: DeltaLog, monkeypatch: pytest.MonkeyPatch, code: int, call: str
) -> None:
    log.commit([add("a")])
    before = sorted(path.name for path in (log.table_path / "_delta_log").iterdir())

    def fail(*args: Any, **more: Any) -> None:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, call, fail)
    kind = DiskFullError if code in (errno.ENOSPC, errno.EDQUOT) else DeltaLogError
    with pytest.raises(kind, match="version 2 cannot be written") as caught:
        log.commit([add("b")])
    if (call, code) == ("link", errno.EPERM):
        assert "no hard links" in str(caught.value)
    monkeypatch.undo()
    assert sorted(path.name for path in (log.table_path / "_delta_log").iterdir()) == before
    assert log.commit([add("b")]) == 2


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("version", lambda log: log.snapshot_at(version="3")),
        ("version", lambda log: log.snapshot_at(version=True)),
        ("version", lambda log: log.checkpoint(version="1")),
        ("limit", lambda log: log.history("3")),
        ("start_version", lambda log: log.changes("0")),
        ("end_version", lambda log: log.changes(0, "0")),
    ],
)
def test_arguments_of_another_type_are_named(log: DeltaLog, name: str, call: Callable[[DeltaLog], object]) -> None:
    with pytest.raises(TypeError, match=f"^{name} is an int, not (str|bool)$"):
        call(log)


def test_an_empty_path_is_refused() -> None:
    for call in (DeltaLog.for_table, DeltaLog.invalidate_cache):
        with pytest.raises(ValueError, match="path is empty; it takes a directory of this machine, "):
            call("")


def test_one_log_per_directory(log: DeltaLog, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(log.table_path)
    assert DeltaLog.for_table(tmp_path / "link") is log
    assert DeltaLog.for_table(str(tmp_path / "." / "link" / "")) is log
    assert pickle.loads(pickle.dumps(log)) is log
    DeltaLog.invalidate_cache(tmp_path / "elsewhere")
    assert DeltaLog.for_table(log.table_path) is log
    DeltaLog.invalidate_cache(tmp_path / "link")
    other = DeltaLog.for_table(log.table_path)
    assert other is not log
    DeltaLog.clear_cache()
    assert DeltaLog.for_table(log.table_path) is not other


def test_a_log_is_opened_by_text_or_path(log: DeltaLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Somewhere(os.PathLike[str]):
        def __fspath__(self) -> str:
            return str(tmp_path / "table")

    (tmp_path / "link").symlink_to(log.table_path)
    monkeypatch.chdir(tmp_path)
    url = (tmp_path / "table").as_uri()
    for place in ("table", tmp_path / "link", str(tmp_path / "table"), Somewhere(), url):
        for kind in (DeltaLog, PublicLog):
            opened = kind(place)
            assert opened.table_path == log.table_path
            assert opened.snapshot().version == 0
            assert pickle.loads(pickle.dumps(opened)).latest_version() == 0
    for wrong in (3, None, b"table"):
        with pytest.raises(TypeError, match="table is a str or a path, not"):
            DeltaLog(wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="table is empty"):
        DeltaLog("")


def test_a_store_that_opens_slowly_does_not_delay_other_logs() -> None:
    """Some drivers connect to it; logs that two threads open at a time are one."""
    cache, opening, go = LogCache(), threading.Semaphore(0), threading.Event()

    def open_slowly() -> object:
        opening.release()
        assert go.wait(HANG)
        return object()

    with ThreadPoolExecutor(2) as pool:
        slow = [pool.submit(cache.get, "hdfs://far/t", "", open_slowly) for _ in range(2)]
        try:
            for _ in slow:
                assert opening.acquire(timeout=HANG)
            assert cache.get("/t", "", lambda: "near") == "near"
        finally:
            go.set()
        assert slow[0].result(HANG) is slow[1].result(HANG)


def test_cached_logs_expire_after_their_last_use(log: DeltaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    first = DeltaLog.for_table(log.table_path)
    assert DeltaLog.for_table(log.table_path) is first
    monkeypatch.setattr("delta_sharing_client.log.log_cache.EXPIRY", timedelta(0))
    assert DeltaLog.for_table(log.table_path) is not first


def test_update_may_return_a_stale_snapshot(log: DeltaLog) -> None:
    assert log.update().version == 0
    log.commit([add("a")])
    assert log.update(staleness_acceptable=True).version == 0
    assert log.update(staleness_acceptable=timedelta(minutes=5)).version == 0
    assert log.update(staleness_acceptable=timedelta()).version == 1
    assert log.update(staleness_acceptable=True).version == 1
    log.commit([add("b")])
    assert log.update().version == 2


@pytest.mark.parametrize(
    "name",
    [
        "plain.parquet",
        "a b/ü=1%2F/ü#?&+%.parquet",
        "p=2024-01-01 10:00:00/part",
        "c:/x",
        "quote\"'<>[]{}|^`\\~",
        "emoji\N{GRINNING FACE}/日本",
        "percent%41%zz",
        "new\nline\ttab",
    ],
)
def test_paths_with_special_characters(log: DeltaLog, name: str) -> None:
    log.commit([add(uri_of(name))])
    (file,) = open_log(log.table_path).snapshot().files
    assert resolve_path(log.table_path, file.path) == log.table_path / name
    assert resolve_path(str(log.table_path), file.path) == log.table_path / name


def test_uuid_of_a_deletion_vector_round_trip(tmp_path: Path) -> None:
    value = uuid.UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    assert encode_uuid(value) == "^-aqEH.-t@S}K{vb[*k^"
    path = deletion_vector_path(tmp_path, DeletionVector("u", SecretUrl(f"dv{encode_uuid(value)}"), 34, 1))
    assert path == tmp_path / "dv" / f"deletion_vector_{value}.bin"
