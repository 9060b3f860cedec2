"""Locks that a forked process finds free.

A thread that holds a lock does not exist in a process forked by another thread, so that it would never release it.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import suppress
from typing import Any, Final


class ForkSafeLock:
    """A lock as `threading.Lock`; free in a forked process, whoever held it when the process was forked."""

    def __init__(self) -> None:
        self._lock = self._new_lock()
        _locks.add(self)

    def acquire(self, blocking: bool = True) -> bool:
        """Acquire the lock; return whether it was acquired."""
        acquired: bool = self._lock.acquire(blocking)
        return acquired

    def release(self) -> None:
        """Release the lock. A thread that forked while it held the lock finds it free in the child."""
        with suppress(RuntimeError):
            self._lock.release()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def _free(self) -> None:
        self._lock = self._new_lock()

    def _new_lock(self) -> Any:
        return threading.Lock()


class ForkSafeRLock(ForkSafeLock):
    """The same for a thread that may acquire it again, as `threading.RLock`."""

    def _new_lock(self) -> Any:
        return threading.RLock()


_locks: Final[weakref.WeakSet[ForkSafeLock]] = weakref.WeakSet()


def _free_all() -> None:
    for lock in list(_locks):
        lock._free()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free_all)
