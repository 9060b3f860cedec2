"""What a forked process changes before it goes on: locks are free, connections and what was known are dropped.

Only the thread that forks exists in the new process: a lock that another one holds would never be released, a
request that another one has sent would never be answered, and a connection belongs to the parent.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final


class ForkAware:
    """Base class of what a forked process changes; `after_fork` is called there, before any other code."""

    def __init__(self) -> None:
        _known.add(self)

    def after_fork(self) -> None:
        """Replace what belongs to the parent. Take no lock, and close nothing that the parent uses."""
        raise NotImplementedError


def ForkSafeLock() -> threading.Lock:  # noqa: N802  # named as `threading.Lock`
    """Return a lock that a forked process finds free, whoever held it when the process was forked.

    It is a lock of the interpreter: no interrupt comes between its acquisition and the block that releases it.
    """
    lock = threading.Lock()
    _locks.add(lock)
    return lock


def ForkSafeRLock() -> threading.RLock:  # noqa: N802  # named as `threading.RLock`
    """Return the same for a thread that may acquire it again."""
    lock = threading.RLock()
    _locks.add(lock)
    return lock


_known: Final[weakref.WeakSet[ForkAware]] = weakref.WeakSet()
_locks: Final[weakref.WeakSet[Any]] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_locks):
        lock._at_fork_reinit()
    for each in list(_known):
        each.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
