"""The JSON objects of an answer, in both response formats.

Serves "API Response Format in Parquet" and "API Response Format in Delta". Each method returns one
object; the caller writes it as one line.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

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


class Wire(abc.ABC):
    """Writes the actions of a table in one response format.

    Args:
        links: makes the URLs.
    """

    def __init__(self, links: Links) -> None:
        self.links = links

    @abc.abstractmethod
    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        """Return the protocol line; `version` for one seen in the log of a range."""

    @abc.abstractmethod
    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        """Return the metadata line.

        Args:
            metadata: the metadata.
            version: the version it belongs to, where the request was for one.
            totals: the snapshot whose size and number of files are included.
        """

    @abc.abstractmethod
    def file(self, add: AddFile, *, version: int | None, timestamp: int | None) -> dict[str, Any]:
        """Return the line of a file of a snapshot."""

    @abc.abstractmethod
    def change(
        self, action: AddFile | RemoveFile | CdcFile, *, version: int, timestamp: int, added: AddFile | None
    ) -> dict[str, Any]:
        """Return the line of a file of a range of versions.

        Args:
            action: the action.
            version: the version it was committed in.
            timestamp: when, in milliseconds since the epoch.
            added: what `action` removes, where the remove itself has no size and partition values.
        """


def make_wire(chosen: str, links: Links) -> Wire:
    """Return the writer for a response format."""
    return DeltaWire(links) if chosen == DELTA else ParquetWire(links)


def _totals(totals: Snapshot | None) -> dict[str, Any]:
    return {} if totals is None else {"size": totals.size_in_bytes, "numFiles": len(totals.files)}


def _present(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


class ParquetWire(Wire):
    """The format of tables without advanced features."""

    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        """Return the protocol line."""
        return {"protocol": {"minReaderVersion": 1}}

    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        """Return the metadata line."""
        has_changes = metadata.configuration.get("delta.enableChangeDataFeed", "").lower() == "true"
        fields = _present(
            id=metadata.id,
            name=metadata.name,
            description=metadata.description,
            format={"provider": metadata.format.provider},
            schemaString=metadata.schema_string,
            partitionColumns=list(metadata.partition_columns),
            # The one property in this format, without its prefix.
            configuration={"enableChangeDataFeed": "true"} if has_changes else {},
            version=version,
        )
        return {"metaData": fields | _totals(totals)}

    def file(self, add: AddFile, *, version: int | None, timestamp: int | None) -> dict[str, Any]:
        """Return the line of a file of a snapshot."""
        return {"file": self._fields(add, None, version, timestamp)}

    def change(
        self, action: AddFile | RemoveFile | CdcFile, *, version: int, timestamp: int, added: AddFile | None
    ) -> dict[str, Any]:
        """Return the line of a file of a range of versions."""
        name = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdf"}[type(action)]
        return {name: self._fields(action, added, version, timestamp)}

    def _fields(
        self,
        action: AddFile | RemoveFile | CdcFile,
        added: AddFile | None,
        version: int | None,
        timestamp: int | None,
    ) -> dict[str, Any]:
        described = action if action.size is not None or added is None else added
        if described.size is None:
            raise internal("A version of the table removes a file without saying what it held.")
        return _present(
            url=self.links.url(action.path),
            id=self.links.file_id(action.path),
            partitionValues=described.partition_values,
            size=described.size,
            stats=action.stats if isinstance(action, AddFile) else None,
            version=version,
            timestamp=timestamp,
            expirationTimestamp=self.links.expires,
        )


class DeltaWire(Wire):
    """The format that wraps the actions of the log."""

    def protocol(self, protocol: Protocol, *, version: int | None = None) -> dict[str, Any]:
        """Return the protocol line."""
        return {"protocol": {"deltaProtocol": _without_nulls(protocol.raw)} | _present(version=version)}

    def metadata(
        self, metadata: Metadata, *, version: int | None = None, totals: Snapshot | None = None
    ) -> dict[str, Any]:
        """Return the metadata line."""
        fields = {"deltaMetadata": _without_nulls(metadata.raw)} | _present(version=version)
        return {"metaData": fields | _totals(totals)}

    def file(self, add: AddFile, *, version: int | None, timestamp: int | None) -> dict[str, Any]:
        """Return the line of a file of a snapshot."""
        return self._wrap("add", add, None, version, timestamp)

    def change(
        self, action: AddFile | RemoveFile | CdcFile, *, version: int, timestamp: int, added: AddFile | None
    ) -> dict[str, Any]:
        """Return the line of a file of a range of versions."""
        name = {AddFile: "add", RemoveFile: "remove", CdcFile: "cdc"}[type(action)]
        return self._wrap(name, action, added, version, timestamp)

    def _wrap(
        self,
        name: str,
        action: AddFile | RemoveFile | CdcFile,
        added: AddFile | None,
        version: int | None,
        timestamp: int | None,
    ) -> dict[str, Any]:
        single = _without_nulls(action.raw) | {"path": self.links.url(action.path)}
        if isinstance(action, RemoveFile) and action.size is None and added is not None:
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
                deltaSingleAction={name: single},
            )
        }

    def _vector(self, vector: DeletionVector, raw: Mapping[str, Any]) -> tuple[str | None, dict[str, Any]]:
        described = _without_nulls(raw)
        link = self.links.vector(vector)
        if link is None:
            return None, described
        return link[0], described | {"storageType": "p", "pathOrInlineDv": link[1]}


def _without_nulls(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out absent fields, which some writers spell as null; values of maps stay as they are."""
    return {name: value for name, value in raw.items() if value is not None}
