"""State of a mirror in its log: the shared table, the shared version, the files with sizes and checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from delta_sharing_client.delta.table.file_download import StoredFile
from delta_sharing_client.delta.table.local_actions import FILE_ID, SHA256, VECTOR_ID, VECTOR_SHA256
from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError
from delta_sharing_client.log import DeltaLog, Snapshot, deletion_vector_uri
from delta_sharing_client.log.log_segment import list_log
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.model.actions import AddFile, Metadata, ResponseFormat
from delta_sharing_client.model.names import Table
from delta_sharing_client.model.table_identity import is_same_table

#: The application id of the `txn` action that records the shared version.
APP_ID: Final = "delta-sharing-mirror"
#: Table properties: the shared table, the response format on which the ids of its files depend, and the id that is
#: a part of the names of local files, if another table had the name before.
SOURCE: Final = "deltaSharing.table"
FORMAT: Final = "deltaSharing.responseFormat"
SCOPE: Final = "deltaSharing.tableId"


def check_source(snapshot: Snapshot, table: Table, directory: Path) -> None:
    """Raise `DeltaLogError` if a directory contains a table that is not the mirror of the given table."""
    if snapshot.version < 0:
        return
    source = snapshot.metadata.configuration.get(SOURCE)
    if source is None:
        raise DeltaLogError(
            "the Delta table in this directory is not a mirror; give another directory", path=str(directory)
        )
    if source != table.full_name.lower():
        raise DeltaLogError(
            f"this directory mirrors {source}, not {table.full_name}; give another directory", path=str(directory)
        )


def shared_version(snapshot: Snapshot) -> int | None:
    """Return the shared version that a mirror's version holds; None before the first sync."""
    transaction = snapshot.transactions.get(APP_ID)
    return None if transaction is None else transaction.version


def response_format(snapshot: Snapshot) -> ResponseFormat | None:
    """Return the response format that the file ids of a mirror belong to; None if its log does not record it."""
    found = None if snapshot.version < 0 else snapshot.metadata.configuration.get(FORMAT)
    return "parquet" if found == "parquet" else "delta" if found == "delta" else None


def scope_after(snapshot: Snapshot, metadata: Metadata) -> str | None:
    """Return the scope of the ids of files in a mirror (see `LocalLayout`), after a sync with a table's metadata.

    The first table of a mirror needs none. The files of a table that replaces it may have the same ids.
    """
    if snapshot.version < 0:
        return None
    if not is_same_table(snapshot.metadata.id, metadata):
        return metadata.id
    return snapshot.metadata.configuration.get(SCOPE)


def key_of(file: AddFile) -> tuple[str, str]:
    """Return the key of a mirror's file: its id and the id of its deletion vector."""
    return file_id_of(file), tags_of(file).get(VECTOR_ID, "")


def file_id_of(file: AddFile) -> str:
    """Return the id of a mirror's file in the sharing protocol."""
    return tags_of(file).get(FILE_ID, file.path)


def tags_of(file: AddFile) -> Mapping[str, str]:
    """Return the tags of an `add` action."""
    return file.raw.get("tags") or {}


def stored_files(file: AddFile) -> list[StoredFile]:
    """Return the local files of an `add` action: the data, and the deletion vector if it has a file."""
    tags, file_id, vector = tags_of(file), file_id_of(file), file.deletion_vector
    data = StoredFile(path=unquote(file.path), file_id=file_id, size=file.size, sha256=tags.get(SHA256))
    uri = None if vector is None else deletion_vector_uri(vector)
    if vector is None or uri is None:
        return [data]
    # Format version of the file (1 byte), size of the vector (4 bytes), the vector, its checksum (4 bytes).
    size, vector_id = vector.size_in_bytes + 9, f"{file_id} (deletion vector)"
    return [data, StoredFile(path=unquote(uri), file_id=vector_id, size=size, sha256=tags.get(VECTOR_SHA256))]


def all_stored_files(snapshot: Snapshot) -> dict[str, StoredFile]:
    """Return the local files of a mirror's version by their paths."""
    return {stored.path: stored for file in snapshot.files for stored in stored_files(file)}


def local_version_of(log: DeltaLog, version: int) -> int | None:
    """Return the newest version of a mirror that holds a shared version; None if there is none."""
    try:
        commits = list_log(log.table_path).commits
    except DeltaTableNotFoundError:
        return None
    newest_first = sorted(commits, reverse=True)
    return next((local for local in newest_first if _recorded_version(commits[local]) == version), None)


def _recorded_version(commit: LogPath) -> int | None:
    """Return the shared version in the first line of a mirror's commit."""
    try:
        with commit.open("rb") as lines:
            info: Any = json.loads(lines.readline())["commitInfo"]
        return int(info["operationParameters"]["sharedVersion"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
