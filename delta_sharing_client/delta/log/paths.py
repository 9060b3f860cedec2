"""Conversion of the URIs of a log to local paths and URLs.

The `path` of a file action "is a URI as specified by RFC 2396, which needs to be decoded to get the file
path": relative to the table's directory, or absolute. A deletion vector's file is named by a UUID in Z85.
"""

from __future__ import annotations

import re
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.actions import DeletionVector

_LOCAL: Final = re.compile(r"(?:file:(?://(?:localhost)?)?)?/+", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/{2,}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_Z85: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_Z85_VALUE: Final = {character: value for value, character in enumerate(_Z85)}
_UUID_LENGTH: Final = 20
_SAFE_IN_URI: Final = "/-_.~!$&'()*+,;=:@"


def is_absolute(uri: str) -> bool:
    """Return whether a path of the log is absolute: a URI with a scheme, or with a leading slash."""
    return uri.startswith("/") or _SCHEME.match(uri) is not None


def canonical_uri(uri: str) -> str:
    """Return one form for all spellings of an absolute local path; other paths as they are.

    ``/a b``, ``/a%20b``, ``file:/a%20b`` and ``file:///a%20b`` name the same file. Writers add a file by one and
    remove it by another. Relative paths are compared as written, as the engine that defines the format does.
    """
    match = _LOCAL.match(uri)
    if match is None:
        return uri
    return "file:/" + _SLASHES.sub("/", unquote(uri[match.end() :]))


def uri_of(path: str) -> str:
    """Return a path relative to a table's directory as the log writes it: percent-encoded.

    Args:
        path: the path, with ``/`` between folders.
    """
    encoded = quote(path, safe=_SAFE_IN_URI)
    # A colon in the first folder would make the rest look like a scheme.
    first, slash, rest = encoded.partition("/")
    return first.replace(":", "%3A") + slash + rest


def encode_uuid(value: uuid.UUID) -> str:
    """Return a UUID as the 20 characters (Z85) that a deletion vector's descriptor names its file by."""
    text = []
    for start in range(0, 16, 4):
        number = int.from_bytes(value.bytes[start : start + 4], "big")
        digits = [number // 85**power % 85 for power in (4, 3, 2, 1, 0)]
        text += [_Z85[digit] for digit in digits]
    return "".join(text)


def resolve_path(table: Path, uri: str) -> Path:
    """Return the local path that a URI of the log names; links are not followed and nothing is opened.

    Args:
        table: the table's directory.
        uri: the path as written in the log.

    Raises:
        DeltaLogError: the URI names another file system.
    """
    if _SCHEME.match(uri):
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise DeltaLogError(f"the log names a file on {parts.scheme}:, which is not local", path=str(table))
        return Path(unquote(parts.path))
    return table / unquote(uri)


def deletion_vector_uri(vector: DeletionVector) -> str | None:
    """Return the URI of a deletion vector's file, in the form of a file action's path; None for an inline vector.

    Raises:
        DeltaLogError: the storage type is unknown, or the UUID is no Z85 text.
    """
    if vector.is_inline:
        return None
    storage_type, path_or_inline = vector.storage_type, vector.path_or_inline.reveal()
    if storage_type == "p":
        return path_or_inline
    if storage_type != "u" or len(path_or_inline) < _UUID_LENGTH:
        raise DeltaLogError(f"a deletion vector of an unknown kind ({storage_type!r})")
    prefix, encoded = path_or_inline[:-_UUID_LENGTH], path_or_inline[-_UUID_LENGTH:]
    name = f"deletion_vector_{_decode_uuid(encoded)}.bin"
    return uri_of(f"{prefix.rstrip('/')}/{name}" if prefix else name)


def deletion_vector_path(table: Path, vector: DeletionVector) -> Path | None:
    """Return the local file of a deletion vector, or None for an inline one.

    Args:
        table: the table's directory.
        vector: the descriptor of the vector.

    Raises:
        DeltaLogError: the storage type is unknown, the UUID is no Z85 text, or the file is on another file system.
    """
    try:
        uri = deletion_vector_uri(vector)
    except DeltaLogError as error:
        raise DeltaLogError(str(error), path=str(table)) from None
    return None if uri is None else resolve_path(table, uri)


def _decode_uuid(encoded: str) -> uuid.UUID:
    decoded = bytearray()
    try:
        for start in range(0, _UUID_LENGTH, 5):
            value = 0
            for character in encoded[start : start + 5]:
                value = value * 85 + _Z85_VALUE[character]
            decoded += value.to_bytes(4, "big")
    except (KeyError, OverflowError):
        raise DeltaLogError("a deletion vector's file name is not Z85 text") from None
    return uuid.UUID(bytes=bytes(decoded))
