"""From a profile's credential to the headers that authorize a request. One provider per kind of credential."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from delta_sharing_client.auth.external import CredentialProvider, ExternalTokens
from delta_sharing_client.auth.oauth import ClientCredentialsTokens, OAuthTokens, PrivateKeyJwtTokens
from delta_sharing_client.auth.renewal import RenewingAuth
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.model.credentials import Basic, BearerToken, ClientCredentials, PrivateKeyJwt
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.transport.transports import Authorizer


class _FixedAuth:
    """Sends what the profile holds with each request.

    Args:
        profile: a profile whose credential is sent as it is.
        now: gives the present time in UTC.
    """

    #: There is but one credential: asking again gives the same.
    renewable = False
    _noun = "credential"

    def __init__(self, profile: Profile, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._profile = profile
        self._now = now

    def hint(self) -> str:
        """Return what to tell the user when the server refuses the credential."""
        profile = self._profile
        which = f"the profile {profile.source}" if profile.source else "the profile"
        if profile.expired(self._now()):
            return (
                f"The {self._noun} in {which} has expired: its expirationTime is "
                f"{format_time(profile.expiration_time)}. Ask the provider for a new profile"
            )
        return f"The {self._noun} in {which} is missing, wrong or revoked; ask the provider for a new profile"

    @representation
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._profile.endpoint})"


class BearerAuth(_FixedAuth):
    """Sends the profile's bearer token with each request (type `bearer_token`)."""

    _noun = "token"

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the `Authorization` header ("REST APIs").

        Args:
            force: asks for a fresh credential; a bearer token has none.
        """
        return {"Authorization": f"Bearer {self._profile.bearer_token.reveal()}"}


class BasicAuth(_FixedAuth):
    """Sends the profile's user name and password with each request (type `basic`).

    Args:
        profile: the profile.
        credential: its credential.
    """

    _noun = "user name or password"

    def __init__(self, profile: Profile, credential: Basic) -> None:
        super().__init__(profile)
        self._credential = credential

    def headers(self, *, force: bool = False) -> Mapping[str, str]:
        """Return the `Authorization` header of HTTP Basic authentication, in UTF-8.

        Args:
            force: asks for a fresh credential; there is but one.
        """
        pair = f"{self._credential.username}:{self._credential.password.reveal()}"
        return {"Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def provider_for(
    profile: Profile,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
) -> Authorizer:
    """Return the provider for a profile's kind of credential.

    Args:
        profile: the profile.
        options: how a token endpoint is reached; the defaults without.
        credential_provider: gives the tokens instead of the profile.

    Raises:
        InsecureUrlError: a credential would travel to the token endpoint in clear text.
        ProfileError: the profile says that tokens come from elsewhere, and nothing gives them.
    """
    if credential_provider is not None:
        return RenewingAuth(ExternalTokens(credential_provider))
    credential = profile.credential
    if isinstance(credential, BearerToken):
        return BearerAuth(profile)
    if isinstance(credential, Basic):
        return BasicAuth(profile, credential)
    tokens: OAuthTokens
    if isinstance(credential, ClientCredentials):
        tokens = ClientCredentialsTokens(credential, options or TransportOptions())
    elif isinstance(credential, PrivateKeyJwt):
        tokens = PrivateKeyJwtTokens(profile, credential, options or TransportOptions())
    else:
        raise ProfileError("it holds no credential; pass a credential_provider", source=profile.source)
    return RenewingAuth(tokens)


def format_time(moment: datetime | None) -> str:
    """Return a time in UTC to the second, as profiles write it."""
    return "never" if moment is None else moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
