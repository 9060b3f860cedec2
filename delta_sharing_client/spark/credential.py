"""A profile as plain fields with its credential, for URL renewal on executors.

Beside the code that signs requests, this is the only code that reveals a secret.
"""

from __future__ import annotations

from typing import Any

from delta_sharing_client.auth.private_key import read_private_key
from delta_sharing_client.errors import ProfileError
from delta_sharing_client.model.credentials import Basic, BearerToken, ClientCredentials, PrivateKeyJwt
from delta_sharing_client.model.profile import Profile


def profile_fields(profile: Profile) -> dict[str, Any]:
    """Return the fields of a profile file; a private key itself, not the path of its file on the driver.

    Raises:
        ProfileError: the profile has no credential, or its private key cannot be read.
    """
    credential = profile.credential
    fields: dict[str, Any] = {
        "shareCredentialsVersion": profile.share_credentials_version,
        "type": profile.type,
        "endpoint": profile.endpoint,
    }
    if isinstance(credential, BearerToken):
        fields["bearerToken"] = credential.token.reveal()
    elif isinstance(credential, Basic):
        fields |= {"username": credential.username, "password": credential.password.reveal()}
    elif isinstance(credential, ClientCredentials):
        fields |= {
            "tokenEndpoint": credential.token_endpoint,
            "clientId": credential.client_id,
            "clientSecret": credential.client_secret.reveal(),
            "scope": credential.scope,
            "audience": credential.audience,
        }
    elif isinstance(credential, PrivateKeyJwt):
        fields["auth"] = {
            "tokenEndpoint": credential.token_endpoint,
            "clientId": credential.client_id,
            "issuer": credential.issuer,
            "audience": credential.audience,
            "scope": credential.scope,
            "privateKey": {
                "privateKey": read_private_key(profile).reveal(),
                "keyId": credential.key_id,
                "algorithm": credential.algorithm,
            },
        }
    else:
        raise ProfileError("it has no credential that could be sent to executors", source=profile.source)
    if credential.expiration_time is not None:
        fields["expirationTime"] = credential.expiration_time.isoformat()
    return fields
