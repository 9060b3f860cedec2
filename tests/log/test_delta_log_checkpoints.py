from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from handwritten_logs import PROTOCOL, LogWriter, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError, VersionNotFoundError

V2 = "00000000000000000002.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11"


@pytest.fixture
def log_of_five(writer: LogWriter) -> LogWriter:
    """Versions 0 to 4; each adds a file, version 2 also removes the first."""
    writer.commit(0, [PROTOCOL, metadata(), add("f0")])
    writer.commit(1, [add("f1")])
    writer.commit(2, [add("f2"), remove("f0")])
    writer.commit(3, [add("f3")])
    writer.commit(4, [add("f4")])
    return writer


STATE = [
    PROTOCOL,
    metadata(),
    add("f1", partitionValues={"p": None, "q": ""}),
    add("f2"),
    {"remove": {"path": "f0", "deletionTimestamp": 1}},
    {"txn": {"appId": "x", "version": 3}},
]


def forget(writer: LogWriter, *versions: int) -> None:
    for version in versions:
        (writer.log / f"{version:020}.json").unlink()


def check(writer: LogWriter) -> None:
    log = open_log(writer.table)
    snapshot = log.snapshot()
    assert snapshot.version == 4
    assert [file.path for file in snapshot.files] == ["f1", "f2", "f3", "f4"]
    assert [tombstone.path for tombstone in snapshot.tombstones] == ["f0"]
    assert snapshot.protocol.min_reader_version == 1
    assert snapshot.metadata.id == "t-1"


def test_classic(log_of_five: LogWriter) -> None:
    log_of_five.parquet("00000000000000000002.checkpoint.parquet", STATE)
    forget(log_of_five, 0, 1, 2)
    check(log_of_five)
    log = open_log(log_of_five.table)
    snapshot = log.snapshot_at(2)
    assert snapshot.transactions["x"].version == 3
    assert snapshot.files[0].partition_values == {"p": None, "q": ""}
    assert snapshot.files[0].raw.keys() == {"path", "partitionValues", "size", "modificationTime", "dataChange"}
    assert snapshot.timestamp > 0
    for version in (0, 1):
        with pytest.raises(VersionNotFoundError):
            log.snapshot_at(version)
    with pytest.raises(VersionNotFoundError, match="versions 2 to 4"):
        log.snapshot_at(5)


def test_cleaned_up_log_without_checkpoint_for_a_version(log_of_five: LogWriter) -> None:
    log_of_five.parquet("00000000000000000002.checkpoint.parquet", STATE)
    forget(log_of_five, 0)
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        open_log(log_of_five.table).snapshot_at(1)
    check(log_of_five)


def test_multi_part(log_of_five: LogWriter) -> None:
    for part in range(3):
        log_of_five.parquet(f"{2:020}.checkpoint.{part + 1:010}.{3:010}.parquet", STATE[part * 2 : part * 2 + 2])
    forget(log_of_five, 0, 1, 2)
    check(log_of_five)


def test_incomplete_multi_part_is_not_used(log_of_five: LogWriter) -> None:
    log_of_five.parquet(f"{2:020}.checkpoint.{1:010}.{2:010}.parquet", STATE[:3])
    check(log_of_five)
    forget(log_of_five, 0)
    with pytest.raises(VersionNotFoundError):
        open_log(log_of_five.table).snapshot()


@pytest.mark.parametrize("kind", ["parquet", "json"])
@pytest.mark.parametrize("where", ["{}", "file:///anywhere/_delta_log/_sidecars/{}"])
def test_v2_with_sidecars(log_of_five: LogWriter, kind: str, where: str) -> None:
    log_of_five.parquet("_sidecars/one.parquet", STATE[2:3])
    log_of_five.parquet("_sidecars/two.parquet", STATE[3:5])
    top: list[dict[str, Any]] = [
        {"checkpointMetadata": {"version": 2}},
        *STATE[:2],
        {"sidecar": {"path": where.format("one.parquet"), "sizeInBytes": 1, "modificationTime": 1}},
        {"sidecar": {"path": where.format("two.parquet"), "sizeInBytes": 1, "modificationTime": 1}},
    ]
    if kind == "parquet":
        log_of_five.parquet(f"{V2}.parquet", top)
    else:
        (log_of_five.log / f"{V2}.json").write_text("\n".join(json.dumps(action) for action in top))
    forget(log_of_five, 0, 1, 2)
    check(log_of_five)


