"""Tables with many versions; a test writes every action of their Delta log."""

from __future__ import annotations

import json
import os
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from loading.loading_tables import Column, column, struct_of, z85
from pyroaring import BitMap64

FEED = {"delta.enableChangeDataFeed": "true"}
COLUMNS = [column("id", "long"), column("s", "string")]
#: When version 0 was committed; each later one an hour after the one before. Milliseconds since the epoch.
FIRST = 1_700_000_000_000
HOUR = 3_600_000
Rows = list[tuple[Any, ...]]


def rows(*ids: int, text: str = "") -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "s": pa.array([f"{text}{i}" for i in ids], pa.string())})


class ChangeTable:
    """A table that grows version by version.

    commit: writes the next version out of actions, which the other methods make.
    """

    def __init__(
        self,
        root: Path,
        columns: Sequence[Column] = COLUMNS,
        *,
        partitions: Sequence[str] = (),
        configuration: Mapping[str, str] = FEED,
        features: Sequence[str] = (),
        table_id: str = "table-id",
    ) -> None:
        self.root = root
        self.log = root / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1
        self.partitions = list(partitions)
        self.table_id = table_id
        self._sizes: dict[str, int] = {}
        self._head = [self.protocol(features), self.metadata(columns, configuration)]

    def commit(self, *actions: dict[str, Any]) -> int:
        self.version += 1
        lines = [*(self._head if self.version == 0 else []), *actions]
        path = self.log / f"{self.version:020}.json"
        temporary = path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        os.utime(temporary, (self.time(self.version) / 1000,) * 2)
        temporary.rename(path)
        return self.version

    @staticmethod
    def time(version: int) -> int:
        return FIRST + version * HOUR

    def protocol(self, features: Sequence[str] = ()) -> dict[str, Any]:
        if not features:
            return {"protocol": {"minReaderVersion": 1, "minWriterVersion": 4}}
        listed = {"readerFeatures": list(features), "writerFeatures": list(features)}
        return {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | listed}

    def metadata(
        self, columns: Sequence[Column], configuration: Mapping[str, str] = FEED, table_id: str | None = None
    ) -> dict[str, Any]:
        fields = {
            "id": table_id or self.table_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps(struct_of(*columns)),
            "partitionColumns": self.partitions,
            "configuration": dict(configuration),
        }
        return {"metaData": fields}

    def add(
        self,
        name: str,
        data: pa.Table | None = None,
        *,
        vector: Mapping[str, Any] | None = None,
        values: Mapping[str, str | None] | None = None,
        stats: bool = True,
        data_change: bool = True,
        **options: Any,
    ) -> dict[str, Any]:
        """Add a file; written unless it is there already."""
        if data is not None:
            self._write(name, data, options)
        rows = pq.read_metadata(self.root / name).num_rows
        fields: dict[str, Any] = self._file(name, values, vector) | {
            "modificationTime": 1,
            "dataChange": data_change,
        }
        return {"add": fields | ({"stats": json.dumps({"numRecords": rows})} if stats else {})}

    def remove(
        self,
        name: str,
        *,
        vector: Mapping[str, Any] | None = None,
        values: Mapping[str, str | None] | None = None,
        data_change: bool = True,
    ) -> dict[str, Any]:
        fields = self._file(name, values, vector) | {"deletionTimestamp": 1, "dataChange": data_change}
        return {"remove": fields | {"extendedFileMetadata": True}}

    def cdc(
        self,
        name: str,
        data: pa.Table,
        changes: Sequence[str],
        values: Mapping[str, str | None] | None = None,
        field_ids: bool = False,
    ) -> dict[str, Any]:
        path = f"_change_data/{name}"
        self._write(path, data.append_column("_change_type", pa.array(changes, pa.string())), {})
        return {"cdc": self._file(path, values, None) | {"dataChange": False}}

    def vector(self, *positions: int, name: str | None = None) -> dict[str, Any]:
        """A deletion vector: inline, or in a file of that name."""
        bits = BitMap64(positions)
        bitmap = (1681511377).to_bytes(4, "little") + bits.serialize()
        described = {"sizeInBytes": len(bitmap), "cardinality": len(bits)}
        if name is None:
            return {"storageType": "i", "pathOrInlineDv": z85(bitmap + bytes(-len(bitmap) % 4))} | described
        path = self.root / name
        path.write_bytes(b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + struct.pack(">I", zlib.crc32(bitmap)))
        return {"storageType": "p", "pathOrInlineDv": path.as_uri(), "offset": 1} | described

    def _write(self, name: str, data: pa.Table, options: Mapping[str, Any]) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(data, path, **options)

    def _file(
        self, name: str, values: Mapping[str, str | None] | None, vector: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        found = {
            "path": quote(name),
            "partitionValues": dict(values or {}),
            "size": (self.root / name).stat().st_size,
        }
        return found | ({} if vector is None else {"deletionVector": dict(vector)})


class GrowingTable:
    """A table of which each version inserts two rows.

    Attributes:
        folder: where its folder `source` is.
        expected: the version and id of each row.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.table = ChangeTable(folder / "source")
        self.expected: list[tuple[int, int]] = []
        self.grow(3)

    def grow(self, versions: int) -> None:
        for _ in range(versions):
            number = self.table.version + 1
            self.table.commit(self.table.add(f"f{number}", rows(number, number + 1000)))
            self.expected += [(number, number), (number, number + 1000)]


def change_rows(table: pa.Table, *columns: str) -> Rows:
    """The change rows in their order: version, kind of change, then the columns named."""
    names = ["_commit_version", "_change_type", *(columns or ("id",))]
    return list(zip(*(table.column(name).to_pylist() for name in names), strict=True))


def expect(version: int, kind: str, ids: Iterable[int]) -> Rows:
    return [(version, kind, i) for i in ids]
