from __future__ import annotations

import json
import logging
import os
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from handwritten_logs import PROTOCOL, V2, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log import DeltaLog, Metadata, Snapshot
from delta_sharing_client.log.checkpoint_writer import write_checkpoint
from delta_sharing_client.log.table_properties import parse_interval
from delta_sharing_client.log.typed_statistics import StatsLayout


def log_files(log: DeltaLog, pattern: str) -> list[str]:
    return sorted(path.name for path in (log.table_path / "_delta_log").glob(pattern))


def state_of(snapshot: Snapshot) -> Any:
    """Return the state of a snapshot for comparison."""

    def plain(raw: Any) -> Any:
        return {k: v for k, v in raw.items() if v is not None and k not in ("dataChange", "stats")}

    return (
        [plain(file.raw) | {"stats": json.loads(file.stats or "null")} for file in snapshot.files],
        sorted((plain(file.raw) for file in snapshot.tombstones), key=lambda raw: raw["path"]),
        plain(snapshot.metadata.raw),
        plain(snapshot.protocol.raw),
        sorted(str(plain(item.raw)) for item in snapshot.transactions.values()),
        sorted(str(plain(item.raw)) for item in snapshot.state.domains.values()),
    )


def without_commits(log: DeltaLog, up_to: int) -> DeltaLog:
    for version in range(up_to):
        (log.table_path / "_delta_log" / f"{version:020}.json").unlink()
    return open_log(log.table_path)


def fresh_remove(path: str, **more: Any) -> dict[str, Any]:
    now = int(datetime.now(UTC).timestamp() * 1000)
    return remove(path, deletionTimestamp=now, extendedFileMetadata=True, partitionValues={}, size=3, **more)


DIGITS = "1234567890123456789012345678901234"
STATS = json.dumps({"numRecords": 3, "minValues": {"a": 1}, "maxValues": {"a": 9}, "nullCount": {"a": 0}})
VECTOR = {"storageType": "i", "pathOrInlineDv": "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"}
VECTOR |= {"sizeInBytes": 40, "cardinality": 6}


@pytest.mark.parametrize("policy", ["classic", "v2"])
@pytest.mark.parametrize(("as_json", "as_struct"), [(True, False), (True, True), (False, True), (False, False)])
def test_checkpoint_equals_the_commits(tmp_path: Path, policy: str, as_json: bool, as_struct: bool) -> None:
    log = open_log(tmp_path / "table")
    properties = {
        "delta.checkpointPolicy": policy,
        "delta.checkpoint.writeStatsAsJson": str(as_json).lower(),
        "delta.checkpoint.writeStatsAsStruct": str(as_struct).lower(),
        "delta.checkpointInterval": "4",
    }
    features = ["v2Checkpoint", "deletionVectors", "domainMetadata"]
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, "writerFeatures": features}
    table = metadata()["metaData"] | {"configuration": properties, "createdTime": 5, "name": "n"}
    log.commit([{"protocol": protocol | {"readerFeatures": features[:2]}}, {"metaData": table}])
    log.commit([add("a", stats=STATS, tags={"k": "v"}), add("b%20ü"), add("c", deletionVector=VECTOR)])
    log.commit([fresh_remove("b%20ü"), {"txn": {"appId": "app", "version": 2**40, "lastUpdated": 7}}])
    log.commit([{"domainMetadata": {"domain": "d", "configuration": "{}", "removed": False}}])
    assert log_files(log, "*checkpoint*") == []
    log.commit([add("d")])
    (checkpoint,) = log_files(log, "*.checkpoint.*")
    assert checkpoint.startswith(f"{4:020}.checkpoint.")
    assert checkpoint.endswith(".json" if policy == "v2" else ".parquet")
    assert len(log_files(log, "_sidecars/*.parquet")) == (policy == "v2")
    last = json.loads((log.table_path / "_delta_log" / "_last_checkpoint").read_bytes())
    assert (last["version"], last["numOfAddFiles"]) == (4, 3)
    assert last["size"] == 8 + (2 if policy == "v2" else 0)
    from_commits = state_of(open_log(log.table_path).snapshot_at(3))
    expected = state_of(open_log(log.table_path).snapshot())
    assert from_commits[1:] == expected[1:]
    again = without_commits(log, 4)
    found = state_of(again.snapshot())
    if not as_json and not as_struct:
        for files in (expected[0], found[0]):
            for file in files:
                file["stats"] = None
    assert found == expected
    other = DeltaTable(log.table_path)
    assert other.version() == 4
    if policy == "v2":
        files = log.table_path / "_delta_log" / log_files(log, "_sidecars/*")[0]
        columns = pq.read_schema(log.table_path / "_delta_log" / "_sidecars" / files.name)
    else:
        columns = pq.read_schema(log.table_path / "_delta_log" / checkpoint)
    inside = [field.name for field in columns.field("add").type]
    assert ("stats" in inside, "stats_parsed" in inside) == (as_json, as_struct)
    assert "partitionValues_parsed" not in inside


