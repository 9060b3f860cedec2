"""Tokens of a person who signs in at an OpenID provider (type `oauth_authorization_code`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from delta_sharing_client.auth.openid import OpenIdProvider
from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.auth.token_cache import TokenCache
from delta_sharing_client.errors import DeltaSharingError, ProfileError, SignInRequiredError, TokenError
from delta_sharing_client.messages import module_logger
from delta_sharing_client.model.credentials import UserSignIn
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret
from delta_sharing_client.tracebacks import public
from delta_sharing_client.transport.tls import TlsContext

logger = module_logger(__name__)

#: Error codes of a refresh token that has expired or was revoked (RFC 6749, OpenID Connect Core).
_ENDED: Final = frozenset({"invalid_grant", "interaction_required", "login_required", "consent_required"})
#: Seconds that a cached token must still be valid: the clocks of this machine and the server may differ.
_CLOCK_SKEW: Final = 60.0
_TIMEOUT: Final = timedelta(minutes=5)
#: Seconds to wait for another process: as long as its sign-in may take; less while the old token is valid.
_LOCK_TIMEOUT: Final = 360.0
_SHORT_LOCK_TIMEOUT: Final = 10.0


@dataclass(frozen=True, kw_only=True)
class SignIn:
    """A sign-in in the cache.

    Attributes:
        account: the name of the account, if the provider gave one.
        expires: when the access token expires, in UTC; None if unknown.
        renewable: whether there is a refresh token, which renews the access token.
    """

    account: str | None
    expires: datetime | None
    renewable: bool


class UserTokens:
    """Source of the access tokens of a person, from the cache that processes share.

    A token that another process has renewed is used; one process at a time renews it. If the refresh token is
    refused, or nobody has signed in, a person at a terminal signs in.

    Args:
        profile: the profile.
        credential: its client.
        options: time-outs, proxies and certificates.
        cache: the cache; by default that in the user's cache folder.
        provider: the OpenID provider; by default that of the credential.
        interactive: whether a person can sign in now; by default whether there is a terminal.
        now: returns the seconds since the epoch.
        tls: the TLS context of the client; by default one of its own.
    """

    def __init__(
        self,
        profile: Profile,
        credential: UserSignIn,
        options: TransportOptions,
        *,
        cache: TokenCache | None = None,
        provider: OpenIdProvider | None = None,
        interactive: Callable[[], bool] | None = None,
        now: Callable[[], float] = time.time,
        tls: TlsContext | None = None,
    ) -> None:
        self._profile, self._credential, self._now = profile, credential, now
        self._cache = cache or TokenCache(credential)
        self._provider = provider or OpenIdProvider(profile, credential, options, now=now, tls=tls)
        self._interactive = interactive or _has_terminal
        self._last: Secret | None = None
        #: A new token that could not be written, after the one in the cache.
        self._unwritten: tuple[AccessToken, AccessToken] | None = None

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return another token than the last one: that of the cache, or a new one.

        Raises:
            SignInRequiredError: a person has to sign in, and there is no terminal.
            TokenError: the provider refuses, or cannot be reached.
        """
        with self._cache.lock(_LOCK_TIMEOUT if retry else _SHORT_LOCK_TIMEOUT):
            token = self._next(self._present(), retry)
        self._last = token.token
        return token

    def hint(self) -> str:
        """Return the remedy if the sharing server refuses a new token."""
        return (
            f"The access token is a new one of {self._credential.issuer}: ask the provider whether this account "
            "has access, and whether the scope in the profile is right; another account signs in with: "
            f"{self._command()}"
        )

    @representation
    def __repr__(self) -> str:
        return f"UserTokens({self._credential.issuer}, client {self._credential.client_id!r})"

    def sign_in(
        self, *, device_code: bool, open_browser: bool, keyring: bool | None, timeout: float
    ) -> AccessToken:
        """Wait for a person to sign in, and cache the token."""
        with self._cache.lock(_LOCK_TIMEOUT):
            self._cache.try_keyring(keyring)
            token = self._provider.sign_in(device_code=device_code, open_browser=open_browser, timeout=timeout)
            self._cache.write(token, keyring=keyring)
        return token

    def sign_out(self) -> bool:
        """Delete the token and revoke its refresh token; return whether there was one."""
        with self._cache.lock(_LOCK_TIMEOUT):
            token = self._cache.read()
            existed = self._cache.delete()
        if token is not None and token.refresh is not None:
            try:
                self._provider.revoke(token.refresh)
            except DeltaSharingError as error:
                logger.warning("the refresh token is deleted here, and could not be revoked: %s", error)
        return existed

    def cached(self) -> AccessToken | None:
        """Return the token of the cache, even if it has expired."""
        with self._cache.lock(_LOCK_TIMEOUT):
            return self._cache.read()

    def _present(self) -> AccessToken | None:
        """Return the token of the cache, once the one that could not be written is in it."""
        cached = self._cache.read()
        if self._unwritten is not None and self._unwritten[0] == cached:
            return self._written(*self._unwritten)
        return cached

    def _next(self, cached: AccessToken | None, retry: bool) -> AccessToken:
        unused = cached is not None and cached.token != self._last and self._valid(cached)
        if cached is not None and unused and (cached.renew_at is None or self._now() < cached.renew_at):
            return cached
        reason, code = "nobody has signed in for this profile", None
        if cached is not None and cached.refresh is None:
            reason = "the sign-in has expired, and the provider gave no refresh token (scope offline_access)"
        elif cached is not None:
            try:
                return self._written(cached, self._provider.refresh(cached, retry=retry))
            except TokenError as error:
                if unused:
                    logger.warning("the access token could not be renewed and is used until it expires: %s", error)
                    return cached
                if error.error_code not in _ENDED:
                    raise
                reason, code = f"the sign-in has ended ({error})", error.error_code
        if not retry or not self._interactive():
            raise SignInRequiredError(reason, command=self._command(), error_code=code)
        timeout = _TIMEOUT.total_seconds()
        token = self._provider.sign_in(device_code=False, open_browser=True, timeout=timeout)
        self._cache.write(token)
        return token

    def _written(self, cached: AccessToken, token: AccessToken) -> AccessToken:
        self._unwritten = cached, token  # the provider may accept the refresh token of `cached` once
        self._cache.write(token)
        self._unwritten = None
        return token

    def _valid(self, token: AccessToken) -> bool:
        return token.expires is None or self._now() < token.expires - _CLOCK_SKEW

    def _command(self) -> str:
        return f"delta-sharing login {self._profile.source or 'PROFILE'}"


