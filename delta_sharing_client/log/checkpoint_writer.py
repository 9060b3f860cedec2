"""Checkpoint writer: classic checkpoints in one file, and V2 checkpoints with sidecars.

Serves "Checkpoints", "Checkpoint Schema" and "Last Checkpoint File".
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Iterator
from datetime import timedelta
from itertools import chain, islice
from typing import Any, Final

from delta_sharing_client.log.checkpoint_files import file_types
from delta_sharing_client.log.durable_files import make_directories, replace_file, replacing
from delta_sharing_client.log.log_segment import (
    LAST_CHECKPOINT,
    LOG_DIRECTORY,
    SIDECARS,
    checkpoint_name,
    v2_checkpoint_name,
)
from delta_sharing_client.log.snapshot import Snapshot
from delta_sharing_client.log.store_path import LogPath
from delta_sharing_client.log.table_properties import flag_property, interval_property
from delta_sharing_client.log.typed_statistics import StatsLayout
from delta_sharing_client.model.actions import AddFile, Metadata, RemoveFile

DELETED_FILE_RETENTION: Final = timedelta(days=7)

_ROWS: Final = 16_384
_ROWS_PER_SIDECAR: Final = 50_000


def write_checkpoint(snapshot: Snapshot, *, now_ms: int | None = None) -> LogPath:
    """Write a checkpoint of a committed version, and `_last_checkpoint` after it.

    Tombstones older than `delta.deletedFileRetentionDuration` (7 days by default) at `now_ms` are omitted. A table
    whose `delta.checkpointPolicy` is `v2` has V2 checkpoints. A checkpoint may be written twice.

    Returns:
        The checkpoint's top-level file.

    Raises:
        OSError: it cannot be written.
        DeltaLogError: a table property is malformed.
    """
    log = snapshot.table_path / LOG_DIRECTORY
    configuration = snapshot.metadata.configuration
    retention = interval_property(configuration, "delta.deletedFileRetentionDuration", DELETED_FILE_RETENTION)
    now = int(time.time() * 1000) if now_ms is None else now_ms
    expired = now - int(retention / timedelta(milliseconds=1))
    removes = [item for item in snapshot.tombstones if int(item.raw.get("deletionTimestamp") or 0) > expired]
    columns = _Columns(snapshot.metadata)
    others = list(_other_actions(snapshot))
    is_v2 = configuration.get("delta.checkpointPolicy", "classic").lower() == "v2"
    earlier = None if is_v2 or not columns.are_plain else snapshot.state.checkpoint
    adds = snapshot.state.adds if earlier is None else snapshot.state.added
    files = columns.rows(adds.values(), removes)
    count = len(adds) if earlier is None else len(adds) + len(earlier) - len(snapshot.state.hidden_rows)
    last: dict[str, Any] = {"version": snapshot.version, "numOfAddFiles": count}
    if is_v2:
        others += [{"sidecar": item} for item in _write_sidecars(log / SIDECARS, files, columns.files_schema())]
        target = log / v2_checkpoint_name(snapshot.version, uuid.uuid4())
        head = {"checkpointMetadata": {"version": snapshot.version}}
        lines = (json.dumps(item, separators=(",", ":"), ensure_ascii=False) for item in (head, *others))
        replace_file(target, "".join(line + "\n" for line in lines).encode("utf-8", "surrogatepass"))
        last["size"] = 1 + len(others) + count + len(removes)
        last["v2Checkpoint"] = _described(target)
    else:
        target = log / checkpoint_name(snapshot.version)
        unchanged = () if earlier is None else earlier.batches(snapshot.state.hidden_rows)
        last["size"] = _write_parquet(target, columns.schema(), chain(map(_pairs, others), files), unchanged)
    last["sizeInBytes"] = target.stat().st_size
    if _last_version(log) <= snapshot.version:
        replace_file(log / LAST_CHECKPOINT, json.dumps(last, separators=(",", ":")).encode())
    return target


def _last_version(log: LogPath) -> int:
    """Return the version in `_last_checkpoint`; -1 if it is missing or damaged."""
    try:
        version = json.loads((log / LAST_CHECKPOINT).read_bytes())["version"]
    except (OSError, ValueError, LookupError, TypeError):
        return -1
    return version if isinstance(version, int) else -1


def _other_actions(snapshot: Snapshot) -> Iterator[dict[str, Any]]:
    """Yield all actions except files, each as the object of a commit's line."""
    yield {"protocol": dict(snapshot.protocol.raw)}
    yield {"metaData": dict(snapshot.metadata.raw)}
    yield from ({"txn": dict(item.raw)} for item in snapshot.state.transactions.values())
    yield from ({"domainMetadata": dict(item.raw)} for item in snapshot.state.domains.values())


