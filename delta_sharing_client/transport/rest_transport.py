"""HTTP transports to the sharing server and to OAuth token endpoints, with credentials. Each has one origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import quote, urlencode

import requests

from delta_sharing_client.errors import InsecureUrlError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl, redact_url
from delta_sharing_client.transport.base_transport import BaseTransport
from delta_sharing_client.transport.echoes import secrets_of
from delta_sharing_client.transport.pooled_adapter import PooledAdapter
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.transport.url_rules import check_endpoint, same_origin

#: The least characters of a further header that is masked in what a server repeats.
_SHORTEST_KEY: Final = 8


class Authorizer(Protocol):
    """Source of the headers that authorize a request to the sharing server."""

    #: Whether there may be another credential than a refused one.
    renewable: bool

    def headers(self, *, refused: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return the headers; those of a fresh credential if the server refused the present ones."""

    def hint(self) -> str:
        """Return the advice for the error message of a 401."""


class _CredentialTransport(BaseTransport):
    """Sends requests by the adapters of `requests`."""

    def _send(
        self,
        method: str,
        url: SecretUrl,
        headers: Mapping[str, str],
        body: bytes | None,
        timeout: float | None,
        subject: str,
        secrets: Sequence[str] = (),
    ) -> Response:
        """Send a request; `secrets` are those in it besides its `Authorization`."""
        sent = {"User-Agent": self.options.user_agent, **headers}

        def send(adapter: PooledAdapter, _: str, proxy: str | None) -> Any:
            request = requests.PreparedRequest()
            request.prepare(method, url.reveal(), headers=sent, data=body)
            return adapter.send(
                request,
                stream=True,
                timeout=self._timeouts(timeout),  # type: ignore[arg-type]  # the stubs know no urllib3.Timeout
                proxies={} if proxy is None else {"all": proxy},
            ).raw

        return self._exchange(method, url, subject, send, [*secrets_of(headers), *secrets])


class ApiTransport(_CredentialTransport):
    """Sends requests to one sharing server, with its credential.

    Args:
        endpoint: the server's URL, up to where the protocol's paths begin.
        authorize: returns the headers that authorize a request.
        options: time-outs, connections, certificates.
        tls: the TLS context of the client; by default one of its own.

    Raises:
        InsecureUrlError: the credential would be sent in clear text.
    """

    _remedy = "; check the endpoint in the profile, and that this machine reaches it (a proxy, a VPN?)"

    def __init__(
        self, endpoint: str, authorize: Authorizer, options: TransportOptions, tls: TlsContext | None = None
    ) -> None:
        super().__init__(options, tls)
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
        subject: str = "the request",
    ) -> Response:
        """Send one request, without retries, and return the response with any status.

        Args:
            method: GET, POST or HEAD.
            path: the segments below the endpoint; each is percent-encoded.
            params: the query string.
            headers: further headers.
            body: sent as JSON.
            timeout: seconds until the response must begin; the limits of the options also apply.
            subject: the requested object, for messages.

        Returns:
            The response, with an unread body.

        Raises:
            TransportError: no response arrived, or it redirects to another host.
        """
        text = "/".join((self.endpoint, *(quote(segment, safe="") for segment in path)))
        url = SecretUrl(text + ("?" + urlencode(params, quote_via=quote) if params else ""))
        data = None if body is None else json.dumps(body).encode()
        # Keys of gateways; a shorter text is no secret, and may be a common word.
        keys = [text for text in self.options.headers.values() if len(text) >= _SHORTEST_KEY]
        plain = {**self.options.headers, "Accept-Encoding": "gzip", **(headers or {})}
        if data is not None:
            plain["Content-Type"] = "application/json; charset=utf-8"

        def authorized(authorization: Mapping[str, str]) -> Response:
            sent = {**plain, **authorization}

            def send(target: SecretUrl, as_get: bool) -> Response:
                if not same_origin(target.reveal(), self.endpoint):
                    raise InsecureUrlError(
                        f"the server redirects to {redact_url(target)}; credentials are not sent to another host. "
                        "If the server has moved there, correct the profile's endpoint",
                        url=url,
                    )
                if as_get:
                    return self._send("GET", target, sent, None, timeout, subject, keys)
                return self._send(method, target, sent, data, timeout, subject, keys)

            return self._follow(url, send)

        authorization = self.authorize.headers()
        response = authorized(authorization)
        if response.status == 401 and self.authorize.renewable:
            response.close()
            response = authorized(self.authorize.headers(refused=authorization))
        return response


#: Fields of a form that are no secrets. The others are masked in what the endpoint repeats.
_PUBLIC: Final = frozenset(
    {
        "audience",
        "client_assertion_type",
        "client_id",
        "grant_type",
        "redirect_uri",
        "scope",
        "token_type_hint",
    }
)
_JSON: Final[Mapping[str, str]] = {"Accept": "application/json", "Accept-Encoding": "gzip"}


class TokenTransport(_CredentialTransport):
    """Requests tokens of an OAuth token endpoint. It follows no redirects: each request has a credential.

    Raises:
        InsecureUrlError: the credential would be sent in clear text.
    """

    def __init__(self, endpoint: str, options: TransportOptions, tls: TlsContext | None = None) -> None:
        super().__init__(options, tls)
        self.endpoint = check_endpoint(endpoint, allow_http=options.allow_http)

    def post(self, form: Mapping[str, str], headers: Mapping[str, str], timeout: float) -> Response:
        """Send one form, without retries, and return the response with any status and an unread body.

        Raises:
            TransportError: no response arrived.
        """
        sent = {**_JSON, "Content-Type": "application/x-www-form-urlencoded", **headers}
        url = SecretUrl(self.endpoint)
        secrets = [text for name, text in form.items() if name not in _PUBLIC]
        return self._send("POST", url, sent, urlencode(form).encode(), timeout, "the access token", secrets)

    def get(self, timeout: float) -> Response:
        """Request the document at the endpoint, without a credential; otherwise as `post`."""
        return self._send("GET", SecretUrl(self.endpoint), _JSON, None, timeout, "the OpenID configuration")
