"""Crash-safe download of data files to a table's directory: each file is complete or absent; large ones resume.

A file is written under a temporary name in a private folder, checked, fsynced and renamed.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Final

from delta_sharing_client.delta.table import partial_file
from delta_sharing_client.delta.table.partial_file import PartialFile, note_of, read_note
from delta_sharing_client.errors import DataError, no_thread
from delta_sharing_client.log.durable_files import (
    make_directories,
    remove_quietly,
    sync_directory,
    write_durably,
    writing,
)
from delta_sharing_client.log.symbolic_links import LinkCheck, is_link
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.deletion_vector import decode_stored, file_range
from delta_sharing_client.parquet.size_limits import footer_limits
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.storage.byte_source import StorageReader, Transfers, UrlRenewal
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.retry import RetryBudget

#: Folder for files that are not part of the table. Engines ignore names that begin with an underscore.
PRIVATE_FOLDER: Final = "_delta_sharing"
PARTIAL: Final = "partial"

_VERSION_BYTE: Final = b"\x01"
#: Seconds; on Windows a wait without a time-out cannot be interrupted.
_WAIT: Final = 0.5


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file to fetch.

    Attributes:
        url: its signed URL.
        file_id: its id in the sharing protocol, for renewals of its URL.
        path: its path, relative to the table's directory.
        size: its size in bytes; 0 if it is not known.
        num_records: its number of rows, if it is known.
        expires: the time at which its URL expires in milliseconds since the epoch, if it is known.
        vector: its descriptor, if it is a deletion vector.
    """

    url: SecretUrl
    file_id: str
    path: str
    size: int = 0
    num_records: int | None = None
    expires: int | None = None
    vector: DeletionVector | None = None


@dataclass(frozen=True, kw_only=True)
class StoredFile:
    """A file of a local table.

    Attributes:
        path: its path, relative to the table's directory; not percent-encoded.
        file_id: its id in the sharing protocol.
        size: its size in bytes; 0 if it is not known.
        sha256: the checksum of its bytes, in hexadecimal digits; None if it is not known.
        fetched: number of bytes fetched for it; 0 if it existed.
    """

    path: str
    file_id: str
    size: int
    sha256: str | None
    fetched: int = 0

    @property
    def is_known(self) -> bool:
        """Whether its size and its checksum are known."""
        return self.size > 0 and self.sha256 is not None


