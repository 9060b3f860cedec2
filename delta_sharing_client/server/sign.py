"""Signed tokens and signed URLs.

Page and refresh tokens carry what they continue. A signature covers that and the token's purpose: a token cannot
be made up, changed, or used for something else. File URLs are signed the same way.
"""

from __future__ import annotations

import hashlib
import secrets
from typing import Any, Final

import itsdangerous

from delta_sharing_client.server.problems import bad_request

#: Where the signature stands in a file URL: as S3 spells it, by which some readers know a pre-signed URL.
SIGNATURE: Final = "X-Amz-Signature"


class Signer:
    """Signs with a key that lives as long as the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._urls = itsdangerous.Signer(self._key, salt=b"url", digest_method=hashlib.sha256)

    def make_token(self, purpose: str, payload: dict[str, Any]) -> str:
        """Return an opaque token.

        Args:
            purpose: what the token is for; it is signed along and must be the same on opening.
            payload: JSON-serialisable content.
        """
        token = self._tokens(purpose).dumps(payload)
        return token if isinstance(token, str) else token.decode()

    def open_token(self, purpose: str, token: str, what: str) -> dict[str, Any]:
        """Return what a token of an earlier answer carries.

        Args:
            purpose: what the token must be for.
            token: the token as the client sent it.
            what: the token's name in the protocol.

        Raises:
            Problem: 400, the token is for something else, or not from this server.
        """
        try:
            payload: dict[str, Any] = self._tokens(purpose).loads(token)
        except (itsdangerous.BadData, ValueError):
            raise bad_request(f"{what} is not valid for this request.") from None
        return payload

    def sign_url(self, key: str, expires: int) -> str:
        """Return the signature of a file URL.

        Args:
            key: the file's key in the URL's path.
            expires: when the URL expires, in milliseconds since the epoch.
        """
        return self._urls.get_signature(f"{key}?{expires}").decode()

    def check_url(self, key: str, expires: str, signature: str) -> bool:
        """Return whether the signature of a file URL is good; whether it has expired is another question."""
        try:
            return self._urls.verify_signature(f"{key}?{expires}", signature)
        except ValueError:
            return False

    def _tokens(self, purpose: str) -> itsdangerous.URLSafeSerializer:
        salt = purpose.encode("utf-8", "surrogateescape")
        return itsdangerous.URLSafeSerializer(
            self._key, salt=salt, signer_kwargs={"digest_method": hashlib.sha256}
        )
