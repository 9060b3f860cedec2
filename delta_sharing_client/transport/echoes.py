"""Masking of the secrets of a request in what a server repeats of them, as they are or in another encoding.

A message may be cut in the middle of a secret, so each part of at least `_PART` characters is masked too.
"""

from __future__ import annotations

import base64
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote, unquote_plus

from delta_sharing_client.secrets import MASK

#: Parts of a secret from this length on are masked.
_PART: Final = 12
#: Encodings within each other that are undone, such as a percent-encoded text in JSON.
_LEVELS: Final = 3
#: The least characters of a secret in base64: shorter words are too common.
_SHORTEST_BASE64: Final = 6
#: Characters of a text that are examined.
_EXAMINED: Final = 64 * 1024

#: Percent-encoding, escapes of JSON, and character references of HTML.
_ENCODED = re.compile(
    rb"%([0-9A-Fa-f]{2})|\\u([0-9A-Fa-f]{4})|\\(.)|&#x([0-9A-Fa-f]{1,6});|&#([0-9]{1,7});|&(amp|lt|gt|quot|apos);",
    re.DOTALL,
)
_SHORT_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}
_NAMED: Final = {b"amp": b"&", b"lt": b"<", b"gt": b">", b"quot": b'"', b"apos": b"'"}


def mask_echoes(text: str, secrets: Iterable[str]) -> str:
    """Return `text` with the secrets masked: as they are, percent-encoded, in JSON or HTML, in base64 or hex.

    Parts of a secret are masked too. Of a longer text only the beginning is examined and returned.
    """
    parts = _parts({word for secret in secrets if secret for word in _forms(secret)})
    if not parts:
        return text
    original = text[:_EXAMINED].encode("utf-8", "surrogatepass")
    data, where = original, list(range(len(original) + 1))
    hidden = bytearray(len(original))
    for _ in range(_LEVELS):
        for form in {data, data.replace(b"+", b" ")}:
            _hide(form, where, parts, hidden)
        decoded, where = _decoded(data, where)
        if decoded == data:
            break
        data = decoded
    if not any(hidden):
        return text[:_EXAMINED]
    return _masked(original, hidden).decode("utf-8", "replace")


def secrets_of(headers: Mapping[str, str]) -> list[str]:
    """Return the secrets in an `Authorization` header: the token, or the pair in base64 and its password."""
    value = headers.get("Authorization", "")
    words = value.split()[1:]
    if value.lower().startswith("basic "):
        for word in words[:1]:
            try:
                password = base64.b64decode(word).decode().partition(":")[2]
            except ValueError:
                continue
            # The pair may be form-encoded before base64.
            words += [password, unquote(password), unquote_plus(password)]
    return words


def _forms(secret: str) -> set[bytes]:
    """Return a secret as it is, in hexadecimal digits, and in base64 behind 0 to 2 other bytes."""
    plain = secret.encode("utf-8", "surrogatepass")
    forms = {plain}
    if len(plain) >= _SHORTEST_BASE64:
        forms |= {plain.hex().encode(), plain.hex().upper().encode()}
    for before in range(3):
        text = base64.b64encode(bytes(before) + plain)
        # Characters at the edges also depend on the bytes around the secret.
        core = text[-(-before * 8 // 6) : (before + len(plain)) * 8 // 6]
        if len(core) >= _SHORTEST_BASE64:
            forms |= {core, core.translate(bytes.maketrans(b"+/", b"-_"))}
    return forms


def _parts(words: set[bytes]) -> dict[int, set[bytes]]:
    """Return the parts of the words by their length, which is `_PART`, or that of a shorter word."""
    parts: dict[int, set[bytes]] = defaultdict(set)
    for word in words:
        size = min(len(word), _PART)
        parts[size].update(word[start : start + size] for start in range(len(word) - size + 1))
    return parts


def _hide(data: bytes, where: Sequence[int], parts: Mapping[int, set[bytes]], hidden: bytearray) -> None:
    """Mark the bytes of the original text of which a part of a secret was decoded."""
    for size, known in parts.items():
        for start in range(len(data) - size + 1):
            if data[start : start + size] in known:
                first, end = where[start], where[start + size]
                hidden[first:end] = b"\1" * (end - first)


def _decoded(data: bytes, where: Sequence[int]) -> tuple[bytes, list[int]]:
    """Undo one level of encoding; return the bytes, and where each one begins in the original text."""
    result = bytearray()
    places: list[int] = []
    done = 0
    for match in _ENCODED.finditer(data):
        result += data[done : match.start()]
        places += where[done : match.start()]
        value = _value(match)
        result += value
        places += [where[match.start()]] * len(value)
        done = match.end()
    result += data[done:]
    places += where[done:]
    return bytes(result), places


def _value(match: re.Match[bytes]) -> bytes:
    percent, unicode, escape, hexadecimal, decimal, name = match.groups()
    if percent:
        return bytes.fromhex(percent.decode())
    if escape:
        return _SHORT_ESCAPES.get(escape, escape)
    if name:
        return _NAMED[name]
    number = int(decimal) if decimal else int(unicode or hexadecimal, 16)
    return chr(number).encode("utf-8", "surrogatepass") if number <= 0x10FFFF else match.group()


def _masked(original: bytes, hidden: bytearray) -> bytes:
    kept = bytearray()
    for place, byte in enumerate(original):
        if not hidden[place]:
            kept.append(byte)
        elif place == 0 or not hidden[place - 1]:
            kept += MASK.encode()
    return bytes(kept)
