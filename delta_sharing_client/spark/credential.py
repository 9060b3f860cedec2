"""A profile as plain fields, credential included: what a renewal on an executor takes with it.

The one place, beside signing a request, where a secret is revealed.
"""

from __future__ import annotations

from typing import Any

from delta_sharing_client.protocol.profile import Profile


def profile_fields(profile: Profile) -> dict[str, Any]:
    """Return what a profile file would hold.

    Args:
        profile: the profile.
    """
    fields: dict[str, Any] = {
        "shareCredentialsVersion": profile.share_credentials_version,
        "type": profile.type,
        "endpoint": profile.endpoint,
        "bearerToken": profile.bearer_token.reveal(),
    }
    if profile.expiration_time is not None:
        fields["expirationTime"] = profile.expiration_time.isoformat()
    return fields
