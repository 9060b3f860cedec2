from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from handwritten_logs import PROTOCOL, SCHEMA, LogWriter, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError, VersionNotFoundError
from delta_sharing_client.log import (
    CdcFile,
    DeletionVector,
    DeltaLog,
    OtherAction,
    RemoveFile,
    deletion_vector_path,
    file_key,
    resolve_path,
)
from delta_sharing_client.secrets import SecretUrl


def paths(log: DeltaLog, version: int | None = None) -> list[str]:
    snapshot = log.snapshot() if version is None else log.snapshot_at(version)
    return [file.path for file in snapshot.files]


@pytest.mark.parametrize("made", [None, ".", "_delta_log"])
def test_no_table(tmp_path: Path, made: str | None) -> None:
    table = tmp_path / "table"
    if made is not None:
        (table / made).mkdir(parents=True)
    log = open_log(table)
    assert not log.table_exists
    snapshot = log.snapshot()
    assert (snapshot.version, snapshot.files, snapshot.tombstones) == (-1, (), ())
    reason = "no commit and no checkpoint" if made == "_delta_log" else "no _delta_log"
    for ask in (log.latest_version, log.history, lambda: log.snapshot_at(0), lambda: log.changes(0)):
        with pytest.raises(DeltaTableNotFoundError, match=reason):
            ask()
    with pytest.raises(DeltaTableNotFoundError):
        _ = snapshot.metadata
    with pytest.raises(DeltaTableNotFoundError):
        _ = snapshot.protocol


def test_reconciliation(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("a", moment=2), add("b", moment=1)])
    writer.commit(1, [remove("a"), add("c", moment=3), {"txn": {"appId": "app", "version": 7}}])
    writer.commit(2, [add("a", size=99, moment=4), metadata(delta__appendOnly="true"), {"unheardOf": {"x": 1}}])
    writer.commit(3, [add("c", size=5, moment=3)])
    log = open_log(writer.table)
    assert log.latest_version() == 3
    assert paths(log, 0) == ["b", "a"]
    assert paths(log, 1) == ["b", "c"]
    assert [tombstone.path for tombstone in log.snapshot_at(1).tombstones] == ["a"]
    snapshot = log.snapshot()
    assert [(file.path, file.size) for file in snapshot.files] == [("b", 10), ("c", 5), ("a", 99)]
    assert snapshot.tombstones == ()
    assert snapshot.metadata.configuration == {"delta.appendOnly": "true"}
    assert snapshot.transactions["app"].version == 7
    assert snapshot.size_in_bytes == 114
    assert snapshot.schema_string == SCHEMA
    assert snapshot.protocol.min_reader_version == 1
    assert snapshot.protocol.raw == PROTOCOL["protocol"]
    assert repr(snapshot) == "Snapshot(version=3, files=3)"


def test_files_are_distinguished_by_deletion_vector(writer: LogWriter) -> None:
    first = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*k^",
        "offset": 4,
        "sizeInBytes": 40,
        "cardinality": 6,
    }
    second = first | {"offset": 60, "cardinality": 8}
    writer.commit(0, [PROTOCOL, metadata(), add("f")])
    writer.commit(1, [add("f", deletionVector=first), remove("f")])
    writer.commit(2, [add("f", deletionVector=second), remove("f", deletionVector=first)])
    (file,) = open_log(writer.table).snapshot().files
    assert file.deletion_vector is not None
    assert file.deletion_vector.cardinality == 8
    assert file_key(file) == ("f", "uab^-aqEH.-t@S}K{vb[*k^@60")
    assert deletion_vector_path(writer.table, file.deletion_vector) == (
        writer.table / "ab" / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )


def test_domain_metadata(writer: LogWriter) -> None:
    domain = {"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}
    writer.commit(0, [PROTOCOL, metadata(), domain])
    writer.commit(1, [{"domainMetadata": {"domain": "d", "configuration": "", "removed": True}}])
    log = open_log(writer.table)
    assert set(log.snapshot_at(0).state.domains) == {"d"}
    assert log.snapshot().state.domains == {}


def test_snapshot_at_needs_one_point(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata()])
    log = open_log(writer.table)
    with pytest.raises(ValueError, match="either a version or a timestamp"):
        log.snapshot_at()
    with pytest.raises(ValueError, match="either a version or a timestamp"):
        log.snapshot_at(0, 0)
    for version in (-1, 1):
        with pytest.raises(VersionNotFoundError, match="versions 0 to 0"):
            log.snapshot_at(version)


