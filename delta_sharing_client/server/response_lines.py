"""The JSON objects of an answer, in both response formats.

Serves "API Response Format in Parquet" and "API Response Format in Delta".
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from delta_sharing_client.delta.log import (
    AddFile,
    CdcFile,
    DeletionVector,
    Metadata,
    Protocol,
    RemoveFile,
    Snapshot,
)
from delta_sharing_client.server.capabilities import DELTA
from delta_sharing_client.server.links import Links
from delta_sharing_client.server.problems import internal

FileAction: TypeAlias = AddFile | RemoveFile | CdcFile

_PARQUET_NAMES: Final = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdf"}
_DELTA_NAMES: Final = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdc"}


class LineFormat(abc.ABC):
    """Converts actions to the lines of a response format; `links` creates the URLs."""

    def __init__(self, links: Links) -> None:
        self.links = links

    @abc.abstractmethod
    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        """Return the line of a protocol; `version` for a historical one."""

    @abc.abstractmethod
    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        """Return the line of metadata.

        Args:
            metadata: the metadata.
            version: its version, if the request was for one.
            totals: the snapshot whose size and number of files are included.
        """

    @abc.abstractmethod
    def file(
        self,
        action: FileAction,
        *,
        version: int | None,
        timestamp: int | None,
        added: AddFile | None = None,
        change: bool = False,
    ) -> dict[str, Any]:
        """Return the line of a file.

        Args:
            action: the action.
            version: its version.
            timestamp: the time of its commit, in milliseconds since the epoch.
            added: the removed file, if the remove action itself lacks size and partition values.
            change: whether the answer is a range of versions rather than a snapshot.
        """


def line_format(chosen: str, links: Links) -> LineFormat:
    """Return the lines' format for a response format."""
    return _DeltaLines(links) if chosen == DELTA else _ParquetLines(links)


def _totals(totals: Snapshot | None) -> dict[str, Any]:
    return {} if totals is None else {"size": totals.size_in_bytes, "numFiles": len(totals.files)}


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class _ParquetLines(LineFormat):
    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        return {"protocol": {"minReaderVersion": 1}}

    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        has_changes = metadata.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"
        fields = _present(
            id=metadata.id,
            name=metadata.name,
            description=metadata.description,
            format={"provider": metadata.format.provider},
            schemaString=metadata.schema_string,
            partitionColumns=list(metadata.partition_columns),
            # The only property in this format; its prefix is omitted.
            configuration={"enableChangeDataFeed": "true"} if has_changes else {},
            version=version,
        )
        return {"metaData": fields | _totals(totals)}

    def file(
        self,
        action: FileAction,
        *,
        version: int | None,
        timestamp: int | None,
        added: AddFile | None = None,
        change: bool = False,
    ) -> dict[str, Any]:
        described = action if action.raw.get("size") is not None or added is None else added
        if described.raw.get("size") is None:
            raise internal("A version of the table removes a file without its size and partition values.")
        fields = _present(
            url=self.links.url(action.path),
            id=self.links.file_id(action.path),
            partitionValues=described.partition_values,
            size=described.size,
            stats=action.stats if isinstance(action, AddFile) else None,
            version=version,
            timestamp=timestamp,
            expirationTimestamp=self.links.expires,
        )
        return {_PARQUET_NAMES[type(action)] if change else "file": fields}


class _DeltaLines(LineFormat):
    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        return {"protocol": {"deltaProtocol": _without_nulls(protocol.raw)} | _present(version=version)}

    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        fields = {"deltaMetadata": _without_nulls(metadata.raw)} | _present(version=version)
        return {"metaData": fields | _totals(totals)}

    def file(
        self,
        action: FileAction,
        *,
        version: int | None,
        timestamp: int | None,
        added: AddFile | None = None,
        change: bool = False,
    ) -> dict[str, Any]:
        single = _without_nulls(action.raw) | {"path": self.links.url(action.path)}
        if isinstance(action, RemoveFile) and action.raw.get("size") is None and added is not None:
            single |= {
                "extendedFileMetadata": True,
                "partitionValues": added.partition_values,
                "size": added.size,
            }
        vector = None if isinstance(action, CdcFile) else action.deletion_vector
        vector_id = None
        if vector is not None:
            vector_id, single["deletionVector"] = self._vector(vector, single["deletionVector"])
        return {
            "file": _present(
                id=self.links.file_id(action.path),
                deletionVectorFileId=vector_id,
                version=version,
                timestamp=timestamp,
                expirationTimestamp=self.links.expires,
                size=single.get("size"),
                deltaSingleAction={_DELTA_NAMES[type(action)]: single},
            )
        }

    def _vector(self, vector: DeletionVector, raw: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        described = _without_nulls(raw)
        link = self.links.vector(vector)
        if link is None:
            return None, described
        return link[0], described | {"storageType": "p", "pathOrInlineDv": link[1]}


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Omit fields that are null: some writers write absent fields so. Values of maps are kept."""
    return {name: value for name, value in raw.items() if value is not None}
