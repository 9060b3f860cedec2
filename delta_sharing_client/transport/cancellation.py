"""Transfers that are broken from another thread.

A thread that waits for a store's first byte sits in a system call, up to the read time-out. Shutting its socket
down is the only way to end that at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import weakref
from collections.abc import Callable


class Cancellation(threading.Event):
    """An event that, when it is set, also breaks the transfers that are made for it."""

    def __init__(self) -> None:
        super().__init__()
        self._breakers: dict[object, Callable[[], None]] = {}

    def set(self) -> None:
        """Set the event, and break the transfers."""
        super().set()
        for breaker in list(self._breakers.values()):
            breaker()

    def add_breaker(self, owner: object, breaker: Callable[[], None]) -> None:
        """Have `breaker` called when the event is set; the first one of each owner is kept."""
        self._breakers.setdefault(owner, breaker)


class SocketRegistry:
    """The sockets of a transport, each with the process and the event of its present use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: weakref.WeakKeyDictionary[socket.socket, tuple[int, threading.Event | None]] = (
            weakref.WeakKeyDictionary()
        )
        self._thread = threading.local()

    def use_for(self, event: threading.Event | None) -> None:
        """Enter the sockets that this thread uses from now on under an event, or under none."""
        self._thread.event = event

    def enter(self, sock: object) -> None:
        """Note that a socket is being used by this thread."""
        if not isinstance(sock, socket.socket):  # none yet, or TLS within TLS
            return
        event: threading.Event | None = getattr(self._thread, "event", None)
        with self._lock:
            self._users[sock] = os.getpid(), event
        if event is not None and event.is_set():
            _shut_down(sock)

    def shut_down(self, event: threading.Event | None = None) -> None:
        """Shut down the sockets in use for an event, or all of them; waits for them end with an error.

        Those that were there before a fork are left alone: to shut them down would break them in the parent too.
        """
        here = os.getpid()
        with self._lock:
            users = list(self._users.items())
        for sock, (pid, user) in users:
            if pid == here and (event is None or user is event):
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed meanwhile
        sock.shutdown(socket.SHUT_RDWR)