def test_gap(writer: LogWriter) -> None:
    for version in (0, 1, 3):
        writer.commit(version, [PROTOCOL, metadata(), add(f"f{version}")])
    log = open_log(writer.table)
    with pytest.raises(DeltaLogError, match="gap: the commit of version 2"):
        log.snapshot()
    assert len(paths(log, 1)) == 2
    with pytest.raises(DeltaLogError, match="gap: the commit of version 2"):
        log.changes(1, 3)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "line 2: not a JSON object"),
        ('{"add": 3}', "'add' is not a JSON object"),
        ('{"add": {"size": 3}}', "'add' lacks path"),
        ('{"metaData": {"schemaString": "x"}}', "lacks id"),
        ('{"add": {"path": "f", "deletionVector": {"storageType": "u"}}}', "'add': 'pathOrInlineDv' is missing"),
        ('{"add": {"path": "f", "deletionVector": "u"}}', "'deletionVector' is not an object"),
        ('{"metaData": {"id": "x", "partitionColumns": "p"}}', "'partitionColumns' is not a list"),
        ('{"metaData": {"id": "x", "schemaString": {}}}', "'schemaString' is missing"),
        ('{"protocol": {"minReaderVersion": true}}', "'minReaderVersion' is not an integer"),
        ("[" * 100_000, "not JSON"),
        ('{"add": {"path": "f", "size": 1e300}}', "'size' is beyond 64 bits"),
        ('{"add": {"path": "f", "size": 9223372036854775808}}', "'size' is beyond 64 bits"),
        ('{"add": {"path": "f", "modificationTime": 1e999999999}}', "'modificationTime' is not an integer"),
        ('{"add": {"path": "f", "size": "x"}}', "'size' is not an integer"),
        ('{"remove": {"path": "f", "deletionTimestamp": []}}', "'deletionTimestamp' is not an integer"),
        ('{"protocol": {"minReaderVersion": 1e300}}', "'minReaderVersion' is beyond 64 bits"),
        ('{"txn": {"appId": "a", "version": NaN}}', "'version' is not an integer"),
        (
            '{"add": {"path": "f", "deletionVector": '
            '{"storageType": "u", "pathOrInlineDv": "x", "sizeInBytes": 1, "cardinality": 1e99}}}',
            "'cardinality' is beyond 64 bits",
        ),
        ('{"add": {"path": "f"}}{"remove": {"path": "f"}}', "line 2: two JSON objects in one line"),
        ('{"add": {"path": "f"}} {"add": {"path": "g"}}', "line 2: two JSON objects in one line"),
        ('{"add": {"path": "f"}} x', "line 2: not JSON"),
        ('{"add": {"path": "f"}, "remove": {"path": "g"}}', r"line 2: the object has 2 actions \(add, remove\)"),
        ('{"add": {"path": "f"}, "add": {"path": "g"}}', "line 2: the object has the action 'add' twice"),
        ('{"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}', "two different protocol actions"),
        (r'{"add": {"path": "f\ud83d"}}', "an unpaired surrogate"),
        (r'{"add": {"path": "f", "partitionValues": {"p": "\udc00"}}}', "an unpaired surrogate"),
    ],
)
def test_damaged_commit(writer: LogWriter, line: str, reason: str) -> None:
    file = writer.commit(0, [PROTOCOL])
    file.write_text(file.read_text() + line)
    with pytest.raises(DeltaLogError, match=reason) as caught:
        open_log(writer.table).snapshot()
    assert "00000000000000000000.json" in str(caught.value)


def test_two_metadata_in_one_version(writer: LogWriter) -> None:
    """The same one twice changes nothing."""
    writer.commit(0, [PROTOCOL, metadata(), add("a", tags={"add": "x"}), metadata(), PROTOCOL])
    assert paths(open_log(writer.table)) == ["a"]
    writer.commit(1, [metadata(x="1"), add("b"), metadata(x="2")])
    log = open_log(writer.table)
    for read in (log.snapshot, lambda: list(log.changes(1)), log.history):
        with pytest.raises(
            DeltaLogError, match=r"0001\.json has two different metaData actions, and a version has"
        ):
            read()
    with pytest.raises(DeltaLogError, match="two different metaData"):
        log.commit([add("c")])


def test_blank_lines_and_null_actions_are_skipped(writer: LogWriter) -> None:
    file = writer.commit(0, [PROTOCOL, metadata()])
    file.write_text(file.read_text() + '\n  \n{"add": null, "txn": {"appId": "x", "version": 1}}\n')
    assert open_log(writer.table).snapshot().transactions["x"].version == 1


def test_log_without_protocol_or_metadata(writer: LogWriter) -> None:
    writer.commit(0, [add("f")])
    with pytest.raises(DeltaLogError, match="lacks the protocol or the metadata"):
        open_log(writer.table).snapshot()


