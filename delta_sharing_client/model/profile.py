"""The profile of a recipient: where the sharing server is, and the credential for it ("Profile File Format").

The kinds of credential are in `credentials`; a profile holds whichever it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Self

from delta_sharing_client.errors import ProfileError, UnsupportedProfileError
from delta_sharing_client.model.credentials import (
    KINDS,
    BearerToken,
    Credential,
    ExternalCredential,
)
from delta_sharing_client.model.json_text import of_whole_characters
from delta_sharing_client.model.profile_fields import ProfileFields
from delta_sharing_client.representation import representation
from delta_sharing_client.secrets import Secret
from delta_sharing_client.views import html_view

#: The newest `shareCredentialsVersion` that is known.
MAX_VERSION: Final = 2


@dataclass(frozen=True, slots=True)
class Profile:
    """A recipient's profile. Safe to show: the credential is a `Secret`, which cannot be pickled either.

    Attributes:
        share_credentials_version: version of the profile's format.
        type: the kind of credential, as the format names it.
        endpoint: the sharing server's URL, without a slash at its end.
        credential: the credential, of the class for its kind.
        source: where the profile came from, for messages.
        iceberg_endpoint: the URL of the provider's Iceberg REST catalog, if there is one.
    """

    share_credentials_version: int
    type: str
    endpoint: str
    credential: Credential
    source: str | None = field(default=None, compare=False)
    iceberg_endpoint: str | None = None

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], source: str | None = None, *, external: bool = False) -> Self:
        """Build a profile from the object in a profile file; unknown fields are ignored.

        Args:
            fields: the decoded JSON object.
            source: where it came from, for messages.
            external: tokens come from elsewhere: only endpoint and scope count, and a credential is not looked at.

        Raises:
            UnsupportedProfileError: it is of a newer version, or of a kind this release does not support.
            ProfileError: a field is missing, empty, of the wrong type or malformed.
        """
        if not isinstance(fields, Mapping):
            raise ProfileError(
                "it is not a JSON object with the fields of a profile; download the profile again", source=source
            )
        if external:
            known = ProfileFields({"shareCredentialsVersion": MAX_VERSION, **fields}, source)
            scope = fields.get("scope")
            credential = ExternalCredential(scope if isinstance(scope, str) else None)
            return cls(_version(known), credential.TYPE, _endpoint(known), credential, source, _iceberg(known))
        known = ProfileFields(fields, source)
        version = _version(known)
        kind = BearerToken.TYPE if version == 1 else known.text("type")
        credential_class = KINDS.get(kind)
        if credential_class is None:
            raise known.error(
                "type",
                f"the credential type {kind[:60]!r} is unknown to this release (known: {', '.join(KINDS)}); "
                "upgrade delta-sharing-client, or ask the provider for a bearer token",
                UnsupportedProfileError,
            )
        return cls(version, kind, _endpoint(known), credential_class.read(known), source, _iceberg(known))

    @classmethod
    def from_json(cls, text: str | bytes, source: str | None = None, *, external: bool = False) -> Self:
        """Build a profile from JSON text; what it holds is never part of an error.

        Args:
            text: the content of a profile file, UTF-8 with or without a byte-order mark.
            source: where it came from, for messages.
            external: as for `from_dict`.

        Raises:
            ProfileError: it is not JSON, or see `from_dict`.
        """
        try:
            decoded = text.decode("utf-8-sig") if isinstance(text, bytes) else text.removeprefix("\ufeff")
            fields = of_whole_characters(json.loads(decoded))
        except UnicodeDecodeError:
            reason = "it is not UTF-8 text"
        except json.JSONDecodeError as error:
            reason = f"it is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        except (ValueError, RecursionError):
            reason = "it is not JSON"
        else:
            return cls.from_dict(fields, source, external=external)
        raise ProfileError(f"{reason}; download the profile again", source=source)

    @property
    def bearer_token(self) -> Secret:
        """The bearer token.

        Raises:
            ProfileError: the profile is of another type.
        """
        if not isinstance(self.credential, BearerToken):
            raise ProfileError(
                f"it is of type {self.type} and holds no bearer token", field="bearerToken", source=self.source
            )
        return self.credential.token

    @property
    def expiration_time(self) -> datetime | None:
        """When the credential expires, in UTC; None if it does not."""
        return self.credential.expiration_time

    def expired(self, now: datetime | None = None) -> bool:
        """Return whether the credential has expired.

        Args:
            now: the time to compare with; the present without.
        """
        expires = self.expiration_time
        return expires is not None and expires <= (datetime.now(UTC) if now is None else now)

    @representation
    def _repr_html_(self) -> str:
        expires = self.expiration_time
        expiry = None if expires is None else f"{expires:%Y-%m-%d %H:%M} UTC{' (expired)' * self.expired()}"
        return html_view(self, self.endpoint, {"type": self.type, "source": self.source, "expires": expiry})


def _version(fields: ProfileFields) -> int:
    name = "shareCredentialsVersion"
    value = fields.required(name)
    if isinstance(value, bool) or not (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    ):
        raise fields.wrong_type(name, "a whole number")
    if value > MAX_VERSION:
        raise fields.error(
            name,
            f"its {name} is {value}; this release reads up to {MAX_VERSION}: upgrade delta-sharing-client",
            UnsupportedProfileError,
        )
    if value < 1:
        raise fields.error(name, f"its {name} is {value}; it starts at 1")
    return int(value)


def _endpoint(fields: ProfileFields) -> str:
    return fields.url("endpoint", "https://host/delta-sharing").rstrip("/")


def _iceberg(fields: ProfileFields) -> str | None:
    name = "icebergEndpoint"
    if fields.optional_text(name) is None:
        return None
    return fields.url(name, "https://host/delta-sharing/iceberg").rstrip("/")
