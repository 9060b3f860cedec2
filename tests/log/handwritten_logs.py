"""Hand-written logs: what a test says is what stands in `_delta_log`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from delta_sharing_client.log import DeltaLog

SCHEMA = json.dumps(
    {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
)
PROTOCOL = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}
V2 = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["v2Checkpoint"],
        "writerFeatures": ["v2Checkpoint"],
    }
}


def metadata(table_id: str = "t-1", **configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": SCHEMA,
            "partitionColumns": [],
            "configuration": {key.replace("__", "."): value for key, value in configuration.items()},
        }
    }


def add(path: str, *, size: int = 10, moment: int = 0, **more: Any) -> dict[str, Any]:
    fields = {"path": path, "partitionValues": {}, "size": size, "modificationTime": moment, "dataChange": True}
    return {"add": fields | more}


def remove(path: str, **more: Any) -> dict[str, Any]:
    return {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True} | more}


class LogWriter:
    """Writes commits and checkpoints into a table's `_delta_log`, without any check."""

    def __init__(self, table: Path) -> None:
        self.table = table
        self.log = table / "_delta_log"
        self.log.mkdir(parents=True)

    def commit(self, version: int, actions: Iterable[dict[str, Any]], *, mtime_ms: int | None = None) -> Path:
        file = self.log / f"{version:020}.json"
        file.write_text("".join(json.dumps(action) + "\n" for action in actions))
        if mtime_ms is not None:
            os.utime(file, ns=(mtime_ms * 1_000_000, mtime_ms * 1_000_000))
        return file

    def parquet(self, name: str, actions: Iterable[dict[str, Any]]) -> Path:
        import pyarrow as pa
        import pyarrow.parquet as pq

        strings = pa.map_(pa.string(), pa.string())
        vector = pa.struct(
            [
                ("storageType", pa.string()),
                ("pathOrInlineDv", pa.string()),
                ("offset", pa.int32()),
                ("sizeInBytes", pa.int32()),
                ("cardinality", pa.int64()),
            ]
        )
        schema = pa.schema(
            [
                (
                    "add",
                    pa.struct(
                        [
                            ("path", pa.string()),
                            ("partitionValues", strings),
                            ("size", pa.int64()),
                            ("modificationTime", pa.int64()),
                            ("dataChange", pa.bool_()),
                            ("stats", pa.string()),
                            ("deletionVector", vector),
                        ]
                    ),
                ),
                ("remove", pa.struct([("path", pa.string()), ("deletionTimestamp", pa.int64())])),
                (
                    "metaData",
                    pa.struct(
                        [
                            ("id", pa.string()),
                            ("format", pa.struct([("provider", pa.string()), ("options", strings)])),
                            ("schemaString", pa.string()),
                            ("partitionColumns", pa.list_(pa.string())),
                            ("configuration", strings),
                        ]
                    ),
                ),
                (
                    "protocol",
                    pa.struct(
                        [
                            ("minReaderVersion", pa.int32()),
                            ("minWriterVersion", pa.int32()),
                            ("readerFeatures", pa.list_(pa.string())),
                        ]
                    ),
                ),
                ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
                (
                    "sidecar",
                    pa.struct(
                        [("path", pa.string()), ("sizeInBytes", pa.int64()), ("modificationTime", pa.int64())]
                    ),
                ),
            ]
        )
        rows = [{field.name: action.get(field.name) for field in schema} for action in actions]
        file = self.log / name
        file.parent.mkdir(exist_ok=True)
        pq.write_table(pa.Table.from_pylist(rows, schema=schema), file)
        return file


def open_log(table: Path) -> DeltaLog:
    """Open a log like a new process, without a cache."""
    DeltaLog.clear_cache()
    return DeltaLog.for_table(table)
