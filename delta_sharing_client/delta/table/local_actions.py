"""Conversion of listed files to the files and the actions of a local table."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.delta.table.file_download import RemoteFile, StoredFile
from delta_sharing_client.delta.table.local_metadata import partition_names, partition_values
from delta_sharing_client.delta.table.local_names import VECTORS, data_file, data_folder, digest, vector_uuid
from delta_sharing_client.expressions.record_counts import num_records
from delta_sharing_client.log.action_fields import are_stats
from delta_sharing_client.log.paths import encode_uuid, uri_of
from delta_sharing_client.model.actions import FileAction, Metadata, Protocol
from delta_sharing_client.model.json_fields import without_nulls
from delta_sharing_client.model.partition_values import PartitionValues
from delta_sharing_client.parquet.fetch import vector_key
from delta_sharing_client.scan.url_renewal import vector_file_id
from delta_sharing_client.secrets import unsigned_url

#: Tags of an `add` action: the ids in the sharing protocol, and the checksums.
FILE_ID: Final = "deltaSharing.fileId"
VECTOR_ID: Final = "deltaSharing.vectorId"
SHA256: Final = "deltaSharing.sha256"
VECTOR_SHA256: Final = "deltaSharing.vectorSha256"
#: A digest of the file's unsigned URL, which stays the same if the server gives the file another id.
LOCATION: Final = "deltaSharing.location"


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """One file of a shared table in a local table.

    Attributes:
        action: the file as the server listed it.
        values: its partition values, by their names in the log.
        path: the path of its data, relative to the table's directory; not percent-encoded.
        scope: what distinguishes it from other files with its id; see `LocalLayout`.
    """

    action: FileAction
    values: Mapping[str, str | None]
    path: str
    scope: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str]:
        """The key of a file in a version: its id, and that of its deletion vector."""
        return self.action.id, vector_identity(self.action)

    @property
    def vector_uuid(self) -> uuid.UUID | None:
        """The UUID in the name of its deletion vector's file; None without such a file."""
        vector = self.action.deletion_vector
        return None if vector is None or vector.is_inline else vector_uuid(*self.scope, *self.key)

    @property
    def vector_path(self) -> str:
        """The path of its deletion vector's file, relative to the table's directory."""
        return f"{VECTORS}/deletion_vector_{self.vector_uuid}.bin"

    def remote_files(self) -> list[RemoteFile]:
        """Return what to fetch: the data, and the deletion vector if it has a file."""
        action, vector = self.action, self.action.deletion_vector
        records = num_records(action.stats)
        files = [
            RemoteFile(
                url=action.url,
                file_id=action.id,
                path=self.path,
                size=action.size,
                num_records=records,
                expires=action.expiration_timestamp,
            )
        ]
        if vector is not None and not vector.is_inline:
            key = vector_key(action.id, vector_file_id(action))
            files.append(RemoteFile(url=vector.path_or_inline, file_id=key, path=self.vector_path, vector=vector))
        return files

    def add(self, stored: Mapping[str, StoredFile], *, now_ms: int, data_change: bool = True) -> dict[str, Any]:
        """Return the `add` action of the stored file.

        Args:
            stored: the stored files, by path.
            now_ms: the time of the commit, in milliseconds since the epoch.
            data_change: false if the table already has the rows.
        """
        action, data = self.action, stored[self.path]
        tags = {FILE_ID: action.id, LOCATION: location_of(action), SHA256: data.sha256}
        if action.deletion_vector is not None:
            tags[VECTOR_ID] = vector_identity(action)
            if self.vector_uuid is not None:
                tags[VECTOR_SHA256] = stored[self.vector_path].sha256
        common = self._common(uri_of(self.path), data.size, local=True)
        return _action("add", common | self._added(now_ms, data_change=data_change) | {"tags": tags})

    def add_by_url(self, *, now_ms: int) -> dict[str, Any]:
        """Return the `add` action with the signed URLs instead of local files."""
        common = self._common(self.action.url.reveal(), self.action.size, local=False)
        return _action("add", common | self._added(now_ms, data_change=True) | {"tags": {FILE_ID: self.action.id}})

    def change(self, stored: Mapping[str, StoredFile]) -> dict[str, Any]:
        """Return the `cdc` action of a file of change rows."""
        data = stored[self.path]
        tags = {FILE_ID: self.action.id, SHA256: data.sha256}
        return _action(
            "cdc", self._common(uri_of(self.path), data.size, local=True) | {"dataChange": False, "tags": tags}
        )

    def remove(self, stored: Mapping[str, StoredFile], *, now_ms: int) -> dict[str, Any]:
        """Return the `remove` action of a file whose rows a version deleted."""
        common = self._common(uri_of(self.path), stored[self.path].size, local=True)
        removed = {
            "deletionTimestamp": now_ms,
            "dataChange": self.action.data_change,
            "extendedFileMetadata": True,
        }
        return _action("remove", common | removed)

    def _added(self, now_ms: int, *, data_change: bool) -> dict[str, Any]:
        action = self.action
        time = now_ms if action.timestamp is None else action.timestamp
        # Other engines refuse a table with statistics that are not JSON.
        stats = action.stats if are_stats(action.stats) else None
        return {"modificationTime": time, "dataChange": data_change, "stats": stats}

    def _common(self, path: str, size: int, *, local: bool) -> dict[str, Any]:
        raw: dict[str, Any] = {"path": path, "partitionValues": dict(self.values), "size": size}
        vector = self.action.deletion_vector
        if vector is not None:
            descriptor = {
                "storageType": vector.storage_type,
                "pathOrInlineDv": vector.path_or_inline.reveal(),
                "offset": vector.offset,
                "sizeInBytes": vector.size_in_bytes,
                "cardinality": vector.cardinality,
            }
            if local and self.vector_uuid is not None:
                # The local file has this one vector after the byte with the file's format version.
                name = VECTORS + encode_uuid(self.vector_uuid)
                descriptor |= {"storageType": "u", "pathOrInlineDv": name, "offset": 1}
            raw["deletionVector"] = without_nulls(descriptor)
        return raw


