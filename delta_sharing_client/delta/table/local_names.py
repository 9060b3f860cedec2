"""Local file names: hashes of ids, and hive-style folders with encoded characters.

Nothing that a server sends becomes a path as it is.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Mapping, Sequence
from typing import Final

_PLAIN: Final = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
#: The folder of rows whose partition value is null.
NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
#: Bytes that a folder's name may have; file systems allow 255.
_LONGEST: Final = 200
_HASH: Final = 32

#: Where deletion vectors lie in a table's directory.
VECTORS: Final = "deletion-vectors"


def digest(*parts: str) -> str:
    """Return 32 hexadecimal digits that stand for some texts."""
    joined = "\0".join(parts).encode("utf-8", "surrogateescape")
    return hashlib.sha256(joined).hexdigest()[:_HASH]


def encode_folder(text: str) -> str:
    """Percent-encode every byte of a text but those of ``A-Za-z0-9_-``."""
    return "".join(chr(b) if b in _PLAIN else f"%{b:02X}" for b in text.encode("utf-8", "surrogateescape"))


def data_file(file_id: str, values: Mapping[str, str | None], partition_columns: Sequence[str]) -> str:
    """Return the path of a data file in a table's directory.

    Args:
        file_id: its id in the sharing protocol.
        values: its partition values, by the names in `partition_columns`.
        partition_columns: the partition columns, outermost first.
    """
    folders = []
    for column in partition_columns:
        value = values.get(column)
        folder = f"{encode_folder(column)}={encode_folder(value) if value else NO_VALUE}"
        if len(folder) > _LONGEST:
            folder = f"{folder[: _LONGEST - _HASH].rstrip('%')}-{digest(column, value or '')}"
        # Readers take folders that begin with an underscore or a dot for hidden ones.
        folders.append(f"-{folder}" if folder.startswith("_") else folder)
    return "/".join([*folders, f"{digest(file_id)}.parquet"])


def vector_uuid(file_id: str, vector_id: str) -> uuid.UUID:
    """Return the UUID that a deletion vector's local file is named by."""
    return uuid.UUID(hex=digest("deletion vector", file_id, vector_id), version=4)
