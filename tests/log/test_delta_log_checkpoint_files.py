"""Commits and checkpoints on top of a checkpoint whose files are kept as columns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from handwritten_logs import PROTOCOL, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log import DeltaLog, Snapshot
from delta_sharing_client.log import log as log_module

VECTORS = {"readerFeatures": ["deletionVectors"], "writerFeatures": ["deletionVectors"]}
VECTOR_PROTOCOL = {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7} | VECTORS}
VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
VECTOR |= {"sizeInBytes": 40, "cardinality": 6}


def state_of(snapshot: Snapshot) -> Any:
    def plain(raw: Any) -> Any:
        return {k: v for k, v in raw.items() if v is not None and k != "dataChange"}

    files = sorted((plain(file.raw) for file in snapshot.files), key=lambda raw: raw["path"])
    return files, sorted(file.path for file in snapshot.tombstones), snapshot.size_in_bytes, snapshot.version


def fill(table: Path) -> tuple[DeltaLog, DeltaLog]:
    """Commit to a log with a checkpoint, and to one without; the commits follow the checkpoint."""
    logs = DeltaLog.for_table(table / "with"), DeltaLog.for_table(table / "without")
    stats = json.dumps({"numRecords": 7})
    first = [add(f"f{number}", moment=number, tags={"id": str(number)}, stats=stats) for number in range(5)]
    gone = {"deletionTimestamp": 2**42}
    for number, log in enumerate(logs):
        log.commit([VECTOR_PROTOCOL, metadata(delta__checkpointInterval="100"), *first])
        log.commit([remove("f0", **gone)])
        if number == 0:
            log.checkpoint()
        log.commit([remove("f1", **gone)])
        log.commit([remove("f2", **gone), add("f2", deletionVector=VECTOR, moment=9, stats=stats)])
        log.commit([add("f0", moment=11), add("f5", moment=12, size=3)])
    return logs


def test_commits_after_a_checkpoint(tmp_path: Path) -> None:
    with_checkpoint, without = fill(tmp_path)
    assert state_of(with_checkpoint.snapshot()) == state_of(without.snapshot())
    reopened = open_log(with_checkpoint.table_path)
    assert reopened.snapshot().state.checkpoint is not None
    assert state_of(reopened.snapshot()) == state_of(without.snapshot())
    for version in range(1, 5):
        assert state_of(reopened.snapshot_at(version)) == state_of(without.snapshot_at(version))


def test_find_makes_single_actions(tmp_path: Path) -> None:
    state = fill(tmp_path)[0].snapshot().state
    reopened = open_log(tmp_path / "with").snapshot().state
    for key in [*state.adds, ("f1", ""), ("f2", ""), ("f9", "")]:
        before, after = state.adds.get(key), reopened.find(key)
        assert (before is None) == (after is None)
        assert before is None or after is None or before.path == after.path


def test_checkpoint_of_a_checkpoint(tmp_path: Path) -> None:
    """The unchanged files are copied as columns."""
    with_checkpoint, without = fill(tmp_path)
    log = open_log(with_checkpoint.table_path)
    file = log.checkpoint()
    assert pq.read_metadata(file).num_rows == json.loads((file.parent / "_last_checkpoint").read_text())["size"]
    for commit in file.parent.glob("*.json"):
        commit.unlink()
    reopened = open_log(with_checkpoint.table_path)
    assert state_of(reopened.snapshot()) == state_of(without.snapshot())
    reopened.commit([add("f7"), remove("f3", deletionTimestamp=2**42)])
    without.commit([add("f7"), remove("f3", deletionTimestamp=2**42)])
    assert state_of(reopened.snapshot()) == state_of(without.snapshot())


def test_snapshot_outlives_its_checkpoint(tmp_path: Path) -> None:
    with_checkpoint, without = fill(tmp_path)
    snapshot = open_log(with_checkpoint.table_path).snapshot()
    for file in (with_checkpoint.table_path / "_delta_log").glob("*"):
        file.unlink()
    assert state_of(snapshot) == state_of(without.snapshot())


def test_large_commit_writes_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "_LARGE_COMMIT", 5)
    log = DeltaLog.for_table(tmp_path)
    log.commit([PROTOCOL, metadata(), *(add(f"f{number}") for number in range(5))])
    log.commit([add("g")])
    checkpoints = [path.name for path in (tmp_path / "_delta_log").glob("*.checkpoint.parquet")]
    assert checkpoints == ["00000000000000000000.checkpoint.parquet"]
    snapshot = open_log(tmp_path).snapshot()
    assert snapshot.state.checkpoint is not None
    assert sorted(file.path for file in snapshot.files) == ["f0", "f1", "f2", "f3", "f4", "g"]
    assert len(DeltaTable(tmp_path).file_uris()) == 6


def test_absolute_paths_are_compared_in_one_form(tmp_path: Path) -> None:
    log = DeltaLog.for_table(tmp_path, allow_absolute_paths=True)
    log.commit([PROTOCOL, metadata(), add("file:///data/a%20b"), add("c")])
    log.checkpoint()
    log.commit([remove("/data/a b")])
    DeltaLog.clear_cache()
    reopened = DeltaLog.for_table(tmp_path, allow_absolute_paths=True)
    assert [file.path for file in reopened.snapshot().files] == ["c"]


def test_damaged_column_raises_an_error_with_the_file(tmp_path: Path) -> None:
    log = DeltaLog.for_table(tmp_path)
    stats = json.dumps({"minValues": {"id": "x" * 4000}})
    log.commit([PROTOCOL, metadata(), *(add(f"f{number}", stats=stats) for number in range(20))])
    file = log.checkpoint()
    (file.parent / f"{0:020}.json").unlink()
    parquet = pq.ParquetFile(file).metadata.row_group(0)
    columns = {parquet.column(i).path_in_schema: parquet.column(i) for i in range(parquet.num_columns)}
    column = columns["add.stats"]
    data = bytearray(file.read_bytes())
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    file.write_bytes(data)
    with pytest.raises(DeltaLogError, match=f"the checkpoint file {file.name} cannot be read"):
        _ = open_log(tmp_path).snapshot().files