class LocalLayout:
    """The layout of a local table: the paths and the partition values of its files.

    Args:
        protocol, metadata: the shared table's.
        scope: a text that distinguishes its files from those of another table in the directory, with the same ids.
    """

    def __init__(self, protocol: Protocol, metadata: Metadata, scope: str | None = None) -> None:
        self._metadata = metadata
        self._scope = () if scope is None else (scope,)
        self._names = partition_names(protocol, metadata)
        #: By the identity of the mapping, which many files share. The mapping is kept, so that it stays unique.
        self._folders: dict[int, tuple[PartitionValues, Mapping[str, str | None], str]] = {}

    def file(self, action: FileAction, folder: str = "") -> LocalFile:
        """Return the local file of a listed file, in a folder of the table's directory, such as ``data/``."""
        _, values, partition = self._known(action.partition_values)
        path = folder + partition + data_file(*self._scope, action.id)
        return LocalFile(action=action, values=values, path=path, scope=self._scope)

    def folder(self, values: PartitionValues) -> str:
        """Return the folder of a listed file with these partition values, with a slash at its end."""
        return self._known(values)[2]

    def _known(self, listed: PartitionValues) -> tuple[PartitionValues, Mapping[str, str | None], str]:
        known = self._folders.get(id(listed))
        if known is None:
            values = partition_values(listed, self._names, self._metadata)
            known = self._folders[id(listed)] = listed, values, data_folder(values)
        return known


def vector_identity(action: FileAction) -> str:
    """Return the id of a file's deletion vector; empty if it has none."""
    vector = action.deletion_vector
    if vector is None:
        return ""
    if vector.is_inline:
        return f"i{vector.path_or_inline.reveal()}"
    return f"{vector_file_id(action)}@{vector.offset or 0}"


def location_of(action: FileAction) -> str:
    """Return a digest of the unsigned URL of a file, which does not depend on its id."""
    return digest(unsigned_url(action.url))


def now_in_ms() -> int:
    """Return the time, in milliseconds since the epoch."""
    return int(time.time() * 1000)


def _action(name: str, raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: without_nulls(raw)}
