"""The kinds of credential that a profile can hold ("Profile File Format"): one class per kind.

A kind is a class with a method `read`, and an entry in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import ClassVar, Final, Self, TypeAlias, get_args
from urllib.parse import urlsplit

from msgspec import Struct

from delta_sharing_client.model.profile_fields import ProfileFields
from delta_sharing_client.secrets import Secret

#: The characters of a token: those of a header, without spaces.
HEADER_SAFE: Final = re.compile(r"[\x21-\x7e]+")
#: Algorithms that an assertion may be signed with: those with a private key.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_EXAMPLE_URL: Final = "https://login.example.com/oauth2/token"
_SCOPE: Final = "openid offline_access"
_REDIRECT: Final = "http://127.0.0.1/"


class BearerToken(Struct, frozen=True):
    """A bearer token, sent with each request (type `bearer_token`, and every version 1 profile).

    Attributes:
        token: the token.
        expiration_time: when it expires, in UTC; None if it does not.
    """

    TYPE: ClassVar[str] = "bearer_token"

    token: Secret
    expiration_time: datetime | None = None

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        token = fields.text("bearerToken")
        if not HEADER_SAFE.fullmatch(token):
            raise fields.error(
                "bearerToken",
                "'bearerToken' has characters that no token has (spaces, line ends, or beyond ASCII); "
                "download the profile again",
            )
        return cls(Secret(token), fields.time("expirationTime"))


class Basic(Struct, frozen=True):
    """A user name and a password, sent with each request as HTTP Basic authentication (type `basic`).

    Attributes:
        username: the user name, without a colon.
        password: the password.
        expiration_time: when the two expire, in UTC; None if they do not.
    """

    TYPE: ClassVar[str] = "basic"

    username: str
    password: Secret
    expiration_time: datetime | None = None

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        username = fields.text("username")
        if ":" in username or not username.isprintable():
            raise fields.error(
                "username",
                "'username' has a colon or a control character in it, which HTTP Basic authentication cannot send",
            )
        return cls(username, fields.secret("password"), fields.time("expirationTime"))


class ClientCredentials(Struct, frozen=True):
    """The id and secret of an OAuth client, exchanged for access tokens (type `oauth_client_credentials`).

    Attributes:
        token_endpoint: the URL that issues the tokens.
        client_id: the client's id.
        client_secret: its secret.
        scope: the requested scope, if the profile has one.
        audience: the requested audience, if the profile has one.
    """

    TYPE: ClassVar[str] = "oauth_client_credentials"
    expiration_time: ClassVar[datetime | None] = None

    token_endpoint: str
    client_id: str
    client_secret: Secret
    scope: str | None = None
    audience: str | None = None

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        return cls(
            fields.url("tokenEndpoint", _EXAMPLE_URL),
            fields.text("clientId"),
            fields.secret("clientSecret"),
            fields.optional_text("scope"),
            fields.optional_text("audience"),
        )


class PrivateKeyJwt(Struct, frozen=True):
    """The private key of an OAuth client, which signs assertions that are exchanged for access tokens.

    Type `oauth_jwt_bearer_private_key_jwt`; its fields are in the profile's object `auth`.

    Attributes:
        token_endpoint: the URL that issues the tokens.
        client_id: the client's id.
        issuer: the token issuer; the assertion's audience.
        audience: the audience of the token.
        key_id: the id of the key at the issuer.
        scope: the requested scope, if the profile has one.
        algorithm: the algorithm of the signature.
        private_key_file: the path of the key, a PEM file.
        private_key: the key in PEM, if the profile has it instead of a path.
    """

    TYPE: ClassVar[str] = "oauth_jwt_bearer_private_key_jwt"
    expiration_time: ClassVar[datetime | None] = None

    token_endpoint: str
    client_id: str
    issuer: str
    audience: str
    key_id: str
    scope: str | None = None
    algorithm: str = "RS256"
    private_key_file: str | None = None
    private_key: Secret | None = None

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        auth = fields.inner("auth")
        key = auth.inner("privateKey")
        algorithm = key.optional_text("algorithm") or "RS256"
        if algorithm not in ALGORITHMS:
            known = ", ".join(sorted(ALGORITHMS))
            raise key.error("algorithm", f"'algorithm' is {algorithm[:20]!r}; it takes {known}")
        inline = key.has("privateKey")
        return cls(
            auth.url("tokenEndpoint", _EXAMPLE_URL),
            auth.text("clientId"),
            auth.text("issuer"),
            auth.text("audience"),
            key.text("keyId"),
            auth.optional_text("scope"),
            algorithm,
            None if inline else key.text("privateKeyFile"),
            Secret(key.text("privateKey")) if inline else None,
        )


class WorkloadIdentity(Struct, frozen=True):
    """The token file of a platform, exchanged for access tokens as a client assertion (RFC 7523, section 2.2).

    Type `oauth_workload_identity`, an addition of this client.

    Attributes:
        token_endpoint: the URL that issues the tokens.
        client_id: the id of the client that trusts the platform.
        token_file: the path of the platform's token; it is read for each request, because platforms replace it.
        scope: the requested scope, if the profile has one.
        audience: the requested audience, if the profile has one.
    """

    TYPE: ClassVar[str] = "oauth_workload_identity"
    expiration_time: ClassVar[datetime | None] = None

    token_endpoint: str
    client_id: str
    token_file: str
    scope: str | None = None
    audience: str | None = None

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        return cls(
            fields.url("tokenEndpoint", _EXAMPLE_URL),
            fields.text("clientId"),
            fields.text("tokenFile"),
            fields.optional_text("scope"),
            fields.optional_text("audience"),
        )


class UserSignIn(Struct, frozen=True):
    """A public client of an OpenID provider, at which a person signs in.

    Type `oauth_authorization_code`, an addition of this client.

    Attributes:
        issuer: the URL of the OpenID provider, as in its discovery document.
        client_id: the client's id.
        scope: the requested scope; `offline_access` requests a refresh token.
        audience: the requested audience, if the profile has one.
        redirect_uri: where the provider sends the browser: 127.0.0.1 or localhost; without a port any free one.
    """

    TYPE: ClassVar[str] = "oauth_authorization_code"
    expiration_time: ClassVar[datetime | None] = None

    issuer: str
    client_id: str
    scope: str = _SCOPE
    audience: str | None = None
    redirect_uri: str = _REDIRECT

    @classmethod
    def read(cls, fields: ProfileFields) -> Self:
        """Return the credential of a profile; raises as the methods of `ProfileFields`."""
        redirect = fields.url("redirectUri", _REDIRECT) if fields.has("redirectUri") else _REDIRECT
        if urlsplit(redirect).hostname not in ("127.0.0.1", "localhost") or not redirect.startswith("http://"):
            raise fields.error("redirectUri", f"'redirectUri' takes {_REDIRECT} or http://localhost/")
        return cls(
            fields.url("issuer", "https://login.example.com"),
            fields.text("clientId"),
            fields.optional_text("scope") or _SCOPE,
            fields.optional_text("audience"),
            redirect,
        )


class ExternalCredential(Struct, frozen=True):
    """The credential of a profile whose tokens a function of the caller returns, or a credential of Azure.

    Attributes:
        scope: the profile's scope, which a credential of Azure needs.
    """

    TYPE: ClassVar[str] = "external"
    expiration_time: ClassVar[datetime | None] = None

    scope: str | None = None


_Kind: TypeAlias = BearerToken | Basic | ClientCredentials | PrivateKeyJwt | WorkloadIdentity | UserSignIn
Credential: TypeAlias = _Kind | ExternalCredential

#: The kinds that a profile may name.
KINDS: Final[Mapping[str, type[_Kind]]] = {kind.TYPE: kind for kind in get_args(_Kind)}