def test_every_tenth_commit(tmp_path: Path) -> None:
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, metadata()])
    for number in range(1, 22):
        log.commit([add(f"f{number}")])
    assert log_files(log, "*.checkpoint.parquet") == [f"{v:020}.checkpoint.parquet" for v in (10, 20)]
    assert json.loads((log.table_path / "_delta_log" / "_last_checkpoint").read_bytes())["version"] == 20
    assert len(open_log(log.table_path).snapshot().files) == 21
    again = without_commits(log, 11)
    assert len(again.snapshot().files) == 21
    assert len(DeltaTable(log.table_path).file_uris()) == 21
    # An older checkpoint made later does not move the pointer back.
    assert again.checkpoint(12).name == f"{12:020}.checkpoint.parquet"
    assert json.loads((log.table_path / "_delta_log" / "_last_checkpoint").read_bytes())["version"] == 20


@pytest.mark.parametrize(("retention", "kept"), [(None, {"new", "days"}), ("interval 1 hour", {"new"})])
def test_tombstones_expire(tmp_path: Path, retention: str | None, kept: set[str]) -> None:
    now = int(datetime.now(UTC).timestamp() * 1000)
    hour = 3_600_000
    properties = {} if retention is None else {"delta__deletedFileRetentionDuration": retention}
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, metadata(**properties), add("f")])
    log.commit(
        [
            remove("new", deletionTimestamp=now),
            remove("days", deletionTimestamp=now - 48 * hour),
            remove("weeks", deletionTimestamp=now - 8 * 24 * hour),
            {"remove": {"path": "unknown", "dataChange": True}},
        ]
    )
    log.checkpoint()
    assert {file.path for file in without_commits(log, 2).snapshot().tombstones} == kept
    assert {file.path for file in open_log(log.table_path).snapshot().files} == {"f"}


def test_sidecars_are_split(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("delta_sharing_client.log.checkpoint_writer._ROWS_PER_SIDECAR", 4)
    log = open_log(tmp_path / "table")
    log.commit([V2, metadata(delta__checkpointPolicy="v2"), *(add(f"f{n}") for n in range(10))])
    log.checkpoint()
    assert len(log_files(log, "_sidecars/*")) == 3
    assert len(without_commits(log, 1).snapshot().files) == 10
    assert len(DeltaTable(log.table_path).file_uris()) == 10


def test_v2_needs_its_feature(tmp_path: Path) -> None:
    with pytest.raises(DeltaLogError, match="properties require v2Checkpoint, which its protocol does not list"):
        open_log(tmp_path).commit([PROTOCOL, metadata(delta__checkpointPolicy="v2")])


def test_a_checkpoint_that_fails_does_not_fail_the_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, metadata(delta__checkpointInterval="2")])
    log.commit([add("a")])
    replace = os.replace

    def full(source: Any, target: Any) -> None:
        if "checkpoint" in str(target):
            raise OSError(28, "No space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", full)
    with caplog.at_level(logging.WARNING):
        assert log.commit([add("b")]) == 2
    assert "no checkpoint of version 2" in caplog.text
    with pytest.raises(DeltaLogError, match="checkpoint of version 2 cannot be written: No space"):
        log.checkpoint()
    assert log_files(log, "*tmp*") == log_files(log, ".*") == []


