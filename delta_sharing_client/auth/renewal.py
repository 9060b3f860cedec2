"""Cache of access tokens: one thread renews a token before it expires."""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final, Protocol

from msgspec import Struct

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.fork_safe import ForkSafeLock
from delta_sharing_client.messages import module_logger
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret

logger = module_logger(__name__)

#: A token is renewed 600 s before its expiration, or when a fifth of its lifetime remains, whichever is later.
AHEAD: Final = 600.0
AHEAD_SHARE: Final = 0.2
#: Seconds to the next attempt, if a renewal failed and the token is still valid.
_NEXT_TRY: Final = 30.0


#: A longer lifetime counts as none: 100 years, in seconds.
LONGEST_LIFETIME: Final = 100 * 365.25 * 86_400


class AccessToken(Struct, frozen=True):
    """A token for the sharing server, with its expiration and the time of its renewal.

    Times are in seconds since the epoch; None if unknown, or if it is not renewed early.
    """

    token: Secret
    expires: float | None = None
    renew_at: float | None = None

    @classmethod
    def from_lifetime(cls, token: Secret, asked_at: float, lifetime: float | None) -> AccessToken:
        """Create a token from the time of its request and the seconds to its expiration; None if unknown."""
        if lifetime is None or lifetime > LONGEST_LIFETIME:
            return cls(token)
        return cls(token, asked_at + lifetime, asked_at + lifetime - min(AHEAD, AHEAD_SHARE * lifetime))


class TokenSource(Protocol):
    """Source of access tokens."""

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return a new token, with retries if there is no valid one; raise `DeltaSharingError`."""

    def hint(self) -> str:
        """Return the remedy if the sharing server refuses a new token."""


class _SentToken(threading.local):
    """The token that a thread sent last."""

    token: AccessToken | None = None


class RenewingAuth:
    """Authorization by access tokens that are renewed; thread-safe.

    One thread renews the token. The others use the old token while it is valid, and wait otherwise.

    Args:
        source: returns new tokens.
        now: returns the seconds since the epoch.
    """

    renewable = True

    def __init__(self, source: TokenSource, *, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._lock = ForkSafeLock()
        self._current: AccessToken | None = None
        self._sent = _SentToken()
        self._next_try = 0.0
        self._failure: tuple[float, DeltaSharingError] | None = None

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the `Authorization` header; `force` if the server refused the last one of this thread."""
        refused = self._sent.token if force else None
        self._sent.token = token = self._token(refused)
        return {"Authorization": f"Bearer {token.token.reveal()}"}

    def hint(self) -> str:
        """Return the remedy if the server refuses a new token."""
        return self._source.hint()

    def current_token(self) -> AccessToken:
        """Return the valid token; renew it if that is due."""
        return self._token(None)

    @representation
    def __repr__(self) -> str:
        return f"RenewingAuth({self._source!r})"

    def _token(self, refused: AccessToken | None) -> AccessToken:
        began = time.monotonic()
        usable = self._usable(refused)
        if usable is None:
            self._lock.acquire()
        elif not self._due(usable) or not self._lock.acquire(blocking=False):
            return usable
        try:
            return self._renewed(refused, began)
        finally:
            self._lock.release()

    def _renewed(self, refused: AccessToken | None, began: float) -> AccessToken:
        usable = self._usable(refused)
        if usable is not None and (not self._due(usable) or self._now() < self._next_try):
            return usable
        if self._failure is not None and self._failure[0] >= began:
            # This thread waited for a renewal that failed; another attempt would take as long again.
            raise copy.copy(self._failure[1])
        try:
            self._current = self._source.fetch(retry=usable is None)
        except DeltaSharingError as error:
            if usable is None:
                self._failure = (time.monotonic(), copy.copy(error))
                raise
            self._next_try = self._now() + _NEXT_TRY
            logger.warning("the access token could not be renewed and is used until it expires: %s", error)
            return usable
        return self._current

    def _usable(self, refused: AccessToken | None) -> AccessToken | None:
        token = self._current
        if token is None or token is refused or (token.expires is not None and self._now() >= token.expires):
            return None
        return token

    def _due(self, token: AccessToken) -> bool:
        return token.renew_at is not None and self._now() >= token.renew_at
