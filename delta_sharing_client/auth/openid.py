"""OpenID provider: discovery, authorization code with PKCE (RFC 7636), device code (RFC 8628), refresh.

The redirect of the authorization code goes to an HTTP server on loopback (RFC 8252, section 7.3).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import queue
import secrets
import sys
import threading
import time
import webbrowser
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Self
from urllib.parse import parse_qs, urlencode, urlsplit

from msgspec import structs

from delta_sharing_client.auth.oauth import Form, OAuthTokens, TokenAnswer, clean_text, plain, seconds_of
from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.errors import DeltaSharingError, TokenError
from delta_sharing_client.model.credentials import HEADER_SAFE, UserSignIn
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import Secret
from delta_sharing_client.shown_text import printable
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.transport.url_rules import check_endpoint

_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
#: Seconds between polls: the default and the increment of RFC 8628, and the most that a provider may request.
_INTERVAL: Final = 5.0
_LONGEST_INTERVAL: Final = 60.0
_PAGE: Final = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Delta Sharing</title>
<p>{}</p></html>
"""
_HEADERS: Final[Mapping[str, str]] = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'",
    "Referrer-Policy": "no-referrer",
    "Connection": "close",
}


@dataclass(frozen=True, slots=True)
class _Grant:
    """A form for an endpoint of the provider; a document to get without a form."""

    token_endpoint: str
    client_id: str
    form: Form | None = None
    previous: AccessToken | None = None


class _Exchange(OAuthTokens[_Grant]):
    """One request to an endpoint of the provider."""

    _subject, _field = "OpenID provider", "issuer"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        return self._call(lambda attempt: self._answer(attempt).fields, retry=True)

    def _request_token(self, timeout: float) -> Response:
        form = self._credential.form
        return self._transport.get(timeout) if form is None else self._post(form, timeout)

    def _token(self, answer: TokenAnswer) -> AccessToken:
        token, previous = super()._token(answer), self._credential.previous
        text, account = answer.fields.get("refresh_token"), _account(answer)
        refresh = Secret(text) if isinstance(text, str) and HEADER_SAFE.fullmatch(text) else None
        if previous is not None:
            refresh, account = refresh or previous.refresh, account or previous.account
        return structs.replace(token, refresh=refresh, account=account)


