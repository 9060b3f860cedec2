"""Connections that can be broken from another thread.

A thread that waits for a store's first byte sits in a system call, up to the read time-out. When the user
gives up, shutting its socket down is the only way to have it out at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool


class SocketRegistry:
    """The sockets of a transport, as far as anyone still holds them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()

    def add(self, connection: HTTPConnection) -> None:
        """Keep the socket of a connection that has just been made in mind."""
        if isinstance(connection.sock, socket.socket):
            with self._lock:
                self._sockets.add(connection.sock)

    def shut_down(self) -> None:
        """Shut down every socket; whoever waits on one gets an error at once."""
        with self._lock:
            sockets = set(self._sockets)
        for sock in sockets:
            with contextlib.suppress(OSError, ValueError):
                sock.shutdown(socket.SHUT_RDWR)


class TrackingAdapter(HTTPAdapter):
    """The adapter of `requests`, with connections that enter a registry.

    Args:
        registry: where they enter themselves.
        pool_connections: hosts to keep connections for.
        pool_maxsize: connections to keep per host.
    """

    def __init__(self, registry: SocketRegistry, *, pool_connections: int, pool_maxsize: int) -> None:
        self._registry = registry
        super().__init__(pool_connections=pool_connections, pool_maxsize=pool_maxsize)

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        """Give the pools of direct connections our connection classes."""
        super().init_poolmanager(*args, **kwargs)  # type: ignore[no-untyped-call]
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._registry)

    def proxy_manager_for(self, *args: Any, **kwargs: Any) -> Any:
        """Give the pools of proxied connections our connection classes."""
        manager = super().proxy_manager_for(*args, **kwargs)  # type: ignore[no-untyped-call]
        if type(manager).__name__ == "ProxyManager":  # a SOCKS manager has classes of its own
            manager.pool_classes_by_scheme = _pool_classes(self._registry)
        return manager


def _pool_classes(registry: SocketRegistry) -> dict[str, Any]:
    class Connection(HTTPConnection):
        def connect(self) -> None:
            super().connect()
            registry.add(self)

    class SecureConnection(HTTPSConnection):
        def connect(self) -> None:
            super().connect()
            registry.add(self)

    class Pool(HTTPConnectionPool):
        ConnectionCls = Connection

    class SecurePool(HTTPSConnectionPool):
        ConnectionCls = SecureConnection

    return {"http": Pool, "https": SecurePool}
