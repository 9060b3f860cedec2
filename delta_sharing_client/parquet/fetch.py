"""Fetching what a task names: its deletion vector, and the parts of the data file that are read."""

from __future__ import annotations

import contextlib
import mmap
import threading
from typing import Final

from delta_sharing_client.errors import DataError, ProtocolError, StorageError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.deletion_vector import (
    MAX_BYTES,
    RowPositions,
    decode_inline,
    decode_stored,
    file_range,
)
from delta_sharing_client.parquet.layout import PADDING, ByteRange, ReadUnit, split
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.storage.download import PRIVATE, Download, Refresh, RetryBudget
from delta_sharing_client.storage.presigned import StorageReader

#: Bytes fetched from the end of a file: the footers of most files are in there.
TAIL: Final = 64 * 1024
_UNNAMED: Final = " (deletion vector without id)"


def vector_id(task: FileScanTask) -> str:
    """Return the id under which a task's deletion vector is renewed."""
    return vector_key(task.file_id, task.deletion_vector_id)


def vector_key(file_id: str, vector_id: str | None) -> str:
    """Return the id under which a deletion vector is renewed, from its file's id and its own."""
    return f"{file_id} (deletion vector {vector_id})" if vector_id else f"{file_id}{_UNNAMED}"


def is_unnamed_vector(key: str) -> bool:
    """Tell whether an id is that of a deletion vector of which only the file is known."""
    return key.endswith(_UNNAMED)


def fetch_vector(
    storage: StorageReader,
    task: FileScanTask,
    *,
    refresh: Refresh | None = None,
    cancelled: threading.Event | None = None,
    budget: RetryBudget | None = None,
) -> RowPositions | None:
    """Fetch a task's deletion vector, and the rows that count where it names them; None where it has neither.

    Args:
        storage: fetches.
        task: the file.
        refresh: gives a fresh URL for one that has expired.
        cancelled: set when nobody wants the file any more.
        budget: the retries that a load shares.

    Raises:
        StorageError: it cannot be downloaded.
        DataError: it is damaged.
        ProtocolError: it is stored in a way that a sharing server cannot mean.
    """

    def fetch(vector: DeletionVector | None, vector_id: str | None) -> RowPositions | None:
        if vector is None:
            return None
        return _fetch(
            storage, task.file_id, vector, vector_id, refresh=refresh, cancelled=cancelled, budget=budget
        )

    deleted = fetch(task.deletion_vector, task.deletion_vector_id)
    if task.only is None:
        return deleted
    marked = fetch(task.only.vector, task.only.vector_id)
    return None if marked is None else marked.less(deleted)


def _fetch(
    storage: StorageReader,
    data_file_id: str,
    vector: DeletionVector,
    vector_id: str | None,
    *,
    refresh: Refresh | None,
    cancelled: threading.Event | None,
    budget: RetryBudget | None,
) -> RowPositions:
    if not 0 <= vector.size_in_bytes <= MAX_BYTES or (vector.offset or 0) < 0:
        raise ProtocolError(f"file {data_file_id}: its deletion vector has a size or offset that cannot be")
    if vector.storage_type == "i":
        return decode_inline(vector, data_file_id)
    if vector.storage_type == "p" or "://" in vector.path_or_inline.reveal():
        (data,) = storage.fetch_ranges(
            vector.path_or_inline,
            file_id=vector_key(data_file_id, vector_id),
            size=0,
            ranges=[file_range(vector)],
            refresh=refresh,
            cancelled=cancelled,
            budget=budget,
        )
        return decode_stored(bytes(data), vector, data_file_id)
    raise ProtocolError(
        f"file {data_file_id}: its deletion vector is stored as {vector.storage_type!r}, which names no URL"
    )


class SparseFile:
    """A Parquet file of which only the parts that are read are there.

    The footer is fetched at once, the pieces one by one. The memory of a piece is given back when it has
    been decoded, so that a file of any size passes through.

    Args:
        download: fetches ranges of the file.
        task: the file; its size has to be known.

    Raises:
        FileChanged: the file is another one than when its first part was fetched.
        DataError: it does not end as a Parquet file does.
        DeltaSharingError: it cannot be fetched.
    """

    def __init__(self, download: Download, task: FileScanTask) -> None:
        self._download = download
        size = task.size
        self._tail = max(size - TAIL, 0)
        # First the end, by which the store confirms the size: what the server says may be out of all reason.
        tail = bytearray(size - self._tail)
        download.range_into(memoryview(tail), self._tail, size)
        try:
            self._memory = mmap.mmap(-1, size, **PRIVATE)
        except (OSError, OverflowError):
            raise StorageError(f"there is no memory for {size:,} bytes of it", file_id=task.file_id) from None
        self._view = memoryview(self._memory)
        self._view[self._tail :] = tail
        length = int.from_bytes(self._view[size - 8 : size - 4], "little")
        if bytes(self._view[size - 4 :]) != b"PAR1" or length > size - 8:
            raise DataError("not a readable Parquet file: it does not end as one does", file_id=task.file_id)
        footer = size - 8 - length
        if footer < self._tail:
            self._get(footer, self._tail)
            self._tail = footer

    @property
    def buffer(self) -> mmap.mmap:
        """The file's bytes; those not fetched are zero."""
        return self._memory

    @property
    def footer_size(self) -> int:
        """Bytes fetched to know the footer."""
        return len(self._view) - self._tail

    def expect(self, size: int) -> None:
        """Prepare for `size` bytes being fetched; where that is most of the file, in pages of 2 MB."""
        # Page faults take longer than the bytes' way from the socket: 30 of 50 ms for 45 MB. Not on every system.
        if 2 * size > len(self._view) and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # the system has none
                self._memory.madvise(mmap.MADV_HUGEPAGE)

    def requests(self, unit: ReadUnit) -> list[ByteRange]:
        """Return the ranges to fetch for a read unit, without the bytes that came with the footer."""
        return split([(start, min(stop, self._tail)) for start, stop in unit.ranges if start < self._tail])

    def fetch(self, byte_range: ByteRange) -> None:
        """Fetch one range; several threads may.

        Raises:
            FileChanged: the file is another one than before.
            DeltaSharingError: it cannot be fetched.
        """
        self._get(*byte_range)

    def release(self, unit: ReadUnit) -> None:
        """Return the memory of a decoded read unit to the system, where that is possible."""
        if not hasattr(self._memory, "madvise"):  # Windows
            return
        page = mmap.PAGESIZE
        for start, stop in unit.ranges:
            # A range overlaps the next unit by its padding; these bytes must stay.
            first, last = -(-start // page) * page, min(stop - PADDING, self._tail) // page * page
            if first < last:
                self._memory.madvise(mmap.MADV_DONTNEED, first, last - first)

    def _get(self, start: int, stop: int) -> None:
        self._download.range_into(self._view[start:stop], start, stop)
