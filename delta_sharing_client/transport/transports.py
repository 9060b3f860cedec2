"""The transports. No other module of the package opens a connection.

The API transport has the credential and speaks to one origin. The storage transport has none, neither from
the profile nor from a netrc file nor as a cookie, and checks every URL before it goes there. The token transport
speaks to one OAuth token endpoint.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Protocol, Self
from urllib.parse import quote, urlencode, urljoin

import requests
import urllib3
from requests.utils import DEFAULT_CA_BUNDLE_PATH, get_environ_proxies, select_proxy

from delta_sharing_client.errors import InsecureUrlError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl, redact_url
from delta_sharing_client.transport import log_redaction as logs
from delta_sharing_client.transport.connections import Cancellation, SocketRegistry, TrackingAdapter, tls_context
from delta_sharing_client.transport.error_mapping import NETWORK_ERRORS, NonRetryableTransportError, translate
from delta_sharing_client.transport.http11 import Connections
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.url_rules import (
    check_data_url,
    check_endpoint,
    is_loopback,
    same_origin,
    url_origin,
)

logger = logging.getLogger(__name__)

MAX_REDIRECTS: Final = 5

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HOSTS: Final = 64
#: What urllib3 would write in another way: characters to be encoded, `%2f` in lower case, `..` and the like.
_UNUSUAL: Final = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:@/?%]|/\.|%(?![0-9A-F]{2})")
_PROXY_SCHEMES: Final = frozenset({"http", "https", "socks4", "socks4a", "socks5", "socks5h"})


class Authorizer(Protocol):
    """Gives the headers that authorize a request to the sharing server."""

    #: Whether asking with `force` can give another credential than before.
    renewable: bool

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the headers; `force` asks for a fresh credential because the last one was refused."""

    def hint(self) -> str:
        """Return what to tell the user when the server answers 401."""


class _Transport:
    """What the transports share: connection pools, made anew after a fork.

    The adapters of `requests` are used without a `requests.Session`: a session would add credentials from
    netrc files, keep cookies, and read a redirect's whole body.
    """

    #: What to tell the user when nothing can be reached.
    _remedy: ClassVar[str] = ""
    #: Whether requests without a proxy go past all that a request with a body needs.
    _direct: ClassVar[bool] = False

    def __init__(self, options: TransportOptions) -> None:
        logs.install()
        self.options = options
        self._sockets = SocketRegistry()
        self._lock = threading.Lock()
        self._adapters: dict[str, TrackingAdapter] = {}
        self._pid = os.getpid()
        self._tls_files = (_trusted(options), *_certificate(options))

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

    def _adapter_for(self, origin: str) -> TrackingAdapter:
        scheme = origin.partition(":")[0].lower()
        with self._lock:
            if self._pid != os.getpid():  # the parent's connections are not ours to use
                self._adapters = {}
                self._pid = os.getpid()
            adapter = self._adapters.get(scheme)
            if adapter is None:
                adapter = self._adapters[scheme] = TrackingAdapter(
                    self.options,
                    self._sockets,
                    tls_context(*self._tls_files) if scheme == "https" else None,
                    pool_connections=_HOSTS,
                    pool_maxsize=self.options.max_connections,
                    direct=self._direct,
                )
            return adapter

    def _send(
        self,
        method: str,
        url: SecretUrl,
        *,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float | None,
        what: str,
    ) -> Response:
        adapter = self._adapter_for(url_origin(url.reveal()))
        started = time.monotonic()
        sent = {"User-Agent": self.options.user_agent, **headers}
        try:
            with logs.redacted:
                raw = self._exchange(adapter, method, url, sent, body, timeout)
                response = Response(raw, method=method, url=url, sent=sent, what=what)
        except NETWORK_ERRORS as error:
            failure = translate(error, url=url, remedy=self._remedy)
        else:
            _log(method, url, response.status, started)
            return response
        _log(method, url, "failed after", started)
        raise failure  # here, or the frames below would come with it

    def _exchange(
        self,
        adapter: TrackingAdapter,
        method: str,
        url: SecretUrl,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float | None,
    ) -> Any:
        """Send one request and return urllib3's answer."""
        request = requests.PreparedRequest()
        request.prepare(method, url.reveal(), headers=headers, data=body)
        response = adapter.send(
            request,
            stream=True,
            timeout=self._timeout(timeout),  # type: ignore[arg-type]  # the stubs know no urllib3.Timeout
            proxies=self._proxies(url_origin(url.reveal())),
        )
        return response.raw

    def _timeout(self, total: float | None) -> urllib3.Timeout:
        return urllib3.Timeout(
            total=total,
            connect=self.options.connect_timeout.total_seconds(),
            read=self.options.read_timeout.total_seconds(),
        )

    def _proxies(self, origin: str) -> dict[str, str]:
        """Proxies for a host: the explicit ones first. On loopback a proxy would see what must stay here."""
        if is_loopback(origin):
            return {}
        proxies = {**get_environ_proxies(origin), **self.options.proxies}
        proxy = select_proxy(origin, proxies)
        if not proxy:
            return {}
        _check_proxy(proxy, origin)
        return proxies


