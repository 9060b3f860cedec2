"""Expired commits and checkpoints go, and what is left can always be read, by other engines too."""

from __future__ import annotations

import logging
import os
import shutil
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from handwritten_logs import PROTOCOL, V2, add, metadata, open_log, remove

from delta_sharing_client.errors import DeltaLogError, VersionNotFoundError
from delta_sharing_client.log import DeltaLog
from delta_sharing_client.log import metadata_cleanup as cleanup
from delta_sharing_client.log import replay as replay_module
from delta_sharing_client.log.commit_timestamps import commit_times
from delta_sharing_client.log.log_segment import LogListing, list_log
from delta_sharing_client.log.metadata_cleanup import remove_expired_log_files
from delta_sharing_client.log.replay import Replay

DAY = 86_400_000
#: Noon of some day: cut-offs are midnights.
NOW = 20_000 * DAY + DAY // 2


def age(log: DeltaLog, version: int, days: float, now_ms: int = NOW) -> None:
    at = int(now_ms - days * DAY) * 1_000_000
    os.utime(log.table_path / "_delta_log" / f"{version:020}.json", ns=(at, at))


def grow(
    log: DeltaLog, versions: Sequence[int], protocol: dict[str, Any] = PROTOCOL, **properties: str
) -> DeltaLog:
    """Commit a version each, which replaces the file of the one before; real files, so that others read them."""
    for version in versions:
        name = f"f{version}.parquet"
        log.table_path.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"a": pa.array([version], pa.int64())}), log.table_path / name)
        size = (log.table_path / name).stat().st_size
        actions = [add(name, size=size)]
        if version == versions[0] == 0:
            actions += [protocol, metadata(**{"delta.checkpointInterval": "4", **properties})]
        else:
            actions.append(remove(f"f{version - 1}.parquet", deletionTimestamp=int(time.time() * 1000)))
        assert log.commit(actions) == version
    return log


def names(log: DeltaLog) -> list[str]:
    """Return the names of the files of a log but for checksums, with short version numbers."""
    found = (log.table_path / "_delta_log").iterdir()
    kept = (path.name for path in found if path.name[0].isdigit() and path.suffix != ".crc")
    return sorted(name.replace("0" * 18, "") for name in kept)


def held(log: DeltaLog) -> list[str]:
    return [file.path for file in open_log(log.table_path).snapshot().files]


def aged(tmp_path: Path, *, protocol: dict[str, Any] = PROTOCOL, **properties: str) -> DeltaLog:
    """A log of versions 0 to 14, with checkpoints at 4, 8 and 12; up to version 9 it is more than 30 days old.

    It has no checksums, which are removed with their commits.
    """
    log = grow(open_log(tmp_path / "table"), range(15), protocol, **properties)
    for checksum in (log.table_path / "_delta_log").glob("*.crc"):
        checksum.unlink()
    for version in range(15):
        age(log, version, 45 - version if version < 10 else 24 - version)
    return log


@pytest.mark.parametrize("protocol", [PROTOCOL, V2], ids=["classic", "v2"])
def test_expired_files_are_removed(tmp_path: Path, protocol: dict[str, Any]) -> None:
    policy = {"delta.checkpointPolicy": "v2"} if protocol is V2 else {}
    log = aged(tmp_path, protocol=protocol, **policy)
    before = {version: log.commit_timestamp(version) for version in range(8, 15)}
    folder = log.table_path / "_delta_log"
    (folder / f"{3:020}.crc").write_text("{}")
    (folder / f"{2:020}.{5:020}.compacted.json").write_text("")
    (folder / f"{8:020}.{9:020}.compacted.json").write_text("")
    (folder / f"{9:020}.{10:020}.compacted.json").write_text(
        "".join((folder / f"{version:020}.json").read_text() for version in (9, 10))
    )
    (folder / "notes.json").write_text("not ours")
    kept_sidecars = 0
    if protocol is V2:
        sidecars = folder / "_sidecars"
        (sidecars / "new.parquet").write_bytes(b"of a checkpoint that is being written")
        for sidecar in sidecars.iterdir():
            at = (NOW - (0 if sidecar.name == "new.parquet" else 3) * DAY) * 1_000_000
            os.utime(sidecar, ns=(at, at))
        assert len(list(sidecars.iterdir())) == 4
        kept_sidecars = 3
    expected = held(log)
    # 8 commits, a checksum, the checkpoint of version 4 (and its sidecar), two compacted files.
    assert remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW) == 8 + 1 + 1 + 2 + (
        protocol is V2
    )
    assert [name for name in names(log) if "checkpoint" not in name] == sorted(
        [f"{version:02}.json" for version in range(8, 15)] + ["09.10.compacted.json"]
    )
    assert [name[:2] for name in names(log) if "checkpoint" in name] == ["08", "12"]
    assert (folder / "notes.json").exists()
    if protocol is V2:
        assert len(list((folder / "_sidecars").iterdir())) == kept_sidecars
    fresh = open_log(log.table_path)
    assert held(fresh) == expected == ["f14.parquet"]
    assert {version: fresh.commit_timestamp(version) for version in before} == before
    for version in range(8, 15):
        assert [file.path for file in fresh.snapshot_at(version).files] == [f"f{version}.parquet"]
        if protocol is PROTOCOL:
            assert DeltaTable(log.table_path, version=version).to_pyarrow_table()["a"].to_pylist() == [version]
    with pytest.raises(VersionNotFoundError, match="version 7 can no longer be rebuilt: the log has been cleaned"):
        fresh.snapshot_at(7)
    with pytest.raises(VersionNotFoundError, match="there is no version 7; the log has versions 8 to 14"):
        fresh.changes(7)
    assert [info.version for info in fresh.history()] == list(range(14, 7, -1))
    # And again.
    assert remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW) == 0


