"""Pool of reusable buffers for small files: allocation of fresh pages would dominate their transfer time."""

from __future__ import annotations


class BufferPool:
    """Buffers that one file after another uses. Several threads may use the pool."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes with arbitrary content; raises MemoryError if the allocation fails."""
        try:
            memory = self._free.pop()
        except IndexError:
            memory = bytearray(size)
        if len(memory) < size:
            memory = bytearray(size)
        return memoryview(memory)[:size]

    def give_back(self, view: memoryview) -> None:
        """Return a view of `take` to the pool; memory with another view is dropped."""
        memory = view.obj
        if not isinstance(memory, bytearray) or not memory:
            return
        try:
            view.release()
            memory.append(memory.pop())  # BufferError while there is another view
        except BufferError:
            return
        self._free.append(memory)
