"""The kinds of credential that a profile can hold ("Profile File Format"): one class per kind.

A kind is a class with a `from_dict`, and an entry in `KINDS`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Self, TypeAlias
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProfileError
from delta_sharing_client.model.timestamps import parse_iso8601
from delta_sharing_client.secrets import Secret, redact_url

#: What a token may consist of: whatever can stand in a header without spaces.
HEADER_SAFE: Final = re.compile(r"[\x21-\x7e]+")
#: Algorithms that an assertion may be signed with: those with a private key.
ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bearer token, sent as it is with each request (type `bearer_token`, and every version 1 profile).

    Attributes:
        token: the token.
        expiration_time: when it expires, in UTC; None if it does not.
    """

    TYPE: ClassVar[str] = "bearer_token"

    token: Secret
    expiration_time: datetime | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take the credential's fields from a profile.

        Raises:
            ProfileError: one is missing, empty or of the wrong type.
        """
        token = text_field(fields, "bearerToken", source)
        if not HEADER_SAFE.fullmatch(token):
            raise ProfileError(
                "'bearerToken' has characters that no token has (spaces, line ends, or beyond ASCII); "
                "download the profile again",
                field="bearerToken",
                source=source,
            )
        return cls(Secret(token), _expiration_time(fields, source))


@dataclass(frozen=True, slots=True)
class Basic:
    """A user name and a password, sent with each request as HTTP Basic authentication (type `basic`).

    Attributes:
        username: the user name; it holds no colon.
        password: the password.
        expiration_time: when the two expire, in UTC; None if they do not.
    """

    TYPE: ClassVar[str] = "basic"

    username: str
    password: Secret
    expiration_time: datetime | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take the credential's fields from a profile.

        Raises:
            ProfileError: one is missing, empty, malformed or of the wrong type.
        """
        username = text_field(fields, "username", source)
        if ":" in username or not username.isprintable():
            raise ProfileError(
                "'username' has a colon or a control character in it, which HTTP Basic authentication cannot send",
                field="username",
                source=source,
            )
        return cls(username, _secret(fields, "password", source), _expiration_time(fields, source))


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """An OAuth client's id and secret, traded for access tokens (type `oauth_client_credentials`).

    Attributes:
        token_endpoint: the URL that gives the tokens.
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
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take the credential's fields from a profile.

        Raises:
            ProfileError: one is missing, empty, malformed or of the wrong type.
        """
        return cls(
            url_field(fields, "tokenEndpoint", source, example="https://login.example.com/oauth2/token"),
            text_field(fields, "clientId", source),
            _secret(fields, "clientSecret", source),
            _optional_text(fields, "scope", source),
            _optional_text(fields, "audience", source),
        )


@dataclass(frozen=True, slots=True)
class PrivateKeyJwt:
    """An OAuth client's private key, which signs assertions that are traded for access tokens.

    Type `oauth_jwt_bearer_private_key_jwt`; its fields are in the profile's object `auth`.

    Attributes:
        token_endpoint: the URL that gives the tokens.
        client_id: the client's id.
        issuer: the token issuer; the assertion's audience.
        audience: whom the token is for.
        key_id: names the key to the issuer.
        scope: the requested scope, if the profile has one.
        algorithm: what the assertion is signed with.
        private_key_file: the path of the key, a PEM file.
        private_key: the key itself, in PEM, where the profile has it instead of a path.
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
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take the credential's fields from a profile.

        Raises:
            ProfileError: one is missing, empty, malformed or of the wrong type.
        """
        auth = _object(fields, "auth", source)
        key = _object(auth, "privateKey", source, inside="auth.")
        algorithm = _optional_text(key, "algorithm", source) or "RS256"
        if algorithm not in ALGORITHMS:
            raise ProfileError(
                f"'algorithm' is {algorithm[:20]!r}; it takes {', '.join(sorted(ALGORITHMS))}",
                field="algorithm",
                source=source,
            )
        pem = key.get("privateKey")
        return cls(
            url_field(auth, "tokenEndpoint", source, example="https://login.example.com/oauth2/token"),
            text_field(auth, "clientId", source),
            text_field(auth, "issuer", source),
            text_field(auth, "audience", source),
            text_field(key, "keyId", source),
            _optional_text(auth, "scope", source),
            algorithm,
            text_field(key, "privateKeyFile", source) if pem is None else None,
            None if pem is None else Secret(text_field(key, "privateKey", source)),
        )