class ApiTransport(_Transport):
    """Sends requests to one sharing server, with its credential.

    Args:
        endpoint: the server's URL, up to where the protocol's paths begin.
        authorize: gives the headers that authorize a request.
        options: time-outs, connections, certificates.

    Raises:
        InsecureUrlError: the credential would travel in clear text.
    """

    _remedy = "; check the endpoint in the profile, and that this machine reaches it (a proxy, a VPN?)"

    def __init__(self, endpoint: str, authorize: Authorizer, options: TransportOptions) -> None:
        super().__init__(options)
        self.endpoint = check_endpoint(endpoint, allow_http=options.allow_http).rstrip("/")
        self.authorize = authorize

    def request(
        self,
        method: str,
        path: tuple[str, ...],
        *,
        params: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        what: str = "the request",
    ) -> Response:
        """Send one request, without retries, and return the answer whatever its status.

        Args:
            method: GET, POST or HEAD.
            path: the segments below the endpoint; each is percent-encoded.
            params: the query string.
            headers: further headers.
            body: sent as JSON.
            timeout: seconds in which an answer has to begin; never more than the options allow.
            what: the thing asked for, for messages.

        Returns:
            The answer, its body unread.

        Raises:
            TransportError: no answer came, or it redirects to another host.
        """
        text = "/".join((self.endpoint, *(quote(segment, safe="") for segment in path)))
        url = SecretUrl(text + ("?" + urlencode(params, quote_via=quote) if params else ""))
        data = None if body is None else json.dumps(body).encode()
        sent = {"Accept-Encoding": "gzip", **(headers or {})}
        if data is not None:
            sent["Content-Type"] = "application/json; charset=utf-8"
        response = self._follow(method, url, sent, data, timeout, what, force=False)
        if response.status == 401 and self.authorize.renewable:
            response.close()
            response = self._follow(method, url, sent, data, timeout, what, force=True)
        return response

    def _follow(
        self,
        method: str,
        url: SecretUrl,
        headers: Mapping[str, str],
        data: bytes | None,
        timeout: float | None,
        what: str,
        *,
        force: bool,
    ) -> Response:
        sent = {**headers, **self.authorize.headers(force=force)}
        for _ in range(MAX_REDIRECTS + 1):
            response = self._send(method, url, headers=sent, body=data, timeout=timeout, what=what)
            target = _redirect_target(response)
            if target is None:
                return response
            response.close()
            if not same_origin(target.reveal(), self.endpoint):
                raise InsecureUrlError(
                    f"the server redirects to {redact_url(target)}; credentials are not sent to another "
                    "host. If that is where it lives now, correct the profile's endpoint",
                    url=url,
                )
            url = target
            if response.status == 303:
                method, data = "GET", None
        raise NonRetryableTransportError(f"more than {MAX_REDIRECTS} redirects", url=url)


class TokenTransport(_Transport):
    """Asks an OAuth token endpoint for tokens. Redirects are not followed: each request carries a credential.

    Args:
        endpoint: the endpoint's URL.
        options: time-outs, certificates.

    Raises:
        InsecureUrlError: the credential would travel in clear text.
    """

    def __init__(self, endpoint: str, options: TransportOptions) -> None:
        super().__init__(options)
        self.endpoint = check_endpoint(endpoint, allow_http=options.allow_http)

    def post(self, form: Mapping[str, str], *, headers: Mapping[str, str], timeout: float | None) -> Response:
        """Send one form, without retries, and return the answer whatever its status.

        Args:
            form: the fields of the form.
            headers: further headers.
            timeout: seconds in which an answer has to begin; never more than the options allow.

        Returns:
            The answer, its body unread.

        Raises:
            TransportError: no answer came.
        """
        sent = {
            "Accept": "application/json",
            "Accept-Encoding": "gzip",
            "Content-Type": "application/x-www-form-urlencoded",
            **headers,
        }
        body = urlencode(form).encode()
        what = "the access token"
        return self._send("POST", SecretUrl(self.endpoint), headers=sent, body=body, timeout=timeout, what=what)


