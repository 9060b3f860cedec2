"""Secrets as a type, and the redaction of whatever might carry one.

A token is a `Secret` from the moment it is read. It never shows itself in `repr`, `str`, `format` or a
pickle; `Secret.reveal()` is the one way to the text, so that a search for `reveal(` lists every use.

Pre-signed URLs are secrets of another kind: their query string grants access. They have to travel in
tasks, so they stay strings, but every message that could hold one goes through `redact_url` or
`redact_text` first.
"""

from __future__ import annotations

import hmac
import re
from typing import Final, NoReturn
from urllib.parse import urlsplit

MASK: Final = "***"


class Secret:
    """A credential that never shows itself.

    Args:
        value: the secret text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the secret text; call it only where a request is signed."""
        return self._value

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __bool__(self) -> bool:
        return bool(self._value)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied: pass the profile to where it is needed instead")

    __copy__ = __reduce__

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


def redact_url(url: str) -> str:
    """Return `url` without user info, query string and fragment; safe to show.

    Args:
        url: any URL, also a malformed one.

    Returns:
        `scheme://host[:port]/path`, followed by `?***` where there was a query string.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "<malformed URL>"
    if not parts.scheme or not host:
        return "<relative URL>" if not parts.scheme else f"{parts.scheme}:{MASK}"
    return f"{parts.scheme}://{host}{port}{parts.path}" + (f"?{MASK}" if parts.query else "")


_URL = re.compile(r"""[a-zA-Z][a-zA-Z0-9+.-]*://[^\s'"<>\\]+""")
_RELATIVE_QUERY = re.compile(r"""(/[^\s'"<>?]*)\?[^\s'"<>]*=[^\s'"<>]*""")
_AUTH = re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{4,}")
_FIELD = re.compile(
    r"""(?i)(["']?(?:bearerToken|clientSecret|password|access_token|refresh_?token|pageToken|signature|sig|"""
    r"""X-Amz-[A-Za-z-]+|X-Goog-[A-Za-z-]+)["']?\s*[:=]\s*["']?)[^\s"'&,}]+"""
)


def redact_text(text: str) -> str:
    """Return `text` with signed URLs, authorization headers and token fields masked.

    For messages that come from elsewhere: a server's error body, an exception of a library.
    """
    text = _URL.sub(lambda match: redact_url(match.group()), text)
    text = _RELATIVE_QUERY.sub(rf"\1?{MASK}", text)
    text = _AUTH.sub(rf"\1 {MASK}", text)
    return _FIELD.sub(rf"\1{MASK}", text)
