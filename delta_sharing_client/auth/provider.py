"""Authorization headers for each type of credential in a profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime

from delta_sharing_client.auth.credential_provider import CredentialProvider, CredentialProviderTokens
from delta_sharing_client.auth.renewal import RenewingAuth, basic, bearer
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.model.credentials import (
    Basic,
    BearerToken,
    ClientCredentials,
    ExternalCredential,
    PrivateKeyJwt,
    UserSignIn,
    WorkloadIdentity,
)
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.model.timestamps import format_time
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.representation import representation
from delta_sharing_client.transport.rest_transport import Authorizer
from delta_sharing_client.transport.tls import TlsContext


class FixedAuth:
    """Authorization by the credential of a profile: a bearer token, or user name and password."""

    renewable = False

    def __init__(self, profile: Profile, *, now: Callable[[], datetime] = lambda: datetime.now(UTC)) -> None:
        self._profile = profile
        self._now = now

    def headers(self, *, refused: Mapping[str, str] | None = None) -> Mapping[str, str]:
        """Return the `Authorization` header ("REST APIs"), `refused` or not, as there is one credential."""
        credential = self._profile.credential
        if isinstance(credential, Basic):
            return basic(credential.username, credential.password.reveal())
        return bearer(self._profile.bearer_token)

    def hint(self) -> str:
        """Return the remedy if the server refuses the credential."""
        profile = self._profile
        noun = "user name or password" if isinstance(profile.credential, Basic) else "token"
        which = f"the profile {profile.source}" if profile.source else "the profile"
        if profile.expired(self._now()):
            return (
                f"The {noun} in {which} has expired: its expirationTime is "
                f"{format_time(profile.expiration_time)}. Ask the provider for a new profile"
            )
        return f"The {noun} in {which} is missing, wrong or revoked; ask the provider for a new profile"

    @representation
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._profile.endpoint})"


def provider_for(
    profile: Profile,
    options: TransportOptions | None = None,
    credential_provider: CredentialProvider | None = None,
    tls: TlsContext | None = None,
) -> Authorizer:
    """Return the authorizer for a profile's type of credential, or for a credential provider.

    Raises:
        InsecureUrlError: a credential would be sent to the token endpoint over plain http.
        ProfileError: the profile requires a credential provider and there is none.
    """
    if credential_provider is not None:
        scope = getattr(profile.credential, "scope", None)
        return RenewingAuth(CredentialProviderTokens(credential_provider, scope))
    credential = profile.credential
    if isinstance(credential, BearerToken | Basic):
        return FixedAuth(profile)
    from delta_sharing_client.auth.oauth import (
        ClientCredentialsTokens,
        PrivateKeyJwtTokens,
        WorkloadIdentityTokens,
    )

    options = options or TransportOptions()
    if isinstance(credential, ClientCredentials):
        return RenewingAuth(ClientCredentialsTokens(profile, credential, options, tls=tls))
    if isinstance(credential, PrivateKeyJwt):
        return RenewingAuth(PrivateKeyJwtTokens(profile, credential, options, tls=tls))
    if isinstance(credential, WorkloadIdentity):
        return RenewingAuth(WorkloadIdentityTokens(profile, credential, options, tls=tls))
    if isinstance(credential, UserSignIn):
        from delta_sharing_client.auth.user_tokens import UserTokens

        return RenewingAuth(UserTokens(profile, credential, options, tls=tls))
    raise ProfileError("it has no credential; pass a credential_provider", source=profile.source)


def with_bearer_token(profile: Profile, authorizer: Authorizer) -> Profile:
    """Return a profile for another process: a provider's or a person's token becomes a bearer token."""
    local = isinstance(profile.credential, ExternalCredential | UserSignIn)
    if not isinstance(authorizer, RenewingAuth) or not local:
        return profile
    token = authorizer.current_token()
    expires = None if token.expires is None else datetime.fromtimestamp(token.expires, UTC)
    return replace(profile, type=BearerToken.TYPE, credential=BearerToken(token.token, expires))
