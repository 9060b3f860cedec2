"""`delta_sharing.protocol`: profiles, names of tables, metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from delta_sharing_client.auth.profile import ProfileSource, load_profile
from delta_sharing_client.model.actions import Format, Metadata, Protocol
from delta_sharing_client.model.names import Schema, Share, Table
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.official.missing import missing

__all__ = ["DeltaSharingProfile", "Format", "Metadata", "Protocol", "Schema", "Share", "Table"]
__getattr__ = missing("protocol")


class DeltaSharingProfile:
    """The official client's ways to make a profile; each returns a `Profile`, which hides secrets."""

    CURRENT: Final = 2

    def __new__(  # type: ignore[misc]  # the official name of the class; its objects are those of `Profile`
        cls,
        share_credentials_version: int,
        endpoint: str,
        bearer_token: str | None = None,
        expiration_time: str | None = None,
        type: str | None = None,  # noqa: A002  # the official name
        token_endpoint: str | None = None,
        client_id: str | None = None,
        client_secret: str | None = None,
        username: str | None = None,
        password: str | None = None,
        scope: str | None = None,
        issuer: str | None = None,
        audience: str | None = None,
        private_key: Mapping[str, str] | None = None,
    ) -> Profile:
        """Return the profile with these fields."""
        common = {
            "shareCredentialsVersion": share_credentials_version,
            "type": type,
            "endpoint": endpoint,
            "bearerToken": bearer_token,
            "expirationTime": expiration_time,
            "username": username,
            "password": password,
            "clientSecret": client_secret,
        }
        token = {
            "tokenEndpoint": token_endpoint,
            "clientId": client_id,
            "scope": scope,
            "issuer": issuer,
            "audience": audience,
        }
        fields = _given(common | (token if private_key is None else {}))
        if private_key is not None:
            fields["auth"] = _given(token | {"privateKey": _given(private_key)})
        return Profile.from_dict(fields)

    @staticmethod
    def read_from_file(profile: ProfileSource) -> Profile:
        """Read a profile: a path, an fsspec URL, or an open file."""
        return load_profile(profile)

    @staticmethod
    def from_json(json: str | bytes | bytearray | Mapping[str, Any]) -> Profile:
        """Return the profile that JSON text or its decoded object describes."""
        if isinstance(json, Mapping):
            return Profile.from_dict(json)
        return Profile.from_json(bytes(json) if isinstance(json, bytearray) else json)


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
