"""Crash-safe download of data files to a table's directory: each file is complete or absent; large ones resume.

A file is written under a temporary name in a private folder, checked, fsynced and renamed. A note beside a large
file records its completed length, from which the next run continues.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from threading import BoundedSemaphore, Lock
from typing import Final

from delta_sharing_client.delta.log.durable_files import (
    make_directories,
    remove_quietly,
    replace_file,
    sync_directory,
    writing,
)
from delta_sharing_client.delta.log.symbolic_links import LinkCheck, is_link
from delta_sharing_client.delta.table.partial_files import note_of, read_note, size_of, write_at, write_durably
from delta_sharing_client.errors import DataError, no_thread
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.deletion_vector import decode_stored, file_range
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import ByteSource, Refresh, StorageReader, Transfers
from delta_sharing_client.storage.retry_budget import RetryBudget
from delta_sharing_client.transport.cancellation import Cancellation

#: Folder for files that are not part of the table. Engines ignore names that begin with an underscore.
PRIVATE_FOLDER: Final = "_delta_sharing"
PARTIAL: Final = "partial"

_CHUNK_SIZE: Final = 8 * 1024 * 1024
_PARALLEL_CHUNKS: Final = 8
_NOTE_INTERVAL: Final = 64 * 1024 * 1024
_VERSION_BYTE: Final = b"\x01"


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A file to fetch.

    Attributes:
        url: its signed URL.
        file_id: its id in the sharing protocol, for renewals of its URL.
        path: its path, relative to the table's directory.
        size: its size in bytes; 0 if it is not known.
        num_records: its number of rows, if it is known.
        vector: its descriptor, if it is a deletion vector.
    """

    url: SecretUrl
    file_id: str
    path: str
    size: int = 0
    num_records: int | None = None
    vector: DeletionVector | None = None


@dataclass(frozen=True, kw_only=True)
class Fetched:
    """A file under its final name.

    Attributes:
        size: its size in bytes.
        sha256: the checksum of its bytes, in hexadecimal digits.
        fetched: number of bytes fetched for it; 0 if it existed.
    """

    size: int
    sha256: str
    fetched: int


