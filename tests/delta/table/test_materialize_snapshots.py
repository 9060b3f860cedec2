from __future__ import annotations

import errno
import json
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from faults.server import FaultServer, Reply, Request
from filelock import FileLock
from loading_faults import SIGNATURE, Share, expired, generation_of, parquet
from loading_tables import File, column, write_table
from waiting import HANG, join, wait_for_rest

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.table import file_download, partial_file
from delta_sharing_client.delta.table.local_names import data_file, data_folder, encode_folder
from delta_sharing_client.delta.table.materialize_snapshot import SignedUrlsWarning
from delta_sharing_client.errors import (
    DataError,
    DeltaLogError,
    DiskFullError,
    FileGoneError,
    NotFoundError,
    UnsupportedFeatureError,
)
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.server import SharingServer

Serve = Callable[..., SharingServer]
Connect = Callable[..., SharingClient]

A = [column("a", "long")]
ROWS = pa.table({"a": pa.array(range(3), pa.int64())})
QUICK: dict[str, Any] = {"storage_attempts": 2}


def written(directory: Path) -> list[str]:
    """The files of a table but for the checksums of its versions."""
    files = (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".crc")
    return sorted(str(path.relative_to(directory)) for path in files)


def all_text(directory: Path) -> bytes:
    return b"".join(path.read_bytes() for path in (directory / "_delta_log").iterdir())


@pytest.fixture
def share(faults: FaultServer) -> Share:
    return Share(faults, A, {f"f{number}": ROWS for number in range(4)})


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "copy"


def test_another_engine_reads_the_table(share: Share, connect: Connect, target: Path) -> None:
    made = connect(share.server).table("s.s.t").scan().materialize(target, progress=False)
    assert (made.path, made.version, made.shared_version, made.files) == (target, 0, 7, 4)
    assert made.bytes_fetched == sum(map(len, share.data.values()))
    assert DeltaTable(target).to_pyarrow_table().sort_by("a")["a"].to_pylist() == [0] * 4 + [1] * 4 + [2] * 4
    names = written(target)
    names.remove("_delta_log/00000000000000000000.json")
    assert [len(name) for name in names] == [32 + len(".parquet")] * 4
    (info,) = DeltaLog.for_table(target).history()
    assert info.operation == "MATERIALIZE"
    assert info.operation_parameters == {"table": "s.s.t", "sharedVersion": "7", "data": "files"}
    assert SIGNATURE.encode() not in all_text(target)


@pytest.mark.parametrize("selection", [{"columns": ["a"]}, {"filters": [("a", ">", 1)]}, {"limit": 3}])
def test_whole_files_only(share: Share, connect: Connect, target: Path, selection: dict[str, Any]) -> None:
    scan = connect(share.server).table("s.s.t").scan(**selection)
    with pytest.raises(ValueError, match=f"copies whole files, and the scan has {next(iter(selection))}"):
        scan.materialize(target)
    with pytest.raises(ValueError, match="data is 'rows'; it takes 'files' or 'urls'"):
        connect(share.server).table("s.s.t").scan().materialize(target, data="rows")  # type: ignore[arg-type]
    assert share.server.requests == []
    assert not target.exists()


def test_directory_with_a_table_is_refused(share: Share, connect: Connect, target: Path) -> None:
    scan = connect(share.server).table("s.s.t").scan()
    scan.materialize(target)
    count = len(share.server.requests)
    with pytest.raises(DeltaLogError, match="already contains a Delta table"):
        scan.materialize(target)
    file = target.parent / "file"
    file.touch()
    with pytest.raises(DeltaLogError, match="this is a file, not a directory"):
        scan.materialize(file)
    assert len(share.server.requests) == count


