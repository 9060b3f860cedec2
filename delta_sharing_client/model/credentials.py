"""The kinds of credential that a profile can hold ("Profile File Format"): one class per kind.

A kind is a class with a method `read`, and an entry in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Final, Self, TypeAlias

from delta_sharing_client.model.profile_fields import ProfileFields
from delta_sharing_client.secrets import Secret

#: The characters of a token: those of a header, without spaces.
HEADER_SAFE: Final = re.compile(r"[\x21-\x7e]+")
#: Algorithms that an assertion may be signed with: those with a private key.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
_EXAMPLE_URL: Final = "https://login.example.com/oauth2/token"


@dataclass(frozen=True, slots=True)
class BearerToken:
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


@dataclass(frozen=True, slots=True)
class Basic:
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


@dataclass(frozen=True, slots=True)
class ClientCredentials:
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


@dataclass(frozen=True, slots=True)
class PrivateKeyJwt:
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


@dataclass(frozen=True, slots=True)
class ExternalCredential:
    """The credential of a profile whose tokens a function of the caller returns."""

    TYPE: ClassVar[str] = "external"
    expiration_time: ClassVar[datetime | None] = None


Credential: TypeAlias = BearerToken | Basic | ClientCredentials | PrivateKeyJwt | ExternalCredential

#: The kinds that a profile may name.
KINDS: Final[Mapping[str, type[BearerToken | Basic | ClientCredentials | PrivateKeyJwt]]] = {
    kind.TYPE: kind for kind in (BearerToken, Basic, ClientCredentials, PrivateKeyJwt)
}
