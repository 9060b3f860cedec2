"""Pool of buffers for small files: fresh pages for each file would take much of the time of its transfer."""

from __future__ import annotations


class BufferPool:
    """Buffers that are used for one file after another. Several threads may use it."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes with any content; raises MemoryError if there is no memory."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = bytearray(size)
        if len(memory) < size:
            memory = bytearray(size)
        return memoryview(memory)[:size]

    def give_back(self, view: memoryview) -> None:
        """Take back a view of `take`; memory with another view of it is not used again."""
        memory = view.obj
        if not isinstance(memory, bytearray) or not memory:
            return
        try:
            view.release()
            memory.append(memory.pop())  # BufferError while there is another view
        except BufferError:
            return
        self._free.append(memory)
