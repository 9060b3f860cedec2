from __future__ import annotations

import errno
import json
import os
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from filelock import FileLock
from growing_tables import Source, data_files, rows_of

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.delta.table import file_download
from delta_sharing_client.errors import (
    BadRequestError,
    DataError,
    DeltaLogError,
    DeltaTableNotFoundError,
    DiskFullError,
    FileGoneError,
    StorageError,
    VersionNotFoundError,
)
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer

Serve = Callable[..., SharingServer]
Connect = Callable[..., SharingClient]


@pytest.fixture
def server(source: Source, serve: Serve) -> SharingServer:
    return serve({"s.s.t": source.root, "s.s.u": source.root})


@pytest.fixture
def mirror(server: SharingServer, connect: Connect, tmp_path: Path) -> Mirror:
    return connect(server).table("s.s.t").mirror(tmp_path / "mirror")


def check(mirror: Mirror, source: Source) -> None:
    """Two readers find the rows of the shared table: our own, and deltalake."""
    assert rows_of(mirror.scan().to_arrow()) == source.rows
    other = DeltaTable(mirror.directory).to_pyarrow_table()
    assert rows_of(other) == source.rows
    assert mirror.verify().ok


def test_sync_follows_the_shared_table(mirror: Mirror, source: Source, server: SharingServer) -> None:
    assert mirror.shared_version is None
    first = mirror.sync(progress=False)
    assert (first.version, first.shared_version, first.commits, first.files_added) == (0, 1, 1, 2)
    check(mirror, source)
    source.change([("y2", [4])], ["x1"])
    server.reset_requests()
    second = mirror.sync(progress=False)
    assert (second.version, second.shared_version) == (1, 2)
    assert (second.files_added, second.files_removed, second.changed) == (1, 1, True)
    assert second.bytes_fetched == (source.root / "y2").stat().st_size
    assert len([request for request in server.requests if request.is_file]) == 1
    check(mirror, source)
    assert [info.operation for info in mirror.log.history()] == ["SYNC", "SYNC"]


@pytest.mark.parametrize("name", ["notes.txt", "retail"])
def test_directory_with_other_files_is_refused(
    mirror: Mirror, server: SharingServer, connect: Connect, name: str
) -> None:
    mirror.directory.mkdir()
    (mirror.directory / name).mkdir()
    scan = connect(server).table("s.s.t").scan()
    for put in (mirror.sync, lambda: scan.materialize(mirror.directory)):
        with pytest.raises(DeltaLogError, match=f"contains other files, such as '{name}'; give an empty or new"):
            put()
    assert [path.name for path in mirror.directory.iterdir()] == [name]
    (mirror.directory / name).rmdir()
    assert mirror.sync().files_added == 2


