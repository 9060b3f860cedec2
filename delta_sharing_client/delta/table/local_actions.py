"""Conversion of listed files to the actions of a local log, and to the downloads that they need."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from delta_sharing_client.delta.log.paths import encode_uuid, uri_of
from delta_sharing_client.delta.table.file_download import Fetched, Wanted
from delta_sharing_client.delta.table.local_metadata import partition_names, partition_values
from delta_sharing_client.delta.table.local_names import VECTORS, data_file, digest, vector_uuid
from delta_sharing_client.expressions.statistics import num_records
from delta_sharing_client.model.actions import DeletionVector, FileAction, Metadata, Protocol
from delta_sharing_client.parquet.fetch import vector_key
from delta_sharing_client.scan.url_renewal import vector_file_id
from delta_sharing_client.secrets import unsigned_url

#: Tags of an add action in which a copy keeps what the log has no field for.
FILE_ID: Final = "deltaSharing.fileId"
#: What its URL names, which stays where a server gives it another id.
LOCATION: Final = "deltaSharing.location"
VECTOR_ID: Final = "deltaSharing.vectorId"
SHA256: Final = "deltaSharing.sha256"
VECTOR_SHA256: Final = "deltaSharing.vectorSha256"


@dataclass(frozen=True, kw_only=True)
class LocalFile:
    """One file of a shared table, as a local copy has it.

    Attributes:
        action: the file as the server named it.
        values: its partition values, by their names in the log.
        path: where its data lie, relative to the table's directory; not encoded.
        vector_path: where its deletion vector lies; None for none, or one inside the log.
        vector_name: the descriptor's name of that file.
    """

    action: FileAction
    values: Mapping[str, str | None]
    path: str
    vector_path: str | None = None
    vector_name: str | None = None

    @property
    def key(self) -> tuple[str, str]:
        """The key of a file in a version: its id, and that of its deletion vector."""
        return self.action.id, vector_identity(self.action)

    def wanted(self) -> list[Wanted]:
        """What has to be fetched for it."""
        action = self.action
        data = Wanted(
            url=action.url,
            file_id=action.id,
            path=self.path,
            size=action.size,
            num_records=num_records(action.stats),
        )
        vector = action.deletion_vector
        if vector is None or self.vector_path is None:
            return [data]
        return [
            data,
            Wanted(
                url=vector.path_or_inline,
                file_id=vector_key(action.id, vector_file_id(action)),
                path=self.vector_path,
                vector=vector,
            ),
        ]

    def add(self, fetched: Mapping[str, Fetched], *, now_ms: int, data_change: bool = True) -> dict[str, Any]:
        """Return the `add` action, once its files lie in their places.

        Args:
            fetched: what became of the files that were fetched, by path.
            now_ms: the time of the commit, in milliseconds since the epoch.
            data_change: false if the rows are in the table anyway.
        """
        action, data = self.action, fetched[self.path]
        tags = {FILE_ID: action.id, LOCATION: location_of(action), SHA256: data.sha256}
        raw = self._common() | {
            "size": data.size,
            "modificationTime": now_ms if action.timestamp is None else action.timestamp,
            "dataChange": data_change,
            "stats": action.stats,
            "tags": tags,
        }
        if action.deletion_vector is not None:
            tags[VECTOR_ID] = vector_identity(action)
            if self.vector_path is not None:
                tags[VECTOR_SHA256] = fetched[self.vector_path].sha256
        return {"add": {name: value for name, value in raw.items() if value is not None}}

    def by_url(self, *, now_ms: int) -> dict[str, Any]:
        """Return the `add` action that names the signed URLs instead of local files."""
        action = self.action
        raw: dict[str, Any] = {
            "path": action.url.reveal(),
            "partitionValues": dict(self.values),
            "size": action.size,
            "modificationTime": now_ms if action.timestamp is None else action.timestamp,
            "dataChange": True,
            "tags": {FILE_ID: action.id},
        }
        if action.stats is not None:
            raw["stats"] = action.stats
        if action.deletion_vector is not None:
            raw["deletionVector"] = _descriptor(action.deletion_vector)
        return {"add": raw}

    def change(self, fetched: Mapping[str, Fetched]) -> dict[str, Any]:
        """Return the `cdc` action of a file of change rows."""
        raw = self._common() | {"size": fetched[self.path].size, "dataChange": False}
        return {"cdc": raw | {"tags": {FILE_ID: self.action.id, SHA256: fetched[self.path].sha256}}}

    def remove(self, size: int, *, now_ms: int) -> dict[str, Any]:
        """Return the `remove` action of a file whose rows a version deleted."""
        raw = self._common() | {"size": size, "deletionTimestamp": now_ms, "dataChange": True}
        return {"remove": raw | {"extendedFileMetadata": True}}

    def _common(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"path": uri_of(self.path), "partitionValues": dict(self.values)}
        vector = self.action.deletion_vector
        if vector is not None:
            raw["deletionVector"] = _descriptor(vector)
            if self.vector_name is not None:
                # The local file has this one vector after the byte with the file's format version.
                raw["deletionVector"] |= {
                    "storageType": "u",
                    "pathOrInlineDv": self.vector_name,
                    "offset": 1,
                }
        return raw


class Copier:
    """Says where the files of a shared table lie in a local copy.

    Args:
        protocol: the shared table's.
        metadata: the shared table's.
    """

    def __init__(self, protocol: Protocol, metadata: Metadata) -> None:
        self._metadata = metadata
        self._names = partition_names(protocol, metadata, metadata.schema)

    def file(self, action: FileAction, folder: str = "") -> LocalFile:
        """Return a file's local form.

        Args:
            action: the file as the server named it.
            folder: the folder below the table's directory that it lies in; empty for none.
        """
        values = partition_values(action.partition_values, self._names, self._metadata)
        path = data_file(action.id, values, self._names)
        vector = action.deletion_vector
        if vector is None or vector.is_inline:
            return LocalFile(action=action, values=values, path=folder + path)
        name = vector_uuid(action.id, vector_identity(action))
        return LocalFile(
            action=action,
            values=values,
            path=folder + path,
            vector_path=f"{VECTORS}/deletion_vector_{name}.bin",
            vector_name=VECTORS + encode_uuid(name),
        )


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


def _descriptor(vector: DeletionVector) -> dict[str, Any]:
    raw = {
        "storageType": vector.storage_type,
        "pathOrInlineDv": vector.path_or_inline.reveal(),
        "offset": vector.offset,
        "sizeInBytes": vector.size_in_bytes,
        "cardinality": vector.cardinality,
    }
    return {name: value for name, value in raw.items() if value is not None}


def now_in_ms() -> int:
    """Return the time, in milliseconds since the epoch."""
    return int(time.time() * 1000)
