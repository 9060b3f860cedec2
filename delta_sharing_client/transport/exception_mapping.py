"""Mapping of exceptions of requests, urllib3 and sockets to the errors of this package.

Their texts hold whole request paths, signatures included, so none of them is kept: neither as a message
nor as a cause. What is kept is the kind of failure and the system's own words for it.
"""

from __future__ import annotations

import errno
import http.client
import ssl
from typing import Final, TypeVar

import requests
import urllib3.exceptions
from urllib3.util.ssl_match_hostname import CertificateError

from delta_sharing_client.errors import (
    DeltaSharingError,
    IncompleteResponseError,
    InsecureUrlError,
    RequestTimeoutError,
    TransportError,
)
from delta_sharing_client.messages import message_text
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.connections import MalformedResponseError, SlowBodyError

_Error = TypeVar("_Error", bound=BaseException)

#: All that a request, or the reading of its body, may raise. `ValueError`: malformed URLs that fail late (idna,
#: ports), and malformed lengths in a chunked body.
NETWORK_ERRORS: Final[tuple[type[Exception], ...]] = (
    requests.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    OSError,
    ValueError,
)

_TIMEOUTS = (requests.Timeout, urllib3.exceptions.TimeoutError, TimeoutError)
_TLS = (requests.exceptions.SSLError, urllib3.exceptions.SSLError, ssl.SSLError, CertificateError)
_BAD_URLS = (
    requests.exceptions.InvalidURL,
    requests.exceptions.MissingSchema,
    requests.exceptions.InvalidSchema,
    urllib3.exceptions.LocationValueError,
    UnicodeError,
)
_UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.ENETDOWN)
_CUT = (urllib3.exceptions.ProtocolError, http.client.HTTPException)
#: Parts of OpenSSL's messages for permanent errors.
_NON_RETRYABLE_TLS = (
    "certificate",
    "hostname",
    "unsupported protocol",
    "unknown_ca",
    "handshake_failure",
    "no_shared_cipher",
    "unrecognized_name",
)
#: How to trust an authority, for messages.
CA_BUNDLE: Final = "pass TransportOptions(ca_bundle=...) or set REQUESTS_CA_BUNDLE"


class NonRetryableTransportError(TransportError):
    """A permanent failure: a refused certificate, too many redirects."""


def translate(
    error: Exception, *, url: SecretUrl, subject: str = "the request", reading: bool = False, remedy: str = ""
) -> DeltaSharingError:
    """Return the error of this package for one of `NETWORK_ERRORS`; raise it `from None`.

    Args:
        error: the exception.
        url: the request's URL.
        subject: the requested object, for messages without a URL.
        reading: whether the response had begun.
        remedy: advice for the message of a failed connection.
    """
    chain = causes(error)

    def has(*kinds: type[BaseException]) -> bool:
        return any(isinstance(link, kinds) for link in chain)

    if has(*_TLS):
        return _tls_error(chain, url)
    refused = urllib3.exceptions.NewConnectionError
    if any(isinstance(link, _TIMEOUTS) and not isinstance(link, refused) for link in chain):
        return RequestTimeoutError(_timeout_text(chain, reading), url=url)
    if any(isinstance(link, requests.exceptions.InvalidSchema) and "SOCKS" in str(link) for link in chain):
        return NonRetryableTransportError("a SOCKS proxy needs PySocks: pip install 'requests[socks]'", url=url)
    if has(*_BAD_URLS):
        return InsecureUrlError("the URL is malformed", url=url)
    if has(requests.exceptions.InvalidHeader, urllib3.exceptions.InvalidHeader):
        return TransportError("the answer has contradictory headers", url=url)
    malformed = next((link for link in chain if isinstance(link, MalformedResponseError)), None)
    if malformed is not None:
        text = f"the answer is not valid HTTP: {malformed}"
        return IncompleteResponseError(f"{subject}: {text}") if reading else TransportError(text, url=url)
    texts = (str(link.strerror).lower() for link in chain if isinstance(link, OSError) and link.strerror)
    detail = next(texts, None)
    if reading:
        reason = detail or "the connection was closed before the end"
        if has(*_CUT):
            return IncompleteResponseError(f"{subject}: the answer was cut: {reason}")
        return TransportError(f"the connection broke while the answer was arriving: {reason}", url=url)
    for link in chain:
        if isinstance(link, requests.exceptions.ProxyError | urllib3.exceptions.ProxyError):
            return TransportError(f"the proxy cannot be used: {detail or 'it refused the connection'}", url=url)
        if type(link).__name__ in {"NameResolutionError", "gaierror"}:
            return TransportError("the host's name cannot be resolved" + remedy, url=url)
        if isinstance(link, ConnectionRefusedError):
            return TransportError("connection refused" + remedy, url=url)
        if isinstance(link, OSError) and link.errno in _UNREACHABLE:
            return TransportError((detail or "the host cannot be reached") + remedy, url=url)
    return TransportError(detail or "the connection was closed before an answer came", url=url)


def causes(error: BaseException) -> list[BaseException]:
    """Return the exception and the exceptions that it wraps, outermost first."""
    links: list[BaseException] = []
    queue: list[object] = [error]
    while queue and len(links) < 32:
        link = queue.pop(0)
        if not isinstance(link, BaseException) or link in links:
            continue
        links.append(link)
        # Several classes of urllib3 and `URLError` keep the cause in `reason`, without a common base class.
        queue += [getattr(link, "reason", None), *link.args, link.__cause__, link.__context__]
    return links


def _timeout_text(chain: list[BaseException], reading: bool) -> str:
    slow = next((str(link) for link in chain if isinstance(link, SlowBodyError)), None)
    if slow is not None:
        return slow
    connecting = (requests.ConnectTimeout, urllib3.exceptions.ConnectTimeoutError)
    if any(isinstance(link, connecting) for link in chain):
        return "no connection was established in time"
    return "the answer stopped arriving" if reading else "no answer came in time"


def _tls_error(chain: list[BaseException], url: SecretUrl) -> TransportError:
    errors = [link for link in chain if isinstance(link, ssl.SSLError)]  # those of aiohttp lack its attributes
    texts = " ".join(map(str, errors)).lower()
    names = ("verify_message", "reason")
    reason = next((text for name in names for link in errors if (text := getattr(link, name, None))), None)
    detail = f": {reason}" if reason else ""
    if not texts:
        texts = " ".join(str(link) for link in chain).lower()
    if "wrong_version_number" in texts:
        return NonRetryableTransportError(
            f"the TLS connection was refused{detail}; the server there does not speak TLS: check the port, "
            "and whether the address should begin with http://",
            url=url,
        )
    if any(marker in texts for marker in _NON_RETRYABLE_TLS):
        return NonRetryableTransportError(
            f"the TLS connection was refused{detail}; for a certificate of a private authority {CA_BUNDLE}",
            url=url,
        )
    return TransportError(f"the TLS connection broke{detail}", url=url)


def with_message(error: _Error, message: str) -> _Error:
    """Return a copy of an error of this package with another message: the class and the attributes are kept."""
    changed = error.__class__.__new__(error.__class__, message_text(message))
    changed.__dict__.update(error.__dict__)
    return changed