def test_a_file_is_no_directory_for_a_mirror(server: SharingServer, connect: Connect, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("notes")
    with pytest.raises(DeltaLogError, match=r"notes\.txt: this is a file, not a directory; give the directory"):
        connect(server).table("s.s.t").mirror(file)


@pytest.mark.parametrize("harm", ["cut", "footer", "empty"])
def test_damaged_files_name_the_directory_and_the_repair(mirror: Mirror, source: Source, harm: str) -> None:
    mirror.sync()
    file = next((mirror.directory / "p=x").iterdir())
    content = file.read_bytes()
    file.write_bytes({"cut": content[:-1], "footer": content[:-8] + bytes(8), "empty": b""}[harm])
    with pytest.raises(DataError, match=r"in the mirror in .*: sync\(repair=True\) fetches damaged") as raised:
        mirror.scan().to_arrow()
    assert str(mirror.directory) in str(raised.value)
    mirror.sync(repair=True)
    check(mirror, source)


def test_table_created_again_with_as_many_versions_is_listed(
    mirror: Mirror, source: Source, server: SharingServer
) -> None:
    mirror.sync()
    shutil.rmtree(source.root)
    again = Source(source.root)
    again.change(add=[("x-again.parquet", [7, 8, 9])])
    assert again.log.latest_version() == mirror.shared_version
    assert mirror.sync().changed
    check(mirror, again)
    assert not mirror.sync().changed


def test_sync_without_changes_is_one_request(mirror: Mirror, server: SharingServer) -> None:
    mirror.sync()
    server.reset_requests()
    result = mirror.sync()
    assert (result.changed, result.bytes_fetched, result.shared_version) == (False, 0, 1)
    assert [(request.method, request.path.rpartition("/")[2]) for request in server.requests] == [
        ("GET", "metadata")
    ]
    assert mirror.log.latest_version() == 0


def test_old_versions_stay_readable(mirror: Mirror, source: Source) -> None:
    seen = {}
    for number in range(4):
        seen[mirror.sync().shared_version] = source.rows
        source.change([(f"x{number + 5}", [number])], [min(source.files)])
    for version, rows in seen.items():
        assert rows_of(mirror.scan(version=version).to_arrow()) == rows
    with pytest.raises(VersionNotFoundError, match=r"no sync stopped at version 0 of s\.s\.t"):
        mirror.scan(version=0)
    assert rows_of(DeltaTable(mirror.directory, version=1).to_pyarrow_table()) == seen[2]


def test_sync_to_an_older_version_and_back(mirror: Mirror, source: Source, server: SharingServer) -> None:
    first = source.rows
    source.change([("z", [9])], ["y1"])
    source.change([("w", [10])])
    assert mirror.sync(at_version=1).shared_version == 1
    assert rows_of(mirror.scan().to_arrow()) == first
    server.reset_requests()
    assert not mirror.sync(at_version=1).changed
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["metadata"]
    assert mirror.sync().shared_version == 3
    check(mirror, source)
    # What an old version needs is on disk still.
    back = mirror.sync(at_version=1)
    assert (back.version, back.bytes_fetched) == (2, 0)
    assert rows_of(mirror.scan().to_arrow()) == first
    with pytest.raises(ValueError, match="at_version"):
        mirror.sync(at_version=-1)


def test_every_version(mirror: Mirror, source: Source) -> None:
    mirror.sync()
    rows = {}
    for number in range(3):
        version = source.change([(f"z{number}", [number])])
        rows[version] = source.rows
    result = mirror.sync(every_version=True)
    assert (result.commits, result.version, result.shared_version, result.files_added) == (3, 3, 4, 3)
    for version, expected in rows.items():
        assert rows_of(mirror.scan(version=version).to_arrow()) == expected


def test_every_version_after_a_vacuum(mirror: Mirror, source: Source) -> None:
    mirror.sync()
    source.change([("z0", [0])])
    source.change([("z1", [1])], remove=["z0"])
    (source.root / "z0").unlink()
    before = source.rows
    for _ in range(2):
        with pytest.raises(FileGoneError, match=r"Version 2 of s\.s\.t cannot be read.*sync\(\) brings"):
            mirror.sync(every_version=True)
    assert mirror.sync().commits == 1
    assert rows_of(mirror.scan().to_arrow()) == before
    source.change([("z2", [2])])
    source.change([("z3", [3])])
    assert mirror.sync(every_version=True).commits == 2


def test_without_history(source: Source, serve: Serve, connect: Connect, tmp_path: Path) -> None:
    mirror = connect(serve({"s.s.t": source.root}, history=False)).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync()
    source.change([("z", [1])])
    assert mirror.sync(every_version=False).shared_version == 2
    check(mirror, source)
    with pytest.raises(BadRequestError):
        mirror.sync(at_version=1)
    check(mirror, source)


def test_metadata_and_protocol_follow(mirror: Mirror, source: Source) -> None:
    mirror.sync()
    before = mirror.log.snapshot()
    raw = dict(source.log.snapshot().metadata.raw)
    schema = json.loads(raw["schemaString"])
    schema["fields"].append({"name": "n", "type": "timestamp_ntz", "nullable": True, "metadata": {}})
    raw |= {"schemaString": json.dumps(schema), "configuration": {"owner": "me", "delta.appendOnly": "false"}}
    features = {"readerFeatures": ["timestampNtz"], "writerFeatures": ["timestampNtz", "appendOnly", "invariants"]}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7} | features
    source.log.commit([{"protocol": protocol}, {"metaData": raw}])
    result = mirror.sync()
    assert (result.files_added, result.files_removed, result.commits) == (0, 0, 1)
    after = mirror.log.snapshot()
    assert after.protocol.reader_features == after.protocol.writer_features == ("timestampNtz",)
    ours = {"deltaSharing.table": "s.s.t", "deltaSharing.responseFormat": "delta"}
    assert after.metadata.configuration == {"owner": "me"} | ours
    assert mirror.scan().to_arrow().column_names == ["a", "p", "n"]
    assert before.metadata.id == after.metadata.id == raw["id"]
    assert rows_of(mirror.scan(version=1).to_arrow()) == source.rows


