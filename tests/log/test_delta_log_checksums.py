"""Version checksum files: written with commits, and compared with replayed snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from handwritten_logs import PROTOCOL, SCHEMA, LogWriter, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError
from delta_sharing_client.log import DeltaLog


def checksum(log: DeltaLog, version: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((log.table_path / "_delta_log" / f"{version:020}.crc").read_text())
    return found


def essence(version: dict[str, Any]) -> tuple[int, int, int, int]:
    return tuple(version[name] for name in ("numFiles", "tableSizeBytes", "numMetadata", "numProtocol"))  # type: ignore[return-value]


class TestWriting:
    @pytest.fixture
    def log(self, tmp_path: Path) -> DeltaLog:
        log = open_log(tmp_path / "table")
        log.commit([PROTOCOL, metadata()], "CREATE TABLE")
        return log

    def test_each_commit_has_one(self, log: DeltaLog) -> None:
        log.commit([add("a", size=5), add("b", size=7), {"txn": {"appId": "app", "version": 4}}])
        log.commit([remove("a"), add("b", size=8)])
        assert [essence(checksum(log, version)) for version in range(3)] == [
            (0, 0, 1, 1),
            (2, 12, 1, 1),
            (1, 8, 1, 1),
        ]
        newest = checksum(log, 2)
        assert newest["metadata"] == metadata()["metaData"]
        assert newest["protocol"] == PROTOCOL["protocol"]
        assert newest["setTransactions"] == [{"appId": "app", "version": 4}]
        assert newest["domainMetadata"] == []
        assert "inCommitTimestampOpt" not in newest

    @pytest.mark.parametrize("cached", [True, False])
    def test_on_top_of_a_checkpoint(self, log: DeltaLog, cached: bool) -> None:
        for number in range(1, 14):
            log = log if cached else open_log(log.table_path)
            log.commit([add(f"f{number}", size=number), *([remove("f1")] if number == 12 else [])])
        assert list((log.table_path / "_delta_log").glob("*.checkpoint.parquet"))
        assert essence(checksum(log, 11)) == (11, sum(range(1, 12)), 1, 1)
        assert essence(checksum(log, 13)) == (12, sum(range(2, 14)), 1, 1)
        assert open_log(log.table_path).snapshot().size_in_bytes == sum(range(2, 14))

    def test_in_commit_timestamps(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "timed")
        protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}
        log.commit([{"protocol": protocol}, metadata(delta__enableInCommitTimestamps="true")])
        assert checksum(log, 0)["inCommitTimestampOpt"] == log.commit_timestamp(0)

    def test_an_existing_one_is_kept(self, log: DeltaLog) -> None:
        file = log.table_path / "_delta_log" / f"{1:020}.crc"
        file.write_text("{}")
        log.commit([add("a")])
        assert file.read_text() == "{}"
        assert open_log(log.table_path).snapshot().version == 1

    def test_private_commits_have_none(self, log: DeltaLog) -> None:
        log.start_transaction().commit([add("a")], private=True)
        assert not (log.table_path / "_delta_log" / f"{1:020}.crc").exists()


class TestChecking:
    GOOD: dict[str, Any] = {
        "tableSizeBytes": 20,
        "numFiles": 2,
        "numMetadata": 1,
        "numProtocol": 1,
        "metadata": {
            "id": "t-1",
            "format": {"provider": "parquet"},
            "schemaString": SCHEMA,
            "partitionColumns": [],
        },
        "protocol": PROTOCOL["protocol"],
    }

    def write(self, writer: LogWriter, content: object) -> None:
        writer.commit(0, [PROTOCOL, metadata(), add("gone")])
        writer.commit(1, [add("a"), add("b"), remove("gone")])
        (writer.log / f"{1:020}.crc").write_text(content if isinstance(content, str) else json.dumps(content))

    @pytest.mark.parametrize(
        "content",
        [
            GOOD,
            {**GOOD, "allFiles": None, "new": 1},
            {"numFiles": 2},
            {},
            "",
            "{",
            "[]",
            '{"metadata": 3}',
        ],
    )
    def test_of_the_same_state(self, writer: LogWriter, content: object) -> None:
        """A checksum that cannot be read, and fields that it lacks, are not compared."""
        self.write(writer, content)
        assert len(open_log(writer.table).snapshot().files) == 2

    @pytest.mark.parametrize(
        ("changes", "shown"),
        [
            ({"numFiles": 3}, r"numFiles \(3 there, 2 by replay\)"),
            ({"tableSizeBytes": 21}, r"tableSizeBytes \(21 there, 20 by replay\)"),
            ({"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}, "in protocol: files"),
            (
                {"metadata": {**GOOD["metadata"], "id": "other"}, "numFiles": 1},
                "1 there, 2 by replay.*, metadata:",
            ),
        ],
    )
    def test_of_another_state(self, writer: LogWriter, changes: dict[str, Any], shown: str) -> None:
        self.write(writer, self.GOOD | changes)
        log = open_log(writer.table)
        with pytest.raises(DeltaLogError, match=rf"version 1: .*{shown}"):
            log.snapshot()
        assert log.snapshot_at(0).version == 0

    def test_a_lost_commit_is_noticed(self, tmp_path: Path) -> None:
        log = open_log(tmp_path / "table")
        log.commit([PROTOCOL, metadata()])
        log.commit([add("a")])
        log.commit([add("b")])
        commit = log.table_path / "_delta_log" / f"{1:020}.json"
        commit.write_text(json.dumps({"commitInfo": {}}) + "\n")
        with pytest.raises(DeltaLogError, match="files of the log were changed or lost"):
            open_log(log.table_path).snapshot()
