"""HTTP transports to the sharing server and to OAuth token endpoints, with credentials. Each has one origin."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar, Protocol
from urllib.parse import quote, urlencode

import requests
from urllib3.connection import HTTPConnection, HTTPSConnection

from delta_sharing_client.errors import InsecureUrlError
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import SecretUrl, redact_url
from delta_sharing_client.transport import log_redaction as logs
from delta_sharing_client.transport.base_transport import BaseTransport
from delta_sharing_client.transport.exception_mapping import NETWORK_ERRORS, NonRetryableTransportError, translate
from delta_sharing_client.transport.pace import PacedResponse
from delta_sharing_client.transport.proxies import proxy_for
from delta_sharing_client.transport.redirects import MAX_REDIRECTS, redirect_target
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.url_rules import check_endpoint, same_origin, url_origin


class Authorizer(Protocol):
    """Source of the headers that authorize a request to the sharing server."""

    #: Whether `force` can return another credential than before.
    renewable: bool

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the headers; `force` requests a fresh credential after a refusal of the last one."""

    def hint(self) -> str:
        """Return the advice for the error message of a 401."""


class PacedConnection(HTTPConnection):
    """A connection over http whose responses are `PacedResponse`s."""

    def __init__(self, *arguments: Any, options: TransportOptions, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.response_class = PacedResponse.factory(options)  # type: ignore[assignment]


class SecurePacedConnection(HTTPSConnection):
    """A connection over https whose responses are `PacedResponse`s."""

    def __init__(self, *arguments: Any, options: TransportOptions, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.response_class = PacedResponse.factory(options)  # type: ignore[assignment]


class _CredentialTransport(BaseTransport):
    """Sends requests by the adapters of `requests`."""

    #: Advice for the error message of a failed connection.
    _remedy: ClassVar[str] = ""

    def __init__(self, options: TransportOptions) -> None:
        connections: dict[str, Callable[..., Any]] = {
            "http": partial(PacedConnection, options=options),
            "https": partial(SecurePacedConnection, options=options),
        }
        super().__init__(options, connections)

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
        origin = url_origin(url.reveal())
        adapter = self._adapter_for(origin)
        proxy = proxy_for(origin, self.options)
        started = time.monotonic()
        sent = {"User-Agent": self.options.user_agent, **headers}
        try:
            with logs.redacted:
                request = requests.PreparedRequest()
                request.prepare(method, url.reveal(), headers=sent, data=body)
                answer = adapter.send(
                    request,
                    stream=True,
                    timeout=self._timeouts(timeout),  # type: ignore[arg-type]  # the stubs know no urllib3.Timeout
                    proxies={} if proxy is None else {"all": proxy},
                )
                response = Response(answer.raw, url=url, sent=sent, what=what)
        except NETWORK_ERRORS as error:
            failure = translate(error, url=url, remedy=self._remedy)
        else:
            logs.log_request(method, url, response.status, started)
            return response
        logs.log_request(method, url, "failed after", started)
        raise failure  # outside of `except`: the traceback must not hold the network library's frames


class ApiTransport(_CredentialTransport):
    """Sends requests to one sharing server, with its credential.

    Args:
        endpoint: the server's URL, up to where the protocol's paths begin.
        authorize: returns the headers that authorize a request.
        options: time-outs, connections, certificates.

    Raises:
        InsecureUrlError: the credential would be sent in clear text.
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
        """Send one request, without retries, and return the response with any status.

        Args:
            method: GET, POST or HEAD.
            path: the segments below the endpoint; each is percent-encoded.
            params: the query string.
            headers: further headers.
            body: sent as JSON.
            timeout: seconds until the response must begin; the limits of the options also apply.
            what: the requested object, for messages.

        Returns:
            The response, with an unread body.

        Raises:
            TransportError: no response arrived, or it redirects to another host.
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
            try:
                target = redirect_target(response)
            except NonRetryableTransportError:
                response.close()
                raise
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


class TokenTransport(_CredentialTransport):
    """Requests tokens of an OAuth token endpoint. It follows no redirects: each request has a credential.

    Args:
        endpoint: the endpoint's URL.
        options: time-outs, certificates.

    Raises:
        InsecureUrlError: the credential would be sent in clear text.
    """

    def __init__(self, endpoint: str, options: TransportOptions) -> None:
        super().__init__(options)
        self.endpoint = check_endpoint(endpoint, allow_http=options.allow_http)

    def post(self, form: Mapping[str, str], *, headers: Mapping[str, str], timeout: float | None) -> Response:
        """Send one form, without retries, and return the response with any status.

        Args:
            form: the fields of the form.
            headers: further headers.
            timeout: seconds until the response must begin; the limits of the options also apply.

        Returns:
            The response, with an unread body.

        Raises:
            TransportError: no response arrived.
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