def _write_sidecars(folder: LogPath, rows: Iterator[dict[str, Any]], schema: Any) -> list[dict[str, Any]]:
    make_directories(folder)
    written = []
    while chunk := list(islice(rows, _ROWS_PER_SIDECAR)):
        file = folder / f"{uuid.uuid4()}.parquet"
        _write_parquet(file, schema, iter(chunk))
        written.append(_described(file))
    return written


def _described(file: LogPath) -> dict[str, Any]:
    stat = file.stat()
    modified = stat.st_mtime_ns // 1_000_000
    return {"path": file.name, "sizeInBytes": stat.st_size, "modificationTime": modified}


def _write_parquet(target: LogPath, schema: Any, rows: Iterator[dict[str, Any]], added: Iterable[Any] = ()) -> int:
    """Write rows, and then Arrow arrays of added files, to a Parquet file atomically; return their number."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    count = 0
    with (
        replacing(target) as file,
        pq.ParquetWriter(file, schema, compression="snappy", version="2.4") as writer,
    ):
        while chunk := list(islice(rows, _ROWS)):
            count += len(chunk)
            writer.write_batch(pa.RecordBatch.from_pylist(chunk, schema=schema))
        for files in added:
            count += len(files)
            columns = [files if n == "add" else pa.nulls(len(files), schema.field(n).type) for n in schema.names]
            writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return count


class _Columns:
    """The columns of one table's checkpoints, and the rows of its files."""

    def __init__(self, metadata: Metadata) -> None:
        configuration = metadata.configuration
        self._json = flag_property(configuration, "delta.checkpoint.writeStatsAsJson", default=True)
        as_struct = flag_property(configuration, "delta.checkpoint.writeStatsAsStruct")
        self._layout = StatsLayout(metadata) if as_struct else None

    @property
    def are_plain(self) -> bool:
        """Whether the rows of an earlier checkpoint of `CheckpointFiles` need no change."""
        return self._json and self._layout is None

    def rows(self, adds: Iterable[AddFile], removes: Iterable[RemoveFile]) -> Iterator[dict[str, Any]]:
        """Yield the rows of files, tombstones first."""
        for remove in removes:
            yield {"remove": _pairs(dict(remove.raw)) | {"dataChange": False}}
        for add in adds:
            row = _pairs(dict(add.raw)) | {"dataChange": False, "stats": add.stats if self._json else None}
            if self._layout is not None:
                row["stats_parsed"] = self._layout.stats(add.stats)
                row["partitionValues_parsed"] = self._layout.partition_values(add.partition_values)
            yield {"add": row}

    def files_schema(self) -> Any:
        """Return the Arrow schema of the rows of files."""
        import pyarrow as pa

        add, remove = file_types()
        if not self._json:
            del add["stats"]
        if self._layout is not None:
            add["stats_parsed"] = self._layout.stats_type()
            partitions = self._layout.partition_type()
            if partitions is not None:
                add["partitionValues_parsed"] = partitions
        return pa.schema({"add": pa.struct(add.items()), "remove": pa.struct(remove.items())})

    def schema(self) -> Any:
        """Return the Arrow schema of the rows of all actions."""
        import pyarrow as pa

        strings = pa.map_(pa.string(), pa.string())
        names = pa.list_(pa.string())
        others = {
            "txn": {"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()},
            "metaData": {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct([("provider", pa.string()), ("options", strings)]),
                "schemaString": pa.string(),
                "partitionColumns": names,
                "createdTime": pa.int64(),
                "configuration": strings,
            },
            "protocol": {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": names,
                "writerFeatures": names,
            },
            "domainMetadata": {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()},
        }
        fields = [pa.field(name, pa.struct(columns.items())) for name, columns in others.items()]
        return pa.schema([*self.files_schema(), *fields])


_MAPS: Final = frozenset({"partitionValues", "tags", "options", "configuration"})


def _pairs(value: Any) -> Any:
    """Copy an action for a Parquet row; maps become lists of pairs, which all releases of pyarrow accept."""
    if not isinstance(value, dict):
        return value
    return {
        key: list(item.items()) if key in _MAPS and isinstance(item, dict) else _pairs(item)
        for key, item in value.items()
    }
