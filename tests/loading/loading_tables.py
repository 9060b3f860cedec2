"""Tables to load: Parquet files of pyarrow, and a handwritten Delta log."""

from __future__ import annotations

import json
import struct
import threading
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64
from waiting import wait_for_rest, wait_until

from delta_sharing_client.server import SharingServer

Column = dict[str, Any]

_Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"


def column(name: str, data_type: Any, *, nullable: bool = True, **metadata: Any) -> Column:
    return {"name": name, "type": data_type, "nullable": nullable, "metadata": metadata}


def struct_of(*columns: Column) -> dict[str, Any]:
    return {"type": "struct", "fields": list(columns)}


def array_of(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


@dataclass(frozen=True, kw_only=True)
class File:
    """A data file of a version.

    rows: what it holds; partition columns are not among them.
    values: its partition values, as the log spells them.
    stats: its statistics; "rows" for the number of rows only, None for none.
    vector: positions of rows that are deleted; `stored` is their storage ("file" or "inline").
    options: for `pyarrow.parquet.write_table`.
    """

    rows: pa.Table
    name: str
    values: Mapping[str, str | None] = field(default_factory=dict)
    stats: Any = "rows"
    vector: Iterable[int] | None = None
    stored: str = "file"
    options: Mapping[str, Any] = field(default_factory=dict)


def write_table(
    root: Path,
    columns: Sequence[Column],
    files: Sequence[File],
    *,
    partitions: Sequence[str] = (),
    configuration: Mapping[str, str] | None = None,
    protocol: tuple[int, int] = (1, 2),
    features: Sequence[str] = (),
) -> Path:
    """Write a table of one version; its files are listed in the order given."""
    log = root / "_delta_log"
    log.mkdir(parents=True)
    reader, writer = (3, 7) if features else protocol
    listed = {"readerFeatures": list(features), "writerFeatures": list(features)} if features else {}
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": reader, "minWriterVersion": writer} | listed},
        {
            "metaData": {
                "id": f"id-of-{root.name}",
                "format": {"provider": "parquet", "options": {}},
                "schemaString": json.dumps(struct_of(*columns)),
                "partitionColumns": list(partitions),
                "configuration": dict(configuration or {}),
            }
        },
    ]
    actions += [_add(root, file, order) for order, file in enumerate(files)]
    lines = "".join(json.dumps(action) + "\n" for action in actions)
    (log / f"{0:020}.json").write_text(lines, encoding="utf-8")
    return root


def _add(root: Path, file: File, order: int) -> dict[str, Any]:
    path = root / file.name
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(file.rows, path, **file.options)
    fields: dict[str, Any] = {
        "path": quote(file.name),
        "partitionValues": dict(file.values),
        "size": path.stat().st_size,
        "modificationTime": 1_700_000_000_000 + order,
        "dataChange": True,
    }
    stats = {"numRecords": file.rows.num_rows} if file.stats == "rows" else file.stats
    if stats is not None:
        fields["stats"] = json.dumps(stats)
    if file.vector is not None:
        fields["deletionVector"] = _vector(root, file)
    return {"add": fields}


def _vector(root: Path, file: File) -> dict[str, Any]:
    """Store a deletion vector as the Delta protocol has it: magic, then a 64-bit roaring bitmap."""
    positions = BitMap64(file.vector)
    bitmap = (1681511377).to_bytes(4, "little") + positions.serialize()
    described = {"sizeInBytes": len(bitmap), "cardinality": len(positions)}
    if file.stored == "inline":
        return {"storageType": "i", "pathOrInlineDv": z85(bitmap + bytes(-len(bitmap) % 4))} | described
    name = f"vector_{file.name.replace('/', '_')}.bin"
    checksum = struct.pack(">I", zlib.crc32(bitmap))
    (root / name).write_bytes(b"\x01" + struct.pack(">I", len(bitmap)) + bitmap + checksum)
    path = (root / name).as_uri()
    return {"storageType": "p", "pathOrInlineDv": path, "offset": 1} | described


def z85(data: bytes) -> str:
    text = []
    for start in range(0, len(data), 4):
        number = int.from_bytes(data[start : start + 4], "big")
        group = []
        for _ in range(5):
            number, digit = divmod(number, 85)
            group.append(_Z85[digit])
        text += reversed(group)
    return "".join(text)


def load_threads() -> list[str]:
    """The threads of loads that are under way, or were given up a moment ago."""
    return [
        t.name for t in threading.enumerate() if t.name.startswith(("delta-sharing-fetch", "delta-sharing-decode"))
    ]


def count_from_here(server: SharingServer) -> None:
    """Forget the server's requests, once those of loads that were given up have all been answered."""
    wait_until(lambda: not load_threads(), load_threads)
    wait_for_rest(lambda: len(server.requests))
    server.reset_requests()
