"""Signed URLs and ids of a table's files."""

from __future__ import annotations

import binascii
import hashlib
import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from pathlib import Path
from typing import Final

from delta_sharing_client.delta.log import DeletionVector, deletion_vector_path, resolve_path
from delta_sharing_client.server.catalog import Catalog, ServedTable, split_name
from delta_sharing_client.server.problems import forbidden
from delta_sharing_client.server.sign import SIGNATURE, Signer

_ANY_BYTES: Final = ("utf-8", "surrogateescape")


def file_key(table: ServedTable, path: Path) -> str:
    """Return the key of a file in its URL: the encoded name of the table and path within it.

    Raises:
        Problem: 403, the path is outside the table's directory.
    """
    local = os.path.normpath(path)
    root = str(table.path) + os.sep
    # Links are resolved when the file is read; here only if the text of the path is outside of the table.
    if not local.startswith(root):
        local = str(Path(local).resolve())
    if not local.startswith(root):
        raise forbidden(f"Table {table.full_name} has files outside its own directory, which are not shared.")
    key = f"{table.full_name}/{local.removeprefix(root)}".encode(*_ANY_BYTES)
    return urlsafe_b64encode(key).decode().rstrip("=")


def find_file(catalog: Catalog, key: str) -> Path | None:
    """Return the real path of a file by its key; None if its table is not shared, or it is not in its table."""
    try:
        full_name, _, relative = urlsafe_b64decode(key + "=" * (-len(key) % 4)).decode(*_ANY_BYTES).partition("/")
        table = catalog.find(*split_name(full_name))
        if table is None:
            return None
        real = (table.path / relative).resolve(strict=True)
    except (binascii.Error, ValueError, OSError):
        return None
    return real if real.is_relative_to(table.path) and real.is_file() else None


class Links:
    """URLs and ids of the files of one answer; all URLs expire at the same time."""

    def __init__(
        self,
        *,
        signer: Signer,
        base_url: str,
        table: ServedTable,
        table_id: str,
        expires: int,
        path_hash: str | None = None,
        vector_ids: bool = True,
    ) -> None:
        """Set up the links of an answer.

        Args:
            signer: the server's signer.
            base_url: `http://host:port`, as the client reached the server.
            table: the table.
            table_id: the id in the table's metadata.
            expires: the URLs' expiration, in milliseconds since the epoch.
            path_hash: the hash of a file's path that is its id; None for a hash of the table's id and the path.
            vector_ids: whether the files of deletion vectors have ids.
        """
        self.expires = expires
        self.used = False
        self._signer = signer
        self._prefix = f"{base_url}/files/"
        self._table = table
        self._table_id = table_id
        self._path_hash = path_hash
        self._vector_ids = vector_ids

    def file_id(self, path: str) -> str:
        """Return the id of a file; it is the same in every answer and after a restart."""
        if self._path_hash is not None:
            return hashlib.new(self._path_hash, path.encode(*_ANY_BYTES)).hexdigest()
        return hashlib.sha256(f"{self._table_id}\0{path}".encode(*_ANY_BYTES)).hexdigest()

    def url(self, path: str) -> str:
        """Return a signed URL for a path of the log."""
        return self._sign(resolve_path(self._table.path, path))

    def vector(self, vector: DeletionVector) -> tuple[str | None, str] | None:
        """Return the id (or None) and the signed URL of a vector's file; None for an inline vector."""
        path = deletion_vector_path(self._table.path, vector)
        if path is None:
            return None
        vector_id = self.file_id(os.path.relpath(path, self._table.path)) if self._vector_ids else None
        return vector_id, self._sign(path)

    def _sign(self, path: Path) -> str:
        key = file_key(self._table, path)
        self.used = True
        signature = self._signer.sign_url(key, self.expires)
        return f"{self._prefix}{key}?expires={self.expires}&{SIGNATURE}={signature}"
