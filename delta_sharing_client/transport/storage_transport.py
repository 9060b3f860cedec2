"""HTTP transport to object stores: pre-signed URLs without credentials, each checked before its request."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from urllib3 import Retry

from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl
from delta_sharing_client.transport.base_transport import BaseTransport
from delta_sharing_client.transport.cancellation import Cancellation
from delta_sharing_client.transport.pooled_adapter import PooledAdapter
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.transport.url_rules import check_data_url

_NO_RETRIES: Final = Retry(False, redirect=False)


class StorageTransport(BaseTransport):
    """Fetches files by their pre-signed URLs, without any credential. May be used by several threads.

    Args:
        options: time-outs, connections, certificates.
        endpoint_is_loopback: whether the sharing server is on this machine; only then its files may be.
        tls: the TLS context of the client; by default one of its own.
    """

    def __init__(
        self, options: TransportOptions, endpoint_is_loopback: bool, tls: TlsContext | None = None
    ) -> None:
        super().__init__(options, tls)
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

        def send(target: SecretUrl, _: bool) -> Response:
            check_data_url(
                target, endpoint_is_loopback=self.endpoint_is_loopback, allow_http=self.options.allow_http
            )
            self._sockets.use_for(cancelled)
            try:
                return self._exchange("GET", target, f"file {file_id}", partial(self._raw, target, sent))
            finally:
                self._sockets.use_for(None)

        return self._follow(url, send)

    def _raw(
        self, url: SecretUrl, headers: Mapping[str, str], adapter: PooledAdapter, origin: str, proxy: str | None
    ) -> Any:
        if proxy is None:
            pool, target = adapter.direct_pool(origin), url.reveal()[len(origin) :].partition("#")[0]
            target = target if target[:1] == "/" else f"/{target}"
        else:
            pool, target = adapter.proxy_manager_for(proxy), url.reveal()
        return pool.urlopen(
            "GET",
            target,
            headers=headers,
            redirect=False,
            retries=_NO_RETRIES,
            preload_content=False,
            decode_content=False,
            timeout=self._timeout,
        )

    def abort(self) -> None:
        """Break every transfer under way, at once and from any thread."""
        self._sockets.shut_down()

    def break_on(self, cancelled: Cancellation) -> None:
        """Break the transfers made for an event when it is set."""
        cancelled.add_breaker(self, self._sockets.shut_down)