class OpenIdProvider:
    """The OpenID provider of a profile.

    Args:
        profile: the profile.
        credential: its client.
        options: time-outs, proxies and certificates.
        now: returns the seconds since the epoch.
        sleep: waits some seconds between polls.
        notify: shows a line to the person; by default on stderr.
        tls: the TLS context of the client; by default one of its own.
    """

    def __init__(
        self,
        profile: Profile,
        credential: UserSignIn,
        options: TransportOptions,
        *,
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
        notify: Callable[[str], None] | None = None,
        tls: TlsContext | None = None,
    ) -> None:
        self._tls = tls
        self._profile, self._credential, self._options = profile, credential, options
        self._now, self._sleep, self._notify = now, sleep, notify or _to_stderr
        self._configuration: Mapping[str, Any] = {}

    def refresh(self, token: AccessToken, *, retry: bool) -> AccessToken:
        """Return a new token for a refresh token.

        Raises:
            TokenError: the provider refuses it, or cannot be reached.
        """
        form: Form = {
            "grant_type": "refresh_token",
            "refresh_token": token.refresh,
            "scope": self._credential.scope,
        }
        return self._exchange("token_endpoint", form, token).fetch(retry=retry)

    def revoke(self, token: Secret) -> None:
        """Revoke a refresh token (RFC 7009), if the provider supports that."""
        if self._endpoint("revocation_endpoint", required=False):
            exchange = self._exchange("revocation_endpoint", {"token": token})
            try:
                exchange.fields()
            except TokenError as error:
                if error.status != 200:  # the answer needs no JSON
                    raise

    def sign_in(self, *, device_code: bool, open_browser: bool, timeout: float) -> AccessToken:
        """Wait for a person to sign in, at most `timeout` seconds, and return the token.

        Without a browser on this machine, a device code is used if the provider supports it.

        Raises:
            TokenError: the person or the provider refuses, or the time is over.
        """
        has_browser = open_browser and _has_browser()
        supported = self._endpoint("device_authorization_endpoint", required=device_code)
        if device_code or (supported and open_browser and not has_browser):
            return self._with_device_code(timeout)
        return self._with_browser(has_browser, timeout)

    def _with_browser(self, has_browser: bool, timeout: float) -> AccessToken:
        state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(64)
        digest = hashlib.sha256(verifier.encode()).digest()
        authorize = self._endpoint("authorization_endpoint")
        with RedirectReceiver(self._credential.redirect_uri, state, self._credential.issuer) as receiver:
            query = self._with_client(
                {
                    "response_type": "code",
                    "redirect_uri": receiver.redirect_uri,
                    "scope": self._credential.scope,
                    "state": state,
                    "code_challenge": base64.urlsafe_b64encode(digest).decode().rstrip("="),
                    "code_challenge_method": "S256",
                }
            )
            url = f"{authorize}{'&' if urlsplit(authorize).query else '?'}{urlencode(plain(query))}"
            self._notify(f"To sign in, open this page in a browser on this machine:\n{url}")
            if has_browser:
                webbrowser.open(url)
            answer = receiver.wait(timeout)
            if "code" not in answer:
                raise _refused(answer)
            form: Form = {
                "grant_type": "authorization_code",
                "code": Secret(answer["code"]),
                "redirect_uri": receiver.redirect_uri,
                "code_verifier": verifier,
            }
            return self._exchange("token_endpoint", form).fetch(retry=True)

    def _with_device_code(self, timeout: float) -> AccessToken:
        deadline = self._now() + timeout
        form = {"scope": self._credential.scope}
        answer = self._exchange("device_authorization_endpoint", form).fields()
        page = clean_text(answer, "verification_uri") or clean_text(answer, "verification_url")
        code, device = clean_text(answer, "user_code"), clean_text(answer, "device_code")
        if not page or not code or not device or urlsplit(page).scheme not in ("http", "https"):
            raise TokenError("the OpenID provider answered without a device code, a user code and a page for it")
        lifetime, interval = seconds_of(answer.get("expires_in")), seconds_of(answer.get("interval"))
        expires = self._now() + lifetime if lifetime and lifetime > 0 else deadline
        interval = min(interval, _LONGEST_INTERVAL) if interval and interval > 0 else _INTERVAL
        self._notify(f"To sign in, open {page} on any device and enter the code {code}")
        grant: Form = {"grant_type": _DEVICE_GRANT, "device_code": Secret(device)}
        exchange = self._exchange("token_endpoint", grant)
        while self._now() + interval < min(deadline, expires):
            self._sleep(interval)
            try:
                return exchange.fetch(retry=True)
            except TokenError as error:
                if error.error_code == "slow_down":
                    interval += _INTERVAL
                elif error.error_code != "authorization_pending":
                    raise _refused({"error": error.error_code or "", "reason": str(error)}) from None
        if deadline <= expires:
            raise TokenError(f"nobody signed in within {timeout:.0f} s; try again")
        raise TokenError("nobody signed in while the device code was valid; try again", error_code="expired_token")

    def _exchange(self, name: str, form: Form, previous: AccessToken | None = None) -> _Exchange:
        return self._request(self._endpoint(name), self._with_client(form), previous)

    def _request(self, url: str, form: Form | None = None, previous: AccessToken | None = None) -> _Exchange:
        grant = _Grant(url, self._credential.client_id, form, previous)
        return _Exchange(self._profile, grant, self._options, now=self._now, tls=self._tls)

    def _with_client(self, form: Form) -> Form:
        credential = self._credential
        return {**form, "client_id": credential.client_id, "audience": credential.audience or None}

    def _endpoint(self, name: str, *, required: bool = True) -> str:
        """Return an endpoint of the discovery document (OpenID Connect Discovery), which is requested once."""
        issuer = self._credential.issuer
        if not self._configuration:
            found = self._request(f"{issuer.rstrip('/')}/.well-known/openid-configuration").fields()
            if found.get("issuer") != issuer:
                raise TokenError(
                    f"the configuration of the OpenID provider {issuer} names another issuer; correct 'issuer' in "
                    "the profile (it is compared character by character)"
                )
            self._configuration = found
        endpoint = self._configuration.get(name)
        if endpoint is None and not required:
            return ""
        if not isinstance(endpoint, str):
            raise TokenError(
                f"the OpenID provider {issuer} has no {name}: it does not support this way to sign in"
            )
        return check_endpoint(endpoint, allow_http=self._options.allow_http)


