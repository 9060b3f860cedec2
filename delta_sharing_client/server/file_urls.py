"""Signed URLs of data files: made for the lines of an answer, and resolved to paths."""

from __future__ import annotations

import binascii
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

from delta_sharing_client.server.catalog import Catalog, split_name
from delta_sharing_client.server.problems import forbidden
from delta_sharing_client.server.sign import SIGNATURE
from delta_sharing_client.server.table_request import TableRequest

#: Arguments of `encode` and `decode` for paths, which may be any bytes.
ANY_BYTES: Final = ("utf-8", "surrogateescape")


def signed_url(request: TableRequest, path: Path, expires: int) -> str:
    """Return a URL for a file of a table, which expires at a time in milliseconds since the epoch.

    It has the table's name and the path within it, encoded. With `file_ids_by_format` the path itself follows.

    Raises:
        Problem: 403, the path is outside the table's directory.
    """
    table = request.table
    local = os.path.normpath(path)
    root = str(table.path) + os.sep
    # Links are resolved when the file is read; here only if the text of the path is outside of the table.
    if not local.startswith(root):
        local = str(Path(local).resolve())
    if not local.startswith(root):
        raise forbidden(f"Table {table.full_name} has files outside its own directory, which are not shared.")
    relative = local.removeprefix(root).encode(*ANY_BYTES)
    key = urlsafe_b64encode(f"{table.full_name}/".encode(*ANY_BYTES) + relative).decode().rstrip("=")
    if request.options.file_ids_by_format:
        key += f"/{quote(relative)}"
    # Signed as the server receives it, decoded: clients may encode more characters.
    signature = request.signer.sign_url(unquote(key), expires)
    return f"{request.base_url}/files/{key}?expires={expires}&{SIGNATURE}={signature}"


def find_file(catalog: Catalog, key: str) -> Path | None:
    """Return the real path of a file by its key; None if its table is not shared, or it is not in its table."""
    key = key.partition("/")[0]
    try:
        full_name, _, relative = urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode(*ANY_BYTES).partition("/")
        table = catalog.find(*split_name(full_name))
        if table is None:
            return None
        real = (table.path / relative).resolve(strict=True)
    except (binascii.Error, ValueError, OSError):
        return None
    return real if real.is_relative_to(table.path) and real.is_file() else None
