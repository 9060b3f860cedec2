"""`LogCache`: the logs opened last, each until it has not been used for an hour."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Any, Final

from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock

#: Lifetime of a cached log after its last use.
EXPIRY: Final = timedelta(hours=1)
_CACHED_LOGS: Final = 1_000


class LogCache(ForkAware):
    """A cache of logs by table and options. May be used by several threads; empty in a forked process."""

    def __init__(self) -> None:
        self._lock = ForkSafeLock()
        #: The least recently used log is the first one.
        self._logs: dict[tuple[str, Hashable], tuple[float, Any]] = {}
        super().__init__()

    def after_fork(self) -> None:
        """Remove the logs: drivers of stores are not used in a process forked from that which opened them."""
        self._logs = {}

    def get(self, table: str, options: Hashable, open_log: Callable[[], Any]) -> Any:
        """Return the log of a table; `open_log` opens it if it is not in the cache, or has expired."""
        key = (table, options)
        found = self._use(key, None)
        # Opened without the lock: a driver may connect to its store.
        return self._use(key, open_log()) if found is None else found

    def _use(self, key: tuple[str, Hashable], opened: Any) -> Any:
        """Return the log of the cache, or one that was opened; None if there is neither."""
        now = time.monotonic()
        with self._lock:
            used, log = self._logs.pop(key, (now, None))
            if log is None or now - used >= EXPIRY.total_seconds():
                log = opened
            for old, (used, _) in list(self._logs.items()):
                if len(self._logs) < _CACHED_LOGS and now - used < EXPIRY.total_seconds():
                    break
                del self._logs[old]
            if log is not None:
                self._logs[key] = now, log
            return log

    def remove(self, table: str) -> None:
        """Remove the logs of a table."""
        with self._lock:
            for key in [key for key in self._logs if key[0] == table]:
                del self._logs[key]

    def clear(self) -> None:
        """Remove all logs."""
        with self._lock:
            self._logs.clear()
