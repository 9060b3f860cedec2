"""Temporary credentials for the directory of a table ("temporary-table-credentials")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.json_fields import optional_integer, text
from delta_sharing_client.model.numbers import as_time
from delta_sharing_client.secrets import Secret


class AwsCredentials(Struct, frozen=True):
    """Temporary credentials for S3."""

    access_key_id: Secret
    secret_access_key: Secret
    session_token: Secret


class AzureSas(Struct, frozen=True):
    """A user delegation SAS for Azure storage, without a question mark."""

    token: Secret


class GcpToken(Struct, frozen=True):
    """An OAuth token for Google Cloud Storage."""

    token: Secret


StorageCredential: TypeAlias = AwsCredentials | AzureSas | GcpToken


class TemporaryCredentials(Struct, frozen=True):
    """A temporary credential for a table's directory.

    Attributes:
        location: the directory's URL: ``s3://``, ``abfss://`` or ``gs://``.
        credential: a credential for that store.
        expires: its expiration in milliseconds since the epoch; None if unknown.
    """

    location: str
    credential: StorageCredential
    expires: int | None

    @classmethod
    def from_json(cls, answer: Mapping[str, Any], subject: str) -> TemporaryCredentials:
        """Return the credentials in a server's answer about the table `subject`.

        Raises:
            ProtocolError: a field is missing or malformed, or the kind of credential is unknown.
        """
        item = answer.get("credentials")
        if not isinstance(item, Mapping):
            raise ProtocolError(f"{subject}: the answer has no object 'credentials'")
        try:
            expires = optional_integer(item, "expirationTime")
            until = None if expires is None else as_time(expires)
            return cls(_text(item, "location"), _credential(item), until)
        except ValueError as error:
            raise ProtocolError(f"{subject}: malformed temporary credentials: {error}") from None


def _credential(item: Mapping[str, Any]) -> StorageCredential:
    aws, azure, gcp = (item.get(k) for k in ("awsTempCredentials", "azureUserDelegationSas", "gcpOauthToken"))
    if isinstance(aws, Mapping):
        return AwsCredentials(
            *(Secret(_text(aws, name)) for name in ("accessKeyId", "secretAccessKey", "sessionToken"))
        )
    if isinstance(azure, Mapping):
        return AzureSas(Secret(_text(azure, "sasToken").removeprefix("?")))
    if isinstance(gcp, Mapping):
        return GcpToken(Secret(_text(gcp, "oauthToken")))
    raise ValueError("their kind is unknown to this release")


def _text(item: Mapping[str, Any], name: str) -> str:
    value = text(item, name)
    if not value.isprintable():
        raise ValueError(f"{name!r} has a control character")
    return value
