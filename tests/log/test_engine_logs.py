"""Logs as engines wrote and damaged them over the years: unusual actions, paths, checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from handwritten_logs import PROTOCOL, SCHEMA, LogWriter, add, metadata, remove

from delta_sharing_client.errors import (
    DeltaLogError,
    DeltaTableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from delta_sharing_client.log import DeltaLog, file_key


def open_log(table: Path, **options: Any) -> DeltaLog:
    DeltaLog.clear_cache()
    return DeltaLog.for_table(table, **options)


def paths(log: DeltaLog, version: int | None = None) -> list[str]:
    snapshot = log.snapshot() if version is None else log.snapshot_at(version)
    return sorted(file.path for file in snapshot.files)


@pytest.mark.parametrize(
    "line",
    [
        {"some_new_action": ["a", "1"]},
        {"some_new_action": "text"},
        {"some_new_action": {"x": 1}},
        {"commitInfo": "anything that is JSON"},
        {"commitInfo": {"operation": "WRITE", "operationParameters": {"predicate": [], "n": 1, "auto": False}}},
        {"checkpointMetadata": {"version": 0}},
    ],
)
def test_fields_that_replay_does_not_need_may_have_any_type(writer: LogWriter, line: dict[str, Any]) -> None:
    writer.commit(0, [PROTOCOL, metadata(), line])
    writer.commit(1, [add("a", some_new_field=[1]) | line, line])
    log = open_log(writer.table)
    assert paths(log) == ["a"]
    assert [info.version for info in log.history()] == [1, 0]
    assert [commit.version for commit in log.changes(0)] == [0, 1]


def test_fields_that_replay_needs_are_checked(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), {"add": ["a"]}])
    with pytest.raises(DeltaLogError, match=r"line 3: the action 'add' is not a JSON object"):
        open_log(writer.table).snapshot()


@pytest.mark.parametrize("vector", ["u", [1], 7])
def test_empty_deletion_vector_is_null(writer: LogWriter, vector: Any) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("f", deletionVector=vector)])
    with pytest.raises(DeltaLogError, match="'deletionVector' is not an object"):
        open_log(writer.table).snapshot()


def test_metadata_without_schema_is_refused(writer: LogWriter) -> None:
    bare = metadata()
    del bare["metaData"]["schemaString"]
    writer.commit(0, [bare, PROTOCOL, add("a")])
    with pytest.raises(DeltaLogError, match="version 0: the metadata lacks schemaString"):
        open_log(writer.table).snapshot()


@pytest.mark.protocol("provider")
@pytest.mark.parametrize("provider", ["orc", "iceberg", "Parquet"])
def test_files_of_another_format_are_refused(writer: LogWriter, provider: str) -> None:
    other = metadata()
    other["metaData"]["format"] = {"provider": provider}
    writer.commit(0, [other, PROTOCOL, add("a")])
    with pytest.raises(DeltaLogError, match=f"version 0: the table's files have the format '{provider}'"):
        open_log(writer.table).snapshot()


ONE_FILE = [
    ("/some/absolute/path", "file:/some/absolute/path"),
    ("/some/absolute/path", "file:///some/absolute/path"),
    ("file:/some/absolute/path", "file://localhost/some/absolute/path"),
    ("/with%20space/p@%23h", "file:/with%20space/p@%23h"),
    ("/with%20space/p@%23h", "file:///with%20space/p%40%23h"),
    ("file:///with%20space/p@%23h", "/with%20space//p@%23h"),
]
TWO_FILES = [
    ("/some/path", "file:///some/Path"),
    ("/some/a%2Fb", "/some/a%252Fb"),
    ("https://host/some/path", "/some/path"),
    ("https://host/a%20b", "https://host/a b"),
    ("a%20b", "a b"),
    ("./a", "a"),
    ("a", "/a"),
]


@pytest.mark.parametrize(("added", "removed"), ONE_FILE)
def test_spellings_of_one_absolute_path(writer: LogWriter, added: str, removed: str) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add(added)])
    writer.commit(1, [remove(removed, dataChange=False)])
    writer.commit(2, [add(removed)])
    writer.commit(3, [add(added, moment=3)])
    trusted = open_log(writer.table, allow_absolute_paths=True)
    assert paths(trusted, 0) == [added]
    assert paths(trusted, 1) == []
    assert paths(trusted, 2) == [removed]
    (file,) = trusted.snapshot().files
    assert (file.path, file.modification_time) == (added, 3)
    # Where none is left there is nothing to refuse.
    log = open_log(writer.table)
    assert paths(log, 1) == []
    with pytest.raises(DeltaLogError, match="allow_absolute_paths"):
        paths(log)


@pytest.mark.parametrize(("added", "removed"), TWO_FILES)
def test_spellings_of_two_paths(writer: LogWriter, added: str, removed: str) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add(added)])
    writer.commit(1, [remove(removed)])
    assert paths(open_log(writer.table, allow_absolute_paths=True)) == [added]


def test_absolute_paths_in_checkpoints(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("/data/a%20b"), add("/data/c")])
    writer.parquet(f"{0:020}.checkpoint.parquet", [PROTOCOL, metadata(), add("/data/a%20b"), add("/data/c")])
    writer.commit(1, [remove("file:/data/a%20b")])
    (writer.log / f"{0:020}.json").unlink()
    assert paths(open_log(writer.table, allow_absolute_paths=True)) == ["/data/c"]


def test_a_file_added_again_after_its_removal(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("foo", moment=1_600_000_000_000)])
    writer.commit(1, [remove("foo")])
    writer.commit(2, [add("foo", moment=1_700_000_000_000)])
    log = open_log(writer.table)
    log.snapshot()
    writer.commit(3, [add("bar")])
    files = {file.path: file.modification_time for file in log.snapshot().files}
    assert files == {"foo": 1_700_000_000_000, "bar": 0}
    assert not log.snapshot().tombstones


@pytest.mark.parametrize(("missing", "kept"), [("protocol", metadata()), ("metadata", PROTOCOL)])
def test_checkpoint_without_protocol_or_metadata_is_refused(
    writer: LogWriter, missing: str, kept: dict[str, Any]
) -> None:
    files = [add(str(n)) for n in range(11)]
    writer.commit(0, [PROTOCOL, metadata(), files[0]])
    for n in range(1, 11):
        writer.commit(n, [files[n]])
    writer.parquet(f"{10:020}.checkpoint.parquet", [kept, *files])
    log = open_log(writer.table)
    with pytest.raises(DeltaLogError, match=f"checkpoint.parquet lacks the {missing}, which"):
        log.snapshot()
    assert len(paths(log, 9)) == 10


@pytest.mark.parametrize(("missing", "kept"), [("protocol", metadata()), ("metadata", PROTOCOL)])
def test_commits_without_protocol_or_metadata_are_refused(
    writer: LogWriter, missing: str, kept: dict[str, Any]
) -> None:
    writer.commit(0, [kept, add("abc")])
    with pytest.raises(DeltaLogError, match="lacks the protocol or the metadata"):
        open_log(writer.table).snapshot()


def test_unknown_reader_version_is_refused(writer: LogWriter) -> None:
    writer.commit(0, [{"protocol": {"minReaderVersion": 99, "minWriterVersion": 2}}, metadata(), add("abc")])
    with pytest.raises(DeltaLogError, match="needs reader version 99"):
        open_log(writer.table).snapshot()


def test_directory_without_a_log(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").write_bytes(b"PAR1")
    with pytest.raises(DeltaTableNotFoundError, match="no _delta_log"):
        open_log(tmp_path).latest_version()
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / "0").write_text("zero\nnone\n")
    (log / "_last_checkpoint").write_text('{"version": 0, "size": 1}')
    with pytest.raises(DeltaTableNotFoundError, match="no commit and no checkpoint"):
        open_log(tmp_path).latest_version()
    assert not open_log(tmp_path).table_exists


def test_checkpoints_alone(writer: LogWriter) -> None:
    state = [PROTOCOL, metadata(), add("a")]
    writer.parquet(f"{1:020}.checkpoint.parquet", state)
    writer.parquet(f"{2:020}.checkpoint.parquet", [*state, add("b")])
    log = open_log(writer.table)
    assert (log.snapshot().version, paths(log)) == (2, ["a", "b"])
    assert paths(log, 1) == ["a"]
    with pytest.raises(VersionNotFoundError, match="version 0 can no longer be rebuilt"):
        log.snapshot_at(0)


def test_a_staged_commit_is_no_commit(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("a")])
    staged = writer.log / "_staged_commits"
    staged.mkdir()
    (staged / f"{1:020}.4cb9708e-b478-44de-b203-53f9ba9b2876.json").write_text(json.dumps(add("b")))
    assert paths(open_log(writer.table)) == ["a"]


@pytest.mark.parametrize("feature", ["catalogManaged", "catalogOwned-preview"])
def test_catalog_managed_table_is_refused(writer: LogWriter, feature: str) -> None:
    protocol = {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [feature],
            "writerFeatures": [feature, "inCommitTimestamp"],
        }
    }
    writer.commit(0, [{"commitInfo": {"inCommitTimestamp": 5}}, protocol, metadata(), add("a")])
    with pytest.raises(UnsupportedFeatureError, match="a catalog manages it") as caught:
        open_log(writer.table).snapshot()
    assert caught.value.features == (feature,)
    # A server that stands for the catalog may look nevertheless.
    assert paths(open_log(writer.table, any_features=True)) == ["a"]


@pytest.mark.parametrize("name", ["special p@#h", "test%file%prefix-part-0.parquet", "c2=+ %3D%250/p.parquet"])
def test_names_of_files_that_need_encoding(writer: LogWriter, name: str) -> None:
    from urllib.parse import quote

    from delta_sharing_client.log.paths import resolve_path

    written = quote(name, safe="/@+=")
    writer.commit(0, [PROTOCOL, metadata(), add(written)])
    log = open_log(writer.table)
    (file,) = log.snapshot().files
    assert file.path == written
    assert resolve_path(writer.table, file.path) == writer.table / name
    writer.commit(1, [remove(written, extendedFileMetadata=True, partitionValues={}, size=10)])
    assert paths(log) == []


def test_compacted_commits_beside_the_commits(writer: LogWriter) -> None:
    vector = {"storageType": "u", "pathOrInlineDv": "a" * 20, "offset": 1, "sizeInBytes": 34, "cardinality": 1}
    writer.commit(0, [PROTOCOL, metadata(), add("x"), add("y")])
    writer.commit(1, [remove("x"), add("x", deletionVector=vector)])
    writer.commit(2, [remove("x", deletionVector=vector), add("x", deletionVector=vector | {"offset": 43})])
    writer.commit(3, [add("z")])
    compacted = writer.log / f"{1:020}.{2:020}.compacted.json"
    lines = [
        add("x", deletionVector=vector | {"offset": 43}),
        remove("x"),
        remove("x", deletionVector=vector),
    ]
    compacted.write_text("".join(json.dumps(line) + "\n" for line in lines))

    def keys() -> list[tuple[str, str]]:
        return sorted(file_key(file) for file in open_log(writer.table).snapshot().files)

    expected = [("x", "u" + "a" * 20 + "@43"), ("y", ""), ("z", "")]
    assert keys() == expected
    for version in (1, 2):
        (writer.log / f"{version:020}.json").unlink()
    assert keys() == expected


def test_schema_string_is_kept_as_written(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("a")])
    assert open_log(writer.table).snapshot().schema_string == SCHEMA


def write_typed_statistics(writer: LogWriter, bounds: pa.StructArray, **options: Any) -> None:
    """A checkpoint of one file whose statistics are kept in types alone."""
    stats = pa.StructArray.from_arrays(
        [pa.array([None, None, 2], pa.int64()), bounds, bounds], names=["numRecords", "minValues", "maxValues"]
    )
    names = ["path", "size", "partitionValues", "stats_parsed"]
    strings = pa.map_(pa.string(), pa.string())
    parts = [
        pa.array([None, None, "a"]),
        pa.array([None, None, 1], pa.int64()),
        pa.array([None, None, []], strings),
    ]
    absent = pa.array([True, True, False])
    columns = {
        "protocol": pa.array([{"minReaderVersion": 1}, None, None]),
        "metaData": pa.array([None, {"id": "t", "schemaString": SCHEMA}, None]),
        "add": pa.StructArray.from_arrays([*parts, stats], names=names, mask=absent),
    }
    pq.write_table(pa.table(columns), writer.log / f"{0:020}.checkpoint.parquet", **options)


@pytest.mark.parametrize("int96", [False, True], ids=["64 bits", "96 bits"])
def test_time_bounds_out_of_the_range_of_nanoseconds(writer: LogWriter, int96: bool) -> None:
    # The first and the last second of the years that Python has.
    for micros, text in [(-62_135_596_800_000_000, "0001-01-01T00"), (253_402_300_799_000_000, "9999-12-31T23")]:
        times = pa.array([None, None, micros], pa.timestamp("us"))
        bounds = pa.StructArray.from_arrays([times], names=["a"])
        write_typed_statistics(writer, bounds, use_deprecated_int96_timestamps=int96)
        (file,) = open_log(writer.table).snapshot().files
        stats = json.loads(file.stats or "")
        assert stats["numRecords"] == 2
        assert stats["minValues"]["a"][:13] == stats["maxValues"]["a"][:13] == text


@pytest.mark.parametrize("kind", [pa.timestamp("us", "UTC"), pa.date32()], ids=str)
def test_time_bounds_after_the_year_9999(writer: LogWriter, kind: pa.DataType) -> None:
    days = 4_000_000
    values = pa.array([None, None, days if pa.types.is_date(kind) else days * 86_400_000_000], kind)
    write_typed_statistics(writer, pa.StructArray.from_arrays([values], names=["a"]))
    (file,) = open_log(writer.table).snapshot().files
    assert (file.path, file.size, file.partition_values, file.stats) == ("a", 1, {}, None)


def test_checkpoint_with_invalid_utf8(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(), add("a")])
    checkpoint = writer.parquet(f"{0:020}.checkpoint.parquet", [PROTOCOL, metadata(), add("spoilt-path")])
    checkpoint.write_bytes(checkpoint.read_bytes().replace(b"spoilt-path", b"spoilt-\xff\xfeth"))
    assert paths(open_log(writer.table)) == ["a"]
    (writer.log / f"{0:020}.json").unlink()
    with pytest.raises(DeltaLogError, match="cannot be read"):
        open_log(writer.table).snapshot()
