"""Rules for the URLs of requests: the sharing server's endpoint and the data URLs that the server returns.

A data URL must not make this machine send requests to itself or to its cloud's metadata service. Its rules are
stricter than those of the endpoint, which the user's profile contains.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from functools import lru_cache
from typing import Final
from urllib.parse import urlsplit

from delta_sharing_client.errors import InsecureUrlError
from delta_sharing_client.secrets import SecretUrl

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address

#: Host names of the metadata services of clouds.
_METADATA_NAMES: Final = frozenset(
    {"metadata", "metadata.google.internal", "metadata.goog", "instance-data", "instance-data.ec2.internal"}
)
#: Link-local networks, and the metadata services that are elsewhere (AWS, Google, Alibaba, Azure).
_METADATA_NETWORKS: Final = tuple(
    ipaddress.ip_network(text)
    for text in (
        "169.254.0.0/16",
        "fe80::/10",
        "fd00:ec2::254/128",
        "fd20:ce::254/128",
        "100.100.100.200/32",
        "168.63.129.16/32",
    )
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_UNSAFE = re.compile(r"[\x00-\x20\x7f\\]")
#: A URL up to its path, all that the rules depend on.
_ORIGIN = re.compile(r"(?i:https?)://[^/?#]*")
_LEGACY_IPV4 = re.compile(r"(0[xX][0-9a-fA-F]*|[0-9]+)(\.(0[xX][0-9a-fA-F]*|[0-9]+)){0,3}")


def is_loopback(url: str) -> bool:
    """Return whether a URL's host is this machine, by its name or its address; no name is resolved."""
    return _leads_to_loopback(url_origin(url))


def url_origin(url: str) -> str:
    """Return a URL up to its path; only its scheme if that is not http or https."""
    match = _ORIGIN.match(url)
    return match[0] if match else url.partition(":")[0] + ":"


@lru_cache(maxsize=256)
def _leads_to_loopback(url: str) -> bool:
    try:
        host = urlsplit(url).hostname
    except ValueError:
        return False
    return host is not None and _is_loopback_host(host)


def check_endpoint(url: str, *, allow_http: bool) -> str:
    """Return the endpoint of a sharing server if a token may be sent to it.

    Raises:
        InsecureUrlError: it is not a URL of http or https, or would send the token in clear text.
    """
    problem = _problem(url)
    if not problem and url[:5].lower() == "http:" and not allow_http and not is_loopback(url):
        problem = (
            "the token would go over plain http in clear text; use an https endpoint, or pass "
            "TransportOptions(allow_http=True) if the network is trusted"
        )
    if problem:
        raise InsecureUrlError(problem, url=url)
    return url


def check_data_url(url: SecretUrl, *, endpoint_is_loopback: bool, allow_http: bool) -> None:
    """Check that a URL from a server, or from a redirect of a store, may be fetched.

    Raises:
        InsecureUrlError: it is neither https nor http on loopback, or leads to a metadata service.
    """
    problem = _unsafe(url.reveal()) or _data_problem(url_origin(url.reveal()), endpoint_is_loopback, allow_http)
    if problem:
        raise InsecureUrlError(problem, url=url)


@lru_cache(maxsize=256)
def _data_problem(origin: str, endpoint_is_loopback: bool, allow_http: bool) -> str:
    """Return why the files of a host may not be fetched; empty if they may."""
    problem = _problem(origin)
    if problem:
        return problem
    parts = urlsplit(origin)
    host = (parts.hostname or "").rstrip(".")
    if "%" in host:
        return "its host is percent-encoded"  # urllib3 would decode it after these checks
    address = _address(host)
    if host in _METADATA_NAMES or (address is not None and any(address in net for net in _METADATA_NETWORKS)):
        return "link-local and cloud-metadata addresses are refused"
    if parts.scheme == "http" and not allow_http and not (endpoint_is_loopback and _is_loopback_host(host)):
        return (
            "the server returned a plain http URL for a file; pass TransportOptions(allow_http=True) if the "
            "network is trusted"
        )
    return ""


def same_origin(one: str, other: str) -> bool:
    """Return whether two URLs have the same scheme, host and port."""
    try:
        return _origin(one) == _origin(other)
    except ValueError:
        return False


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)


# The functions below return the problem instead of raising it: the frames of a traceback show their variables.


def _problem(url: str) -> str:
    """Return what is wrong with a URL; empty if it is http or https with a host and without user info."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "the URL is malformed"
    if parts.scheme not in ("http", "https"):
        return "only https URLs, and http on loopback, are fetched"
    if not parts.hostname or port == 0:
        return "the URL has no host or no usable port"
    if "@" in parts.netloc:
        return "a URL with a user name in it is refused"
    return _unsafe(url)


def _unsafe(url: str) -> str:
    return "the URL has a space, backslash or control character in it" if _UNSAFE.search(url) else ""


def _is_loopback_host(host: str) -> bool:
    host = host.rstrip(".").lower()
    if host == "localhost":
        return True
    address = _address(host)
    return address is not None and address.is_loopback


def _address(host: str) -> _Address | None:
    """The address of a host in any spelling that the system's resolver accepts; None for a name."""
    try:
        address: _Address = ipaddress.ip_address(host)
    except ValueError:
        if not _LEGACY_IPV4.fullmatch(host):
            return None
        try:
            return ipaddress.IPv4Address(socket.inet_aton(host))
        except OSError:
            return None
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour
        if inner is None and address in _NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        return inner or address
    return address
