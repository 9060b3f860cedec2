"""Locks that a forked process finds free, and that no interrupt leaves held."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
from waiting import interrupt

from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock, ForkSafeRLock


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="the system has no timers")
@pytest.mark.parametrize("make", [ForkSafeLock, ForkSafeRLock])
def test_an_interrupt_leaves_no_lock_held(make: Callable[[], Any]) -> None:
    lock, held = make(), []

    def use() -> None:
        with lock:
            pass

    def try_it() -> None:
        held.append(not lock.acquire(blocking=False))
        if not held[-1]:
            lock.release()

    interrupt(use, 200)
    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    assert held == [False]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_finds_locks_free_and_state_empty() -> None:
    class Known(ForkAware):
        names = ("a",)

        def after_fork(self) -> None:
            self.names = ()

    known, locks = Known(), (ForkSafeLock(), ForkSafeRLock())
    acquired, go = threading.Event(), threading.Event()

    def hold() -> None:
        with locks[0], locks[1]:
            acquired.set()
            go.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    acquired.wait()
    child = os.fork()
    if not child:
        free = [lock.acquire(blocking=False) for lock in locks]
        os._exit(0 if free == [True, True] and known.names == () else 1)
    go.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    assert known.names == ("a",)
