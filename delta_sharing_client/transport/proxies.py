"""Selection of the proxy of a request."""

from __future__ import annotations

from typing import Final

import urllib3
from requests.utils import get_environ_proxies, select_proxy

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.transport.exception_mapping import NonRetryableTransportError
from delta_sharing_client.transport.url_rules import is_loopback

_PROXY_SCHEMES: Final = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


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
