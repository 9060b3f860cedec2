"""HTTP transport to object stores: pre-signed URLs without credentials, each checked before its request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from urllib3 import Retry

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.base_transport import BaseTransport
from delta_sharing_client.transport.cancellation import Cancellation, SocketRegistry
from delta_sharing_client.transport.exception_mapping import NETWORK_ERRORS, NonRetryableTransportError, translate
from delta_sharing_client.transport.log_redaction import log_request, redacted
from delta_sharing_client.transport.proxies import proxy_for
from delta_sharing_client.transport.redirects import MAX_REDIRECTS, redirect_target
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.store_connections import SecureStoreConnection, StoreConnection
from delta_sharing_client.transport.url_rules import check_data_url, url_origin

_NO_RETRIES: Final = Retry(False, redirect=False)


class StorageTransport(BaseTransport):
    """Fetches files by their pre-signed URLs, without any credential. May be used by several threads.

    Args:
        options: time-outs, connections, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine; only then its files may be.
    """

    def __init__(self, options: TransportOptions, endpoint_is_loopback: bool) -> None:
        self._sockets = SocketRegistry()
        connections: dict[str, Callable[..., Any]] = {
            "http": partial(StoreConnection, options=options, sockets=self._sockets),
            "https": partial(SecureStoreConnection, options=options, sockets=self._sockets),
        }
        super().__init__(options, connections)
        self.endpoint_is_loopback = endpoint_is_loopback
        self._timeout = self._timeouts()

    def get(
        self,
        url: SecretUrl,
        *,
        headers: Mapping[str, str] | None = None,
        file_id: str = "",
        cancelled: threading.Event | None = None,
    ) -> Response:
        """Send one GET, without retries, and return the response with any status.

        Args:
            url: the pre-signed URL.
            headers: `Range` and conditions.
            file_id: the file's id, for messages.
            cancelled: the event that the transfer is made for, for `break_on`.

        Returns:
            The response, with an unread body.

        Raises:
            InsecureUrlError: the URL, or one that the store redirects to, may not be fetched.
            TransportError: no response arrived.
        """
        sent = {
            "User-Agent": self.options.user_agent,
            "Accept-Encoding": "identity",
            "Accept": "*/*",
            **(headers or {}),
        }
        for _ in range(MAX_REDIRECTS + 1):
            check_data_url(url, endpoint_is_loopback=self.endpoint_is_loopback, allow_http=self.options.allow_http)
            self._sockets.use_for(cancelled)
            try:
                response = self._send(url, sent, f"file {file_id}")
            finally:
                self._sockets.use_for(None)
            try:
                target = redirect_target(response)
            except NonRetryableTransportError:
                response.close()
                raise
            if target is None:
                return response
            response.close()
            url = target
        raise NonRetryableTransportError(f"more than {MAX_REDIRECTS} redirects", url=url)

    def _send(self, url: SecretUrl, headers: Mapping[str, str], what: str) -> Response:
        origin = url_origin(url.reveal())
        proxy = proxy_for(origin, self.options)
        adapter = self._adapter_for(origin)
        started = time.monotonic()
        try:
            with redacted:
                if proxy is None:
                    pool, target = adapter.direct_pool(origin), url.reveal()[len(origin) :].partition("#")[0]
                    target = target if target[:1] == "/" else f"/{target}"
                else:
                    pool, target = adapter.proxy_manager_for(proxy), url.reveal()
                raw = pool.urlopen(
                    "GET",
                    target,
                    headers=headers,
                    redirect=False,
                    retries=_NO_RETRIES,
                    preload_content=False,
                    decode_content=False,
                    timeout=self._timeout,
                )
        except NETWORK_ERRORS as error:
            failure = translate(error, url=url)
        else:
            response = Response(raw, url=url, sent=headers, what=what)
            log_request("GET", url, response.status, started)
            return response
        log_request("GET", url, "failed after", started)
        raise failure  # outside of `except`: the traceback must not hold the network library's frames

    def abort(self) -> None:
        """Break every transfer under way, at once and from any thread."""
        self._sockets.shut_down()

    def break_on(self, cancelled: Cancellation) -> None:
        """Break the transfers made for an event when it is set."""
        cancelled.add_breaker(self, partial(self._sockets.shut_down, cancelled))