def test_a_server_that_refuses(faults: FaultServer, connect: Connect, target: Path) -> None:
    faults.on("*", "*", Reply(status=404))
    with pytest.raises(NotFoundError):
        connect(faults).table("s.s.t").scan().materialize(target)
    assert not target.exists()


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PAR1 but no more", "not a readable Parquet file"), (b"", "ends|size|bytes|Parquet")],
)
def test_a_damaged_file(share: Share, connect: Connect, target: Path, content: bytes, reason: str) -> None:
    good = share.data["f2"]
    share.data["f2"] = content
    scan = connect(share.server, **QUICK).table("s.s.t").scan()
    with pytest.raises(DataError, match=f"file f2: .*({reason})"):
        scan.materialize(target)
    assert not (target / "_delta_log").exists()
    share.data["f2"] = good
    before = len(share.file_requests)
    assert scan.materialize(target).files == 4
    # What was there already is not fetched again.
    assert "f2" in {request.path.rpartition("/")[2] for request in share.file_requests[before:]}
    assert not (target / "_delta_sharing").exists()


def test_file_with_a_wrong_number_of_rows(faults: FaultServer, connect: Connect, target: Path) -> None:
    share = Share(faults, A, {"f": ROWS})
    entry = share.entry("f")
    entry["file"]["stats"] = json.dumps({"numRecords": 4})
    faults.on("POST", "/shares/s/schemas/s/tables/t/query", lambda request: share._lines([entry]))
    with pytest.raises(DataError, match="file f: it has 3 rows; the table's metadata has 4"):
        connect(faults).table("s.s.t").scan().materialize(target)


def test_missing_file(share: Share, connect: Connect, target: Path) -> None:
    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        return Reply(status=404) if "f3" in request.path else healthy(request)

    share.serve_files_with(answer)
    with pytest.raises(FileGoneError) as caught:
        connect(share.server, **QUICK).table("s.s.t").scan().materialize(target)
    assert SIGNATURE not in str(caught.value)
    assert not (target / "_delta_log").exists()


def test_expired_urls_are_renewed(share: Share, connect: Connect, target: Path) -> None:
    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        return expired(request) if generation_of(request) < 2 else healthy(request)

    share.serve_files_with(answer)
    assert connect(share.server).table("s.s.t").scan().materialize(target).files == 4
    assert share.generation == 2


@pytest.mark.parametrize(
    ("where", "code"), [("write", errno.ENOSPC), ("fsync", errno.EIO), ("replace", errno.EDQUOT)]
)
def test_full_disk(
    share: Share, connect: Connect, target: Path, monkeypatch: pytest.MonkeyPatch, where: str, code: int
) -> None:
    scan = connect(share.server).table("s.s.t").scan()

    def fail(*args: Any, **more: Any) -> Any:
        raise OSError(code, os.strerror(code))

    if where == "write":
        monkeypatch.setattr(file_download, "write_durably", fail)
    else:
        monkeypatch.setattr(os, where, fail)
    kind = DiskFullError if code in (errno.ENOSPC, errno.EDQUOT) else DeltaLogError
    with pytest.raises(kind, match="the data cannot be written"):
        scan.materialize(target)
    monkeypatch.undo()
    assert not (target / "_delta_log").exists()
    assert scan.materialize(target).files == 4
    assert len(written(target)) == 5


@pytest.fixture
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partial_file, "CHUNK_SIZE", 64 * 1024)
    monkeypatch.setattr(partial_file, "_NOTE_INTERVAL", 128 * 1024)


def large(seed: int = 0) -> pa.Table:
    return pa.table({"a": np.random.default_rng(seed).integers(0, 2**62, 200_000)})


@pytest.mark.usefixtures("small_ranges")
def test_large_file_is_resumed(faults: FaultServer, connect: Connect, target: Path) -> None:
    share = Share(faults, A, {"big": large()}, compression="none")
    size = len(share.data["big"])
    broken = True

    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        first = int(request.headers["range"][6:].partition("-")[0])
        return Reply(status=404) if broken and first > 1_000_000 else healthy(request)

    share.serve_files_with(answer)
    scan = connect(faults, **QUICK).table("s.s.t").scan()
    with pytest.raises(FileGoneError):
        scan.materialize(target)
    assert [name for name in written(target) if name.endswith(".part.json")]
    broken = False
    made = scan.materialize(target)
    assert size - 1_100_000 <= made.bytes_fetched < size - 500_000
    assert pq.read_table(next(target.glob("*.parquet"))).equals(large())
    assert not (target / "_delta_sharing").exists()


