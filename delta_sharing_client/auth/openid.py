"""OpenID provider: discovery, authorization code with PKCE (RFC 7636), device code (RFC 8628), refresh."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import sys
import time
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from delta_sharing_client.auth.loopback import RedirectReceiver
from delta_sharing_client.auth.oauth import OAuthTokens, TokenAnswer, clean_text, seconds_of
from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.auth.token_cache import UserToken
from delta_sharing_client.errors import DeltaSharingError, TokenError
from delta_sharing_client.model.credentials import HEADER_SAFE, UserSignIn
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.secrets import MASK, Secret
from delta_sharing_client.shown_text import printable
from delta_sharing_client.transport.response import Response
from delta_sharing_client.transport.tls import TlsContext
from delta_sharing_client.transport.url_rules import check_endpoint

_DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"
#: Seconds between polls: the default and the increment of RFC 8628, and the most that a provider may request.
_INTERVAL: Final = 5.0
_LONGEST_INTERVAL: Final = 60.0


@dataclass(frozen=True, slots=True)
class _Grant:
    """A form for an endpoint of the provider, and the secret in it; a document to get without a form."""

    token_endpoint: str
    client_id: str
    form: Mapping[str, str] | None = None
    secret: Secret = Secret("")  # noqa: RUF009  # immutable
    previous: UserToken | None = None


class _Exchange(OAuthTokens[_Grant]):
    """One request to an endpoint of the provider."""

    _what, _field = "OpenID provider", "issuer"

    def fields(self) -> dict[str, Any]:
        """Return the fields of the answer."""
        return self._call(lambda attempt: self._answer(attempt).fields, retry=True)

    def _request_token(self, timeout: float) -> Response:
        form, secret = self._credential.form, self._credential.secret
        if form is None:
            return self._transport.get(timeout)
        if secret:
            form = {name: secret.reveal() if text == MASK else text for name, text in form.items()}
        return self._transport.post(form, {}, timeout)

    def _token(self, answer: TokenAnswer) -> AccessToken:
        new = super()._token(answer)
        refresh, previous = answer.fields.get("refresh_token"), self._credential.previous
        kept = previous.refresh if previous else None
        usable = isinstance(refresh, str) and HEADER_SAFE.fullmatch(refresh)
        account = _account(answer) or (previous.account if previous else None)
        return UserToken(new.token, new.expires, new.renew_at, Secret(str(refresh)) if usable else kept, account)


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

    def refresh(self, token: UserToken, *, retry: bool) -> UserToken:
        """Return a new token for a refresh token.

        Raises:
            TokenError: the provider refuses it, or cannot be reached.
        """
        form = {"grant_type": "refresh_token", "refresh_token": MASK, "scope": self._credential.scope}
        exchange = self._exchange("token_endpoint", form, token.refresh or Secret(""), token)
        return _user_token(exchange.fetch(retry=retry))

    def revoke(self, token: Secret) -> None:
        """Revoke a refresh token (RFC 7009), if the provider supports that."""
        if self._endpoint("revocation_endpoint", required=False):
            exchange = self._exchange("revocation_endpoint", {"token": MASK}, token)
            try:
                exchange.fields()
            except TokenError as error:
                if error.status != 200:  # the answer needs no JSON
                    raise

    def sign_in(self, *, device_code: bool, open_browser: bool, timeout: float) -> UserToken:
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

    def _with_browser(self, has_browser: bool, timeout: float) -> UserToken:
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
            url = f"{authorize}{'&' if urlsplit(authorize).query else '?'}{urlencode(query)}"
            self._notify(f"To sign in, open this page in a browser on this machine:\n{url}")
            if has_browser:
                webbrowser.open(url)
            answer = receiver.wait(timeout)
            if "code" not in answer:
                raise _refused(answer)
            form = {
                "grant_type": "authorization_code",
                "code": MASK,
                "redirect_uri": receiver.redirect_uri,
                "code_verifier": verifier,
            }
            exchange = self._exchange("token_endpoint", form, Secret(answer["code"]))
            return _user_token(exchange.fetch(retry=True))

    def _with_device_code(self, timeout: float) -> UserToken:
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
        grant = {"grant_type": _DEVICE_GRANT, "device_code": MASK}
        exchange = self._exchange("token_endpoint", grant, Secret(device))
        while self._now() + interval < min(deadline, expires):
            self._sleep(interval)
            try:
                return _user_token(exchange.fetch(retry=True))
            except TokenError as error:
                if error.error_code == "slow_down":
                    interval += _INTERVAL
                elif error.error_code != "authorization_pending":
                    raise _refused({"error": error.error_code or "", "reason": str(error)}) from None
        if deadline <= expires:
            raise TokenError(f"nobody signed in within {timeout:.0f} s; try again")
        raise TokenError("nobody signed in while the device code was valid; try again", error_code="expired_token")

    def _exchange(
        self,
        name: str,
        form: Mapping[str, str],
        secret: Secret = Secret(""),  # noqa: B008  # immutable
        previous: UserToken | None = None,
    ) -> _Exchange:
        endpoint = self._endpoint(name)
        grant = _Grant(endpoint, self._credential.client_id, self._with_client(form), secret, previous)
        return _Exchange(self._profile, grant, self._options, now=self._now, tls=self._tls)

    def _with_client(self, form: Mapping[str, str]) -> dict[str, str]:
        audience = {"audience": self._credential.audience} if self._credential.audience else {}
        return {**form, "client_id": self._credential.client_id, **audience}

    def _endpoint(self, name: str, *, required: bool = True) -> str:
        """Return an endpoint of the discovery document (OpenID Connect Discovery), which is requested once."""
        issuer = self._credential.issuer
        if not self._configuration:
            grant = _Grant(f"{issuer.rstrip('/')}/.well-known/openid-configuration", self._credential.client_id)
            found = _Exchange(self._profile, grant, self._options, now=self._now, tls=self._tls).fields()
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


def _user_token(token: AccessToken) -> UserToken:
    if not isinstance(token, UserToken):
        raise TypeError("an exchange with the provider returns a UserToken")
    return token


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