class StorageTransport(_Transport):
    """Fetches files by their pre-signed URLs, without any credential.

    Args:
        options: time-outs, connections, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine; then its files may be too.
    """

    _direct = True

    def __init__(self, options: TransportOptions, endpoint_is_loopback: bool) -> None:
        super().__init__(options)
        self.endpoint_is_loopback = endpoint_is_loopback
        self._connect_seconds = options.connect_timeout.total_seconds()
        self._read_seconds = options.read_timeout.total_seconds()

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> Response:
        """Send one GET, without retries, and return the answer whatever its status.

        Args:
            url: the pre-signed URL.
            headers: `Range` and conditions.
            file_id: the file's id, for messages.
            cancelled: whose transfer this is, for `break_on`.

        Returns:
            The answer, its body unread.

        Raises:
            InsecureUrlError: the URL, or one that the store redirects to, may not be fetched.
            TransportError: no answer came.
        """
        sent = {"Accept-Encoding": "identity", "Accept": "*/*", **(headers or {})}
        what = f"file {file_id}"
        for _ in range(MAX_REDIRECTS + 1):
            check_data_url(url, endpoint_is_loopback=self.endpoint_is_loopback, allow_http=self.options.allow_http)
            self._sockets.use_for(cancelled)
            try:
                response = self._send("GET", url, headers=sent, body=None, timeout=None, what=what)
            finally:
                self._sockets.use_for(None)
            target = _redirect_target(response)
            if target is None:
                return response
            response.close()
            url = target
        raise NonRetryableTransportError(f"more than {MAX_REDIRECTS} redirects", url=url)

    def _exchange(
        self,
        adapter: TrackingAdapter,
        method: str,
        url: SecretUrl,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float | None,
    ) -> Any:
        """Send one request, past the layers of `requests`: what they do for a GET takes longer than sending it."""
        if self._proxies(url_origin(url.reveal())):
            return super()._exchange(adapter, method, url, headers, body, timeout)
        connections, target = self._connections_to(adapter, url.reveal())
        return connections.get(target, headers, connect=self._connect_seconds, read=self._read_seconds)

    def _connections_to(self, adapter: TrackingAdapter, url: str) -> tuple[Connections, str]:
        """Return the connections for a URL, and what to ask them for."""
        origin = url_origin(url)
        connections = adapter.origins.get(origin)
        target = url[len(origin) :].partition("#")[0]
        if connections is not None and target[:1] == "/" and not _UNUSUAL.search(target):
            return connections, target
        parts = urllib3.util.parse_url(url)
        with self._lock:
            connections = adapter.origins.get(origin)
            if connections is None:
                pool = adapter.poolmanager.connection_from_host(parts.host, parts.port, parts.scheme)
                adapter.cert_verify(pool, url, True, None)
                if len(adapter.origins) >= _HOSTS:
                    adapter.origins.pop(next(iter(adapter.origins))).close()
                connections = adapter.origins[origin] = Connections(pool, self.options.max_connections)
        return connections, parts.request_uri

    def abort(self) -> None:
        """Break every transfer under way, at once and from any thread; for when the user gives up."""
        self._sockets.shut_down()

    def break_on(self, cancelled: Cancellation) -> None:
        """Have the transfers made for an event broken when it is set."""
        cancelled.add_breaker(self, partial(self._sockets.shut_down, cancelled))


def _log(method: str, url: SecretUrl, outcome: object, started: float) -> None:
    if logger.isEnabledFor(logging.DEBUG):
        logger.debug("%s %s %s %.3f s", method, redact_url(url), outcome, time.monotonic() - started)


def _check_proxy(proxy: str, url: str) -> None:
    """Raise an error that names the proxy: those of the libraries read as if `url` were malformed."""
    try:
        parts = urllib3.util.parse_url(proxy if "://" in proxy else "http://" + proxy.lstrip("/"))
    except ValueError:
        parts = urllib3.util.Url()
    if not parts.host or parts.scheme not in _PROXY_SCHEMES:
        raise NonRetryableTransportError(
            "the proxy's URL is malformed; see HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and "
            "TransportOptions(proxies=...)",
            url=url,
        )


def _redirect_target(response: Response) -> SecretUrl | None:
    if response.status not in _REDIRECTS or not response.headers.get("Location"):
        return None
    try:
        return SecretUrl(urljoin(response.url.reveal(), response.headers["Location"]))
    except ValueError:
        response.close()
    raise NonRetryableTransportError("the server redirects to a malformed URL", url=response.url)


def _trusted(options: TransportOptions) -> str:
    """The file or directory of trusted certificates."""
    given = options.ca_bundle or os.environ.get("REQUESTS_CA_BUNDLE") or os.environ.get("CURL_CA_BUNDLE")
    return _existing(given or DEFAULT_CA_BUNDLE_PATH, "the CA bundle")


def _certificate(options: TransportOptions) -> tuple[str | None, str | None]:
    """The files of the client certificate and its key."""
    given = options.client_certificate
    if given is None:
        return None, None
    if isinstance(given, str):
        return _existing(given, "the client certificate"), None
    return _existing(given[0], "the client certificate"), _existing(given[1], "the client certificate's key")


def _existing(path: str | os.PathLike[str], what: str) -> str:
    if not Path(path).exists():
        raise ValueError(f"{what} {os.fspath(path)!r} does not exist; see TransportOptions")
    return os.fspath(path)