def test_a_version_that_changes_no_file_is_recorded(mirror: Mirror, source: Source, server: SharingServer) -> None:
    mirror.sync()
    source.log.commit([{"txn": {"appId": "other", "version": 1}}])
    assert mirror.sync().commits == 1
    assert mirror.shared_version == 2
    server.reset_requests()
    mirror.sync()
    assert len(server.requests) == 1


def test_directory_of_another_table_is_refused(
    mirror: Mirror, source: Source, server: SharingServer, connect: Connect, tmp_path: Path
) -> None:
    mirror.sync()
    other = connect(server).table("s.s.u").mirror(mirror.directory)
    for ask in (other.sync, other.verify, other.scan, other.vacuum, lambda: other.shared_version):
        with pytest.raises(DeltaLogError, match=r"this directory mirrors s\.s\.t, not s\.s\.u"):
            ask()
    plain = connect(server).table("s.s.t").mirror(source.root)
    with pytest.raises(DeltaLogError, match="Delta table in this directory is not a mirror"):
        plain.sync()
    never = connect(server).table("s.s.t").mirror(tmp_path / "never")
    for ask in (never.verify, never.scan, never.vacuum):
        with pytest.raises(DeltaTableNotFoundError, match="no sync of the mirror yet"):
            ask()
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize("harm", ["gone", "short", "flipped"])
def test_verify_and_repair(mirror: Mirror, source: Source, server: SharingServer, harm: str) -> None:
    mirror.sync()
    file = next(mirror.directory.glob("p=x/*.parquet"))
    content = file.read_bytes()
    if harm == "gone":
        file.unlink()
    elif harm == "short":
        file.write_bytes(content[:-1])
    else:
        file.write_bytes(bytes([content[0] ^ 1]) + content[1:])
    found = mirror.verify()
    (problem,) = found.problems
    assert not found.ok
    assert problem.path == file.relative_to(mirror.directory).as_posix()
    reasons = {"gone": "missing", "short": "bytes instead of", "flipped": "checksum"}
    assert reasons[harm] in problem.reason
    if harm == "gone":
        with pytest.raises(FileGoneError, match=r"sync\(repair=True\)"):
            mirror.scan().to_arrow()
    server.reset_requests()
    result = mirror.sync(repair=True)
    assert (result.changed, result.bytes_fetched) == (False, len(content))
    assert len([request for request in server.requests if request.is_file]) == 1
    check(mirror, source)
    assert mirror.sync(repair=True).bytes_fetched == 0


def test_vacuum(mirror: Mirror, source: Source) -> None:
    mirror.sync()
    source.change([("y2", [7])], ["x1"])
    mirror.sync()
    stranger = mirror.directory / "notes.parquet"
    stranger.write_text("not ours")
    assert mirror.vacuum().files == 0
    would = mirror.vacuum(timedelta(0), dry_run=True)
    assert (would.files, would.bytes > 0) == (1, True)
    assert rows_of(mirror.scan(version=1).to_arrow()) == [(1, "x"), (2, "x"), (3, "y")]
    assert mirror.vacuum(timedelta(0)) == would
    assert not (mirror.directory / "p=x").exists()
    assert stranger.exists()
    check(mirror, source)
    with pytest.raises(FileGoneError, match="vacuum or another program removed it"):
        mirror.scan(version=1).to_arrow()
    with pytest.raises(ValueError, match="retain is"):
        mirror.vacuum(timedelta(days=-1))
    with pytest.raises(TypeError, match="retain is a timedelta, not int"):
        mirror.vacuum(7)  # type: ignore[arg-type]
    # A file that comes back is fetched again.
    back = mirror.sync(at_version=1)
    assert back.bytes_fetched > 0
    assert rows_of(mirror.scan().to_arrow()) == [(1, "x"), (2, "x"), (3, "y")]


def test_scans_of_a_mirror(mirror: Mirror, server: SharingServer) -> None:
    mirror.sync()
    server.reset_requests()
    scan = mirror.scan(columns=["p", "A"], filters=[("a", ">=", 2)])
    assert scan.to_arrow().to_pydict() == {"p": ["x", "y"], "a": [2, 3]}
    assert scan.schema == pa.schema([("p", pa.string()), ("a", pa.int64())])
    assert scan.to_pandas()["a"].tolist() == [2, 3]
    assert mirror.scan(filters=[("p", "=", "y")]).count() == 1
    assert mirror.scan(limit=1).to_arrow().num_rows == 1
    assert mirror.scan(limit=0).to_arrow().num_rows == 0
    assert mirror.scan(columns=[]).to_arrow().num_rows == 3
    assert len(mirror.scan(filters=[("p", "=", "y")]).files()) == 1
    assert server.requests == []
    with pytest.raises(TypeError, match="columns takes a list"):
        mirror.scan(columns="a")
    with pytest.raises(ValueError, match="limit is -1"):
        mirror.scan(limit=-1)


