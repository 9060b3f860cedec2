"""Cache whose entries expire when they are not used for an hour."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from datetime import timedelta
from typing import Final, Generic, TypeVar

T = TypeVar("T")

EXPIRY: Final = timedelta(minutes=60)
_SIZE: Final = 1_000


class ExpiringCache(Generic[T]):
    """A cache whose entries expire when they are not used; safe for several threads.

    Args:
        expiry: the lifetime of an entry after its last use.
        size: the maximum number of entries; the least recently used entry is removed first.
        clock: returns monotonic time in seconds.
    """

    def __init__(
        self, expiry: timedelta = EXPIRY, size: int = _SIZE, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._expiry = expiry.total_seconds()
        self._size = size
        self._clock = clock
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, tuple[float, T]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the value of a key, made if there is none."""
        with self._lock:
            now = self._clock()
            while self._entries and now - next(iter(self._entries.values()))[0] >= self._expiry:
                self._entries.popitem(last=False)
            known = self._entries.get(key)
            value = make() if known is None else known[1]
            self._entries[key] = (now, value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)
            return value

    def discard(self, matches: Callable[[Hashable], bool]) -> None:
        """Remove the entries whose key matches."""
        with self._lock:
            for key in [key for key in self._entries if matches(key)]:
                del self._entries[key]

    def clear(self) -> None:
        """Remove all entries."""
        self.discard(lambda key: True)

    def __len__(self) -> int:
        return len(self._entries)
