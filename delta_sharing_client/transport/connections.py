"""Connections that share one TLS context and can be broken from another thread.

Reading the trusted certificates takes some 15 ms, and `requests` does it for every connection: half a second
for 32 of them. Here they are read once.

A thread that waits for a store's first byte sits in a system call, up to the read time-out. When the user
gives up, shutting its socket down is the only way to have it out at once.
"""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.util.ssl_ import create_urllib3_context

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.http11 import Connections, Exchange
from delta_sharing_client.transport.pace import PacedResponse


class Cancellation(threading.Event):
    """An event that, when it is set, also breaks the transfers that wait on its behalf."""

    def __init__(self) -> None:
        super().__init__()
        self._breakers: dict[object, Callable[[], None]] = {}

    def set(self) -> None:
        """Set the event, and break what is under way."""
        super().set()
        for breaker in list(self._breakers.values()):
            breaker()

    def add_breaker(self, owner: object, breaker: Callable[[], None]) -> None:
        """Have `breaker` called when the event is set; the first one of each owner is kept."""
        self._breakers.setdefault(owner, breaker)


class SocketRegistry:
    """The sockets of a transport, each with the process and the event of whoever uses it now."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: weakref.WeakKeyDictionary[socket.socket, tuple[int, threading.Event | None]] = (
            weakref.WeakKeyDictionary()
        )
        self._thread = threading.local()

    def use_for(self, event: threading.Event | None) -> None:
        """Enter the sockets that this thread uses from now on under an event, or under none."""
        self._thread.event = event

    def enter(self, connection: HTTPConnection) -> None:
        """Note that a connection is being used by this thread."""
        sock = connection.sock
        if not isinstance(sock, socket.socket):
            return
        event: threading.Event | None = getattr(self._thread, "event", None)
        with self._lock:
            self._users[sock] = os.getpid(), event
        if event is not None and event.is_set():
            _shut_down(sock)

    def shut_down(self, event: threading.Event | None = None) -> None:
        """Shut down the sockets in use for an event, or all of them; whoever waits gets an error at once.

        Those that were there before a fork are left alone: to shut them down would break them in the parent too.
        """
        here = os.getpid()
        with self._lock:
            users = list(self._users.items())
        sockets = [sock for sock, (pid, user) in users if pid == here and (event is None or user is event)]
        for sock in sockets:
            _shut_down(sock)


def _shut_down(sock: socket.socket) -> None:
    with contextlib.suppress(OSError, ValueError):  # closed meanwhile
        sock.shutdown(socket.SHUT_RDWR)


@lru_cache(maxsize=8)
def tls_context(ca_bundle: str, certificate: str | None, key: str | None) -> ssl.SSLContext:
    """Return a TLS context that verifies servers; the same one for the same files.

    Args:
        ca_bundle: the file or directory of trusted certificates.
        certificate: the file of a client certificate.
        key: the file of its key, where it is not in the same one.

    Raises:
        ValueError: a file cannot be used.
    """
    context: ssl.SSLContext = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    is_directory = Path(ca_bundle).is_dir()
    try:
        context.load_verify_locations(
            cafile=None if is_directory else ca_bundle, capath=ca_bundle if is_directory else None
        )
    except OSError as error:
        raise ValueError(f"the CA bundle {ca_bundle!r} cannot be read: {error.strerror or error}") from None
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password="")  # without one, OpenSSL asks on the terminal
        except OSError as error:
            raise ValueError(
                f"the client certificate {certificate!r} cannot be read: {error.strerror or error}"
            ) from None
    return context


class TrackingAdapter(HTTPAdapter):
    """The adapter of `requests`, with one TLS context, and with connections that enter a registry.

    Args:
        options: time-outs and the minimum speed of a body.
        registry: where the connections enter themselves.
        context: the TLS context; None for plain http.
        pool_connections: hosts to keep connections for.
        pool_maxsize: connections to keep per host.
        direct: whether connections without a proxy are for requests without a body alone, by `wire`.

    Attributes:
        origins: the connections without a proxy, by origin.
    """

    def __init__(
        self,
        options: TransportOptions,
        registry: SocketRegistry,
        context: ssl.SSLContext | None,
        *,
        pool_connections: int,
        pool_maxsize: int,
        direct: bool = False,
    ) -> None:
        self._options = options
        self._registry = registry
        self._direct = direct
        self.origins: dict[str, Connections] = {}
        self._tls: dict[str, Any] = {} if context is None else {"ssl_context": context}
        super().__init__(pool_connections=pool_connections, pool_maxsize=pool_maxsize)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        """Give the pools of direct connections our context and our connection classes."""
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs, **self._tls)
        self.poolmanager.pool_classes_by_scheme = _pool_classes(self._options, self._registry, direct=self._direct)

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Give the pools of proxied connections the same."""
        manager = super().proxy_manager_for(proxy, **kwargs, **self._tls)
        if type(manager).__name__ == "ProxyManager":  # a SOCKS manager has classes of its own
            manager.pool_classes_by_scheme = _pool_classes(self._options, self._registry)
        return manager

    def close(self) -> None:
        """Close the connections: those of urllib3's pools it closes when nobody has the pools any more."""
        origins, self.origins = self.origins, {}
        for connections in origins.values():
            connections.close()
        super().close()

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Require a certificate; which ones are trusted is in the context already."""
        conn.cert_reqs = "CERT_REQUIRED"


def _pool_classes(options: TransportOptions, registry: SocketRegistry, *, direct: bool = False) -> dict[str, Any]:
    stall, speed = options.read_timeout.total_seconds(), options.minimum_speed

    class Tracked:
        response_class = staticmethod(partial(PacedResponse, stall=stall, speed=speed))

        def connect(self: Any) -> None:
            super().connect()  # type: ignore[misc]
            registry.enter(self)

        def request(self: Any, *args: Any, **kwargs: Any) -> None:
            registry.enter(self)
            super().request(*args, **kwargs)  # type: ignore[misc]

    bases = (Tracked, Exchange) if direct else (Tracked,)
    connections = {
        "http": type("Connection", (*bases, HTTPConnection), {}),
        "https": type("SecureConnection", (*bases, HTTPSConnection), {}),
    }
    pools = {"http": HTTPConnectionPool, "https": HTTPSConnectionPool}
    return {scheme: type("Pool", (pools[scheme],), {"ConnectionCls": connections[scheme]}) for scheme in pools}