def fetch_files(
    storage: StorageReader,
    directory: Path,
    files: Sequence[RemoteFile],
    *,
    renewal: UrlRenewal | None = None,
    advance: Callable[[int], None] | None = None,
) -> dict[str, StoredFile]:
    """Fetch files into a table's directory; existing files are kept.

    Args:
        storage: opens the files.
        directory: the table's directory.
        files: the files; their paths are unique.
        renewal: returns a fresh URL for one that has expired.
        advance: called with the number of bytes received since the last call; existing files count. The number is
            negative if a file restarts.

    Returns:
        The files by their paths; all of them are durable.

    Raises:
        DiskFullError: the disk is full; the next run continues from the completed length.
        DeltaLogError: a file cannot be written.
        DeltaSharingError: a file cannot be fetched, or is damaged.
    """
    if not files:
        return {}
    folders = sorted({(directory / file.path).parent for file in files})
    with writing("the data", directory):
        links = LinkCheck(directory)
        for folder in (directory / PRIVATE_FOLDER / PARTIAL, *folders):
            links.folder(folder)
            make_directories(folder)
    chunks = sum(1 + file.size // partial_file.CHUNK_SIZE for file in files)
    transfers = _Transfers(storage, directory, renewal, chunks)
    try:
        stored = transfers.run(files, advance)
    finally:
        # Also on Ctrl-C: cancel the remaining files.
        transfers.close()
    with writing("the data", directory):
        for folder in folders:
            sync_directory(folder)
    return stored


class _Transfers:
    """The transfers of one call. One pool of threads fetches whole files and chunks of large files."""

    def __init__(self, storage: StorageReader, directory: Path, renewal: UrlRenewal | None, chunks: int) -> None:
        # Each thread holds one chunk at most.
        most = storage.options.memory_budget // partial_file.CHUNK_SIZE
        threads = max(1, min(storage.options.max_connections, most))
        self._partial = directory / PRIVATE_FOLDER / PARTIAL
        self._storage = storage
        self._directory = directory
        self._cancelled = Cancellation()
        self._budget = RetryBudget(chunks, threads)
        self._shared = Transfers(renewal, self._cancelled, self._budget)
        self._pool = ThreadPoolExecutor(threads, "delta-sharing-fetch")
        #: Numbers of received bytes, and finished files.
        self._events: SimpleQueue[int | Future[StoredFile]] = SimpleQueue()

    def run(self, files: Sequence[RemoteFile], advance: Callable[[int], None] | None) -> dict[str, StoredFile]:
        try:
            for file in files:
                self._pool.submit(self._fetch, file).add_done_callback(self._events.put)
        except RuntimeError as error:
            raise no_thread(error) from None
        stored: list[StoredFile] = []
        while len(stored) < len(files):
            with suppress(Empty):
                event = self._events.get(timeout=_WAIT)
                if isinstance(event, Future):
                    stored.append(event.result())
                elif advance is not None:
                    advance(event)
        return {file.path: file for file in stored}

    def close(self) -> None:
        self._cancelled.set()
        self._pool.shutdown(wait=True, cancel_futures=True)
        while not self._events.empty():  # or errors that nobody waits for and this object hold each other
            self._events.get()

    def _fetch(self, file: RemoteFile) -> StoredFile:
        target = self._directory / file.path
        with writing("the data", self._directory):
            exists = target.is_file() and not is_link(target)
            if exists and (file.vector is not None or file.size in (0, _size_of(target))):
                # A file has its final name only after its check and fsync.
                self._events.put(file.size)
                return _stored(file, target, 0)
            temporary = self._partial / f"{target.name}.part"
            content: Path | memoryview = temporary
            if file.vector is not None:
                fetched = self._fetch_vector(file, file.vector, temporary)
            elif file.size > partial_file.CHUNK_SIZE:
                fetched = self._fetch_in_chunks(file, temporary)
                _check(file, temporary, self._storage.options.metadata_limit)
            else:
                # Checked in memory, so that the file is not read again.
                content = self._fetch_whole(file)
                fetched = len(content)
                _check(file, content, self._storage.options.metadata_limit)
                write_durably(temporary, content)
            stored = _stored(file, content, fetched)
            # `fetch_files` fsyncs the folder once, after all of its files.
            temporary.replace(target)
            remove_quietly(note_of(temporary))
            return stored

    def _fetch_whole(self, file: RemoteFile) -> memoryview:
        data = memoryview(self._storage.fetch(file.url, file.file_id, file.size, self._shared) or b"").cast("B")
        self._events.put(len(data))
        return data

    def _fetch_in_chunks(self, file: RemoteFile, temporary: Path) -> int:
        etag, resumed = read_note(temporary, file.size)
        source = self._storage.source(file.url, file.file_id, file.size, self._shared, etag=etag)
        partial = PartialFile(temporary, source, file.size, self._events.put)
        # After a change of the file its ETag differs, and the download restarts.
        return source.restarting(
            lambda: partial.fetch(
                resumed if etag is not None and source.etag == etag else 0, self._pool, self._budget
            )
        )

    def _fetch_vector(self, file: RemoteFile, vector: DeletionVector, temporary: Path) -> int:
        where = file_range(vector, file.file_id, self._storage.options.metadata_limit)
        data = bytes(self._storage.fetch(file.url, file.file_id, transfers=self._shared, byte_range=where))
        decode_stored(data, vector, file.file_id)
        write_durably(temporary, _VERSION_BYTE + data)
        return len(data)


def _check(file: RemoteFile, content: Path | memoryview, limit: int) -> None:
    """Compare a fetched file with the table's metadata; remove a damaged one."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    size = _size_of(content)
    try:
        if file.size and size != file.size:
            raise DataError(f"it has {size} bytes; the table's metadata has {file.size}", file_id=file.file_id)
        limits = footer_limits(_end_of(content), limit, file.file_id)
        source = content if isinstance(content, Path) else pa.BufferReader(content)
        with pq.ParquetFile(source, **limits) as parquet:
            rows = parquet.metadata.num_rows
        if file.num_records is not None and rows != file.num_records:
            reason = f"it has {rows} rows; the table's metadata has {file.num_records}"
            raise DataError(reason, file_id=file.file_id)
    except (DataError, pa.ArrowException, OSError) as error:
        if isinstance(content, Path):
            remove_quietly(content)
            remove_quietly(note_of(content))
        if isinstance(error, DataError):
            raise
        raise DataError(f"not a readable Parquet file: {error}", file_id=file.file_id) from error


def _stored(file: RemoteFile, content: Path | memoryview, fetched: int) -> StoredFile:
    size = _size_of(content)
    sha256 = sha256_of(content) if isinstance(content, Path) else hashlib.sha256(content).hexdigest()
    return StoredFile(path=file.path, file_id=file.file_id, size=size, sha256=sha256, fetched=fetched)


def _size_of(content: Path | memoryview) -> int:
    return content.stat().st_size if isinstance(content, Path) else len(content)


def _end_of(content: Path | memoryview) -> bytes | memoryview:
    """Return the end of a Parquet file with its footer."""
    if not isinstance(content, Path):
        return content
    size = _size_of(content)
    with content.open("rb") as stream:
        stream.seek(-min(8, size), os.SEEK_END)
        length = int.from_bytes(stream.read(4), "little") + 8
        stream.seek(-min(length, size), os.SEEK_END)
        return stream.read()


def sha256_of(file: Path) -> str:
    """Return the SHA-256 of a file in hexadecimal digits."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
