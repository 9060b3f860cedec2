"""Signed tokens and signed URLs.

Page and refresh tokens carry what they continue, and an HMAC over that and over their purpose: a token
cannot be made up, changed, or used for something else. File URLs are signed the same way.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from typing import Any, Final

#: Where the signature stands in a file URL: as S3 spells it, by which some readers know a pre-signed URL.
SIGNATURE: Final = "X-Amz-Signature"


class BadTokenError(ValueError):
    """A token that this server did not hand out, or not for this."""


class Signer:
    """Signs with a key that lives as long as the server."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def make_token(self, purpose: str, payload: dict[str, Any]) -> str:
        """Return an opaque token.

        Args:
            purpose: what the token is for; it is signed along and must be the same on opening.
            payload: JSON-serialisable content.
        """
        body = json.dumps(payload, separators=(",", ":"), sort_keys=True).encode()
        return base64.urlsafe_b64encode(self._mac("token", purpose, body) + body).decode().rstrip("=")

    def open_token(self, purpose: str, token: str) -> dict[str, Any]:
        """Return what a token carries.

        Args:
            purpose: what the token must be for.
            token: the token as the client sent it.

        Raises:
            BadTokenError: the token is not from this server, or is for something else.
        """
        try:
            raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            raise BadTokenError("malformed") from None
        mac, body = raw[:32], raw[32:]
        if not hmac.compare_digest(mac, self._mac("token", purpose, body)):
            raise BadTokenError("bad signature")
        payload: dict[str, Any] = json.loads(body)
        return payload

    def sign_url(self, file_id: str, expires: int) -> str:
        """Return the signature of a file URL.

        Args:
            file_id: the opaque id in the URL's path.
            expires: when the URL expires, in milliseconds since the epoch.
        """
        return self._mac("url", file_id, str(expires).encode()).hex()

    def check_url(self, file_id: str, expires: str, signature: str) -> bool:
        """Tell whether the signature of a file URL is good; whether it has expired is another question."""
        expected = self._mac("url", file_id, expires.encode("utf-8", "surrogateescape")).hex()
        return hmac.compare_digest(expected.encode(), signature.encode("utf-8", "surrogateescape"))

    def name_file(self, path: str) -> str:
        """Return an opaque id for a local path; without the key nobody can tell the path from it."""
        return self._mac("file", path, b"").hex()[:32]

    def _mac(self, kind: str, subject: str, body: bytes) -> bytes:
        message = b"\0".join((kind.encode(), subject.encode("utf-8", "surrogateescape"), body))
        return hmac.digest(self._key, message, hashlib.sha256)