def test_a_commit_with_a_checkpoint_cleans_up(tmp_path: Path) -> None:
    log = aged(tmp_path)
    for version in range(15):
        age(log, version, 60 - version, int(time.time() * 1000))
    grow(log, [15])
    assert names(log)[0] == "00.json"
    grow(log, [16])
    assert next(name for name in names(log) if "json" in name) == "12.json"
    assert held(log) == ["f16.parquet"]
    assert DeltaTable(log.table_path).to_pyarrow_table()["a"].to_pylist() == [16]


@pytest.mark.parametrize(
    ("properties", "first"),
    [
        ({"delta.enableExpiredLogCleanup": "false"}, 0),
        ({"delta.logRetentionDuration": "interval 36 days"}, 8),
        ({"delta.logRetentionDuration": "interval 37 days"}, 4),
        ({"delta.logRetentionDuration": "interval 41 days"}, 0),
        ({"delta.logRetentionDuration": "interval 11 days"}, 12),
        ({"delta.logRetentionDuration": "interval 0 days"}, 12),
    ],
)
def test_properties(tmp_path: Path, properties: dict[str, str], first: int) -> None:
    log = aged(tmp_path, **properties)
    remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW)
    assert names(log)[0][:2] == f"{first:02}"
    assert held(log) == ["f14.parquet"]


def test_malformed_property_does_not_fail_the_commit(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = grow(open_log(tmp_path / "table"), range(4), **{"delta.logRetentionDuration": "a month"})
    with caplog.at_level(logging.WARNING):
        grow(log, [4])
    assert "was not cleaned up" in caplog.text
    assert "delta.logRetentionDuration" in caplog.text


def test_unreadable_checkpoint_is_no_base_for_a_clean_up(tmp_path: Path) -> None:
    log = aged(tmp_path)
    folder = log.table_path / "_delta_log"
    checkpoint = folder / f"{8:020}.checkpoint.parquet"
    checkpoint.write_bytes(checkpoint.read_bytes()[:-20])
    remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW)
    assert names(log)[:3] == ["04.checkpoint.parquet", "04.json", "05.json"]
    (folder / f"{4:020}.checkpoint.parquet").unlink()
    remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW)
    assert names(log)[0] == "04.json"
    assert held(log) == ["f14.parquet"]


def test_log_with_a_gap_is_not_cleaned_up(tmp_path: Path) -> None:
    log = aged(tmp_path)
    (log.table_path / "_delta_log" / f"{9:020}.json").unlink()
    before = names(log)
    described = open_log(log.table_path).snapshot().metadata
    assert remove_expired_log_files(log.table_path, described, now_ms=NOW) == 0
    assert names(log) == before
    # One in what goes does not matter.
    log = aged(tmp_path / "other")
    (log.table_path / "_delta_log" / f"{2:020}.json").unlink()
    assert remove_expired_log_files(log.table_path, described, now_ms=NOW) == 8
    assert names(log)[0] == "08.checkpoint.parquet"


def test_clean_up_keeps_commit_times(tmp_path: Path) -> None:
    """The time of a commit may depend on the commit before it, which must be kept then."""
    log = aged(tmp_path)
    age(log, 7, 35)
    age(log, 8, 36)
    before = {version: log.commit_timestamp(version) for version in range(4, 15)}
    assert before[8] == before[7] + 1
    remove_expired_log_files(log.table_path, log.snapshot().metadata, now_ms=NOW)
    assert names(log)[0] == "04.checkpoint.parquet"
    fresh = open_log(log.table_path)
    assert {version: fresh.commit_timestamp(version) for version in before} == before