@pytest.mark.usefixtures("small_ranges")
def test_two_at_a_time_make_one_table(faults: FaultServer, connect: Connect, target: Path) -> None:
    """The second one begins when the first one has all of its file but the end, and lists a newer version."""
    share = Share(faults, A, {"big": large()}, compression="none")
    content = share.data["big"]
    scan = connect(faults, **QUICK).table("s.s.t").scan()
    failures: list[DeltaLogError] = []
    done = threading.Event()

    def materialize() -> None:
        try:
            scan.materialize(target)
        except DeltaLogError as error:
            failures.append(error)

    second = threading.Thread(target=materialize)

    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        if "generation=2" in request.target:
            assert done.wait(HANG)
        elif request.headers["range"].endswith(f"-{len(content) - 1}"):
            wait_for_rest(lambda: len(faults.requests))
            second.start()
            wait_for_rest(lambda: (len(faults.requests), second.is_alive()))
        return healthy(request)

    share.serve_files_with(answer)
    try:
        made = scan.materialize(target)
        (file,) = target.glob("*.parquet")
        assert file.read_bytes() == content
    finally:
        done.set()
        join([second])
    assert made.version == DeltaLog.for_table(target).latest_version() == 0
    assert ["already contains a Delta table" in str(failure) for failure in failures] == [True]
    assert not (target / "_delta_sharing").exists()


