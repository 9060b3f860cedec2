from __future__ import annotations

from typing import Any

import pytest
from handwritten_logs import PROTOCOL, LogWriter, add, metadata, open_log

from delta_sharing_client.errors import DeltaLogError, VersionNotFoundError
from delta_sharing_client.log import DeltaLog


def info(timestamp: int) -> dict[str, Any]:
    return {"commitInfo": {"inCommitTimestamp": timestamp, "operation": "WRITE"}}


def test_modification_times_made_monotonic(writer: LogWriter) -> None:
    for version, moment in enumerate([10_000, 9_000, 9_000, 20_000]):
        actions = [PROTOCOL, metadata()] if version == 0 else [add(f"f{version}")]
        writer.commit(version, actions, mtime_ms=moment)
    log = open_log(writer.table)
    assert [log.commit_timestamp(version) for version in range(4)] == [10_000, 10_001, 10_002, 20_000]
    assert [log.snapshot_at(version).timestamp for version in range(4)] == [10_000, 10_001, 10_002, 20_000]
    assert [log.version_at_or_after(t) for t in (0, 10_000, 10_001, 10_003, 20_000)] == [0, 0, 1, 3, 3]
    assert [log.version_at_or_before(t) for t in (10_000, 10_001, 19_999, 20_000, 10**12)] == [0, 1, 2, 3, 3]
    assert log.snapshot_at(timestamp=15_000).version == 2
    with pytest.raises(VersionNotFoundError, match="older"):
        log.version_at_or_after(20_001)
    with pytest.raises(VersionNotFoundError, match="newer"):
        log.version_at_or_before(9_999)
    with pytest.raises(TypeError, match="timestamp is an int, not str"):
        log.snapshot_at(timestamp="2024-01-01")  # type: ignore[arg-type]
    with pytest.raises(VersionNotFoundError):
        log.commit_timestamp(4)


@pytest.mark.parametrize("value", ["3", 3.0, None, True])
@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("commit_timestamp", "version"),
        ("version_at_or_after", "timestamp"),
        ("version_at_or_before", "timestamp"),
        ("changes", "start_version"),
    ],
)
def test_arguments_that_are_no_integers_are_named(
    writer: LogWriter, method: str, name: str, value: object
) -> None:
    writer.commit(0, [PROTOCOL, metadata()])
    with pytest.raises(TypeError, match=f"^{name} is an int, not {type(value).__name__}$"):
        getattr(open_log(writer.table), method)(value)


@pytest.mark.parametrize("value", [b"/tables/orders", 3, None])
def test_a_path_that_is_no_text_is_named(value: Any) -> None:
    for method in (DeltaLog.for_table, DeltaLog.invalidate_cache):
        with pytest.raises(TypeError, match=f"^path is a str or a path, not {type(value).__name__}$"):
            method(value)


def test_in_commit_timestamps(writer: LogWriter) -> None:
    writer.commit(0, [info(1_000), PROTOCOL, metadata(delta__enableInCommitTimestamps="true")], mtime_ms=50_000)
    writer.commit(1, [info(2_000), add("f")], mtime_ms=40_000)
    log = open_log(writer.table)
    assert [log.commit_timestamp(version) for version in (0, 1)] == [1_000, 2_000]
    assert log.snapshot().timestamp == 2_000
    assert [commit.timestamp for commit in log.changes(0)] == [1_000, 2_000]
    assert log.version_at_or_before(1_500) == 0


def test_in_commit_timestamps_from_a_version_on(writer: LogWriter) -> None:
    later = metadata(
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion="2",
        delta__inCommitTimestampEnablementTimestamp="3000",
    )
    writer.commit(0, [info(999_999), PROTOCOL, metadata()], mtime_ms=1_000)
    writer.commit(1, [add("f")], mtime_ms=2_000)
    writer.commit(2, [info(3_000), later], mtime_ms=70_000)
    writer.commit(3, [info(4_000)], mtime_ms=80_000)
    log = open_log(writer.table)
    assert [log.commit_timestamp(version) for version in range(4)] == [1_000, 2_000, 3_000, 4_000]
    assert log.snapshot_at(1).timestamp == 2_000


def test_in_commit_timestamp_missing(writer: LogWriter) -> None:
    writer.commit(0, [PROTOCOL, metadata(delta__enableInCommitTimestamps="true")])
    with pytest.raises(DeltaLogError, match="no in-commit timestamp"):
        open_log(writer.table).snapshot()


@pytest.mark.parametrize("version", ["x", "-1", "1e9", "9" * 5000])
def test_in_commit_timestamps_from_no_version(writer: LogWriter, version: str) -> None:
    properties = {"enableInCommitTimestamps": "true", "inCommitTimestampEnablementVersion": version}
    writer.commit(0, [info(1), PROTOCOL, metadata(**{f"delta__{key}": text for key, text in properties.items()})])
    with pytest.raises(DeltaLogError, match="in-commit timestamps begin at version"):
        open_log(writer.table).snapshot()


def test_file_times_of_a_copy_stay_before_the_in_commit_times(writer: LogWriter) -> None:
    later = metadata(
        delta__enableInCommitTimestamps="true",
        delta__inCommitTimestampEnablementVersion="2",
        delta__inCommitTimestampEnablementTimestamp="3000",
    )
    writer.commit(0, [PROTOCOL, metadata()], mtime_ms=90_000)
    writer.commit(1, [add("f")], mtime_ms=90_001)
    writer.commit(2, [info(3_000), later], mtime_ms=90_002)
    writer.commit(3, [info(4_000)], mtime_ms=90_003)
    log = open_log(writer.table)
    assert [log.commit_timestamp(version) for version in range(4)] == [2_998, 2_999, 3_000, 4_000]
    assert log.version_at_or_after(3_500) == 3
    assert log.version_at_or_before(3_500) == 2
    assert log.version_at_or_before(2_999) == 1
