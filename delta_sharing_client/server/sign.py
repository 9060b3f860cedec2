"""Signatures of page tokens, refresh tokens and file URLs.

A page or refresh token contains the state of its query. The signature covers the state and the token's purpose, so
that a token cannot be forged, changed or used for another query. File URLs are signed in the same way.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

import itsdangerous

from delta_sharing_client.server.problems import bad_request

#: The parameter with the signature of a file URL; some readers recognize pre-signed URLs by this name of S3.
SIGNATURE: Final = "X-Amz-Signature"


class Signer:
    """Signs tokens and URLs with a key that is created with the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._urls = itsdangerous.Signer(self._key, salt=b"url", digest_method=hashlib.sha256)

    def make_token(self, purpose: str, payload: dict[str, Any]) -> str:
        """Return an opaque token; `purpose` is signed too, and must be equal in `open_token`."""
        token = self._tokens(purpose).dumps(payload)
        return token if isinstance(token, str) else token.decode()

    def open_token(self, purpose: str, token: str, subject: str) -> dict[str, Any]:
        """Return the payload of a token, whose name in the protocol is `subject`; raise `Problem` (400)."""
        try:
            payload: dict[str, Any] = self._tokens(purpose).loads(token)
        except (itsdangerous.BadData, ValueError):
            raise bad_request(f"{subject} is not valid for this request.") from None
        return payload

    def sign_url(self, key: str, expires: int) -> str:
        """Return the signature of the URL of a file's key, which expires at a time in milliseconds."""
        return self._urls.get_signature(f"{key}?{expires}").decode()

    def check_url(self, key: str, expires: str, signature: str) -> bool:
        """Return whether the signature of a file URL is valid, expired or not."""
        try:
            return self._urls.verify_signature(f"{key}?{expires}", signature)
        except ValueError:
            return False

    def _tokens(self, purpose: str) -> itsdangerous.URLSafeSerializer:
        salt = purpose.encode("utf-8", "surrogateescape")
        return itsdangerous.URLSafeSerializer(
            self._key, salt=salt, signer_kwargs={"digest_method": hashlib.sha256}
        )
