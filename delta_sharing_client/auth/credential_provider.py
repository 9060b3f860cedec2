"""Tokens of a credential provider: a function of the caller that asks a vault, an identity service or a broker."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TypeAlias

from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.errors import TokenError
from delta_sharing_client.model.credentials import HEADER_SAFE
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret, redact_text

#: Returns a bearer token for the sharing server, and its expiration: a datetime (UTC without a zone), a timedelta
#: from now, or None if unknown. One thread at a time calls it.
CredentialProvider: TypeAlias = Callable[[], tuple[str, datetime | timedelta | None]]


class CredentialProviderTokens:
    """Source of tokens that a function of the caller returns; raises `TypeError` without a function."""

    def __init__(self, provider: CredentialProvider, *, now: Callable[[], float] = time.time) -> None:
        if not callable(provider):
            raise TypeError(
                "credential_provider takes a function that returns a token and its expiry, "
                f"not {type(provider).__name__}"
            )
        self._provider = provider
        self._now = now

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return a new token; call the function once, and ignore `retry`."""
        asked_at = self._now()
        try:
            answer = self._provider()
        except Exception as error:  # noqa: BLE001  # any exception of the caller's code; its text may contain a secret
            raise TokenError(
                f"the credential provider failed: {type(error).__name__}: {redact_text(str(error))[:500]}"
            ) from None
        return self._checked(answer, asked_at)

    def hint(self) -> str:
        """Return the remedy if the sharing server refuses a new token."""
        return "The token of the credential provider is wrong, expired or not for this server"

    @representation
    def __repr__(self) -> str:
        return "CredentialProviderTokens()"

    def _checked(self, answer: object, asked_at: float) -> AccessToken:
        if not isinstance(answer, tuple) or len(answer) != 2:
            raise TokenError(
                f"the credential provider returned a {type(answer).__name__}; it has to return a tuple of the "
                "token and its expiry (a datetime, a timedelta, or None)"
            )
        token, expiry = answer
        if not isinstance(token, str) or not HEADER_SAFE.fullmatch(token):
            raise TokenError(
                "the credential provider returned a token that is empty, no text, or has spaces or line ends in it"
            )
        if isinstance(expiry, datetime):
            aware = expiry if expiry.tzinfo is not None else expiry.replace(tzinfo=UTC)
            lifetime: float | None = aware.timestamp() - asked_at
        elif isinstance(expiry, timedelta):
            lifetime = expiry.total_seconds()
        elif expiry is None:
            lifetime = None
        else:
            raise TokenError(
                "the credential provider returned an expiry that is neither a datetime nor a timedelta nor None, "
                f"but a {type(expiry).__name__}"
            )
        if lifetime is not None and not lifetime > 0:
            raise TokenError("the credential provider returned a token that has expired already")
        return AccessToken.from_lifetime(Secret(token), asked_at, lifetime)
