"""Arrays that are filled from their beginning to their end."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np


class Growing:
    """An array that grows at its end."""

    def __init__(self, dtype: Any, rows: int) -> None:
        self._values = self._allocate(rows, dtype)
        self.size = 0

    @staticmethod
    def _allocate(rows: int, dtype: Any) -> Any:
        # The number of rows is what the provider says: memory that is not there is not asked for twice.
        with contextlib.suppress(MemoryError, ValueError):
            return np.empty(max(rows, 1), dtype)
        return np.empty(1, dtype)

    def room(self, rows: int) -> Any:
        """Return a view of that many new values at the end, to be filled at once."""
        start, self.size = self.size, self.size + rows
        if self.size > len(self._values):
            # Large arrays grow without being copied, where the system can map their pages elsewhere.
            self._values.resize(max(self.size, len(self._values) * 3 // 2), refcheck=False)
        return self._values[start : self.size]

    def result(self) -> Any:
        """Return all values."""
        if self.size < len(self._values):
            self._values.resize(self.size, refcheck=False)
        return self._values
