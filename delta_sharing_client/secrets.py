"""Secrets as a type, and the redaction of whatever might carry one.

A token is a `Secret` from the moment it is read. It never shows itself in `repr`, `str`, `format` or a
pickle; `Secret.reveal()` is the one way to the text, so that a search for `reveal(` lists every use.

Pre-signed URLs are secrets of another kind: their query string grants access. A `SecretUrl` hides one in the same
way, so that no variable of a frame shows it to a debugger or an error reporter; unlike a token it can be pickled,
since tasks carry it to Spark executors. Messages that could hold a URL go through `redact_url` or `redact_text`.
"""

from __future__ import annotations

import hmac
import re
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

MASK: Final = "***"


class _Masked:
    """A text that never shows itself."""

    __slots__ = ()

    _value: str

    def reveal(self) -> str:
        """Return the secret text; call it only where a request is made."""
        return self._value

    def __repr__(self) -> str:
        return f"{type(self).__name__}({MASK!r})"

    def __rich_repr__(self) -> list[Any]:
        return [MASK]

    def __str__(self) -> str:
        return MASK

    def __format__(self, spec: str) -> str:
        return MASK

    def __bool__(self) -> bool:
        return bool(self._value)


class Secret(_Masked):
    """A credential that never shows itself.

    Args:
        value: the secret text.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash((Secret, self._value))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret cannot be pickled or copied: pass the profile to where it is needed instead")

    __copy__ = __reduce__

    def __deepcopy__(self, memo: object) -> NoReturn:
        self.__reduce__()


class SecretUrl(_Masked, Struct, frozen=True, gc=False):
    """A URL, mostly a pre-signed one, that never shows itself; it can be pickled.

    A `Struct`, because an answer may have 300,000 of them, and these are made in a third of the time.
    """

    _value: str


def redact_url(url: str | SecretUrl) -> str:
    """Return `url` without user info, query string and fragment; safe to show.

    Args:
        url: any URL, also a malformed one.

    Returns:
        `scheme://host[:port]/path`, followed by `?***` where there was a query string.
    """
    try:
        parts = urlsplit(url if isinstance(url, str) else url.reveal())
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "<malformed URL>"
    if parts.scheme == "file" and not parts.netloc:
        return f"file://{parts.path}"
    if not parts.scheme or not host:
        return "<relative URL>" if not parts.scheme else f"{parts.scheme}:{MASK}"
    return f"{parts.scheme}://{host}{port}{parts.path}" + (f"?{MASK}" if parts.query else "")


def unsigned_url(url: SecretUrl) -> str:
    """Return what a pre-signed URL names: all of it but its query string and fragment.

    Of one file it is mostly the same in every answer, whatever its id and its signature.
    """
    return url.reveal().partition("#")[0].partition("?")[0]


_URL = re.compile(r"""[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s'"<>\\?#]*+(?:[?#][^\s'"<>]*+)?""")
#: What is left of a URL when its beginning is missing or escaped: anything up to a `?` with a `=` behind it.
_QUERY = re.compile(r"""(?<![^\s'"<>])([^\s'"<>?]*+)\?[^\s'"<>]*?(?:=|\\u003d)[^\s'"<>]*+""")
_AUTH = re.compile(
    r"(?i)\b(bearer|basic)\s++"
    r"(?!(?:tokens?|auth|authentication|authorization|credentials?|scheme|profiles?)(?![a-z0-9_~+/=-]))"
    r"[a-z0-9._~+/=-]{4,}+"
)
_JWT = re.compile(r"\beyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?")
_PEM = re.compile(r"(?s)-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)")
#: The end of a field's name, its closing quote (perhaps escaped) and what stands before the value. A URL that ends
#: in `/token` is no field: behind its colon stands what went wrong there.
_FIELD = re.compile(
    r"(?i)(?<!/)(?:token|secret|password|assertion|signature|(?:access|private|account|api)_?key|(?P<header>authorization)"
    r"""|(?<![a-z0-9_])sig(?=\\*+["']\s*+:|=)|x-(?:amz|goog)-[a-z-]{1,40})"""
    r"""\\*+["']?\s*+[:=]\s*+"""
)
_QUOTE = re.compile(r"""(\\*+)(["'])""")
_BARE = re.compile(r"""[^\s"'&,;<>}\])\\]*+""")
_LINE = re.compile(r"""[^"'\r\n]*+""")


def redact_text(text: str) -> str:
    """Return `text` with signed URLs, authorization headers and token fields masked.

    For messages that come from elsewhere: a server's error body, an exception of a library. Takes time
    linear in the text's length, whatever the text.
    """
    text = _PEM.sub(MASK, text)
    text = _URL.sub(_shown_url, text)
    text = _QUERY.sub(rf"\1?{MASK}", text)
    text = _AUTH.sub(rf"\1 {MASK}", text)
    text = _JWT.sub(MASK, text)
    return _redact_fields(text)


def _shown_url(match: re.Match[str]) -> str:
    """A URL made safe, and the punctuation behind it, which is the sentence's."""
    url = match.group().rstrip(".,:;!)]}")
    return redact_url(url) + match.group()[len(url) :]


def _redact_fields(text: str) -> str:
    """Mask the values of fields whose names say that they hold a secret."""
    kept: list[str] = []
    done = 0
    while field := _FIELD.search(text, done):
        start, end = _value(text, field.end(), header=field["header"] is not None)
        kept.append(text[done:start])
        if end > start:
            kept.append(MASK)
        done = max(end, field.end())
    return "".join([*kept, text[done:]]) if kept else text


def _value(text: str, start: int, *, header: bool) -> tuple[int, int]:
    """Where a field's value starts and ends, its quotes left out."""
    quote = _QUOTE.match(text, start)
    if quote is None:
        bare = (_LINE if header else _BARE).match(text, start)
        return start, bare.end() if bare else start
    # In JSON inside JSON the quotes are escaped: the closing one as often as the opening one.
    level = len(quote[1])
    position = quote.end()
    while (found := text.find(quote[2], position)) >= 0:
        escapes = found - len(text[position:found].rstrip("\\")) - position
        if escapes % (2 * level + 2) == level:
            return quote.end(), found - level
        position = found + 1
    return quote.end(), len(text)
