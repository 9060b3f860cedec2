"""State of a mirror in its log: the shared table, the shared version, the files with sizes and checksums."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from delta_sharing_client.delta.log import DeltaLog, Snapshot, deletion_vector_path, resolve_path
from delta_sharing_client.delta.log.log_segment import list_log
from delta_sharing_client.delta.table.file_download import Fetched
from delta_sharing_client.delta.table.local_actions import FILE_ID, SHA256, VECTOR_ID, VECTOR_SHA256
from delta_sharing_client.errors import DeltaLogError, DeltaTableNotFoundError
from delta_sharing_client.model.actions import AddFile, ResponseFormat
from delta_sharing_client.model.names import Table

#: The application id of the `txn` action that records the shared version.
APP_ID: Final = "delta-sharing-mirror"
#: The table property that names the shared table.
SOURCE: Final = "deltaSharing.table"
#: The table property that names the response format which the ids of the files are of.
FORMAT: Final = "deltaSharing.responseFormat"


@dataclass(frozen=True, kw_only=True)
class LocalData:
    """A local file of a mirror's version.

    Attributes:
        path: relative to the mirror's directory, not encoded.
        file_id: its id in the sharing protocol.
        known: its size and checksum; None if the log has no checksum.
    """

    path: str
    file_id: str
    known: Fetched | None


def check_source(snapshot: Snapshot, table: Table, directory: Path) -> None:
    """Raise if a directory holds a table that is not the mirror of the given table.

    Raises:
        DeltaLogError: it holds another table, or one that is no mirror.
    """
    if snapshot.version < 0:
        return
    source = snapshot.metadata.configuration.get(SOURCE)
    if source is None:
        raise DeltaLogError(
            "there is a Delta table in this directory that is not a mirror; give another directory",
            path=str(directory),
        )
    if source != table.full_name.lower():
        raise DeltaLogError(
            f"this directory mirrors {source}, not {table.full_name}; give another directory", path=str(directory)
        )


def shared_version(snapshot: Snapshot) -> int | None:
    """Return the shared version that a mirror's version holds; None if there is no mirror yet."""
    transaction = snapshot.transactions.get(APP_ID)
    return None if transaction is None else transaction.version


def response_format(snapshot: Snapshot) -> ResponseFormat | None:
    """Return the response format that the file ids of a mirror belong to; None if its log does not record it."""
    found = None if snapshot.version < 0 else snapshot.metadata.configuration.get(FORMAT)
    return "parquet" if found == "parquet" else "delta" if found == "delta" else None


def key_of(file: AddFile) -> tuple[str, str]:
    """Return the key of a mirror's file: its id and the id of its deletion vector."""
    return file_id_of(file), tags_of(file).get(VECTOR_ID, "")


def file_id_of(file: AddFile) -> str:
    """Return the id in the sharing protocol of a mirror's file."""
    return tags_of(file).get(FILE_ID, file.path)


def tags_of(file: AddFile) -> Mapping[str, str]:
    """Return the tags of an add action."""
    return dict(file.raw.get("tags") or {})


def data_of(file: AddFile, directory: Path) -> list[LocalData]:
    """Return the local files that an add action names: the data, and the deletion vector if it has a file."""
    tags = tags_of(file)
    file_id = tags.get(FILE_ID, file.path)
    found = [_local(resolve_path(directory, file.path), directory, file_id, file.size, tags.get(SHA256))]
    vector = file.deletion_vector
    path = None if vector is None else deletion_vector_path(directory, vector)
    if vector is not None and path is not None:
        # Format version of the file (1 byte), size of the vector (4 bytes), the vector, its checksum (4 bytes).
        size = vector.size_in_bytes + 9
        found.append(_local(path, directory, f"{file_id} (deletion vector)", size, tags.get(VECTOR_SHA256)))
    return found


def _local(path: Path, directory: Path, file_id: str, size: int, sha256: str | None) -> LocalData:
    relative = path.relative_to(directory).as_posix()
    known = None if sha256 is None or not size else Fetched(size=size, sha256=sha256, fetched=0)
    return LocalData(path=relative, file_id=file_id, known=known)


def local_version_of(log: DeltaLog, version: int) -> int | None:
    """Return the newest version of a mirror that holds a shared version; None if there is none."""
    try:
        commits = list_log(log.table_path).commits
    except DeltaTableNotFoundError:
        return None
    for local in sorted(commits, reverse=True):
        if _recorded(commits[local]) == version:
            return local
    return None


def _recorded(commit: Path) -> int | None:
    """Return the shared version that the first line of a mirror's commit records."""
    try:
        with commit.open("rb") as lines:
            info: Any = json.loads(lines.readline())["commitInfo"]
        return int(info["operationParameters"]["sharedVersion"])
    except (OSError, ValueError, LookupError, TypeError):
        return None