def test_bad_properties(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = open_log(tmp_path / "table")
    log.commit([PROTOCOL, metadata(delta__deletedFileRetentionDuration="3 months")])
    with pytest.raises(DeltaLogError, match="deletedFileRetentionDuration: '3 months' is not an interval"):
        log.checkpoint()
    log.commit([metadata(delta__checkpointInterval="often")])
    assert "checkpointInterval is 'often'" in caplog.text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("interval 7 days", timedelta(days=7)),
        ("INTERVAL 1 week", timedelta(weeks=1)),
        ("2 hours 30 minutes", timedelta(hours=2, minutes=30)),
        ("interval 0 seconds", timedelta()),
        ("interval 5 milliseconds 2 microseconds", timedelta(microseconds=5002)),
    ],
)
def test_intervals(text: str, expected: timedelta) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize(
    "text", ["", "interval", "7", "days", "1 month", "1 day -2 days", "1 day,2 hours", "x 1 day"]
)
def test_no_intervals(text: str) -> None:
    with pytest.raises(ValueError, match="is not an interval"):
        parse_interval(text)


def layout(partitions: list[str], mapped: bool = False, **types: Any) -> StatsLayout:
    fields = [
        {
            "name": name,
            "type": kind,
            "nullable": True,
            "metadata": {
                "delta.columnMapping.physicalName": f"col-{name}",
                "delta.columnMapping.id": number,
            }
            if mapped
            else {},
        }
        for number, (name, kind) in enumerate(types.items(), 1)
    ]
    raw = {
        "id": "x",
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": partitions,
        "configuration": {"delta.columnMapping.mode": "id"} if mapped else {},
    }
    return StatsLayout(Metadata.from_json(raw))


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("long", "9223372036854775807", 2**63 - 1),
        ("long", "9223372036854775808", None),
        ("byte", "128", None),
        ("integer", "1.5", None),
        ("integer", "true", None),
        ("double", "0.1", 0.1),
        ("double", "1e400", float("inf")),
        ("float", "0.1", None),
        ("float", "0.5", 0.5),
        (
            "decimal(38,4)",
            "1234567890123456789012345678901234.5678",
            Decimal("1234567890123456789012345678901234.5678"),
        ),
        ("decimal(5,2)", "1.234", None),
        ("decimal(5,2)", "12345.1", None),
        ("decimal(38,4)", "123456789012345678901234567890.12345", None),
        ("decimal(38,0)", "9223372036854775807", None),
        ("decimal(38,2)", "-92233720368547758.08", None),
        ("decimal(38,2)", "0", 0),
        ("long", "1e999999999", None),
        ("long", "1e-999999999", None),
        ("long", "1e99999999999999999999", None),
        ("decimal(38,2)", "1e999999999", None),
        ("decimal(38,2)", "1e-999999999", None),
        ("decimal(38,2)", "1e99999999999999999999", None),
        ("string", '"x"', "x"),
        ("string", "3", None),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("date", '"2023-02-29"', None),
        ("timestamp", '"2024-01-01T10:00:00.123+02:00"', datetime(2024, 1, 1, 8, 0, 0, 123000, tzinfo=UTC)),
        ("timestamp", '"2024-01-01T10:00:00.123Z"', datetime(2024, 1, 1, 10, 0, 0, 123000, tzinfo=UTC)),
        ("timestamp_ntz", '"2024-01-01T10:00:00.123"', datetime(2024, 1, 1, 10, 0, 0, 123000)),
        ("timestamp_ntz", '"2024-01-01T10:00:00Z"', None),
    ],
)
def test_bounds_in_their_types(kind: str, text: str, expected: object) -> None:
    made = layout([], c=kind)
    stats = made.stats(f'{{"numRecords": 1, "minValues": {{"c": {text}}}}}')
    assert stats is not None
    assert stats["minValues"]["c"] == expected
    assert expected == 0 or type(stats["minValues"]["c"]) is type(expected)
    pa.array([stats], type=made.stats_type())


