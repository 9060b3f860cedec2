"""Buffer of a byte range that is received in parts."""

from __future__ import annotations

import mmap
from typing import Any, Final

from delta_sharing_client.errors import StorageError
from delta_sharing_client.storage.buffer_pool import BufferPool
from delta_sharing_client.storage.byte_source import Buffer, FileChanged
from delta_sharing_client.storage.file_transport import FileResponse

#: Private pages: they can be freed one by one.
PRIVATE: Final[dict[str, Any]] = (
    {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_ANONYMOUS") else {}  # Windows
)
_CHUNK: Final = 256 * 1024
_MAX_RECEIVE: Final = 1024 * 1024
#: Number of new bytes that counts as progress, at most.
_PROGRESS: Final = 64 * 1024
#: Buffers up to this size are from the interpreter's heap or the buffer pool.
_SMALL: Final = 512 * 1024


class ReceivedRange:
    """The bytes of a file from `start` to `stop` (None: the end, not known yet), received up to `position`.

    The memory is `view`, or else a new buffer; a small one is from `buffers`.
    """

    def __init__(
        self,
        file_id: str,
        start: int,
        stop: int | None,
        view: memoryview | None = None,
        buffers: BufferPool | None = None,
    ) -> None:
        self._id = file_id
        self.start = start
        self.stop = stop
        self.position = start
        self._buffer: Buffer = None
        self._view = view
        self._buffers = buffers
        self._grown: bytearray | None = bytearray() if stop is None else None
        self._furthest = start
        self._progress = _PROGRESS if stop is None else min(_PROGRESS, max(1, (stop - start) // 16))

    def put(self, data: bytes) -> None:
        """Add bytes at the position."""
        if self._grown is None:
            self._next_view(len(data))[:] = data
        else:
            self._grown += data
        self.position += len(data)

    def receive(self, response: FileResponse) -> int:
        """Receive at most 1 MB of a response; return the number of bytes, 0 at its end."""
        if self.stop is None or self._grown is not None:
            data = response.read_some(_CHUNK if self.stop is None else min(_CHUNK, self.stop - self.position))
            self.put(data)
            return len(data)
        count = response.read_into(self._next_view(min(_MAX_RECEIVE, self.stop - self.position)))
        self.position += count
        return count

    def _next_view(self, size: int) -> memoryview:
        if self._view is None:
            self._view = self._allocate((self.stop or 0) - self.start)
        offset = self.position - self.start
        return self._view[offset : offset + size]

    def has_progress(self) -> bool:
        """Return whether the position is further than at any time before, by enough to count as progress."""
        if self.position - self._furthest < self._progress:
            return False
        self._furthest = self.position
        return True

    def end_at(self, stop: int) -> None:
        """Set the end of the range; raises FileChanged if another end is known."""
        if self.stop is None:
            self.stop = stop
            if not self._grown:
                self._grown = None
        elif self.stop != stop:
            raise FileChanged

    def back_to_start(self) -> None:
        """Go back to the start; the buffer is kept."""
        self.position = self.start
        if self._grown is not None:
            self._grown.clear()

    def result(self) -> Buffer:
        """Return the bytes of the complete range."""
        if self._grown is not None:
            return self._grown
        return b"" if self._buffer is None else self._buffer

    def _allocate(self, size: int) -> memoryview:
        # Not Arrow's memory pool: it would keep a heap for each of dozens of threads.
        try:
            # For small buffers the allocation of pages takes longer than the receive.
            if size > _SMALL:
                self._buffer = mmap.mmap(-1, size, **PRIVATE)
            else:
                self._buffer = bytearray(size) if self._buffers is None else self._buffers.take(size)
        except (OSError, OverflowError, MemoryError):
            raise StorageError(f"not enough memory for its {size:,} bytes", file_id=self._id) from None
        return memoryview(self._buffer)
