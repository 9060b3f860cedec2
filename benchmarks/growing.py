"""Tables of the benchmark store that get one new file in each version, for the benchmark of mirrors.

    listed-<files>-<history>   files of the table `listing` that do not exist; each new file exists
    stored-<files>             small files that exist, all with the same content

`<history>` is `shared` or `hidden`: whether the server has versions. A version is added by `POST /_grow/<table>`.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from itertools import islice
from typing import Any

import data

ROWS = 40


class GrowingTable:
    """A table with the columns of the table `listing`.

    Args:
        name: `listed-<files>-<history>` or `stored-<files>`.
        scale: scale of the table `listing`.
        base: URL of the store.
    """

    def __init__(self, name: str, scale: str, base: str) -> None:
        kind, files, *history = name.split("-")
        self.name = name
        self.version = 1
        self.has_history = history == ["shared"]
        self._base = base
        content = _parquet()
        self.size = len(content)
        self._open = tempfile.TemporaryFile()  # noqa: SIM115  # for the time of the process
        self._open.write(content)
        self._open.flush()
        self.descriptor = self._open.fileno()
        if kind == "stored":
            self._first = b"".join(self._file(f"stored-{number}", "file") for number in range(int(files)))
        else:
            with (data.table_dir("listing", scale) / "parquet.ndjson").open("rb") as lines:
                self._first = b"".join(islice(lines, int(files)))
        self.count = int(files)

    def query(self, body: dict[str, Any]) -> tuple[int, list[bytes]]:
        """Return the version and the lines of an answer to /query, without protocol and metadata."""
        first = body.get("startingVersion")
        if first is None:
            return self.version, [self._first, *self._new(2, self.version, "file")]
        return first, list(self._new(first, body.get("endingVersion", self.version), "add"))

    def _new(self, first: int, last: int, kind: str) -> Iterator[bytes]:
        for version in range(max(2, first), last + 1):
            yield self._file(
                f"new-{version}", kind, {"version": version, "timestamp": 1_735_689_600_000 + version}
            )

    def _file(self, file_id: str, kind: str, more: dict[str, Any] | None = None) -> bytes:
        url = f"{self._base}/files/{self.name}/{file_id}?X-Amz-Expires=3600&X-Amz-Signature={'5' * 64}"
        line: dict[str, Any] = {"url": url, "id": file_id, "partitionValues": {"event_date": "2025-01-01"}}
        line |= {"size": self.size, "stats": json.dumps({"numRecords": ROWS}), "expirationTimestamp": data.EXPIRES}
        return json.dumps({kind: line | (more or {})}, separators=(",", ":")).encode() + b"\n"

    def header(self) -> bytes:
        """Return the lines of protocol and metadata."""
        metadata = {
            "id": f"bench-{self.name}",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": data.schema_string(),
            "partitionColumns": ["event_date"],
            "configuration": {},
        }
        lines = ({"protocol": {"minReaderVersion": 1}}, {"metaData": metadata})
        return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


def _parquet() -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    notes = pa.array([f"note {number} of a small file" for number in range(ROWS)])
    buffer = io.BytesIO()
    pq.write_table(pa.table({"event_id": pa.array(range(ROWS), pa.int64()), "note": notes}), buffer)
    return buffer.getvalue()
