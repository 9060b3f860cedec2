"""The profile of a recipient: where the sharing server is, and the credential for it ("Profile File Format").

There is one class per kind of credential. A new kind is a class with a `from_dict` and an entry in
`_KINDS`; a profile holds whichever it is.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self
from urllib.parse import urlsplit

from delta_sharing_client.errors import ProfileError, UnsupportedProfileError
from delta_sharing_client.protocol.times import parse_iso8601
from delta_sharing_client.secrets import Secret, redact_url

#: The newest `shareCredentialsVersion` that is known.
MAX_VERSION: Final = 2

#: Kinds of credential that the protocol has and this release does not support yet.
_UNSUPPORTED_TYPES: Final = frozenset({"basic", "oauth_client_credentials", "oauth_jwt_bearer_private_key_jwt"})

_HEADER_SAFE = re.compile(r"[\x21-\x7e]+")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """A bearer token, sent as it is with each request (type `bearer_token`, and every version 1 profile).

    Attributes:
        token: the token.
        expiration_time: when it expires, in UTC; None if it does not.
    """

    token: Secret
    expiration_time: datetime | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None) -> Self:
        """Take the credential's fields from a profile.

        Raises:
            ProfileError: one is missing, empty or of the wrong type.
        """
        token = _text(fields, "bearerToken", source)
        if not _HEADER_SAFE.fullmatch(token):
            raise ProfileError(
                "'bearerToken' has characters that no token has (spaces, line ends, or beyond ASCII); "
                "download the profile again",
                field="bearerToken",
                source=source,
            )
        return cls(Secret(token), _expiration_time(fields, source))


_KINDS: Final[Mapping[str, type[BearerToken]]] = {"bearer_token": BearerToken}


@dataclass(frozen=True, slots=True)
class Profile:
    """A recipient's profile. Safe to show: the credential is a `Secret`, which cannot be pickled either.

    Attributes:
        share_credentials_version: version of the profile's format.
        type: the kind of credential, as the format names it.
        endpoint: the sharing server's URL, without a slash at its end.
        credential: the credential, of the class for its kind.
        source: where the profile came from, for messages.
    """

    share_credentials_version: int
    type: str
    endpoint: str
    credential: BearerToken
    source: str | None = field(default=None, compare=False)

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None = None) -> Self:
        """Build a profile from the object in a profile file; unknown fields are ignored.

        Args:
            fields: the decoded JSON object.
            source: where it came from, for messages.

        Raises:
            UnsupportedProfileError: it is of a newer version, or of a kind this release does not support.
            ProfileError: a field is missing, empty, of the wrong type or malformed.
        """
        if not isinstance(fields, Mapping):
            raise ProfileError(f"it is a JSON {type(fields).__name__}, not an object", source=source)
        version = _version(fields, source)
        kind = "bearer_token" if version == 1 else _text(fields, "type", source)
        credential_class = _KINDS.get(kind)
        if credential_class is None:
            known = (
                "is not supported by this release" if kind in _UNSUPPORTED_TYPES else "is unknown to this release"
            )
            raise UnsupportedProfileError(
                f"the credential type {kind[:60]!r} {known} (supported: {', '.join(_KINDS)}); upgrade "
                "delta-sharing-client, or ask the provider for a bearer token",
                field="type",
                source=source,
            )
        endpoint = _endpoint(fields, source)
        return cls(version, kind, endpoint, credential_class.from_dict(fields, source), source)

    @classmethod
    def from_json(cls, text: str | bytes, source: str | None = None) -> Self:
        """Build a profile from JSON text; what it holds is never part of an error.

        Args:
            text: the content of a profile file, UTF-8 with or without a byte-order mark.
            source: where it came from, for messages.

        Raises:
            ProfileError: it is not JSON, or see `from_dict`.
        """
        try:
            decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
            fields = json.loads(decoded)
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
        except json.JSONDecodeError as error:
            reason = f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        except (ValueError, RecursionError):
            reason = "it is not JSON"
        else:
            return cls.from_dict(fields, source)
        raise ProfileError(f"{reason}; download the profile again", source=source)

    @property
    def bearer_token(self) -> Secret:
        """The bearer token."""
        return self.credential.token

    @property
    def expiration_time(self) -> datetime | None:
        """When the credential expires, in UTC; None if it does not."""
        return self.credential.expiration_time

    def expired(self, now: datetime | None = None) -> bool:
        """Tell whether the credential has expired.

        Args:
            now: the time to compare with; the present without.
        """
        expires = self.expiration_time
        return expires is not None and expires <= (datetime.now(UTC) if now is None else now)


def _field(fields: Mapping[str, Any], name: str, source: str | None) -> Any:
    value = fields.get(name)
    if value is None:
        raise ProfileError(
            f"the field {name!r} is missing; download the profile again, or add it", field=name, source=source
        )
    return value


def _text(fields: Mapping[str, Any], name: str, source: str | None) -> str:
    value = _field(fields, name, source)
    if not isinstance(value, str):
        raise ProfileError(f"{name!r} has to be a text, not {_kind(value)}", field=name, source=source)
    if not value.strip():
        raise ProfileError(
            f"{name!r} is empty; download the profile again, or fill it in", field=name, source=source
        )
    return value.strip()


def _version(fields: Mapping[str, Any], source: str | None) -> int:
    name = "shareCredentialsVersion"
    value = _field(fields, name, source)
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    ):
        raise ProfileError(f"{name!r} has to be a whole number, not {_kind(value)}", field=name, source=source)
    if value > MAX_VERSION:
        raise UnsupportedProfileError(
            f"its {name} is {value}; this release reads up to {MAX_VERSION}: upgrade delta-sharing-client",
            field=name,
            source=source,
        )
    if value < 1:
        raise ProfileError(f"its {name} is {value}; it starts at 1", field=name, source=source)
    return int(value)


def _endpoint(fields: Mapping[str, Any], source: str | None) -> str:
    value = _text(fields, "endpoint", source).rstrip("/")
    try:
        parts = urlsplit(value)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if usable and any(ord(char) <= 0x20 or ord(char) == 0x7F for char in value):
        usable = False
    if not usable:
        raise ProfileError(
            "'endpoint' is not a URL of http or https; it looks like https://host/delta-sharing",
            field="endpoint",
            source=source,
        )
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise ProfileError(
            f"'endpoint' has a user name, a query or a fragment in it: {redact_url(value)}; leave those out",
            field="endpoint",
            source=source,
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
    shown = repr(value)[:60] if isinstance(value, str) else _kind(value)
    raise ProfileError(
        f"'expirationTime' is not a time in ISO 8601, such as 2030-01-31T00:00:00Z: {shown}",
        field="expirationTime",
        source=source,
    )


def _kind(value: Any) -> str:
    names = {
        bool: "a boolean",
        int: "a number",
        float: "a number",
        str: "a text",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)