def test_two_syncers_at_a_time(source: Source, server: SharingServer, connect: Connect, tmp_path: Path) -> None:
    errors: list[BaseException] = []

    def work() -> None:
        try:
            mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
            for _ in range(5):
                mirror.sync(progress=False)
        except BaseException as error:  # noqa: BLE001
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(4):
        source.change([(f"z{number}", [number])])
    for thread in threads:
        thread.join()
    assert errors == []
    mirror = connect(server).table("s.s.t").mirror(tmp_path / "mirror")
    mirror.sync()
    check(mirror, source)
    recorded = [info.operation_parameters["sharedVersion"] for info in reversed(mirror.log.history())]
    assert recorded == sorted(set(recorded), key=int)
    assert len(data_files(mirror.directory)) == len(source.files)


def no_locks(path: Path) -> Any:
    """A lock as on a file system that has none."""

    class Lock(FileLock):
        def _acquire(self) -> None:
            raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    return Lock(path)


def test_a_syncer_on_a_machine_without_the_lock(
    mirror: Mirror, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two syncers of one version: the second one to commit finds no change."""
    mirror.sync()
    source.change([("z", [1])])
    monkeypatch.setattr("delta_sharing_client.delta.table.local_table.file_lock", no_locks)
    original = file_download.fetch_files
    raced = []

    def fetch(*args: Any, **more: Any) -> Any:
        if not raced:
            raced.append(True)
            raced.append(mirror.sync().commits)
        return original(*args, **more)

    monkeypatch.setattr("delta_sharing_client.delta.table.local_table.fetch_files", fetch)
    result = mirror.sync()
    assert raced == [True, 1]
    assert (result.version, result.commits) == (1, 0)
    monkeypatch.undo()
    mirror.sync()
    check(mirror, source)


@pytest.mark.parametrize("where", ["fsync", "replace", "link"])
def test_a_full_disk_leaves_the_mirror_as_it_was(
    mirror: Mirror, source: Source, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    mirror.sync()
    rows = source.rows
    source.change([("z", [1])])

    def full(*args: Any, **more: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, where, full)
    with pytest.raises(DiskFullError, match="No space left on device; nothing was committed"):
        mirror.sync()
    monkeypatch.undo()
    assert mirror.shared_version == 1
    assert rows_of(mirror.scan().to_arrow()) == rows
    assert mirror.sync().commits == 1
    check(mirror, source)
    assert sorted(path.name for path in (mirror.directory / "_delta_sharing").iterdir()) == ["lock"]


def test_files_of_a_failed_sync_are_removed(
    mirror: Mirror, source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.sync()
    source.change([("z", [1])])

    def fail(*args: Any, **more: Any) -> None:
        raise StorageError("broken")

    monkeypatch.setattr("delta_sharing_client.delta.mirror.sync._actions", fail)
    with pytest.raises(StorageError):
        mirror.sync()
    monkeypatch.undo()
    assert len(data_files(mirror.directory)) == 3
    # The table moves on; the file that was fetched is wanted no more.
    source.change([("y9", [2])], ["z"])
    result = mirror.sync()
    assert (result.collected, result.files_added) == (1, 1)
    check(mirror, source)
    assert len(data_files(mirror.directory)) == 3


@pytest.mark.parametrize("text", ["", "{", "3", '["/etc/passwd", "../source/x1", 4]'])
def test_record_of_a_failed_sync_may_have_any_content(mirror: Mirror, source: Source, text: str) -> None:
    mirror.sync()
    (mirror.directory / "_delta_sharing" / "pending.json").write_text(text)
    source.change([("z", [1])])
    mirror.sync()
    check(mirror, source)
    assert (source.root / "x1").exists()


def test_repr(mirror: Mirror) -> None:
    assert repr(mirror) == f"Mirror('s.s.t', '{mirror.directory}')"
    assert "s.s.t" in mirror._repr_html_()
    mirror.sync()
    assert "Signature" not in repr(mirror.scan())
    assert DeltaLog.for_table(mirror.directory) is mirror.log
