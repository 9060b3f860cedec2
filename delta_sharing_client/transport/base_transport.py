"""Base class of the transports: connection pools with the certificates and time-outs of the options."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

import urllib3

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport import log_redaction
from delta_sharing_client.transport.pooled_adapter import PooledAdapter
from delta_sharing_client.transport.tls import TlsFiles


class BaseTransport:
    """Connection pools; a forked process makes its own.

    The adapters of `requests` are used without a `requests.Session`: a session would add credentials from
    netrc files, keep cookies, and read a redirect's whole body.

    Args:
        options: time-outs, connections, certificates.
        connections: factories of connections, by scheme.
    """

    def __init__(self, options: TransportOptions, connections: Mapping[str, Callable[..., Any]]) -> None:
        log_redaction.install()
        self.options = options
        self._connections = connections
        self._lock = threading.Lock()
        self._adapters: dict[str, PooledAdapter] = {}
        self._pid = os.getpid()
        self._tls_files = TlsFiles.of(options)

    def close(self) -> None:
        """Close the pooled connections; the transport can go on being used."""
        with self._lock:
            adapters = list(self._adapters.values())
            self._adapters.clear()
        for adapter in adapters:
            adapter.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _adapter_for(self, origin: str) -> PooledAdapter:
        scheme = origin.partition(":")[0].lower()
        with self._lock:
            if self._pid != os.getpid():  # a child must not use its parent's connections
                self._adapters = {}
                self._pid = os.getpid()
            adapter = self._adapters.get(scheme)
            if adapter is None:
                context = self._tls_files.context() if scheme == "https" else None
                adapter = PooledAdapter(self.options.max_connections, context, self._connections)
                self._adapters[scheme] = adapter
            return adapter

    def _timeouts(self, total: float | None = None) -> urllib3.Timeout:
        return urllib3.Timeout(
            total=total,
            connect=self.options.connect_timeout.total_seconds(),
            read=self.options.read_timeout.total_seconds(),
        )
