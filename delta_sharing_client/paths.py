"""`local_path`: the one way from a path that a user gives to a path of this machine.

A text may be a path, a path that begins with `~`, or a `file:` URL. A URL of another scheme is refused: as a
relative path it would name a folder of this machine.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote_to_bytes, urlsplit

#: The start of a URL: `s3://bucket`, `dbfs:/folder`, `simplecache::s3://bucket`. A single letter is a drive of
#: Windows, and `orders:2024.csv` is the name of a file. Of the two slashes `pathlib` keeps one.
_SCHEME: Final = re.compile(r"\s*([A-Za-z][A-Za-z0-9_+.-]+):[:/\\]")
_FILE: Final = re.compile(r"\s*file:", re.IGNORECASE)
_LOCAL: Final = "a path of this machine, or its file: URL"


def local_path(path: Any, argument: str, *, supported: str = _LOCAL) -> Path:
    """Return the path of this machine that a user gave, with the home directory for `~`; it need not exist.

    A result that is passed again is returned unchanged.

    Args:
        path: a text or a path object.
        argument: the name of the argument, for messages; they do not repeat the path, which may be a secret URL.
        supported: what the argument takes, for the message about a URL.

    Raises:
        TypeError: it is neither text nor a path.
        ValueError: it is empty, has a null character or another scheme than `file:`, is the `file:` URL of another
            machine, or begins with the name of an unknown user.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise TypeError(f"{argument} is a str or a path, not {type(path).__name__}")
    if not text.strip():
        raise ValueError(f"{argument} is empty; it takes {supported}")
    if _FILE.match(text):
        text = _of_file_url(text, argument, supported)
    elif scheme := _SCHEME.match(text):
        raise ValueError(f"{argument} has the scheme {scheme[1]}:, which is not supported; it takes {supported}")
    elif text.startswith("~"):
        text = _expanded(text, argument)
    if "\x00" in text:
        raise ValueError(f"{argument} has a null character; it takes {supported}")
    found = Path(text)
    # A relative name that would be read as something else the next time, such as that of `./~`.
    return found.absolute() if str(found).startswith("~") or _SCHEME.match(str(found)) else found


def _expanded(text: str, argument: str) -> str:
    expanded = os.path.expanduser(text)  # noqa: PTH111  # pathlib reads ./~ as ~
    if expanded.startswith("~"):
        user = Path(text).parts[0]
        raise ValueError(
            f"{argument} begins with {user!r}, and this machine has no such user; ./{user} names a file or folder"
        )
    return expanded


def _of_file_url(url: str, argument: str, supported: str) -> str:
    """Return the path of a `file:` URL (RFC 8089)."""
    try:
        parts = urlsplit(url.strip())
        is_local = parts.netloc.lower() in ("", "localhost") and parts.path.startswith("/")
    except ValueError:  # a malformed host
        is_local = False
    if not is_local:
        raise ValueError(
            f"{argument} is a file: URL without an absolute path of this machine, as in file:///path; "
            f"it takes {supported}"
        )
    if parts.query or parts.fragment:
        raise ValueError(f"{argument} is a file: URL with ? or #; write those of a path as %3F and %23")
    if os.name == "nt":
        from urllib.request import url2pathname

        return url2pathname(parts.path)
    return os.fsdecode(unquote_to_bytes(parts.path))