def _refused(answer: Mapping[str, str]) -> DeltaSharingError:
    code = clean_text(answer, "error") or ""
    detail = clean_text(answer, "reason") or ", ".join(
        filter(None, (code, clean_text(answer, "error_description")))
    )
    meaning = {
        "access_denied": "the sign-in was refused by the person or by the provider",
        "expired_token": "nobody signed in while the device code was valid; try again",
    }.get(code, "the OpenID provider refused the sign-in")
    return TokenError(f"{meaning} ({detail})", error_code=code)


def _account(answer: TokenAnswer) -> str | None:
    """Return the account that an ID token names, for display; its signature is not checked."""
    try:
        id_token = str(answer.fields.get("id_token"))
        claims = json.loads(base64.urlsafe_b64decode(id_token.split(".")[1] + "=="))
        names = (clean_text(claims, name, answer.scrub) for name in ("preferred_username", "email", "upn", "sub"))
        return next((name[:200] for name in names if name), None)
    except (IndexError, ValueError, AttributeError, RecursionError):
        return None


def _has_browser() -> bool:
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def _to_stderr(line: str) -> None:
    if sys.stderr is not None:
        sys.stderr.write(printable(f"{line}\n", "\n"))
        sys.stderr.flush()


class RedirectReceiver(ThreadingHTTPServer):
    """Receives the redirect of a browser; a context manager. Only loopback can connect.

    Args:
        redirect_uri: http on 127.0.0.1 or localhost; without a port, the system chooses one.
        state: the `state` of the authorization request; an answer with another one is refused.
        issuer: the OpenID provider; an answer that names another one ends the sign-in (RFC 9207).
    """

    daemon_threads = True
    block_on_close = False
    allow_reuse_address = os.name != "nt"  # on Windows another process could take the port

    def __init__(self, redirect_uri: str, state: str, issuer: str) -> None:
        parts = urlsplit(redirect_uri)
        try:
            super().__init__(("127.0.0.1", parts.port or 0), _Handler)
        except OSError as error:
            raise TokenError(f"the redirect URI {redirect_uri} cannot be served: {error.strerror}") from None
        self.path = parts.path or "/"
        self.redirect_uri = f"http://{parts.hostname}:{self.server_port}{self.path}"
        self.state, self.issuer = state, issuer
        self._answers: queue.Queue[Mapping[str, str]] = queue.Queue(1)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True, name="sign-in").start()
        return self

    def __exit__(self, *error: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the end of a connection."""

    def accept(self, target: str) -> str | None:
        """Keep the first answer with the expected state; return the text of the page, or None if refused."""
        answer = {name: values[0] for name, values in parse_qs(urlsplit(target).query).items()}
        if not hmac.compare_digest(answer.get("state", "").encode(), self.state.encode()):
            return None
        if not answer.get("code") and not answer.get("error"):
            return None
        with suppress(queue.Full):
            self._answers.put_nowait(answer)
        if answer.get("error") or answer.get("iss", self.issuer) != self.issuer:
            return "The sign-in failed. The terminal shows the reason; you can close this page."
        return "The sign-in continues in the terminal. You can close this page."

    def wait(self, timeout: float) -> Mapping[str, str]:
        """Return the parameters of the answer.

        Raises:
            TokenError: there is none after `timeout` seconds, or another issuer has answered.
        """
        try:
            answer = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise TokenError(f"nobody signed in within {timeout:.0f} s; try again") from None
        if answer.get("iss", self.issuer) != self.issuer:
            raise TokenError(
                f"the sign-in was answered by another issuer ({(clean_text(answer, 'iss') or '')[:200]}), "
                f"not {self.issuer}, and is refused; try again, and tell the provider if that happens again"
            )
        return answer


class _Handler(BaseHTTPRequestHandler):
    server: RedirectReceiver
    timeout = 10

    def do_GET(self) -> None:  # the name that the base class calls
        text = self.server.accept(self.path) if urlsplit(self.path).path == self.server.path else None
        body = _PAGE.format(text or "This is not the answer to the current sign-in.").encode()
        self.send_response(400 if text is None else 200)
        for name, value in {**_HEADERS, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002  # the name of the base class
        """Log nothing: the request contains the code."""
