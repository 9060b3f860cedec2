"""What a sync promises of disks, of large files, of deletion vectors, of old versions, and of its progress bar."""

from __future__ import annotations

import io
import os
import re
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partialmethod
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from faults.server import FaultServer, Reply, Request
from growing_tables import Source, rows_of
from loading_faults import Share
from loading_tables import column
from tqdm.std import tqdm
from waiting import wait_until

from delta_sharing_client import SharingClient
from delta_sharing_client.delta.mirror.mirror import Mirror
from delta_sharing_client.delta.table import file_download, partial_file
from delta_sharing_client.delta.table.partial_file import PartialFile, note_of, read_note
from delta_sharing_client.errors import DiskFullError, FileGoneError, VersionNotFoundError
from delta_sharing_client.log import DeltaLog, deletion_vector_path
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.server import SharingServer
from delta_sharing_client.storage.byte_source import ByteSource
from delta_sharing_client.transport.retry import RetryBudget

TABLES = Path(__file__).parents[2] / "golden" / "tables"

Serve = Callable[..., SharingServer]
Connect = Callable[..., SharingClient]


@pytest.fixture
def mirror(source: Source, serve: Serve, connect: Connect, tmp_path: Path) -> Mirror:
    return connect(serve({"s.s.t": source.root})).table("s.s.t").mirror(tmp_path / "mirror")


def log_of(mirror: Mirror) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (mirror.directory / "_delta_log").iterdir()}


def test_full_disk_at_every_size(mirror: Mirror, source: Source) -> None:
    """The system limits the size of files; data, checkpoint and commit fail in turn."""
    resource = pytest.importorskip("resource")
    for number in range(10):
        mirror.sync(progress=False)
        source.change([(f"z{number}", [number])])
    before, rows = log_of(mirror), rows_of(mirror.scan().to_arrow())
    source.change([("w", list(range(500)))])
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    failed = 0
    for limit in range(100, 20_000, 150):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        problem = None
        try:
            mirror.sync(progress=False)
        except DiskFullError as error:
            problem = str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        if problem is None:
            break
        failed += 1
        assert "nothing was committed: make room and try again" in problem
        assert log_of(mirror) == before
        assert rows_of(mirror.scan().to_arrow()) == rows
    assert failed >= 5
    for read in (mirror.scan().to_arrow, DeltaTable(mirror.directory).to_pyarrow_table):
        assert rows_of(read()) == source.rows
    assert mirror.log.latest_version() == 10


@pytest.fixture
def large(faults: FaultServer, monkeypatch: pytest.MonkeyPatch) -> Share:
    """A table of one file that is fetched in about 25 ranges; every second one is recorded."""
    monkeypatch.setattr(partial_file, "CHUNK_SIZE", 64 * 1024)
    monkeypatch.setattr(partial_file, "_NOTE_INTERVAL", 128 * 1024)
    rows = pa.table({"a": np.random.default_rng(0).integers(0, 2**62, 200_000)})
    return Share(faults, [column("a", "long")], {"big": rows}, compression="none")


def broken_after(share: Share, position: int) -> None:
    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        first = int(request.headers["range"][6:].partition("-")[0])
        return Reply(status=404) if first > position else healthy(request)

    share.serve_files_with(answer)


def test_sync_resumes_a_large_file(large: Share, connect: Connect, tmp_path: Path) -> None:
    broken_after(large, 1_000_000)
    mirror = connect(large.server, storage_attempts=2).table("s.s.t").mirror(tmp_path / "mirror")
    with pytest.raises(FileGoneError):
        mirror.sync(progress=False)
    assert mirror.shared_version is None
    large.serve_files_with(lambda request, healthy: healthy(request))
    size = len(large.data["big"])
    result = mirror.sync(progress=False)
    assert size - 1_100_000 <= result.bytes_fetched < size - 500_000
    assert mirror.verify().ok
    assert sorted(path.name for path in (mirror.directory / "_delta_sharing").rglob("*")) == ["lock"]


