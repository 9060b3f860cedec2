"""Retry budget that all downloads of one load share."""

from __future__ import annotations

import threading
from typing import Final

from delta_sharing_client.errors import RequestTimeoutError


class RetryBudget:
    """The retries that all downloads of one load share, so that a dead store fails in seconds.

    Only retries without progress count. Each received file gives one back, so that a load from a busy store
    continues. Each of the connections, on which files are fetched at a time, may fail once at the start.
    """

    #: Retries that a time-out uses up: it takes longer than other failures.
    TIMEOUT_COST: Final = 5

    def __init__(self, files: int = 0, connections: int = 32) -> None:
        self._maximum = 10 + min(files, connections) + files // 5
        self._left = self._maximum
        self._lock = threading.Lock()

    def take(self, error: BaseException) -> bool:
        """Use up a retry after `error`; return whether one was left."""
        cost = self.TIMEOUT_COST if isinstance(error, RequestTimeoutError) else 1
        with self._lock:
            if self._left < cost:
                return False
            self._left -= cost
            return True

    def give_back(self) -> None:
        """Give one retry back, for a received file."""
        with self._lock:
            self._left = min(self._maximum, self._left + 1)
