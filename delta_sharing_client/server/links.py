"""Signed URLs for the files of a table, and the ids that go with them."""

from __future__ import annotations

import hashlib
import os
import threading
from pathlib import Path

from delta_sharing_client.delta.log import DeletionVector, deletion_vector_path, resolve_path
from delta_sharing_client.server.catalog import ServedTable
from delta_sharing_client.server.problems import forbidden
from delta_sharing_client.server.sign import SIGNATURE, Signer


class FileStore:
    """The files that have been handed out, by the opaque id in their URL."""

    def __init__(self, signer: Signer) -> None:
        self._signer = signer
        self._files: dict[str, tuple[str, str]] = {}
        self._lock = threading.Lock()

    def add(self, table: ServedTable, path: Path) -> str:
        """Remember a file of a table and return its opaque id.

        Args:
            table: the table.
            path: the file's local path.

        Raises:
            Problem: 403, the path leads out of the table's directory.
        """
        local = os.path.normpath(path)
        root = str(table.path)
        # Mostly only the text is checked here, once per file of a listing; links are resolved when it is read.
        if not local.startswith(root + os.sep):
            local = str(Path(local).resolve())
        if not local.startswith(root + os.sep):
            raise forbidden(f"Table {table.full_name} has files outside its own directory, which are not shared.")
        file_id = self._signer.name_file(local)
        with self._lock:
            self._files[file_id] = (local, root)
        return file_id

    def find(self, file_id: str) -> Path | None:
        """Return the real path of a file, or None if it was never handed out, is gone or leads elsewhere."""
        entry = self._files.get(file_id)
        if entry is None:
            return None
        local, root = entry
        try:
            real = Path(local).resolve(strict=True)
        except OSError:
            return None
        return real if real.is_relative_to(root) and real.is_file() else None


class Links:
    """Makes the URLs of one answer; all of them expire at the same time."""

    def __init__(
        self,
        *,
        store: FileStore,
        signer: Signer,
        base_url: str,
        table: ServedTable,
        table_id: str,
        expires: int,
        path_hash: str | None = None,
        vector_ids: bool = True,
    ) -> None:
        """Make the links of an answer.

        Args:
            store: where handed-out files are remembered.
            signer: the server's signer.
            base_url: `http://host:port`, as the client reached the server.
            table: the table.
            table_id: the id in the table's metadata.
            expires: when the URLs expire, in milliseconds since the epoch.
            path_hash: the hash of a file's path that is its id; None for one of the table's id and the path.
            vector_ids: give the files of deletion vectors ids.
        """
        self.expires = expires
        self.used = False
        self._store = store
        self._signer = signer
        self._prefix = f"{base_url}/files/"
        self._table = table
        self._table_id = table_id
        self._path_hash = path_hash
        self._vector_ids = vector_ids

    def file_id(self, path: str) -> str:
        """Return the id of a file in the protocol: the same in every answer, also after a restart."""
        if self._path_hash is not None:
            return hashlib.new(self._path_hash, path.encode("utf-8", "surrogateescape")).hexdigest()
        return hashlib.sha256(f"{self._table_id}\0{path}".encode("utf-8", "surrogateescape")).hexdigest()

    def url(self, path: str) -> str:
        """Return a signed URL for a path as it stands in the log."""
        return self._sign(resolve_path(self._table.path, path))

    def vector(self, vector: DeletionVector) -> tuple[str | None, str] | None:
        """Return the id of a vector's file, if ids are given, and its signed URL; None for an inline vector."""
        path = deletion_vector_path(self._table.path, vector)
        if path is None:
            return None
        vector_id = self.file_id(os.path.relpath(path, self._table.path)) if self._vector_ids else None
        return vector_id, self._sign(path)

    def _sign(self, path: Path) -> str:
        file_id = self._store.add(self._table, path)
        self.used = True
        signature = self._signer.sign_url(file_id, self.expires)
        return f"{self._prefix}{file_id}?expires={self.expires}&{SIGNATURE}={signature}"
