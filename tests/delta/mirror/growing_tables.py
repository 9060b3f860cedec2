"""A shared table that changes between two syncs, and what a mirror of it should hold."""

from __future__ import annotations

import json
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from loading_tables import column, struct_of, z85
from pyroaring import BitMap64

from delta_sharing_client.log import DeltaLog


class Source:
    """A Delta table with the columns `a` (long) and `p` (string, its partition), written by `DeltaLog`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = DeltaLog.for_table(root)
        columns = [column("a", "long"), column("p", "string")]
        described = {
            "id": str(uuid.uuid4()),
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct_of(*columns)),
            "partitionColumns": ["p"],
            "configuration": {},
        }
        self.log.commit([{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": described}])
        self.files: dict[str, list[int]] = {}
        self.vectors: dict[str, dict[str, Any]] = {}

    def change(self, add: Sequence[tuple[str, list[int]]] = (), remove: Sequence[str] = ()) -> int:
        """Commit new files by name, whose first letter is their partition, and remove others."""
        actions: list[dict[str, Any]] = []
        for name, values in add:
            path = self.root / name
            pq.write_table(pa.table({"a": pa.array(values, pa.int64())}), path)
            actions.append(
                {
                    "add": {
                        "path": name,
                        "partitionValues": {"p": name[0]},
                        "size": path.stat().st_size,
                        "modificationTime": 1,
                        "dataChange": True,
                        "stats": json.dumps({"numRecords": len(values)}),
                    }
                }
            )
            self.files[name] = values
        for name in remove:
            actions.append(
                {
                    "remove": {
                        "path": name,
                        "deletionTimestamp": 1,
                        "dataChange": True,
                        "extendedFileMetadata": True,
                        "partitionValues": {"p": name[0]},
                        "size": (self.root / name).stat().st_size,
                    }
                    | ({"deletionVector": self.vectors.pop(name)} if name in self.vectors else {})
                }
            )
            del self.files[name]
        return self.log.commit(actions)

    def need_vectors(self) -> int:
        """Let the table need deletion vectors from the next version on."""
        features = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
        return self.log.commit([{"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | features}])

    def delete_row(self, name: str, position: int) -> int:
        """Delete a row of a file, which has no deletion vector yet, with an inline one."""
        bitmap = (1681511377).to_bytes(4, "little") + BitMap64([position]).serialize()
        vector = {
            "storageType": "i",
            "pathOrInlineDv": z85(bitmap + bytes(-len(bitmap) % 4)),
            "sizeInBytes": len(bitmap),
            "cardinality": 1,
        }
        self.vectors[name] = vector
        described = {"path": name, "partitionValues": {"p": name[0]}, "size": (self.root / name).stat().st_size}
        stats = json.dumps({"numRecords": len(self.files[name]), "tightBounds": False})
        self.files[name] = [value for place, value in enumerate(self.files[name]) if place != position]
        return self.log.commit(
            [
                {"remove": described | {"deletionTimestamp": 1, "dataChange": True, "extendedFileMetadata": True}},
                {
                    "add": described
                    | {"modificationTime": 1, "dataChange": True, "deletionVector": vector, "stats": stats}
                },
            ]
        )

    @property
    def rows(self) -> list[tuple[int, str]]:
        return sorted((value, name[0]) for name, values in self.files.items() for value in values)


def rows_of(table: pa.Table) -> list[tuple[int, str]]:
    return sorted((row["a"], row["p"]) for row in table.to_pylist())


def data_files(directory: Path) -> set[str]:
    return {path.name for path in directory.rglob("*") if path.suffix in (".parquet", ".bin")} - {
        path.name for path in (directory / "_delta_log").rglob("*")
    }
