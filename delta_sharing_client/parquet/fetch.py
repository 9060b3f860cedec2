"""Fetching of deletion vectors, and of the ranges of a data file."""

from __future__ import annotations

import contextlib
import mmap
from typing import TYPE_CHECKING, Final

from delta_sharing_client.errors import ProtocolError, StorageError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.parquet.read_units import PADDING, ByteRange, ReadUnit, split
from delta_sharing_client.parquet.size_limits import footer_length
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.storage.byte_source import PRIVATE, SINGLE_FILE, ByteSource, StorageReader, Transfers

if TYPE_CHECKING:
    from delta_sharing_client.parquet.deletion_vector import RowPositions

#: Bytes fetched from the end of a file; they include most footers.
TAIL: Final = 64 * 1024
_UNNAMED: Final = " (deletion vector without id)"


def vector_key(file_id: str, vector_id: str | None) -> str:
    """Return the id by which the URL of a deletion vector is renewed."""
    return f"{file_id} (deletion vector {vector_id})" if vector_id else f"{file_id}{_UNNAMED}"


def is_unnamed_vector(key: str) -> bool:
    """Whether an id is that of a deletion vector without its own file id."""
    return key.endswith(_UNNAMED)


def fetch_vector(
    storage: StorageReader, task: FileScanTask, transfers: Transfers = SINGLE_FILE
) -> RowPositions | None:
    """Fetch a task's deletion vector and selection vector; return None if it has neither.

    Raises:
        StorageError: a vector cannot be downloaded.
        DataError: a vector is damaged.
        ProtocolError: a vector's descriptor is invalid in an answer of a sharing server.
    """
    if task.deletion_vector is None and task.selection is None:
        return None
    # Most tables have no deletion vectors.
    from delta_sharing_client.parquet.deletion_vector import decode_inline, decode_stored, file_range

    limit = storage.options.metadata_limit

    def fetch(vector: DeletionVector, vector_id: str | None) -> RowPositions:
        if vector.is_inline:
            return decode_inline(vector, task.file_id)
        if not vector.is_absolute and "://" not in vector.path_or_inline.reveal():
            raise ProtocolError(
                f"file {task.file_id}: its deletion vector has the type {vector.storage_type!r}, and not a URL"
            )
        key = vector_key(task.file_id, vector_id)
        where = file_range(vector, task.file_id, limit)
        data = storage.fetch(vector.path_or_inline, key, transfers=transfers, byte_range=where)
        return decode_stored(memoryview(data), vector, task.file_id)

    deleted = fetch(task.deletion_vector, task.deletion_vector_id) if task.deletion_vector else None
    if task.selection is None:
        return deleted
    return fetch(task.selection.vector, task.selection.vector_id).without(deleted)


class SparseFile:
    """A Parquet file in memory, of which only the fetched ranges are present.

    The constructor fetches the footer. The memory of a read unit is released after decoding, so that files may be
    larger than the memory.

    Args:
        download: fetches ranges of the file.
        task: the file; its size must be known.
        limit: the maximum bytes of the footer.

    Raises:
        FileChanged: the file changed between two requests.
        DataError: it does not end like a Parquet file.
        DeltaSharingError: it cannot be fetched.
    """

    def __init__(self, download: ByteSource, task: FileScanTask, limit: int) -> None:
        self._download = download
        size = task.size
        self._tail = max(size - TAIL, 0)
        # The end first: the store confirms the size, which the server may have wrong.
        tail = bytearray(size - self._tail)
        download.range(self._tail, size, memoryview(tail))
        try:
            self._memory = mmap.mmap(-1, size, **PRIVATE)
        except (OSError, OverflowError):
            raise StorageError(f"not enough memory for its {size:,} bytes", file_id=task.file_id) from None
        self._view = memoryview(self._memory)
        self._view[self._tail :] = tail
        footer = size - 8 - footer_length(tail, size, limit, task.file_id)
        if footer < self._tail:
            self.fetch((footer, self._tail))
            self._tail = footer

    @property
    def buffer(self) -> mmap.mmap:
        """The file's bytes; bytes not fetched are zero."""
        return self._memory

    @property
    def footer_size(self) -> int:
        """Bytes fetched with the footer."""
        return len(self._view) - self._tail

    def expect(self, size: int) -> None:
        """Use pages of 2 MB, where the system has them, if `size` bytes to fetch are most of the file."""
        # Page faults take longer than reading from the socket: 30 of 50 ms for 45 MB.
        if 2 * size > len(self._view) and hasattr(mmap, "MADV_HUGEPAGE"):
            with contextlib.suppress(OSError):  # the system has none
                self._memory.madvise(mmap.MADV_HUGEPAGE)

    def requests(self, unit: ReadUnit, most: int) -> list[ByteRange]:
        """Return the ranges to fetch for a read unit, each of `most` bytes, without what came with the footer."""
        return split([(start, min(stop, self._tail)) for start, stop in unit.ranges if start < self._tail], most)

    def fetch(self, byte_range: ByteRange) -> None:
        """Fetch one range; see `ByteSource.range`. Thread-safe."""
        start, stop = byte_range
        self._download.range(start, stop, self._view[start:stop])

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