def test_a_file_that_begins_again_is_not_resumed_from_what_it_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is killed then leaves a hole where a chunk is missing, before later ones."""
    monkeypatch.setattr(partial_file, "CHUNK_SIZE", 4)
    path, content, left = tmp_path / "big.part", bytes(range(64)), []
    path.write_bytes(content[:32])
    note_of(path).write_text('{"etag": "\\"1\\"", "size": 64, "done": 32}')
    assert read_note(path, 64) == ('"1"', 32)

    class Store(ByteSource):
        etag = '"1"'

        def range(self, start: int, stop: int, view: memoryview | None = None) -> bytes:
            if start == 0:
                wait_until(lambda: path.stat().st_size > 32)
                left.append(read_note(path, 64))
            return content[start:stop]

    with ThreadPoolExecutor(4) as pool:
        assert PartialFile(path, Store(), 64, lambda size: None).fetch(0, pool, RetryBudget()) == 64
    assert left == [(None, 0)]
    assert path.read_bytes() == content


def fetch(storage: Any, directory: Path, share: Share, url: SecretUrl, counts: list[int]) -> None:
    """Fetch the large file; record what a progress bar shows meanwhile."""
    size = len(share.data["big"])
    file = file_download.RemoteFile(url=url, file_id="big", path="big.parquet", size=size)
    file_download.fetch_files(storage, directory, [file], advance=counts.append)


def in_steps(reports: Callable[[], int], asked: list[int], then: Callable[[], object] = bool) -> Any:
    """Answer, but every sixth request only when progress has been reported again."""
    reported = 0

    def answer(request: Request, healthy: Callable[[Request], Reply]) -> Reply:
        nonlocal reported
        asked.append(1)
        if len(asked) % 6 == 0:
            wait_until(lambda: reports() > reported)
            reported = reports()
        then()
        return healthy(request)

    return answer


@pytest.mark.parametrize("fault", ["none", "left before", "file changes"])
def test_progress_counts_every_byte_once(fault: str, large: Share, connect: Connect, tmp_path: Path) -> None:
    client = connect(large.server, storage_attempts=2, max_connections=1)
    table = client.table("s.s.t")
    (task,) = table.scan().plan().tasks
    storage = table.mirror(tmp_path / "unused")._storage
    if fault == "left before":
        broken_after(large, 1_000_000)
        with pytest.raises(FileGoneError):
            fetch(storage, tmp_path, large, task.url, [])
    asked: list[int] = []
    counts: list[int] = []

    def change() -> None:
        if fault == "file changes" and len(asked) == 10:
            large.etags["big"] = '"v2"'

    large.serve_files_with(in_steps(lambda: len(counts), asked, change))
    fetch(storage, tmp_path, large, task.url, counts)
    assert sum(counts) == len(large.data["big"])
    assert len(counts) > len(asked) // 6 >= 1
    if fault == "file changes":
        assert len(asked) > 25
    # It lies there already, and all of it counts.
    counts.clear()
    fetch(storage, tmp_path, large, task.url, counts)
    assert counts == [len(large.data["big"])]


def test_a_progress_bar_with_bytes_and_rate(
    large: Share, connect: Connect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    # The store waits for the bar, which is drawn at most every 100 ms and then, after a pause, every 10 s.
    monkeypatch.setattr(tqdm, "__init__", partialmethod(tqdm.__init__, mininterval=0))

    def shown() -> list[str]:
        return re.findall(r"t: +\d+%\|.*?\| (\S+)/1\.\d+M \[.*?B/s\]", stream.getvalue())

    asked: list[int] = []
    large.serve_files_with(in_steps(lambda: len(set(shown())), asked))
    mirror = connect(large.server, max_connections=1).table("s.s.t").mirror(tmp_path / "mirror")
    monkeypatch.setattr(sys, "stderr", stream)
    mirror.sync(progress=True)
    # The file is one, and the bar moves while it comes.
    assert shown()[0] == "0.00"
    assert len(set(shown())) >= len(asked) // 6 > 1


def test_deletion_vector_is_stored_in_its_own_file(serve: Serve, connect: Connect, tmp_path: Path) -> None:
    """The log names the local file by a UUID relative to the table's directory."""
    name = "golden.tables.dv_update"
    table = connect(serve({name: TABLES / "dv_update" / "table"})).table(name)
    shared = [task.deletion_vector for task in table.scan().plan().tasks if task.deletion_vector]
    assert {vector.storage_type for vector in shared} == {"p"}
    mirror = table.mirror(tmp_path / "mirror")
    mirror.sync(progress=False)
    vectors = [file.deletion_vector for file in mirror.log.snapshot().files if file.deletion_vector]
    assert len(vectors) == len(shared)
    for vector in vectors:
        assert (vector.storage_type, vector.offset) == ("u", 1)
        path = deletion_vector_path(mirror.directory, vector)
        assert path is not None
        assert path.is_relative_to(mirror.directory)
        assert path.stat().st_size == vector.size_in_bytes + 9
    assert sorted(v.cardinality for v in vectors) == sorted(v.cardinality for v in shared)
    assert "http" not in b"".join(log_of(mirror).values()).decode("latin-1")


def test_old_versions_expire_with_their_log(mirror: Mirror, source: Source) -> None:
    """Expired commits are removed; two readers read the remaining log."""
    seen = {}
    for number in range(20):
        seen[mirror.sync(progress=False).shared_version] = source.rows
        source.change([(f"z{number}", [number])], [min(source.files)])
    log = mirror.directory / "_delta_log"
    old = time.time() - timedelta(days=60).total_seconds()
    for local in range(20):
        os.utime(log / f"{local:020}.json", (old + local, old + local))
    assert mirror.scan(version=3).count() > 0
    seen[mirror.sync(progress=False).shared_version] = source.rows
    assert sorted(path.name for path in log.glob("*.json")) == [f"{local:020}.json" for local in range(10, 21)]
    DeltaLog.clear_cache()
    versions = sorted(seen)
    for local, version in enumerate(versions):
        if local < 10:
            with pytest.raises(
                VersionNotFoundError, match=rf"no sync stopped at version {version} of .*or the log no"
            ):
                mirror.scan(version=version)
        else:
            assert rows_of(mirror.scan(version=version).to_arrow()) == seen[version]
            assert rows_of(DeltaTable(mirror.directory, version=local).to_pyarrow_table()) == seen[version]
    # Of what cannot be read any more no file is kept, however long it was to be.
    removed = mirror.vacuum(timedelta(days=365))
    assert removed.files > 0
    for version in versions[10:]:
        assert rows_of(mirror.scan(version=version).to_arrow()) == seen[version]
    assert mirror.vacuum(timedelta(days=365)).files == 0
    # And the shared version is fetched again where it is asked for.
    mirror.sync(at_version=versions[0], progress=False)
    assert rows_of(mirror.scan().to_arrow()) == seen[versions[0]]
