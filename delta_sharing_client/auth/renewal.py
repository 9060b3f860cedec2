"""Access tokens, and the authorization of requests by tokens that are renewed."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from delta_sharing_client.renewing import Renewing, lifetime_from, system_time
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret

#: A token is renewed 600 s before its expiration, or when a fifth of its lifetime remains, whichever is later.
AHEAD: Final = 600.0
#: A longer lifetime counts as none: 100 years, in seconds.
LONGEST_LIFETIME: Final = 100 * 365.25 * 86_400


class AccessToken(Struct, frozen=True):
    """A token for the sharing server.

    Attributes:
        token: the token.
        expires: when it expires, in seconds since the epoch; None if unknown.
        renew_at: when it is renewed, likewise; None if it is not renewed early.
        refresh: the refresh token of a person, if the provider gave one.
        account: the account of a person, if the provider gave it.
    """

    token: Secret
    expires: float | None = None
    renew_at: float | None = None
    refresh: Secret | None = None
    account: str | None = None

    @classmethod
    def from_lifetime(cls, token: Secret, asked_at: float, lifetime: float | None) -> AccessToken:
        """Create a token from the time of its request and the seconds to its expiration; None if unknown."""
        if lifetime is None or lifetime > LONGEST_LIFETIME:
            return cls(token)
        return cls(token, *lifetime_from(asked_at, asked_at + lifetime, AHEAD))


class TokenSource(Protocol):
    """Source of access tokens."""

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return a new token, with retries if there is no valid one; raise `DeltaSharingError`."""

    def hint(self) -> str:
        """Return the remedy if the sharing server refuses a new token."""


class RenewingAuth:
    """Authorization by access tokens that are renewed; thread-safe.

    Args:
        source: returns new tokens.
        now: returns the seconds since the epoch.
    """

    renewable = True

    def __init__(self, source: TokenSource, *, now: Callable[[], float] = system_time) -> None:
        self._source = source
        self._token = Renewing(lambda needed: source.fetch(retry=needed), "the access token", now=now)

    def headers(self, *, refused: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return the `Authorization` header; another one than that of `refused`."""
        if refused is None:
            return bearer(self._token.get().token)
        return bearer(self._token.get(lambda renewed: bearer(renewed.token) == refused).token)

    def hint(self) -> str:
        """Return the remedy if the server refuses a new token."""
        return self._source.hint()

    def current_token(self) -> AccessToken:
        """Return the valid token; renew it if that is due."""
        return self._token.get()

    @representation
    def __repr__(self) -> str:
        return f"RenewingAuth({self._source!r})"


def bearer(token: Secret) -> Mapping[str, str]:
    """Return the `Authorization` header of a bearer token."""
    return {"Authorization": f"Bearer {token.reveal()}"}


def basic(name: str, password: str) -> Mapping[str, str]:
    """Return the `Authorization` header of a name and a password (RFC 7617)."""
    return {"Authorization": f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}"}
