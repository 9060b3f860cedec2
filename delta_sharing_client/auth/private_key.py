"""Private key of a profile, and the assertions signed with it (extra `oauth`)."""

from __future__ import annotations

import uuid
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.errors import MissingDependencyError, ProfileError
from delta_sharing_client.model.credentials import PrivateKeyJwt
from delta_sharing_client.model.profile import Profile
from delta_sharing_client.paths import local_path
from delta_sharing_client.secrets import Secret

#: Validity of an assertion, in seconds.
LIFETIME: Final = 120

_MAX_KEY: Final = 64 * 1024


def private_key_path(profile: Profile) -> Path | None:
    """Return the path of a profile's private key file; None if the profile names no file.

    A relative path starts at the profile's directory if the file exists there, else at the working directory.

    Raises:
        ProfileError: it is no path of this machine.
    """
    credential = profile.credential
    if not isinstance(credential, PrivateKeyJwt) or credential.private_key_file is None:
        return None
    return path_in_profile(profile, credential.private_key_file, "privateKeyFile")


def path_in_profile(profile: Profile, text: str, field: str) -> Path:
    """Return a path that a field of a profile contains, found as by `private_key_path`.

    Raises:
        ProfileError: it is no path of this machine.
    """
    try:
        path = local_path(text, repr(field))
    except ValueError as error:
        raise ProfileError(str(error), field=field, source=profile.source) from None
    if not path.is_absolute() and profile.source is not None:
        with suppress(OSError, ValueError):  # a profile at a URL
            beside = local_path(profile.source, "source").parent / path
            if beside.is_file():
                return beside
    return path


def read_private_key(profile: Profile) -> Secret:
    """Return the private key of a profile of type `oauth_jwt_bearer_private_key_jwt`, in PEM.

    Raises:
        ProfileError: the profile has no key, or its file cannot be read.
    """
    credential = profile.credential
    if isinstance(credential, PrivateKeyJwt) and credential.private_key is not None:
        return credential.private_key
    path = private_key_path(profile)
    if path is None:
        raise ProfileError(f"it is of type {profile.type} and has no private key", source=profile.source)
    name = "privateKeyFile"
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_KEY + 1)
        text = content.decode("ascii")
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise ProfileError(
            f"its private key {path} cannot be read: {reason}; correct {name!r}", field=name, source=profile.source
        ) from None
    except ValueError:  # a null in the path, or no text
        text = ""
    if len(text) > _MAX_KEY or "PRIVATE KEY-----" not in text:
        raise ProfileError(
            f"{path} is not a private key in PEM format; correct {name!r}", field=name, source=profile.source
        )
    return Secret(text)


def sign_assertion(profile: Profile, key: Secret, issued: int) -> Secret:
    """Return an assertion for a profile of type `oauth_jwt_bearer_private_key_jwt`, valid for `LIFETIME` seconds.

    Args:
        profile: the profile.
        key: its private key.
        issued: the present time, in seconds since the epoch.

    Raises:
        MissingDependencyError: the extra `oauth` is not installed.
        ProfileError: the key is malformed, or does not fit the algorithm.
    """
    credential = profile.credential
    if not isinstance(credential, PrivateKeyJwt):
        raise TypeError(f"the profile is of type {profile.type}, which signs nothing")
    jwt = _import_jwt()
    claims: dict[str, Any] = {
        "aud": credential.issuer,
        "iss": credential.client_id,
        "iat": issued,
        "exp": issued + LIFETIME,
        "jti": str(uuid.uuid4()),
        "resource": credential.audience,
    }
    if credential.scope is not None:
        claims["scope"] = credential.scope
    try:
        signed = jwt.encode(
            claims, key.reveal(), algorithm=credential.algorithm, headers={"kid": credential.key_id}
        )
    except Exception as error:  # noqa: BLE001  # errors of PyJWT, cryptography or OpenSSL; their text may contain the key
        raise ProfileError(
            f"its private key cannot sign with {credential.algorithm} ({type(error).__name__}): it takes an "
            "unencrypted PEM key for that algorithm",
            field="privateKey",
            source=profile.source,
        ) from None
    return Secret(signed)


def _import_jwt() -> Any:
    try:
        import cryptography  # noqa: F401
        import jwt
    except ImportError:
        purpose = f"a profile of type {PrivateKeyJwt.TYPE}"
        raise MissingDependencyError(package="PyJWT[crypto]", extra="oauth", purpose=purpose) from None
    return jwt
