"""The retries that all downloads of one load share."""

from __future__ import annotations

import threading
from typing import Final

from delta_sharing_client.errors import RequestTimeoutError


class RetryBudget:
    """The retries that all downloads of one load share, so that a dead store fails in seconds.

    Only retries without progress count. A file that arrives gives one back, so that a load from a store
    that is merely busy goes on.

    Args:
        files: how many files the load has.
        connections: how many are fetched at a time; each may fail once at the start.
    """

    #: A time-out counts as much as several other failures: it takes that much longer to find out.
    TIMEOUT_COST: Final = 5

    def __init__(self, files: int = 0, connections: int = 32) -> None:
        self._most = 10 + min(files, connections) + files // 5
        self._left = self._most
        self._lock = threading.Lock()

    def take(self, error: BaseException) -> bool:
        """Spend a retry after `error`; tell whether there was one left."""
        cost = self.TIMEOUT_COST if isinstance(error, RequestTimeoutError) else 1
        with self._lock:
            if self._left < cost:
                return False
            self._left -= cost
            return True

    def give_back(self) -> None:
        """Note that a file has arrived."""
        with self._lock:
            self._left = min(self._most, self._left + 1)