def test_nested_and_mapped_columns() -> None:
    inner = {
        "type": "struct",
        "fields": [
            {"name": "x", "type": "long"},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "long"}},
        ],
    }
    made = layout([], True, s=inner, flag="boolean", raw="binary", l={"type": "array", "elementType": "long"})
    bounds = pa.struct([("col-s", pa.struct([("x", pa.int64())]))])
    counts = [("col-s", pa.struct([("x", pa.int64()), ("m", pa.int64())]))]
    counts += [(name, pa.int64()) for name in ("col-flag", "col-raw", "col-l")]
    stats_type = made.stats_type()
    assert stats_type.field("minValues").type == bounds
    assert stats_type.field("nullCount").type == pa.struct(counts)
    text = {"numRecords": 2, "minValues": {"col-s": {"x": 4}}, "nullCount": {"col-s": {"m": 1}, "col-l": 2}}
    (stats,) = pa.array([made.stats(json.dumps(text))], type=stats_type).to_pylist()
    assert stats["minValues"] == {"col-s": {"x": 4}}
    assert stats["nullCount"] == {"col-s": {"x": None, "m": 1}, "col-flag": None, "col-raw": None, "col-l": 2}


def test_counts_that_are_no_integers_become_null() -> None:
    text = '{"numRecords": 1e99999999999999999999, "nullCount": {"a": 1e99999999999999999999}}'
    stats = layout([], a="long").stats(text)
    assert stats is not None
    assert stats["numRecords"] is None
    assert stats["nullCount"] == {"a": None}


@pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "3"])
def test_no_statistics(text: str | None) -> None:
    assert layout([], a="long").stats(text) is None


@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("string", "x", "x"),
        ("string", "", None),
        ("string", None, None),
        ("integer", "-7", -7),
        ("integer", "seven", None),
        ("boolean", "true", True),
        ("date", "2024-01-31", date(2024, 1, 31)),
        ("timestamp", "2024-01-31 10:11:12.5", datetime(2024, 1, 31, 10, 11, 12, 500000, tzinfo=UTC)),
        ("timestamp_ntz", "2024-01-31 10:11:12", datetime(2024, 1, 31, 10, 11, 12)),
        ("decimal(6,3)", "1.5", Decimal("1.5")),
        ("double", "NaN", "nan"),
        ("binary", "ab", b"ab"),
    ],
)
def test_partition_values_in_their_types(kind: str, text: str | None, expected: object) -> None:
    made = layout(["p"], p=kind, a="long")
    (row,) = pa.array([made.partition_values({"p": text})], type=made.partition_type()).to_pylist()
    assert str(row["p"]) == "nan" if expected == "nan" else row["p"] == expected
    assert made.stats_type().field("minValues").type == pa.struct([("a", pa.int64())])


def test_partitions_as_struct_are_read_by_another_engine(tmp_path: Path) -> None:
    log = open_log(tmp_path / "table")
    fields = [{"name": n, "type": t, "nullable": True, "metadata": {}} for n, t in (("a", "long"), ("p", "date"))]
    table = metadata(delta__checkpoint__writeStatsAsStruct="true")["metaData"] | {
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": ["p"],
    }
    (log.table_path / "p=1").mkdir(parents=True)
    pq.write_table(pa.table({"a": [1, 2]}), log.table_path / "p=1" / "f")
    size = (log.table_path / "p=1" / "f").stat().st_size
    log.commit(
        [PROTOCOL, {"metaData": table}, add("p=1/f", size=size, partitionValues={"p": "2024-01-31"}, stats=STATS)]
    )
    write_checkpoint(log.snapshot())
    without_commits(log, 1)
    rows = DeltaTable(log.table_path).to_pyarrow_table().to_pylist()
    assert rows == [{"a": 1, "p": date(2024, 1, 31)}, {"a": 2, "p": date(2024, 1, 31)}]
