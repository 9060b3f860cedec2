"""`Secret` and `SecretUrl`, and redaction of texts that may contain secrets.

A token is a `Secret` from the moment it is read. `repr`, `str` and `format` mask it, and it cannot be pickled.
Only `Secret.reveal()` returns the text, so a search for `reveal(` lists every use.

The query string of a pre-signed URL grants access, so a `SecretUrl` is masked too, also in local variables that a
debugger or an error reporter records. It can be pickled, because tasks carry it to Spark executors. Messages that
may contain a URL pass through `redact_url` or `redact_text`.
"""

from __future__ import annotations

import hmac
import re
from typing import Any, Final, NoReturn
from urllib.parse import urlsplit

from msgspec import Struct

MASK: Final = "***"
#: Schemes of URLs that have a container in the place of a user name.
_CONTAINERS: Final = ("abfs", "abfss", "wasb", "wasbs")
#: What an example has in the place of a secret.
_EXAMPLE: Final = "..."


class _Masked:
    """A text that is masked in every representation."""

    __slots__ = ()

    _value: str

    def reveal(self) -> str:
        """Return the secret text; only code that makes a request calls this."""
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
    """A credential that is masked in every representation.

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
    """A URL, usually a pre-signed one, that is masked in every representation; it can be pickled.

    A `Struct` is created in a third of the time, and an answer may have 300,000 URLs.
    """

    _value: str


def redact_url(url: str | SecretUrl) -> str:
    """Return `scheme://host[:port]/path` of any URL, followed by `?***` if it has a query string.

    The host may be missing, as in `hdfs:///path`, or all that follows the scheme. A user name is left out, except
    for the container of Azure's `abfss://container@account/path`.
    """
    text = url if isinstance(url, str) else url.reveal()
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        if ":" in host:
            host = f"[{host}]"
        port = f":{parts.port}" if parts.port is not None else ""
    except ValueError:
        return "<malformed URL>"
    if parts.scheme == "file" and not parts.netloc:
        return f"file://{parts.path}"
    has_no_host = not parts.netloc and text[len(parts.scheme) :].startswith("://")
    if not parts.scheme or not (host or has_no_host):
        return "<relative URL>" if not parts.scheme else f"{parts.scheme}:{MASK}"
    container = (
        f"{parts.username}@" if parts.scheme in _CONTAINERS and parts.username and parts.password is None else ""
    )
    return f"{parts.scheme}://{container}{host}{port}{parts.path}" + (f"?{MASK}" if parts.query else "")


def unsigned_url(url: SecretUrl) -> str:
    """Return a pre-signed URL without query string and fragment; it is usually the same in every answer."""
    return url.reveal().partition("#")[0].partition("?")[0]


# Most processes redact nothing, so `re` compiles these patterns, and keeps them, when they are first used.
_URL: Final = r"""[a-zA-Z][a-zA-Z0-9+.-]{0,30}://[^\s'"<>\\?#]*+(?:[?#][^\s'"<>]*+)?"""
#: The rest of a URL whose beginning is missing or escaped: a word with a `?` and a `=` after it.
_QUERY: Final = r"""(?<![^\s'"<>])([^\s'"<>?]*+)\?[^\s'"<>]*?(?:=|\\u003d)[^\s'"<>]*+"""
_AUTH: Final = (
    r"(?i)\b(bearer|basic)\s++"
    r"(?!(?:tokens?|auth|authentication|authorization|credentials?|scheme|profiles?)(?![a-z0-9_~+/=-]))"
    r"[a-z0-9._~+/=-]{4,}+"
)
_JWT: Final = r"\beyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?"
_PEM: Final = r"(?s)-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)"
#: The end of a field's name, its closing quote (perhaps escaped), and the separator. A URL that ends in `/token`
#: is not a field: an error message follows its colon.
_FIELD: Final = (
    r"(?i)(?<!/)(?:token|secret|password|assertion|signature|(?:access|private|account|api)_?key|(?P<header>authorization)"
    r"""|(?<![a-z0-9_])sig(?=\\*+["']\s*+:|=)|x-(?:amz|goog)-[a-z-]{1,40})"""
    r"""\\*+["']?\s*+[:=]\s*+"""
)
_QUOTE: Final = r"""(\\*+)(["'])"""
_BARE: Final = r"""[^\s"'&,;<>}\])\\]*+"""
_LINE: Final = r"""[^"'\r\n]*+"""


def redact_text(text: str) -> str:
    """Return `text` with signed URLs, authorization headers and token fields masked.

    For texts of other origin: a server's error body, an exception of a library. Takes linear time for any text.
    """
    text = re.sub(_PEM, MASK, text)
    text = re.sub(_URL, _shown_url, text)
    text = re.sub(_QUERY, rf"\1?{MASK}", text)
    text = re.sub(_AUTH, rf"\1 {MASK}", text)
    text = re.sub(_JWT, MASK, text)
    return _redact_fields(text)


def _shown_url(match: re.Match[str]) -> str:
    """Redact a URL, and keep the punctuation of the sentence after it."""
    url = match.group().rstrip(".,:;!)]}")
    return redact_url(url) + match.group()[len(url) :]


def _redact_fields(text: str) -> str:
    """Mask the values of fields with names of secrets."""
    kept: list[str] = []
    done = 0
    name = re.compile(_FIELD)
    while field := name.search(text, done):
        start, end = _value(text, field.end(), header=field["header"] is not None)
        kept.append(text[done:start])
        if end > start:
            kept.append(_EXAMPLE if text[start:end] == _EXAMPLE else MASK)
        done = max(end, field.end())
    return "".join([*kept, text[done:]]) if kept else text


def _value(text: str, start: int, *, header: bool) -> tuple[int, int]:
    """Return start and end of a field's value, without its quotes."""
    quote = re.compile(_QUOTE).match(text, start)
    if quote is None:
        bare = re.compile(_LINE if header else _BARE).match(text, start)
        return start, bare.end() if bare else start
    # In JSON within JSON, the closing quote is escaped as often as the opening one.
    level = len(quote[1])
    position = quote.end()
    while (found := text.find(quote[2], position)) >= 0:
        escapes = found - len(text[position:found].rstrip("\\")) - position
        if escapes % (2 * level + 2) == level:
            return quote.end(), found - level
        position = found + 1
    return quote.end(), len(text)
