"""Conversion of the URIs of a log to local paths and URLs.

The `path` of a file action "is a URI as specified by RFC 2396, which needs to be decoded to get the file
path": relative to the table's directory, or absolute. A deletion vector's file is named by a UUID in Z85.
"""

from __future__ import annotations

import contextlib
import os
import re
import uuid
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.model.actions import DeletionVector
from delta_sharing_client.model.z85 import z85_decode, z85_encode

_LOCAL: Final = re.compile(r"(?:file:(?://(?:localhost)?)?)?/+", re.IGNORECASE)
_SLASHES: Final = re.compile(r"/{2,}")
_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
_UUID_LENGTH: Final = 20
_SAFE_IN_URI: Final = "/-_.~!$&'()*+,;=:@"


def check_is_directory(path: Path) -> None:
    """Raise `DeltaLogError` if a path is that of a file; nothing need exist there."""
    with contextlib.suppress(OSError):  # reported when the directory is used
        if path.exists() and not path.is_dir():
            raise DeltaLogError("this is a file, not a directory; give the directory of a table", path=str(path))


def is_absolute(uri: str) -> bool:
    """Return whether a path of the log is absolute: a URI with a scheme, or with a leading slash."""
    return uri.startswith("/") or _SCHEME.match(uri) is not None


def canonical_uri(uri: str) -> str:
    """Return one form for all spellings of an absolute local path; other paths are returned unchanged.

    ``/a b``, ``/a%20b``, ``file:/a%20b`` and ``file:///a%20b`` name the same file, and a writer may add a file by
    one and remove it by another. Relative paths are compared as written, as in Delta's own implementation.
    """
    match = _LOCAL.match(uri)
    if match is None:
        return uri
    return "file:/" + _SLASHES.sub("/", unquote(uri[match.end() :]))


def uri_of(path: str) -> str:
    """Return the percent-encoded form, as in the log, of a path relative to a table's directory."""
    encoded = quote(path, safe=_SAFE_IN_URI)
    # A colon in the first folder would make the rest look like a scheme.
    first, slash, rest = encoded.partition("/")
    return first.replace(":", "%3A") + slash + rest


def encode_uuid(value: uuid.UUID) -> str:
    """Return the Z85 text of a UUID, by which a deletion vector's descriptor names its file."""
    return z85_encode(value.bytes)


def resolve_path(table: str | os.PathLike[str], uri: str) -> Path:
    """Return the local path of a URI in the log of a table in a directory; links are not followed.

    Raises:
        DeltaLogError: the URI names another file system.
    """
    if _SCHEME.match(uri):
        parts = urlsplit(uri)
        if parts.scheme != "file" or parts.netloc not in ("", "localhost"):
            raise DeltaLogError(f"the log names a file on {parts.scheme}:, which is not local", path=str(table))
        return Path(unquote(parts.path))
    return Path(table) / unquote(uri)


def deletion_vector_uri(vector: DeletionVector) -> str | None:
    """Return the URI of a deletion vector's file, in the form of a file action's path; None for an inline vector.

    Raises:
        DeltaLogError: the storage type is unknown, or the UUID is no Z85 text.
    """
    if vector.is_inline:
        return None
    storage_type, name = vector.storage_type, vector.path_or_inline.reveal()
    if vector.is_absolute:
        return name
    prefix, encoded = name[:-_UUID_LENGTH], name[-_UUID_LENGTH:]
    if storage_type != "u" or len(encoded) < _UUID_LENGTH:
        raise DeltaLogError(f"a deletion vector of an unknown kind ({storage_type!r})")
    try:
        decoded = uuid.UUID(bytes=z85_decode(encoded))
    except ValueError:
        raise DeltaLogError("a deletion vector's file name is not Z85 text") from None
    folder = f"{prefix.rstrip('/')}/" if prefix else ""
    return uri_of(f"{folder}deletion_vector_{decoded}.bin")


def deletion_vector_path(table: str | os.PathLike[str], vector: DeletionVector) -> Path | None:
    """Return the local file of a deletion vector, or None for an inline one.

    Raises:
        DeltaLogError: the storage type is unknown, the UUID is no Z85 text, or the file is on another file system.
    """
    try:
        uri = deletion_vector_uri(vector)
    except DeltaLogError as error:
        raise DeltaLogError(str(error), path=str(table)) from None
    return None if uri is None else resolve_path(table, uri)