@public
def sign_in(
    profile: ProfileSource = None,
    *,
    device_code: bool = False,
    open_browser: bool = True,
    keyring: bool | None = None,
    timeout: timedelta = _TIMEOUT,
    options: TransportOptions | None = None,
) -> SignIn:
    """Sign in at the OpenID provider of a profile of type `oauth_authorization_code`, and cache the tokens.

    Args:
        profile: as for `SharingClient`.
        device_code: show a code that is entered on any device, instead of using a browser on this machine.
        open_browser: open the browser; if False, the page to open is only shown.
        keyring: keep the tokens in the keyring of the system (extra `keyring`); by default where they are already,
            and at first in a private file.
        timeout: how long to wait for the person.
        options: time-outs, proxies and certificates.

    Raises:
        TypeError, ValueError: `timeout` is not a timedelta, or not more than zero.
        ProfileError: the profile is of another type.
        TokenError: the person or the provider refuses, the time is over, or the keyring cannot be used.
        MissingDependencyError: an extra is not installed.
    """
    if not isinstance(timeout, timedelta):
        raise TypeError(f"timeout is a timedelta, as timedelta(seconds=30), not {type(timeout).__name__}")
    if timeout <= timedelta(0):
        raise ValueError(f"timeout is {timeout}; it has to be more than zero")
    tokens = _tokens_of(profile, options)
    return _summary(
        tokens.sign_in(
            device_code=device_code, open_browser=open_browser, keyring=keyring, timeout=timeout.total_seconds()
        )
    )


@public
def sign_out(profile: ProfileSource = None, *, options: TransportOptions | None = None) -> bool:
    """Delete the cached tokens of a profile and revoke the refresh token; return whether there were any.

    Raises:
        ProfileError: the profile is of another type.
    """
    return _tokens_of(profile, options).sign_out()


@public
def signed_in(profile: ProfileSource = None) -> SignIn | None:
    """Return the cached sign-in of a profile; None if there is none. Sends no request.

    Raises:
        ProfileError: the profile is of another type.
    """
    token = _tokens_of(profile, None).cached()
    return None if token is None else _summary(token)


def _tokens_of(source: ProfileSource, options: TransportOptions | None) -> UserTokens:
    profile = load_profile(source, stacklevel=5)
    if not isinstance(profile.credential, UserSignIn):
        raise ProfileError(
            f"it is of type {profile.type}, which needs no sign-in; only {UserSignIn.TYPE} does",
            source=profile.source,
        )
    return UserTokens(profile, profile.credential, options or TransportOptions())


def _summary(token: AccessToken) -> SignIn:
    expires = None if token.expires is None else datetime.fromtimestamp(token.expires, UTC)
    return SignIn(account=token.account, expires=expires, renewable=token.refresh is not None)


def _has_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))
