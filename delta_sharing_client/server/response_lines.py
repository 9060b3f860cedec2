"""The JSON objects of an answer, in both response formats.

Serves "API Response Format in Parquet" and "API Response Format in Delta".
"""

from __future__ import annotations

import hashlib
import os
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from delta_sharing_client.log import (
    AddFile,
    CdcFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    Snapshot,
    deletion_vector_path,
    file_key,
    resolve_path,
)
from delta_sharing_client.model.json_fields import without_nulls
from delta_sharing_client.server.capabilities import DELTA
from delta_sharing_client.server.files import ANY_BYTES, signed_url
from delta_sharing_client.server.problems import internal
from delta_sharing_client.server.table_request import TableRequest

_PARQUET_NAMES: Final = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdf"}
_DELTA_NAMES: Final = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdc"}


class Entry(NamedTuple):
    """A line of an answer: an action, with the version and time of its commit if the answer includes them."""

    action: AddFile | RemoveFile | CdcFile | Metadata | Protocol
    version: int | None = None
    timestamp: int | None = None


class LineWriter:
    """Converts actions to the lines of one answer.

    Args:
        request: the request.
        chosen: the response format.
        table_id: the id in the table's metadata.
        is_range: whether the answer is a range of versions rather than a snapshot.

    Attributes:
        expires: when all URLs of the answer expire, in milliseconds since the epoch.
        has_urls: whether a line has a URL.
    """

    def __init__(self, request: TableRequest, chosen: str, table_id: str, *, is_range: bool) -> None:
        self.expires = int(time.time() * 1000) + request.options.url_lifetime // timedelta(milliseconds=1)
        self.has_urls = False
        self._request = request
        self._table = request.table
        self._is_delta = chosen == DELTA
        self._table_id = table_id
        self._is_range = is_range

    def line(self, entry: Entry) -> dict[str, Any]:
        """Return the line of an action."""
        if isinstance(entry.action, Metadata):
            return self.metadata(entry.action, entry.version)
        if isinstance(entry.action, Protocol):
            return self.protocol(entry.action, entry.version)
        described = self._described(entry.action, entry.version)
        fields = (
            self._delta_file(entry.action, described) if self._is_delta else self._file(entry.action, described)
        )
        name = "file" if self._is_delta or not self._is_range else _PARQUET_NAMES[type(entry.action)]
        fields |= {
            "id": self._file_id(entry.action.path),
            "version": entry.version,
            "timestamp": entry.timestamp,
            "expirationTimestamp": self.expires,
        }
        return {name: without_nulls(fields)}

    def protocol(self, protocol: Protocol, version: int | None = None) -> dict[str, Any]:
        """Return the line of a protocol; `version` for a historical one."""
        if not self._is_delta:
            return {"protocol": {"minReaderVersion": 1}}
        fields = {"deltaProtocol": without_nulls(protocol.raw), "version": version}
        return {"protocol": without_nulls(fields)}

    def metadata(
        self, metadata: Metadata, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        """Return the line of metadata; with the size and the number of files of `totals`."""
        if self._is_delta:
            fields: dict[str, Any] = {"deltaMetadata": without_nulls(metadata.raw)}
        else:
            has_changes = metadata.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"
            fields = {
                "id": metadata.id,
                "name": metadata.name,
                "description": metadata.description,
                "format": {"provider": metadata.format.provider},
                "schemaString": metadata.schema_string,
                "partitionColumns": list(metadata.partition_columns),
                # The only property in this format; its prefix is omitted.
                "configuration": {"enableChangeDataFeed": "true"} if has_changes else {},
            }
        fields["version"] = version
        if totals is not None:
            fields |= {"size": totals.size_in_bytes, "numFiles": len(totals.files)}
        return {"metaData": without_nulls(fields)}

    def _described(
        self, action: AddFile | RemoveFile | CdcFile, version: int | None
    ) -> AddFile | RemoveFile | CdcFile:
        """Return the action with the file's size and partition values, which old writers omit in a removal."""
        if not isinstance(action, RemoveFile) or action.raw.get("size") is not None or not version:
            return action
        return self._table.log.snapshot_at(version - 1).state.find(file_key(action)) or action

    def _file(
        self, action: AddFile | RemoveFile | CdcFile, described: AddFile | RemoveFile | CdcFile
    ) -> dict[str, Any]:
        if described.raw.get("size") is None:
            raise internal("A version of the table removes a file without its size and partition values.")
        return {
            "url": self._url(resolve_path(self._table.path, action.path)),
            "partitionValues": described.partition_values,
            "size": described.size,
            "stats": action.stats if isinstance(action, AddFile) else None,
        }

    def _delta_file(
        self, action: AddFile | RemoveFile | CdcFile, described: AddFile | RemoveFile | CdcFile
    ) -> dict[str, Any]:
        single = without_nulls(action.raw) | {"path": self._url(resolve_path(self._table.path, action.path))}
        if described is not action:
            single |= {
                "extendedFileMetadata": True,
                "partitionValues": described.partition_values,
                "size": described.size,
            }
        vector_id = None
        if not isinstance(action, CdcFile) and action.deletion_vector is not None:
            vector_id, link = self._vector(action.deletion_vector)
            single["deletionVector"] = without_nulls(single["deletionVector"]) | link
        return {
            "deletionVectorFileId": vector_id,
            "size": single.get("size"),
            "deltaSingleAction": {_DELTA_NAMES[type(action)]: single},
        }

    def _vector(self, vector: DeletionVector) -> tuple[str | None, dict[str, str]]:
        """Return the id of a vector's file and the fields of its URL; none of them for an inline vector."""
        path = deletion_vector_path(self._table.path, vector)
        if path is None:
            return None, {}
        has_id = self._request.options.imitate != "reference"
        vector_id = self._file_id(os.path.relpath(path, self._table.path)) if has_id else None
        return vector_id, {"storageType": "p", "pathOrInlineDv": self._url(path)}

    def _file_id(self, path: str) -> str:
        """Return the id of a file; it is the same in every answer and after a restart."""
        if self._request.options.file_ids_by_format:
            return hashlib.new("sha256" if self._is_delta else "md5", path.encode(*ANY_BYTES)).hexdigest()
        return hashlib.sha256(f"{self._table_id}\0{path}".encode(*ANY_BYTES)).hexdigest()

    def _url(self, path: Path) -> str:
        self.has_urls = True
        return signed_url(self._request, path, self.expires)
