"""Access tokens that run out: kept as long as they are good, renewed ahead of their end by one thread."""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from delta_sharing_client.errors import DeltaSharingError
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret

logger = logging.getLogger(__name__)

#: A token is renewed this long before it expires, or at a fifth of its lifetime if that is later; seconds.
AHEAD: Final = 600.0
AHEAD_SHARE: Final = 0.2
#: After a renewal failed while the token is still good, how long until the next try, seconds.
_NEXT_TRY: Final = 30.0


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token for the sharing server.

    Attributes:
        token: the token.
        expires: when it expires, in seconds since the epoch; None where nobody told.
        renew_at: from when on it should be renewed.
    """

    token: Secret
    expires: float | None = None
    renew_at: float | None = None

    @classmethod
    def living(cls, token: Secret, asked_at: float, lifetime: float | None) -> AccessToken:
        """Make one of its lifetime.

        Args:
            token: the token.
            asked_at: when it was asked for, in seconds since the epoch.
            lifetime: seconds for which it is good from then on; None where nobody told.
        """
        if lifetime is None:
            return cls(token)
        return cls(token, asked_at + lifetime, asked_at + lifetime - min(AHEAD, AHEAD_SHARE * lifetime))


class TokenSource(Protocol):
    """Gives access tokens."""

    def fetch(self, *, patient: bool) -> AccessToken:
        """Return a new token.

        Args:
            patient: go on trying, since there is no other token to use meanwhile.

        Raises:
            DeltaSharingError: there is none to be had.
        """

    def hint(self) -> str:
        """Return what to tell the user when the sharing server refuses a new token."""


class _SentToken(threading.local):
    """The token that a thread sent last."""

    token: AccessToken | None = None


class RenewingAuth:
    """Sends an access token with each request, and renews it. May be used by several threads.

    One thread renews at a time; the others go on with the token that they have while it is good, and wait
    otherwise.

    Args:
        source: gives the tokens.
        now: gives the seconds since the epoch.
    """

    renewable = True

    def __init__(self, source: TokenSource, *, now: Callable[[], float] = time.time) -> None:
        self._source = source
        self._now = now
        self._lock = threading.Lock()
        self._current: AccessToken | None = None
        self._sent = _SentToken()
        self._next_try = 0.0
        self._failure: tuple[float, DeltaSharingError] | None = None

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the `Authorization` header ("REST APIs").

        Args:
            force: the server refused the token that this thread was given last; it gets another one.

        Raises:
            TokenError: there is no token to be had.
        """
        refused = self._sent.token if force else None
        self._sent.token = token = self._token(refused)
        return {"Authorization": f"Bearer {token.token.reveal()}"}

    def hint(self) -> str:
        """Return what to tell the user when the server refuses a token that is new."""
        return self._source.hint()

    def present(self) -> AccessToken:
        """Return the token that a request sent now would carry.

        Raises:
            TokenError: there is no token to be had.
        """
        return self._token(None)

    @representation
    def __repr__(self) -> str:
        return f"RenewingAuth({self._source!r})"

    def _token(self, refused: AccessToken | None) -> AccessToken:
        began = time.monotonic()
        known = self._current
        if known is not None and self._good(known, refused) and not self._due(known):
            return known
        usable = known if known is not None and self._good(known, refused) else None
        if not self._lock.acquire(blocking=usable is None):
            return usable  # type: ignore[return-value]  # it did not block, so there is one
        try:
            return self._renewed(refused, began)
        finally:
            self._lock.release()

    def _renewed(self, refused: AccessToken | None, began: float) -> AccessToken:
        known = self._current
        usable = known if known is not None and self._good(known, refused) else None
        if usable is not None and (not self._due(usable) or self._now() < self._next_try):
            return usable
        if self._failure is not None and self._failure[0] >= began:
            # Whoever waited for this renewal would only wait as long again.
            raise copy.copy(self._failure[1])
        try:
            self._current = self._source.fetch(patient=usable is None)
        except DeltaSharingError as error:
            if usable is None:
                self._failure = (time.monotonic(), copy.copy(error))
                raise
            self._next_try = self._now() + _NEXT_TRY
            logger.warning("the access token could not be renewed and is used until it expires: %s", error)
            return usable
        return self._current

    def _good(self, token: AccessToken, refused: AccessToken | None) -> bool:
        return token is not refused and (token.expires is None or self._now() < token.expires)

    def _due(self, token: AccessToken) -> bool:
        return token.renew_at is not None and self._now() >= token.renew_at