@pytest.mark.parametrize("dies_after", range(10))
def test_crashed_clean_up_leaves_a_readable_log(
    tmp_path: Path, dies_after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = aged(tmp_path)
    described = log.snapshot().metadata
    original, calls = os.unlink, []

    def unlink(*args: Any, **more: Any) -> None:
        if len(calls) == dies_after:
            raise KeyboardInterrupt
        calls.append(args)
        original(*args, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    if dies_after < 9:
        with pytest.raises(KeyboardInterrupt):
            remove_expired_log_files(log.table_path, described, now_ms=NOW)
    else:
        assert remove_expired_log_files(log.table_path, described, now_ms=NOW) == 9
    monkeypatch.undo()
    assert held(log) == ["f14.parquet"]
    assert DeltaTable(log.table_path).to_pyarrow_table()["a"].to_pylist() == [14]
    for version in range(8, 15):
        assert [file.path for file in log.snapshot_at(version).files] == [f"f{version}.parquet"]
    assert remove_expired_log_files(log.table_path, described, now_ms=NOW) == 9 - len(calls)


def test_clean_up_does_not_disturb_readers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two threads clean up while readers open the log like new processes."""
    log = aged(tmp_path)
    described = log.snapshot().metadata
    copy = tmp_path / "copy"
    done, wrong = threading.Event(), []

    def read() -> None:
        while not done.is_set():
            try:
                files = [file.path for file in DeltaLog(log.table_path).snapshot().files]
                others = DeltaTable(log.table_path).to_pyarrow_table()["a"].to_pylist()
            except BaseException as error:  # noqa: BLE001
                wrong.append(error)
                return
            if files != ["f14.parquet"] or others != [14]:
                wrong.append((files, others))

    original = cleanup._files_before

    def slowly(folder: Path, version: int) -> Any:
        files = sorted(original(folder, version))
        time.sleep(0.01)
        return files

    monkeypatch.setattr(cleanup, "_files_before", slowly)
    shutil.copytree(log.table_path / "_delta_log", copy)
    reader = threading.Thread(target=read)
    reader.start()
    try:
        for _ in range(5):
            for file in copy.iterdir():
                if not (log.table_path / "_delta_log" / file.name).exists():
                    shutil.copy2(file, log.table_path / "_delta_log" / file.name)
            threads = [
                threading.Thread(
                    target=remove_expired_log_files, args=(log.table_path, described), kwargs={"now_ms": NOW}
                )
                for _ in range(2)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert names(log)[0] == "08.checkpoint.parquet"
    finally:
        done.set()
        reader.join()
    assert wrong == []


IN_COMMIT = {"protocol": {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": ["inCommitTimestamp"]}}


@pytest.mark.parametrize("in_commit", [False, True], ids=["file times", "in-commit times"])
def test_listing_before_a_clean_up_reads_the_newest_version(tmp_path: Path, in_commit: bool) -> None:
    """A reader that listed the log before the clean-up still reads the newest version."""
    more = {"delta.enableInCommitTimestamps": "true"} if in_commit else {}
    log = aged(tmp_path, protocol=IN_COMMIT if in_commit else PROTOCOL, **more)
    listing = list_log(log.table_path)
    replay = Replay(log.table_path, allow_absolute_paths=False)
    assert [file.path for file in replay.load(2, listing).files] == ["f2.parquet"]
    described = log.snapshot().metadata
    assert remove_expired_log_files(log.table_path, described, now_ms=NOW + 10_000 * DAY if in_commit else NOW) > 0
    assert [file.path for file in replay.load(14, listing).files] == ["f14.parquet"]
    assert max(commit_times(listing, described)) == 14
    for reader in (replay, Replay(log.table_path, allow_absolute_paths=False)):
        with pytest.raises(DeltaLogError):
            reader.load(2, listing)


def test_version_removed_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = aged(tmp_path)
    listing = list_log(log.table_path)
    original = replay_module.commit_times

    def after_clean_up(listing: LogListing, metadata: Any, **options: Any) -> Any:
        assert remove_expired_log_files(log.table_path, metadata, now_ms=NOW) > 0
        return original(listing, metadata, **options)

    monkeypatch.setattr(replay_module, "commit_times", after_clean_up)
    with pytest.raises(VersionNotFoundError, match="cleaned up"):
        Replay(log.table_path, allow_absolute_paths=False).load(2, listing)


@pytest.mark.parametrize("name", ["delta.logRetentionDuration", "delta.deletedFileRetentionDuration"])
def test_huge_retention_keeps_all_commits(tmp_path: Path, name: str) -> None:
    log = grow(open_log(tmp_path / "table"), range(6), **{name: "interval 999999999 weeks"})
    assert held(log) == ["f5.parquet"]
