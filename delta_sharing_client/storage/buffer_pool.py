"""Memory for small files, used again from one file to the next.

Fresh pages for every one of many files take a good part of the time that fetching them does.
"""

from __future__ import annotations


class Slabs:
    """Lends memory. Several threads may use it; it is given up as a whole."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> memoryview:
        """Return a view of so many bytes, whatever they are.

        Raises:
            MemoryError: there are not so many.
        """
        try:
            slab = self._free.pop()
        except IndexError:
            slab = bytearray(size)
        if len(slab) < size:
            slab = bytearray(size)
        return memoryview(slab)[:size]

    def give_back(self, view: memoryview) -> None:
        """Take a view back that `take` gave; memory that something still looks at is not lent again."""
        slab = view.obj
        if not isinstance(slab, bytearray) or not slab:
            return
        try:
            view.release()
            slab.append(slab.pop())  # refused while anybody looks at it
        except BufferError:
            return
        self._free.append(slab)
