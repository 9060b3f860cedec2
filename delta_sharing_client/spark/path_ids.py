"""Ids of files that are hashes of their paths, as the reference sharing server makes them.

The hash differs between response formats and releases of that server. The ids of one hash are computed from an
answer with those of another, so that files are found again in an order that the server no longer returns.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from delta_sharing_client.parquet.tasks import FileScanTask

#: The hashes by the length of an id.
_HASHES: Final = {32: "md5", 64: "sha256"}
#: Characters that a log's paths do not encode, besides letters and digits.
_PLAIN: Final = "!$&'()*+,-./:;=@_~"


def ids_like(sample: str, tasks: Sequence[FileScanTask]) -> list[str] | None:
    """Return the ids of files by the hash that an id was made with.

    None if an id is not a hash of the end of its file's path: nothing is assumed about other ids.
    """
    name = _HASHES.get(len(sample))
    if name is None:
        return None
    ids = []
    for task in tasks:
        path = _hashed_path(task)
        if path is None:
            return None
        ids.append(_digest(name, path))
    return ids


def _hashed_path(task: FileScanTask) -> str | None:
    """Return the path, relative to the table, that the id of a file is the hash of."""
    name = _HASHES.get(len(task.file_id))
    if name is None:
        return None
    return next((path for path in _candidates(task) if _digest(name, path) == task.file_id), None)


def _candidates(task: FileScanTask) -> Iterator[str]:
    """Yield the ends of the path of a file's URL, in the encodings that a log may have them in."""
    decoded = unquote(urlsplit(task.url.reveal()).path)
    encoded = quote(decoded, safe=_PLAIN)
    ascii_encoded = re.sub(r"[\0-\x7f]+", lambda text: quote(text[0], safe=_PLAIN), decoded)  # as Spark does
    for text in dict.fromkeys((decoded, encoded, ascii_encoded)):
        parts = text.split("/")
        for start in reversed(range(len(parts))):
            yield "/".join(parts[start:])


def _digest(name: str, path: str) -> str:
    return hashlib.new(name, path.encode(errors="surrogatepass"), usedforsecurity=False).hexdigest()
