"""The rows that a local Delta table holds: which files have rows with some keys, and what else those have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import structs

from delta_sharing_client.delta.log import AddFile, Snapshot
from delta_sharing_client.delta.mirror.mirror_scan import metadata_of, protocol_of, shared_form
from delta_sharing_client.expressions.predicates import bind_filters
from delta_sharing_client.model.schema import StructType
from delta_sharing_client.options import TransportOptions
from delta_sharing_client.parquet.arrow_types import arrow_schema
from delta_sharing_client.parquet.tasks import FileScanTask
from delta_sharing_client.scan.data_skipping import TaskPlanner, read_spec
from delta_sharing_client.scan.pipeline import read_batches
from delta_sharing_client.sinks.keys import KeySet
from delta_sharing_client.storage.local import LocalStorage


@dataclass(frozen=True, kw_only=True)
class Hit:
    """A file that holds rows with some keys.

    Attributes:
        file: the file.
        task: how it is read.
        keys: the key columns of all its rows, in order.
        found: which of them have such a key.
    """

    file: AddFile
    task: FileScanTask
    keys: pa.Table
    found: Any


class LocalRows:
    """Reads a snapshot of a local table.

    Args:
        directory: the table's directory.
        snapshot: the version to read.
    """

    def __init__(self, directory: Path, snapshot: Snapshot) -> None:
        self._directory = directory
        self._snapshot = snapshot
        self._protocol = protocol_of(snapshot)
        self._metadata = metadata_of(snapshot)
        self._protocol.check_readable(f"the Delta table in {directory}")
        self._storage = LocalStorage(TransportOptions())

    def hits(self, wanted: pa.Table) -> Iterator[Hit]:
        """Yield the files that hold rows with one of the keys.

        Files whose statistics rule that out are not opened; of the others the key columns alone are read.

        Args:
            wanted: keys, with the columns named as in the table.
        """
        names = wanted.column_names
        keys = KeySet(wanted)
        for file in self._snapshot.files:
            task = self._task(file, wanted)
            if task is None:
                continue
            there = self._read(task, names)
            found = keys.found(there)
            if found.any():
                yield Hit(file=file, task=task, keys=there, found=found)

    def rest(self, hit: Hit) -> pa.Table:
        """Return the rows of a file that do not have one of the keys, with all columns."""
        table = self._read(hit.task, self._metadata.schema.names)
        return table.filter(pa.array(~np.asarray(hit.found, np.bool_)))

    def _task(self, file: AddFile, wanted: pa.Table) -> FileScanTask | None:
        bounds = []
        for name in wanted.column_names:
            low, high = _ends(wanted.column(name))
            if low is not None and high is not None:
                bounds += [(name, ">=", low), (name, "<=", high)]
        predicate = bind_filters(bounds, self._metadata.schema) if bounds else None
        spec = read_spec(self._metadata, None, predicate, "struct", self._protocol)
        made = TaskPlanner(spec)(shared_form(file, self._directory))
        return made if isinstance(made, FileScanTask) else None

    def _read(self, task: FileScanTask, columns: Sequence[str]) -> pa.Table:
        spec = read_spec(self._metadata, columns, None, "struct", self._protocol)
        batches = read_batches(
            [structs.replace(task, all_rows_match=True)], spec, self._storage, table_columns=self._metadata.schema
        )
        return pa.Table.from_batches(batches, arrow_schema(StructType(spec.output.fields)))


def _ends(column: pa.ChunkedArray) -> tuple[Any, Any]:
    """Return the least and the greatest value, where files can be told apart by them."""
    kind = column.type
    if pa.types.is_boolean(kind) or pa.types.is_binary(kind):
        return None, None
    try:
        found = pc.min_max(column).as_py()
    except (ValueError, OverflowError):  # a date or time that Python has not
        return None, None
    low, high = found["min"], found["max"]
    if isinstance(low, datetime) and low.tzinfo is not None:
        return low.astimezone(UTC), high.astimezone(UTC)
    return low, high
