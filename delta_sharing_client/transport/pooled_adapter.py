"""Adapter of `requests` with the TLS context of a transport, and pools with the connections of this package."""

from __future__ import annotations

import queue
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from requests.adapters import HTTPAdapter
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool

from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.cancellation import SocketRegistry
from delta_sharing_client.transport.connections import Connection, SecureConnection

#: Hosts to keep connections for.
_HOSTS: Final = 64


class _IdleConnections:
    """The queue of a pool: its idle connections, or None for one that is not open; the last one is used first.

    It has no lock. An interrupt, or a fork, within the methods of `queue.LifoQueue` may leave its lock held: each
    later request to the host would wait for ever.
    """

    def __init__(self, maxsize: int) -> None:
        self._most = maxsize
        self._idle: list[Any] = []

    def put(self, connection: Any, block: bool = True, timeout: float | None = None) -> None:
        """Add a connection; raise `queue.Full` if there are enough."""
        if len(self._idle) >= self._most:
            raise queue.Full
        self._idle.append(connection)

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """Remove a connection; raise `queue.Empty` if there is none."""
        try:
            return self._idle.pop()
        except IndexError:
            raise queue.Empty from None

    def qsize(self) -> int:
        """Return the number of connections, those that are not open included."""
        return len(self._idle)


class _HttpPool(HTTPConnectionPool):
    QueueCls = _IdleConnections  # type: ignore[assignment]  # urllib3 calls these methods alone


class _HttpsPool(HTTPSConnectionPool):
    QueueCls = _IdleConnections  # type: ignore[assignment]


class PooledAdapter(HTTPAdapter):
    """An adapter whose pools have the limits of the options, and a TLS context or None.

    The registry knows the sockets in use.
    """

    def __init__(self, options: TransportOptions, context: ssl.SSLContext | None, sockets: SocketRegistry) -> None:
        self.context = context
        self._pools = {
            "http": partial(_pool, _HttpPool, partial(Connection, options=options, sockets=sockets)),
            "https": partial(_pool, _HttpsPool, partial(SecureConnection, options=options, sockets=sockets)),
        }
        self._direct_pools: dict[str, HTTPConnectionPool] = {}
        self._proxy_lock = ForkSafeLock()
        self._tls: dict[str, Any] = {} if context is None else {"ssl_context": context}
        super().__init__(pool_connections=_HOSTS, pool_maxsize=options.max_connections)

    def init_poolmanager(self, connections: int, maxsize: int, block: bool = False, **pool_kwargs: Any) -> None:
        """Give the pools of direct connections the context and the connection classes."""
        super().init_poolmanager(connections, maxsize, block, **pool_kwargs, **self._tls)
        self.poolmanager.pool_classes_by_scheme = self._pools

    def proxy_manager_for(self, proxy: str, **kwargs: Any) -> Any:
        """Give the pools of proxied connections the same."""
        with self._proxy_lock:  # `requests` would make a manager for each thread that finds none
            manager = super().proxy_manager_for(proxy, **kwargs, **self._tls)
        if not proxy.lower().startswith("socks"):  # a SOCKS manager has connections of its own
            manager.pool_classes_by_scheme = self._pools
        return manager

    def direct_pool(self, origin: str) -> HTTPConnectionPool:
        """Return the pool of direct connections to an origin."""
        pool = self._direct_pools.get(origin)
        if pool is None:
            if len(self._direct_pools) >= _HOSTS:
                self._direct_pools.clear()
            pool = self._direct_pools[origin] = self.poolmanager.connection_from_url(origin)
        return pool

    def close(self) -> None:
        """Close the idle connections, and those in use as soon as they are given back."""
        self._direct_pools.clear()
        super().close()

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Require a certificate; which ones are trusted is in the context already."""
        conn.cert_reqs = "CERT_REQUIRED"


def _pool(
    kind: type[HTTPConnectionPool], connection: Callable[..., Any], *arguments: Any, **named: Any
) -> HTTPConnectionPool:
    pool = kind(*arguments, **named)
    pool.ConnectionCls = connection  # type: ignore[assignment]  # urllib3 only calls it
    return pool