def test_classic_name_with_sidecars(log_of_five: LogWriter) -> None:
    log_of_five.parquet("_sidecars/one.parquet", STATE[2:5])
    sidecar = {"sidecar": {"path": "one.parquet", "sizeInBytes": 1, "modificationTime": 1}}
    log_of_five.parquet(f"{2:020}.checkpoint.parquet", [*STATE[:2], sidecar])
    forget(log_of_five, 0, 1, 2)
    check(log_of_five)


def test_missing_sidecar(log_of_five: LogWriter) -> None:
    top = [*STATE[:2], {"sidecar": {"path": "gone.parquet", "sizeInBytes": 1, "modificationTime": 1}}]
    log_of_five.parquet(f"{V2}.parquet", top)
    check(log_of_five)
    forget(log_of_five, 0, 1, 2)
    with pytest.raises(DeltaLogError, match=r"gone\.parquet cannot be read"):
        open_log(log_of_five.table).snapshot()


def test_damaged_checkpoint_falls_back(log_of_five: LogWriter) -> None:
    good = log_of_five.parquet(f"{2:020}.checkpoint.parquet", STATE)
    (log_of_five.log / f"{3:020}.checkpoint.parquet").write_bytes(good.read_bytes()[:-40])
    forget(log_of_five, 0, 1)
    check(log_of_five)
    good.unlink()
    with pytest.raises(DeltaLogError, match="cannot be read"):
        open_log(log_of_five.table).snapshot()


def test_checkpoint_without_protocol_is_refused(log_of_five: LogWriter) -> None:
    incomplete = log_of_five.parquet(f"{3:020}.checkpoint.parquet", STATE[2:])
    with pytest.raises(DeltaLogError, match=r"3\.checkpoint\.parquet lacks the protocol and the metadata"):
        open_log(log_of_five.table).snapshot()
    incomplete.unlink()
    check(log_of_five)


@pytest.mark.parametrize("content", ["", "{", '{"version": 99, "size": 1}', '{"version": 2, "parts": 7}', "[]"])
def test_last_checkpoint_file_is_not_used(log_of_five: LogWriter, content: str) -> None:
    log_of_five.parquet(f"{2:020}.checkpoint.parquet", STATE)
    (log_of_five.log / "_last_checkpoint").write_text(content)
    forget(log_of_five, 0, 1)
    check(log_of_five)


def test_other_files_in_the_log_are_ignored(log_of_five: LogWriter) -> None:
    for name in (
        ".00000000000000000005.json.crc",
        "00000000000000000004.crc",
        "00000000000000000003.00000000000000000004.compacted.json",
        "5.json",
        "00000000000000000009.json.tmp",
    ):
        (log_of_five.log / name).write_text("junk")
    (log_of_five.log / "_staged_commits").mkdir()
    check(log_of_five)


def test_checkpoint_newer_than_every_commit(log_of_five: LogWriter) -> None:
    log_of_five.parquet(f"{2:020}.checkpoint.parquet", STATE)
    forget(log_of_five, 0, 1, 2, 3, 4)
    log = open_log(log_of_five.table)
    assert log.latest_version() == 2
    assert [file.path for file in log.snapshot().files] == ["f1", "f2"]
    with pytest.raises(DeltaLogError):
        log.commit_timestamp(2)


def test_gap_after_a_checkpoint(log_of_five: LogWriter) -> None:
    log_of_five.parquet(f"{2:020}.checkpoint.parquet", STATE)
    forget(log_of_five, 0, 1, 3)
    with pytest.raises(DeltaLogError, match="the commit of version 3 is missing"):
        open_log(log_of_five.table).snapshot()


