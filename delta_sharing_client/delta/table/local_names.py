"""Local file names: hashes of ids, and hive-style folders with encoded characters.

Names that a server sends are never used unencoded.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

#: The folder of rows whose partition value is null.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: Maximum length of a folder's name in bytes; file systems allow 255.
_LONGEST: Final = 200
_HASH: Final = 32

#: The folder of deletion vectors in a table's directory.
VECTORS: Final = "deletion-vectors"


def digest(*parts: str) -> str:
    """Return the first 32 hexadecimal digits of the SHA-256 of texts."""
    joined = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(joined).hexdigest()[:_HASH]


def encode_folder(text: str) -> str:
    """Percent-encode every byte of a text except those of ``A-Za-z0-9_-``."""
    return quote(text, safe="", errors="surrogateescape").replace(".", "%2E").replace("~", "%7E")


def data_folder(values: Mapping[str, str | None]) -> str:
    """Return the folder of data files with these partition values, with a slash at its end; empty without any.

    Args:
        values: the partition values, outermost column first.
    """
    folders = ""
    for column, value in values.items():
        folder = f"{encode_folder(column)}={encode_folder(value) if value else NO_VALUE}"
        if len(folder) > _LONGEST:
            folder = f"{folder[: _LONGEST - _HASH].rstrip('%')}-{digest(column, value or '')}"
        # Readers ignore folders that begin with an underscore or a dot.
        folders += f"-{folder}/" if folder.startswith("_") else f"{folder}/"
    return folders


def data_file(*ids: str) -> str:
    """Return the name of a data file in its folder (see `data_folder`) from the ids that make it unique."""
    return f"{digest(*ids)}.parquet"


def vector_uuid(*ids: str) -> uuid.UUID:
    """Return the UUID in the name of a deletion vector's local file from the ids that make it unique."""
    return uuid.UUID(hex=digest("deletion vector", *ids), version=4)