def fetch_files(
    storage: StorageReader,
    directory: Path,
    wanted: Sequence[Wanted],
    *,
    refresh: Refresh | None = None,
    advance: Callable[[int], None] | None = None,
) -> dict[str, Fetched]:
    """Fetch files into a table's directory; existing files are kept.

    Args:
        storage: opens the files.
        directory: the table's directory.
        wanted: the files.
        refresh: returns a fresh URL for one that has expired.
        advance: called several times a second with the number of bytes received since the last call; existing
            files count.

    Returns:
        The files by their paths; all of them are durable.

    Raises:
        DiskFullError: the disk is full; the next run continues from the completed length.
        DeltaLogError: a file cannot be written.
        DeltaSharingError: a file cannot be fetched, or is damaged.
    """
    if not wanted:
        return {}
    job = _Job(storage, directory, refresh, sum(1 + item.size // _CHUNK_SIZE for item in wanted))
    folders = sorted({(directory / item.path).parent for item in wanted})
    with writing("the data", directory):
        links = LinkCheck(directory)
        for folder in (job.partial, *folders):
            links.folder(folder)
            make_directories(folder)
    workers = min(storage.options.max_connections, len(wanted))
    files = ThreadPoolExecutor(workers, "delta-sharing-fetch")
    try:
        try:
            futures: dict[Future[Fetched], Wanted] = {files.submit(job.fetch, item): item for item in wanted}
        except RuntimeError as error:
            raise no_thread(error) from None
        done: dict[str, Fetched] = {}
        pending = set(futures)
        while pending:
            finished, pending = wait(pending, return_when=FIRST_EXCEPTION, timeout=0.2)
            for future in finished:
                done[futures[future].path] = future.result()
            if advance is not None and (received := job.take_count()):
                advance(received)
    finally:
        # Also on Ctrl-C: cancel the remaining files.
        job.close()
        files.shutdown(wait=True, cancel_futures=True)
    with writing("the data", directory):
        for folder in folders:
            sync_directory(folder)
    return done


class _Job:
    """One run: the state that its threads share."""

    def __init__(self, storage: StorageReader, directory: Path, refresh: Refresh | None, chunks: int) -> None:
        self.partial = directory / PRIVATE_FOLDER / PARTIAL
        self._storage = storage
        self._directory = directory
        self._cancelled = Cancellation()
        connections = storage.options.max_connections
        self._budget = RetryBudget(chunks, connections)
        self._load = Transfers(refresh, self._cancelled, self._budget)
        self._connections = BoundedSemaphore(connections)
        self._chunks = ThreadPoolExecutor(connections, "delta-sharing-chunk")
        self._received = 0
        self._counting = Lock()

    def take_count(self) -> int:
        """Return the bytes received since the last call; negative after a restart of a file."""
        with self._counting:
            received, self._received = self._received, 0
        return received

    def _count(self, size: int) -> None:
        with self._counting:
            self._received += size

    def close(self) -> None:
        self._cancelled.set()
        self._chunks.shutdown(wait=True, cancel_futures=True)

    def fetch(self, item: Wanted) -> Fetched:
        target = self._directory / item.path
        with writing("the data", self._directory):
            exists = target.is_file() and not is_link(target)
            if exists and (item.vector is not None or not item.size or size_of(target) == item.size):
                # A file has its final name only after its check and fsync.
                self._count(item.size)
                return Fetched(size=size_of(target), sha256=sha256_of(target), fetched=0)
            if item.vector is not None:
                return self._vector(item, item.vector, target)
            temporary = self.partial / f"{target.name}.part"
            fetched = (self._in_chunks if item.size > _CHUNK_SIZE else self._whole)(item, temporary)
            try:
                _check(item, temporary)
            except DataError:
                remove_quietly(temporary)
                remove_quietly(note_of(temporary))
                raise
            placed = Fetched(size=size_of(temporary), sha256=sha256_of(temporary), fetched=fetched)
            # `fetch_files` fsyncs the folder once, after all of its files.
            temporary.replace(target)
            remove_quietly(note_of(temporary))
            return placed

    def _download(self, item: Wanted, etag: str | None = None) -> ByteSource:
        return self._storage.source(item.url, item.file_id, item.size, self._load, etag=etag)

    def _whole(self, item: Wanted, temporary: Path) -> int:
        download = self._download(item)
        with self._connections:
            data = memoryview(download.restarting(download.whole) or b"").cast("B")
        write_durably(temporary, data)
        self._count(len(data))
        return len(data)

    def _in_chunks(self, item: Wanted, temporary: Path) -> int:
        etag, resumed = read_note(temporary, item.size)
        download = self._download(item, etag)
        fetched = counted = 0

        def advance(size: int) -> None:
            nonlocal counted
            counted += size
            self._count(size)

        def read() -> int:
            nonlocal fetched, counted
            # After a change of the file its ETag differs, and the download restarts.
            start = resumed if etag is not None and download.etag == etag else 0
            fetched = item.size - start
            self._count(start - counted)
            counted = start
            with temporary.open("r+b" if start else "wb") as file:
                file.truncate(start)
                self._fill(file.fileno(), download, temporary, start, item.size, advance)
                os.fsync(file.fileno())
            return fetched

        download.restarting(read)
        return fetched

    def _fill(
        self,
        descriptor: int,
        download: ByteSource,
        temporary: Path,
        start: int,
        size: int,
        advance: Callable[[int], None],
    ) -> None:
        """Fetch chunks in parallel, and note the length that is complete without a gap."""
        running: deque[tuple[int, Future[None]]] = deque()
        position = noted = done = start

        def chunk(begin: int, stop: int) -> None:
            with self._connections:
                data = download.range(begin, stop)
            self._budget.give_back()
            write_at(descriptor, memoryview(data).cast("B"), begin)

        try:
            while position < size or running:
                while position < size and len(running) < _PARALLEL_CHUNKS:
                    stop = min(position + _CHUNK_SIZE, size)
                    try:
                        running.append((stop, self._chunks.submit(chunk, position, stop)))
                    except RuntimeError as error:
                        raise no_thread(error) from None
                    position = stop
                stop, future = running.popleft()
                future.result()
                advance(stop - done)
                done = stop
                if stop - noted >= _NOTE_INTERVAL and stop < size and download.etag is not None:
                    os.fsync(descriptor)
                    note = {"etag": download.etag, "size": size, "done": stop}
                    replace_file(note_of(temporary), json.dumps(note).encode())
                    noted = stop
        finally:
            # No thread may write to the file after its close. A wait for cancelled futures would never end after a
            # shutdown of the pool.
            wait([future for _, future in running if not future.cancel()])

    def _vector(self, item: Wanted, vector: DeletionVector, target: Path) -> Fetched:
        where = file_range(vector, item.file_id)
        stored = bytes(self._storage.fetch(item.url, item.file_id, load=self._load, byte_range=where))
        decode_stored(stored, vector, item.file_id)
        content = _VERSION_BYTE + stored
        temporary = self.partial / f"{target.name}.part"
        write_durably(temporary, content)
        temporary.replace(target)
        return Fetched(size=len(content), sha256=hashlib.sha256(content).hexdigest(), fetched=len(stored))


def _check(item: Wanted, file: Path) -> None:
    """Compare a fetched file with the table's metadata: its size, its footer, its number of rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = size_of(file)
    if item.size and size != item.size:
        raise DataError(f"it has {size} bytes; the table's metadata has {item.size}", file_id=item.file_id)
    try:
        rows = pq.read_metadata(file).num_rows
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"not a readable Parquet file: {error}", file_id=item.file_id) from None
    if item.num_records is not None and rows != item.num_records:
        raise DataError(f"it has {rows} rows; the table's metadata has {item.num_records}", file_id=item.file_id)


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