@pytest.mark.parametrize("kind", ["snapshot", "urls"])
def test_a_table_of_another_writer_is_not_added_to(
    share: Share, connect: Connect, target: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the file system has no locks."""
    scan = connect(share.server).table("s.s.t").scan()
    monkeypatch.setattr(FileLock, "acquire", no_locks)
    other: list[int] = []

    def listing(request: Request) -> Reply:
        if not other:
            other.append(1)
            other.append(scan.materialize(target).version)
        return share.listing(share.data)

    share.server.on("POST", "/shares/s/schemas/s/tables/t/query", listing)
    with pytest.raises(DeltaLogError, match=r"already contains a Delta table|by another writer"):
        scan.materialize(target, data="urls" if kind == "urls" else "files")
    assert DeltaLog.for_table(target).latest_version() == 0


def no_locks(self: FileLock, *arguments: Any, **options: Any) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("spoiled", ["etag", "note", "short", "size"])
def test_spoiled_partial_file_restarts(faults: FaultServer, connect: Connect, target: Path, spoiled: str) -> None:
    share = Share(faults, A, {"big": large()}, compression="none")
    scan = connect(faults, **QUICK).table("s.s.t").scan()

    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        first = int(request.headers["range"][6:].partition("-")[0])
        return Reply(status=404) if first > 1_000_000 else healthy(request)

    share.serve_files_with(answer)
    with pytest.raises(FileGoneError):
        scan.materialize(target)
    share.serve_files_with(lambda request, healthy: healthy(request))
    (note,) = target.glob("_delta_sharing/partial/*.json")
    part = note.with_suffix("")
    if spoiled == "etag":
        share.data["big"] = parquet(large(1), compression="none")
        share.etags["big"] = '"v2"'
    elif spoiled == "note":
        note.write_text("{")
    elif spoiled == "short":
        part.write_bytes(part.read_bytes()[:1000])
    else:
        note.write_text(json.dumps(json.loads(note.read_text()) | {"size": 5}))
    scan = connect(faults, **QUICK).table("s.s.t").scan()
    made = scan.materialize(target)
    assert made.bytes_fetched == len(share.data["big"])
    (file,) = target.glob("*.parquet")
    assert file.read_bytes() == share.data["big"]


@pytest.mark.usefixtures("small_ranges")
@pytest.mark.parametrize("fault", ["reset", "no ranges", "no etag"])
def test_stores_of_all_kinds(faults: FaultServer, connect: Connect, target: Path, fault: str) -> None:
    share = Share(faults, A, {"big": large()}, compression="none")
    seen: set[str] = set()

    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        asked = request.headers.get("range", "")
        if fault == "reset" and asked not in seen and len(seen) < 4:
            seen.add(asked)
            return healthy(request).but(cut_at=1000, ending="reset")
        if fault == "no ranges":
            return Reply(body=share.data["big"], headers={"ETag": '"v1"'})
        return healthy(request)

    if fault == "no etag":
        share.etags["big"] = None  # type: ignore[assignment]
    share.serve_files_with(answer)
    connect(faults, max_connections=4).table("s.s.t").scan().materialize(target)
    (file,) = target.glob("*.parquet")
    assert file.read_bytes() == share.data["big"]


def test_by_url(share: Share, connect: Connect, target: Path) -> None:
    with pytest.warns(SignedUrlsWarning, match="holds pre-signed URLs"):
        made = connect(share.server).table("s.s.t").scan().materialize(target, data="urls")
    assert (made.files, made.bytes_fetched) == (4, 0)
    assert share.file_requests == []
    commit = target / "_delta_log" / "00000000000000000000.json"
    assert stat.S_IMODE(commit.stat().st_mode) == 0o600
    with pytest.raises(DeltaLogError, match="absolute paths") as caught:
        _ = DeltaLog.for_table(target).snapshot().files
    assert SIGNATURE not in str(caught.value)
    files = DeltaLog.for_table(target, allow_absolute_paths=True).snapshot().files
    assert {SIGNATURE in file.path for file in files} == {True}
    assert SIGNATURE not in repr(made)


def test_partition_values_are_encoded_in_paths(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    values = ["../../etc", "a/b", "x=y", "", None, "ü %2F", "__x", "CON", "..", "new\nline", "y" * 300]
    files = [
        File(rows=ROWS, name=f"f{number}.parquet", values={"p q/../z": value})
        for number, value in enumerate(values)
    ]
    columns = [*A, column("p q/../z", "string")]
    table = write_table(tmp_path / "t", columns, files, partitions=["p q/../z"])
    server = serve({"s.s.t": table})
    made = connect(server).table("s.s.t").scan().materialize(tmp_path / "out" / "copy")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "t"]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["copy"]
    for name in written(made.path):
        assert all(part.isascii() and " " not in part and len(part) <= 240 for part in Path(name).parts)
    found = [file.partition_values["p q/../z"] for file in DeltaLog.for_table(made.path).snapshot().files]
    assert sorted(map(str, found)) == sorted(map(str, values))
    again = connect(serve({"s.s.t": made.path})).table("s.s.t").scan().to_arrow()
    assert again.num_rows == 3 * len(values)


def test_names() -> None:
    assert encode_folder("a-Z_0 ü/.") == "a-Z_0%20%C3%BC%2F%2E"
    assert data_folder({"p": "v"}) == "p=v/"
    assert data_folder({"p": None}) == "p=__HIVE_DEFAULT_PARTITION__/"
    assert data_folder({"_p": "v"}) == "-_p=v/"
    longest = data_folder({"p": "ü" * 500})
    assert len(longest.split("/")[0]) <= 200
    assert longest != data_folder({"p": "ü" * 501})
    assert data_file("../x") == data_file("../x")
    assert "/" not in data_file("../x")


def test_unknown_features_are_refused(faults: FaultServer, connect: Connect, target: Path) -> None:
    protocol = {"deltaProtocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": ["newThing"]}}
    metadata = {"deltaMetadata": {"id": "x", "schemaString": '{"type":"struct","fields":[]}'}}
    lines = [{"protocol": protocol}, {"metaData": metadata}]
    faults.on("POST", "/shares/s/schemas/s/tables/t/query", Reply.of_lines(*lines))
    with pytest.raises(UnsupportedFeatureError, match="newThing"):
        connect(faults).table("s.s.t").scan().materialize(target)
    assert not target.exists()


def test_ctrl_c_leaves_no_table(
    share: Share, connect: Connect, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(item: Any) -> None:
        raise KeyboardInterrupt

    original = file_download.fetch_files
    monkeypatch.setattr(
        "delta_sharing_client.delta.table.local_table.fetch_files",
        lambda *args, **more: original(*args, **(more | {"advance": interrupt})),
    )
    scan = connect(share.server).table("s.s.t").scan()
    with pytest.raises(KeyboardInterrupt):
        scan.materialize(target)
    assert not (target / "_delta_log").exists()
    monkeypatch.undo()
    assert scan.materialize(target).files == 4


def test_directory_below_a_file(share: Share, connect: Connect, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(DeltaLogError, match="the data cannot be written"):
        connect(share.server).table("s.s.t").scan().materialize(tmp_path / "file" / "copy")
