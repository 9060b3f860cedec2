"""Base class of the transports: connection pools, proxies, one exchange with typed errors, and redirects."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, ClassVar, Final, Self
from urllib.parse import urljoin

import urllib3
from requests.utils import get_environ_proxies, select_proxy

from delta_sharing_client.fork_safe import ForkAware, ForkSafeLock
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.tracebacks import clear_frames
from delta_sharing_client.transport import log_redaction
from delta_sharing_client.transport.cancellation import SocketRegistry
from delta_sharing_client.transport.exception_mapping import NETWORK_ERRORS, NonRetryableTransportError, translate
from delta_sharing_client.transport.pooled_adapter import PooledAdapter
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.transport.url_rules import is_loopback, url_origin

_MAX_REDIRECTS: Final = 5
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_PROXY_SCHEMES: Final = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


class BaseTransport(ForkAware):
    """Connection pools by scheme; a forked process makes its own.

    The adapters of `requests` are used without a `requests.Session`: a session would add credentials from
    netrc files, keep cookies, and read a redirect's whole body.
    """

    #: Advice for the error message of a failed connection.
    _remedy: ClassVar[str] = ""

    def __init__(self, options: TransportOptions, tls: TlsContext | None = None) -> None:
        log_redaction.install()
        self.options = options
        self._sockets = SocketRegistry()
        self._lock = ForkSafeLock()
        self._adapters: dict[str, PooledAdapter] = {}
        self._tls = tls or TlsContext(options)
        super().__init__()

    def close(self) -> None:
        """Close the pooled connections; the transport can go on being used."""
        with self._lock:
            adapters = list(self._adapters.values())
            self._adapters.clear()
        for adapter in adapters:
            adapter.close()

    def after_fork(self) -> None:
        """Make new pools: a child must not use its parent's connections."""
        self._adapters = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _exchange(
        self,
        method: str,
        url: SecretUrl,
        subject: str,
        send: Callable[[PooledAdapter, str, str | None], Any],
        secrets: Iterable[str] = (),
    ) -> Response:
        """Send a request by an adapter to an origin, over a proxy or None; return its response, unread.

        `secrets` are those in the request: the server may repeat them in an error.
        """
        origin = url_origin(url.reveal())
        proxy = proxy_for(origin, self.options)
        adapter = self._adapter_for(origin)
        started = time.monotonic()
        outer = sys.exception()
        try:
            with log_redaction.redacted():
                response = Response(send(adapter, origin, proxy), url=url, secrets=secrets, subject=subject)
        except NETWORK_ERRORS as error:
            failure = translate(error, url=url, remedy=self._remedy)
            clear_frames(error, outer=outer)
        else:
            log_redaction.log_request(method, url, response.status, started)
            return response
        log_redaction.log_request(method, url, "failed after", started)
        try:
            raise failure  # outside of `except`: the traceback must not hold the network library's frames
        finally:
            del failure  # its traceback holds this frame, and with it the connections

    def _follow(self, url: SecretUrl, send: Callable[[SecretUrl, bool], Response]) -> Response:
        """Return the response after all redirects; `send` checks a URL, and sends GET after a status 303."""
        as_get = False
        for _ in range(_MAX_REDIRECTS + 1):
            response = send(url, as_get)
            if response.status not in _REDIRECTS or not response.headers.get("Location"):
                return response
            response.close()
            as_get = as_get or response.status == 303
            url = _redirect_target(response)
        raise NonRetryableTransportError(f"more than {_MAX_REDIRECTS} redirects", url=url)

    def _adapter_for(self, origin: str) -> PooledAdapter:
        scheme = origin.partition(":")[0].lower()
        with self._lock:
            adapter = self._adapters.get(scheme)
            context = self._tls.current() if scheme == "https" else None
            if adapter is None or adapter.context is not context:
                adapter = PooledAdapter(self.options, context, self._sockets)
                self._adapters[scheme] = adapter
            return adapter

    def _timeouts(self, total: float | None = None) -> urllib3.Timeout:
        return urllib3.Timeout(
            total=total,
            connect=self.options.connect_timeout.total_seconds(),
            read=self.options.read_timeout.total_seconds(),
        )


def _redirect_target(response: Response) -> SecretUrl:
    # No variable holds the text of a URL: the frames of a traceback show their variables.
    try:
        return SecretUrl(urljoin(response.url.reveal(), response.headers["Location"]))
    except ValueError:
        pass
    raise NonRetryableTransportError("the server redirects to a malformed URL", url=response.url)


def proxy_for(origin: str, options: TransportOptions) -> str | None:
    """Return the URL of the proxy for a host's URL; None for a direct connection.

    Proxies of the options have precedence over those of the environment. Requests to loopback never use a proxy:
    their content must stay on this machine.

    Raises:
        NonRetryableTransportError: the proxy's URL is malformed.
    """
    if is_loopback(origin):
        return None
    proxy: str | None = select_proxy(origin, {**get_environ_proxies(origin), **options.proxies})
    if proxy and not _is_usable(proxy):
        # The libraries' errors would name the URL of the host.
        raise NonRetryableTransportError(
            "the proxy's URL is malformed; see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and "
            "TransportOptions(proxies=...)",
            url=origin,
        )
    return proxy or None


def _is_usable(proxy: str) -> bool:
    try:
        parts = urllib3.util.parse_url(proxy if "://" in proxy else "http://" + proxy.lstrip("/"))
    except ValueError:
        return False
    return bool(parts.host) and parts.scheme in _PROXY_SCHEMES
