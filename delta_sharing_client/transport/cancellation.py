"""Cancellation of transfers from another thread, by shutting down their sockets.

A thread that waits for a store's first byte is in a system call, up to the read time-out. Only the shutdown of
its socket ends this wait at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable
from typing import TypeAlias

from delta_sharing_client.fork_safe import ForkAware, ForkSafeRLock


class Cancellation(threading.Event):
    """Event that also breaks the transfers registered for it when it is set."""

    def __init__(self) -> None:
        super().__init__()
        self._breakers: dict[object, Callable[[Cancellation], None]] = {}

    def set(self) -> None:
        """Set the event, and break the transfers."""
        super().set()
        for breaker in list(self._breakers.values()):
            breaker(self)

    def add_breaker(self, owner: object, breaker: Callable[[Cancellation], None]) -> None:
        """Call `breaker` with the event when it is set; only the first one of each owner counts."""
        self._breakers.setdefault(owner, breaker)


_Reference: TypeAlias = Callable[[], threading.Event | None]


def _no_event() -> None:
    """Refer to no event."""


class _Use(threading.local):
    """The event that this thread uses sockets for."""

    event: threading.Event | None = None


class SocketRegistry(ForkAware):
    """The sockets of a transport, each with the event that it is used for.

    Every reference from here is weak. A connection in a pool refers to its registry, and an event to its
    transport: a strong reference from the registry to the event would keep the pool, and with it the connection.
    """

    def __init__(self) -> None:
        self._lock = ForkSafeRLock()
        self._users: weakref.WeakKeyDictionary[socket.socket, _Reference] = weakref.WeakKeyDictionary()
        self._thread = _Use()
        super().__init__()

    def after_fork(self) -> None:
        """Forget the sockets: a shutdown would break them in the parent too."""
        self._users = weakref.WeakKeyDictionary()

    def use_for(self, event: threading.Event | None) -> None:
        """Register the sockets that this thread uses from now on for an event, or for none."""
        self._thread.event = event

    def register(self, sock: object) -> None:
        """Register a socket that this thread uses."""
        if not isinstance(sock, socket.socket):  # none yet, or TLS within TLS
            return
        event = self._thread.event
        with self._lock:
            self._users[sock] = _no_event if event is None else weakref.ref(event)
        if event is not None and event.is_set():
            _shut_down(sock)

    def shut_down(self, event: threading.Event | None = None) -> None:
        """Shut down the sockets in use for an event, or all of them; calls that wait for them raise an error."""
        with self._lock:
            users = list(self._users.items())
        for sock, user in users:
            if event is None or user() is event:
                _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed meanwhile
        sock.shutdown(socket.SHUT_RDWR)