def test_changes(writer: LogWriter) -> None:
    info = {"commitInfo": {"operation": "WRITE"}}
    writer.commit(0, [info, PROTOCOL, metadata(), add("a")], mtime_ms=1_000)
    writer.commit(
        1, [{"cdc": {"path": "_change_data/c", "partitionValues": {"p": None}, "size": 1}}], mtime_ms=2_000
    )
    writer.commit(2, [remove("a", dataChange=False)], mtime_ms=3_000)
    log = open_log(writer.table)
    commits = list(log.changes(1))
    assert [(commit.version, commit.timestamp) for commit in commits] == [(1, 2_000), (2, 3_000)]
    (cdc,), (gone,) = commits[0].actions, commits[1].actions
    assert isinstance(cdc, CdcFile)
    assert cdc.partition_values == {"p": None}
    assert isinstance(gone, RemoveFile)
    assert not gone.data_change
    assert gone.size == 0
    first = next(log.changes(0, 0)).actions[0]
    assert isinstance(first, OtherAction)
    assert first.name == "commitInfo"
    assert list(log.changes(2, 1)) == []
    with pytest.raises(VersionNotFoundError):
        log.changes(2, 3)


def test_kept_snapshots_follow_the_log(writer: LogWriter) -> None:
    """A replay on top of a cached snapshot equals a replay from the start."""
    rng = random.Random(7)
    alive: set[str] = set()
    log = None
    for version in range(40):
        actions = [PROTOCOL, metadata()] if version == 0 else []
        for name in rng.sample(sorted(alive), k=min(len(alive), rng.randrange(3))):
            actions.append(remove(name))
            alive.discard(name)
        for _ in range(rng.randrange(4)):
            name = f"f{rng.randrange(30)}"
            if name not in alive:
                actions.append(add(name, moment=version))
                alive.add(name)
        writer.commit(version, actions)
        log = log or open_log(writer.table)
        if rng.random() < 0.5:
            assert set(paths(log)) == alive
    assert log is not None
    for version in rng.sample(range(40), k=40):
        assert paths(log, version) == paths(open_log(writer.table), version)


def test_table_created_again_in_the_same_directory(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata("old"), add("old")])
    writer.commit(1, [add("old2")])
    log = open_log(writer.table)
    assert log.snapshot().metadata.id == "old"
    shutil.rmtree(writer.table)
    again = LogWriter(writer.table)
    again.commit(0, [PROTOCOL, metadata("new-one"), add("new")])
    assert log.snapshot().metadata.id == "new-one"
    again.commit(1, [add("new2")])
    assert paths(log) == ["new", "new2"]
    shutil.rmtree(writer.table)
    with pytest.raises(DeltaTableNotFoundError):
        log.latest_version()


def test_resolve_path(tmp_path: Path) -> None:
    assert resolve_path(tmp_path, "p=a%20b/x%25.parquet") == tmp_path / "p=a b" / "x%.parquet"
    assert resolve_path(tmp_path, "t=10:00:00/x") == tmp_path / "t=10:00:00" / "x"
    assert resolve_path(tmp_path, "file:///data/a%20b") == Path("/data/a b")
    assert resolve_path(tmp_path, "file:/data/a") == Path("/data/a")
    assert resolve_path(tmp_path, "/data/a%20b") == Path("/data/a b")
    for uri in ("s3://bucket/x", "file://elsewhere/x"):
        with pytest.raises(DeltaLogError, match="not local"):
            resolve_path(tmp_path, uri)


def test_deletion_vector_paths(tmp_path: Path) -> None:
    def resolve(kind: str, place: str) -> Path | None:
        return deletion_vector_path(tmp_path, DeletionVector(kind, SecretUrl(place), 34, 1))

    assert resolve("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L") is None
    assert resolve("p", "file:///d/x.bin") == Path("/d/x.bin")
    assert (
        resolve("u", "^-aqEH.-t@S}K{vb[*k^")
        == tmp_path / "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    for kind, place in (("u", "short"), ("u", "~" * 20), ("u", "#" * 20), ("x", "^-aqEH.-t@S}K{vb[*k^")):
        with pytest.raises(DeltaLogError, match="deletion vector"):
            resolve(kind, place)


def test_against_deltalake(tmp_path: Path) -> None:
    """Every version of a table that deltalake wrote has the same files as in deltalake."""
    table = str(tmp_path / "table")
    rows = pa.table({"a": list(range(20)), "p": ["x y", "é/%", "", "z"] * 5})
    for _ in range(3):
        write_deltalake(table, rows, mode="append", partition_by=["p"])
    DeltaTable(table).delete("a = 3")
    write_deltalake(table, rows.slice(0, 5), mode="overwrite", partition_by=["p"])
    DeltaTable(table).create_checkpoint()
    write_deltalake(table, rows, mode="append", partition_by=["p"])
    log = open_log(table)
    for version in range(log.latest_version() + 1):
        ours = {str(resolve_path(Path(table), file.path)) for file in log.snapshot_at(version).files}
        assert all(Path(path).exists() for path in ours)
        theirs = DeltaTable(table, version=version).file_uris()
        assert sorted(Path(path).name for path in ours) == sorted(Path(uri).name for uri in theirs)
