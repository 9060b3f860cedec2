"""Tokens of a credential provider: a function that asks a vault or a broker, or a credential of Azure."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, TypeAlias

from delta_sharing_client.auth.renewal import AccessToken
from delta_sharing_client.errors import ProfileError, TokenError
from delta_sharing_client.model.credentials import HEADER_SAFE
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret, redact_text

_TokenFunction: TypeAlias = Callable[[], tuple[str, datetime | timedelta | None]]


class AzureCredential(Protocol):
    """A credential of the library azure-identity (`azure.core.credentials.TokenCredential`)."""

    def get_token(self, *scopes: str) -> Any:
        """Return an access token; its `expires_on` is in seconds since the epoch."""


#: Returns a bearer token for the sharing server, and its expiration: a datetime (UTC without a zone), a timedelta
#: from now, or None if unknown. One thread at a time calls it. Or a credential of Azure, for the profile's scope.
CredentialProvider: TypeAlias = _TokenFunction | AzureCredential


class CredentialProviderTokens:
    """Source of tokens of a credential provider.

    Raises:
        TypeError: it is neither a function nor a credential of Azure.
        ProfileError: it is a credential of Azure, and there is no scope.
    """

    def __init__(
        self, provider: CredentialProvider, scope: str | None = None, *, now: Callable[[], float] = time.time
    ) -> None:
        if callable(provider):
            self._provider: _TokenFunction = provider
        elif callable(getattr(provider, "get_token", None)):
            self._provider = _function_of(provider, scope)
        else:
            raise TypeError(
                "credential_provider takes a function that returns a token and its expiry, or a credential of "
                f"azure-identity, not {type(provider).__name__}"
            )
        self._now = now

    def fetch(self, *, retry: bool) -> AccessToken:
        """Return a new token; call the function once, and ignore `retry`."""
        asked_at = self._now()
        try:
            answer = self._provider()
        except Exception as error:  # noqa: BLE001  # any exception of the caller's code; its text may contain a secret
            kind = "" if type(error) is ValueError else f"{type(error).__name__}: "
            raise TokenError(f"the credential provider failed: {kind}{redact_text(str(error))[:500]}") from None
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


def _function_of(credential: AzureCredential, scope: str | None) -> _TokenFunction:
    if not scope:
        raise ProfileError(
            "it has no 'scope', which a credential of Azure needs; add it, such as api://<application-id>/.default",
            field="scope",
        )

    def token() -> tuple[str, datetime]:
        issued = credential.get_token(*scope.split())
        return issued.token, datetime.fromtimestamp(issued.expires_on, UTC)

    return token