@dataclass(frozen=True, slots=True)
class ExternalCredential:
    """Stands where tokens come from elsewhere: from the caller's own function, never from the profile."""

    TYPE: ClassVar[str] = "external"
    expiration_time: ClassVar[datetime | None] = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take nothing from the profile."""
        return cls()


Credential: TypeAlias = BearerToken | Basic | ClientCredentials | PrivateKeyJwt | ExternalCredential

#: The kinds that a profile may name.
KINDS: Final[Mapping[str, type[BearerToken | Basic | ClientCredentials | PrivateKeyJwt]]] = {
    kind.TYPE: kind for kind in (BearerToken, Basic, ClientCredentials, PrivateKeyJwt)
}


def required_field(fields: Mapping[str, Any], name: str, source: str | None) -> Any:
    """Return a field of a profile.

    Raises:
        ProfileError: it is missing.
    """
    value = fields.get(name)
    if value is None:
        raise ProfileError(
            f"the field {name!r} is missing; download the profile again, or add it", field=name, source=source
        )
    return value


def text_field(fields: Mapping[str, Any], name: str, source: str | None) -> str:
    """Return a field that has to be a text, without the space around it.

    Raises:
        ProfileError: it is missing, empty or no text.
    """
    value = required_field(fields, name, source)
    if not isinstance(value, str):
        raise ProfileError(f"{name!r} has to be a text, not {kind_of(value)}", field=name, source=source)
    if not value.strip():
        raise ProfileError(
            f"{name!r} is empty; download the profile again, or fill it in", field=name, source=source
        )
    return value.strip()


def url_field(fields: Mapping[str, Any], name: str, source: str | None, *, example: str) -> str:
    """Return a field that has to be a URL of http or https, without user name, query and fragment.

    Raises:
        ProfileError: it is missing or something else.
    """
    value = text_field(fields, name, source)
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if usable and any(ord(char) <= 0x20 or ord(char) == 0x7F for char in value):
        usable = False
    if not usable:
        raise ProfileError(
            f"{name!r} is not a URL of http or https; it looks like {example}", field=name, source=source
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ProfileError(
            f"{name!r} has a user name, a query or a fragment in it: {redact_url(value)}; leave those out",
            field=name,
            source=source,
        )
    return value


def kind_of(value: Any) -> str:
    """Return what kind of JSON value it is, for messages; never the value itself."""
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _secret(fields: Mapping[str, Any], name: str, source: str | None) -> Secret:
    """A secret, taken as it is: a space at its end may be part of it."""
    text_field(fields, name, source)
    value = str(fields[name])
    if any(char in value for char in "\r\n\0"):
        raise ProfileError(f"{name!r} has a line end in it; download the profile again", field=name, source=source)
    return Secret(value)


def _optional_text(fields: Mapping[str, Any], name: str, source: str | None) -> str | None:
    value = fields.get(name)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    return text_field(fields, name, source)


def _object(fields: Mapping[str, Any], name: str, source: str | None, inside: str = "") -> Mapping[str, Any]:
    value = required_field(fields, name, source)
    if not isinstance(value, Mapping):
        raise ProfileError(
            f"'{inside}{name}' has to be an object, not {kind_of(value)}", field=name, source=source
        )
    return value


def _expiration_time(fields: Mapping[str, Any], source: str | None) -> datetime | None:
    value = fields.get("expirationTime")
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, str):
        try:
            return parse_iso8601(value.strip())
        except ValueError:
            pass
    shown = repr(value)[:60] if isinstance(value, str) else kind_of(value)
    raise ProfileError(
        f"'expirationTime' is not a time in ISO 8601, such as 2030-01-31T00:00:00Z: {shown}",
        field="expirationTime",
        source=source,
    )