def test_statistics_kept_as_columns_only(tmp_path: Path) -> None:
    table = tmp_path / "table"
    rows = pa.table(
        {
            "i": pa.array([1, 2], pa.int64()),
            "s": ["a", "b"],
            "d": pa.array([1, 2], pa.date32()),
            "t": pa.array([1_000_001, 2_000_002], pa.timestamp("us", "UTC")),
            "n": [{"x": 1.5}, {"x": 2.5}],
        }
    )
    write_deltalake(table, rows)
    DeltaTable(table).create_checkpoint()
    before = open_log(table).snapshot().files[0]
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    content = pq.read_table(checkpoint).to_pylist()
    stats = pa.struct(
        [
            ("numRecords", pa.int64()),
            (
                "minValues",
                pa.struct(
                    [
                        ("i", pa.int64()),
                        ("d", pa.date32()),
                        ("t", pa.timestamp("us", "UTC")),
                        ("m", pa.decimal128(38, 2)),
                        ("k", pa.decimal128(38, 2)),
                        ("x", pa.float64()),
                        ("l", pa.timestamp("us")),
                    ]
                ),
            ),
            ("nullCount", pa.struct([("i", pa.int64()), ("n", pa.struct([("x", pa.int64())]))])),
        ]
    )
    schema = pa.schema(
        [
            (
                "add",
                pa.struct(
                    [
                        ("path", pa.string()),
                        ("size", pa.int64()),
                        ("modificationTime", pa.int64()),
                        ("stats_parsed", stats),
                    ]
                ),
            ),
            ("protocol", pa.struct([("minReaderVersion", pa.int32())])),
            ("metaData", pa.struct([("id", pa.string()), ("schemaString", pa.string())])),
        ]
    )
    parsed = {
        "numRecords": 2,
        "minValues": {
            "i": 1,
            "d": date(1970, 1, 2),
            "t": datetime(1970, 1, 1, 0, 0, 1, 1, tzinfo=UTC),
            "m": Decimal("1234567890123456789012.34"),
            "k": Decimal("1.25"),
            "x": float("nan"),
            "l": datetime(2020, 1, 1),
        },
        "nullCount": {"i": 0, "n": {"x": 0}},
    }
    meta = next(row["metaData"] for row in content if row["metaData"])
    rows_out = [
        {"protocol": {"minReaderVersion": 1}},
        {"metaData": {"id": meta["id"], "schemaString": meta["schemaString"]}},
        {"add": {"path": before.path, "size": 1, "modificationTime": 1, "stats_parsed": parsed}},
    ]
    pq.write_table(pa.Table.from_pylist(rows_out, schema=schema), checkpoint)
    (table / "_delta_log" / f"{0:020}.json").unlink()
    (after,) = open_log(table).snapshot().files
    assert after.stats is not None
    assert json.loads(after.stats) == {
        "numRecords": 2,
        "minValues": {
            "i": 1,
            "d": "1970-01-02",
            "t": "1970-01-01T00:00:01.000Z",
            "k": 1.25,
            "l": "2020-01-01T00:00:00.000",
        },
        "nullCount": {"i": 0, "n": {"x": 0}},
    }
    assert "stats_parsed" not in after.raw


def test_deltalake_checkpoint_equals_its_commits(tmp_path: Path) -> None:
    table = tmp_path / "table"
    for version in range(4):
        write_deltalake(
            table,
            pa.table({"a": [version], "p": pa.array(["x" if version else None], pa.string())}),
            mode="append",
            partition_by=["p"],
        )
    without = open_log(table).snapshot().files
    DeltaTable(table).create_checkpoint()
    for version in range(4):
        (table / "_delta_log" / f"{version:020}.json").unlink()
    with_checkpoint = open_log(table).snapshot().files
    assert len(without) == len(with_checkpoint) == 4
    for one, other in zip(without, with_checkpoint, strict=True):
        assert {k: v for k, v in one.raw.items() if v is not None and k != "stats"} == {
            k: v for k, v in other.raw.items() if k != "stats"
        }
        assert json.loads(one.stats or "") == json.loads(other.stats or "")


def test_compacted_commits_replace_removed_commits(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("a")])
    writer.commit(1, [add("b")])
    writer.commit(2, [remove("a"), add("c")])
    writer.commit(3, [add("d")])
    compacted = [remove("a"), add("b"), add("c")]
    lines = "".join(json.dumps(action) + "\n" for action in compacted)
    file = writer.log / f"{1:020}.{2:020}.compacted.json"
    file.write_text(lines)
    expected = [sorted(f.path for f in open_log(writer.table).snapshot_at(v).files) for v in (0, 2, 3)]
    assert expected == [["a"], ["b", "c"], ["b", "c", "d"]]
    (writer.log / f"{1:020}.json").unlink()
    (writer.log / f"{2:020}.json").unlink()
    found = [sorted(f.path for f in open_log(writer.table).snapshot_at(v).files) for v in (0, 2, 3)]
    assert found == expected
    # It holds two versions, so that the version between them is unknown.
    with pytest.raises(DeltaLogError, match="gap: the commit of version 1 is missing"):
        open_log(writer.table).snapshot_at(1)
    file.unlink()
    with pytest.raises(DeltaLogError, match="gap: the commit of version 1 is missing"):
        open_log(writer.table).snapshot()
