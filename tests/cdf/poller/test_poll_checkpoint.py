"""Checkpoint of a poller: the same batches after a crash, one poller at a time, an error for lost changes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import shutil
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from change_tables import COLUMNS, ChangeTable, change_rows, rows
from filelock import FileLock
from loading.loading_tables import column
from poller_helpers import FakeClock, ids, requested, spans
from waiting import BRIEFLY, HANG, WallClock, join, meanwhile

from delta_sharing_client.cdf import checkpoint
from delta_sharing_client.cdf.checkpoint import BatchRange, CheckpointFile, Position, SchemaMark
from delta_sharing_client.errors import (
    BadRequestError,
    ChangesGoneError,
    CheckpointError,
    FileGoneError,
    TableReplacedError,
)
from delta_sharing_client.locks import file_lock
from delta_sharing_client.log.durable_files import replace_file
from delta_sharing_client.server import SharingServer
from delta_sharing_client.table.shared_table import SharedTable


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints" / "t.checkpoint"


def previous(path: Path) -> Path:
    return path.with_name(path.name + ".previous")


class TestRestart:
    def test_continues_after_the_committed_version(self, shared: SharedTable, path: Path) -> None:
        with shared.poll_changes(path, starting_version=0, max_versions=3) as poller:
            for batch in poller:
                batch.commit()
                if batch.last_version == 5:
                    break
        with shared.poll_changes(path, max_versions=3, clock=FakeClock()) as poller:
            assert spans(poller) == [(6, 8), (9, 9)]
            assert poller.committed_version == 5

    def test_repeats_the_same_batches(
        self, shared: SharedTable, path: Path, table: ChangeTable, server: SharingServer
    ) -> None:
        """The table has grown and the options have other sizes: the batches are the same."""
        with shared.poll_changes(path, starting_version=1, max_versions=4) as poller:
            first, second = poller.pull(), poller.pull()
            assert first is not None
            assert second is not None
            before = [change_rows(first.to_arrow(), "id", "s"), change_rows(second.to_arrow(), "id", "s")]
            poller_id = first.poller_id
        table.commit(table.add("g", rows(10)))
        requested(server)
        with shared.poll_changes(path, starting_version=7, max_versions=100, clock=FakeClock()) as poller:
            again = list(poller)
            assert spans(again) == [(1, 4), (5, 8), (9, 10)]
            assert [change_rows(batch.to_arrow(), "id", "s") for batch in again[:2]] == before
            assert {batch.poller_id for batch in again} == {poller_id}
            again[1].commit()
        with shared.poll_changes(path, clock=FakeClock()) as poller:
            assert spans(poller) == [(9, 10)]

    def test_repeats_the_same_snapshot(self, shared: SharedTable, path: Path, table: ChangeTable) -> None:
        for grown in range(2):
            with shared.poll_changes(path, starting_version="snapshot") as poller:
                batch = poller.pull()
                assert batch is not None
                assert (batch.is_snapshot, batch.last_version, len(ids(batch))) == (True, 9, 10)
            table.commit(table.add(f"g{grown}", rows(20 + grown)))
        with shared.poll_changes(path, starting_version="snapshot", clock=FakeClock()) as poller:
            batches = []
            for batch in poller:
                batches.append(batch)
                batch.commit()
        assert [batch.is_snapshot for batch in batches] == [True, False]
        assert spans(batches) == [(9, 9), (10, 11)]

    def test_stores_the_version_of_latest(self, shared: SharedTable, path: Path, table: ChangeTable) -> None:
        with shared.poll_changes(path, starting_version="latest") as poller:
            assert poller.pull() is None
        table.commit(table.add("g", rows(10)))
        with shared.poll_changes(path, starting_version="latest") as poller:
            batch = poller.pull()
            assert batch is not None
            assert spans([batch]) == [(10, 10)]

    def test_a_batch_is_recorded_before_it_is_returned(self, shared: SharedTable, path: Path) -> None:
        with shared.poll_changes(path, starting_version=0, max_versions=2) as poller:
            batch = poller.pull()
            position = CheckpointFile(path).load("s.s.t")
            assert position is not None
            pending = (BatchRange(0, 1, response_format="parquet"),)
            assert (position.pending, position.next_version, position.committed) == (pending, 2, None)
            assert position.table_id == "table-id"
            assert batch is not None
            batch.commit()
            position = CheckpointFile(path).load("s.s.t")
            assert position is not None
            assert (position.pending, position.next_version, position.committed) == ((), 2, 1)

    def test_a_commit_after_close_raises(self, shared: SharedTable, path: Path) -> None:
        with shared.poll_changes(path, starting_version=0) as poller:
            batch = poller.pull()
        assert batch is not None
        with pytest.raises(CheckpointError, match="the poller was closed"):
            batch.commit()
        assert poller.committed_version is None


class TestFile:
    @pytest.fixture
    def kept(self, shared: SharedTable, path: Path) -> Path:
        """A checkpoint at version 3, its previous generation at version 1."""
        with shared.poll_changes(path, starting_version=0, max_versions=2) as poller:
            for _ in range(2):
                batch = poller.pull()
                assert batch is not None
                batch.commit()
        return path

    @pytest.mark.parametrize("damage", [b"", b"x", None])
    def test_a_damaged_file_is_replaced_by_the_previous_generation(
        self, shared: SharedTable, kept: Path, damage: bytes | None, caplog: pytest.LogCaptureFixture
    ) -> None:
        data = kept.read_bytes()
        kept.write_bytes(data[:-9] + bytes([data[-9] ^ 1]) + data[-8:] if damage is None else damage)
        with (
            caplog.at_level(logging.WARNING, logger="delta_sharing_client"),
            shared.poll_changes(kept, max_versions=2, clock=FakeClock()) as poller,
        ):
            batches = list(poller)
            assert spans(batches)[0] == (2, 3)
            assert [i for batch in batches for i in ids(batch)] == list(range(2, 10))
            batches[0].commit()
        assert "its previous generation is used" in caplog.text
        assert CheckpointFile(kept).load("s.s.t") is not None

    @pytest.mark.parametrize("gone", [False, True])
    def test_two_damaged_generations_raise(self, shared: SharedTable, kept: Path, gone: bool) -> None:
        kept.write_bytes(b"\0" * 100)
        previous(kept).unlink() if gone else previous(kept).write_bytes(b"")
        poller = shared.poll_changes(kept, starting_version="snapshot")
        with pytest.raises(CheckpointError, match=r"is damaged .* and its previous generation cannot") as caught:
            poller.pull()
        assert caught.value.path == str(kept)

    def test_a_directory_raises(self, shared: SharedTable, tmp_path: Path) -> None:
        with pytest.raises(CheckpointError, match="it is a directory; name a file in it"):
            shared.poll_changes(tmp_path, starting_version=0).pull()

    def test_a_deleted_file_starts_over(self, shared: SharedTable, kept: Path) -> None:
        kept.unlink()
        with shared.poll_changes(kept, starting_version=7) as poller:
            batch = poller.pull()
            assert batch is not None
            assert spans([batch]) == [(7, 9)]

    def test_the_checkpoint_of_another_table_raises(
        self, kept: Path, share: Callable[..., SharedTable], table: ChangeTable
    ) -> None:
        file = CheckpointFile(kept)
        with pytest.raises(CheckpointError, match=r"it is for table s\.s\.t, not for a\.b\.c"):
            file.load("a.b.c")

    def test_it_is_bound_to_its_target(self, shared: SharedTable, path: Path) -> None:
        def pulled(**given: Any) -> int:
            with shared.poll_changes(path, starting_version=0, max_versions=1, **given) as poller:
                batch = poller.pull()
                assert batch is not None
                batch.commit()
                return batch.last_version

        assert [pulled(), pulled(target="a"), pulled(target="a"), pulled()] == [0, 1, 2, 3]
        with pytest.raises(CheckpointError, match="its batches are in a, not in b; give each target its own"):
            pulled(target="b")
        assert pulled(target="b", rebind=True) == 4
        with pytest.raises(CheckpointError, match="in b, not in a"):
            pulled(target="a")

    def test_a_folder_that_cannot_be_written_raises(self, shared: SharedTable, tmp_path: Path) -> None:
        blocked = tmp_path / "file"
        blocked.write_bytes(b"")
        with pytest.raises(CheckpointError, match="cannot be used"):
            shared.poll_changes(blocked / "c", starting_version=0).pull()

    def test_a_full_disk_raises(self, shared: SharedTable, path: Path) -> None:
        """A batch that cannot be recorded is neither returned nor committed."""
        with shared.poll_changes(path, starting_version=0, max_versions=2) as poller:
            batch = poller.pull()
            assert batch is not None
            path.with_name("x").mkdir()
            shutil.rmtree(path.parent)  # stands for whatever keeps the file from being written
            with pytest.raises(CheckpointError, match="the batch is not committed"):
                batch.commit()
            assert poller.committed_version is None
            with pytest.raises(CheckpointError):
                poller.pull()

    def test_a_batch_that_was_not_recorded_is_returned_by_the_next_pull(
        self, shared: SharedTable, path: Path, table: ChangeTable
    ) -> None:
        """It adds a column, which its first versions lack when it is planned again."""
        table.commit(table.metadata([*COLUMNS, column("new", "string")]), table.add("g", rows(10)))
        previous(path).mkdir(parents=True)  # stands for whatever keeps the file from being written
        with shared.poll_changes(path, starting_version=0) as poller:
            with pytest.raises(CheckpointError, match="cannot be written"):
                poller.pull()
            previous(path).rmdir()
            batch = poller.pull()
            assert batch is not None
            assert (batch.first_version, batch.last_version, len(ids(batch))) == (0, 10, 11)

    def test_a_position_round_trips(self, path: Path) -> None:
        position = Position(
            table="s.s.t",
            next_version=9,
            committed=3,
            pending=(BatchRange(4, 5), BatchRange(6, 8, response_format="delta")),
            table_id="x",
            schema=SchemaMark("{}", "name"),
        )
        file = CheckpointFile(path)
        assert file.load("s.s.t") is None
        file.lock()
        file.save(position)
        assert file.load("s.s.t") == position
        assert oct(path.stat().st_mode & 0o777) == "0o600"
        assert sorted(item.name for item in path.parent.iterdir()) == [path.name, f"{path.name}.lock"]
        file.close()

    def test_a_flip_of_any_bit_is_detected(self, path: Path) -> None:
        file = CheckpointFile(path)
        file.lock()
        file.save(Position(table="s.s.t", next_version=9))
        data = path.read_bytes()
        for number in range(len(data) - 1):
            path.write_bytes(data[:number] + bytes([data[number] ^ 1]) + data[number + 1 :])
            with pytest.raises(CheckpointError, match="damaged"):
                file.load("s.s.t")
        file.close()


class TestLock:
    def test_one_poller_at_a_time(self, shared: SharedTable, path: Path) -> None:
        first, second = shared.poll_changes(path, starting_version=0), shared.poll_changes(path)
        assert first.pull() is not None
        with pytest.raises(CheckpointError, match=rf"another poller \(process {os.getpid()}\) uses it"):
            second.pull()
        first.close()
        assert second.pull() is not None
        second.close()

    def test_a_poller_of_another_process_holds_the_lock(self, shared: SharedTable, path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        locked, done = context.Event(), context.Event()
        process = context.Process(target=_hold, args=(str(path), locked, done))
        process.start()
        try:
            assert locked.wait(HANG)
            with pytest.raises(CheckpointError, match=rf"\(process {process.pid}\)"):
                shared.poll_changes(path, starting_version=0).pull()
        finally:
            process.kill()
            process.join()
        with shared.poll_changes(path, starting_version=0) as poller:
            assert poller.pull() is not None

    def test_a_poller_that_commits_keeps_the_lock_until_the_file_is_written(
        self, shared: SharedTable, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Otherwise the next poller reads the position before, and its own is overwritten."""
        writing, write = threading.Event(), threading.Event()

        def replace_slowly(*arguments: Any, **options: Any) -> None:
            writing.set()
            assert write.wait(HANG)
            replace_file(*arguments, **options)

        poller, other = shared.poll_changes(path, starting_version=0), CheckpointFile(path)
        batch = poller.pull()
        assert batch is not None
        monkeypatch.setattr(checkpoint, "replace_file", replace_slowly)
        closing = threading.Thread(target=poller.close)
        with meanwhile(batch.commit):
            assert writing.wait(HANG)
            closing.start()
            closing.join(BRIEFLY)
            try:
                with pytest.raises(CheckpointError, match="another poller"):
                    other.lock()
            finally:
                write.set()
        join([closing])
        other.lock()
        position = other.load("s.s.t")
        assert position is not None
        assert position.committed == batch.last_version
        other.close()

    def test_a_poll_that_is_late_leaves_no_lock(
        self, shared: SharedTable, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The poller was stopped and closed while its thread had begun to lock the file."""
        locking, lock = threading.Event(), threading.Event()

        def lock_slowly(*arguments: Any, **options: Any) -> FileLock:
            locking.set()
            assert lock.wait(HANG)
            return file_lock(*arguments, **options)

        poller = shared.poll_changes(path, starting_version=0)
        monkeypatch.setattr(checkpoint, "file_lock", lock_slowly)
        with meanwhile(lambda: list(poller)):
            assert locking.wait(HANG)
            closing = threading.Thread(target=poller.close)
            closing.start()
            closing.join(BRIEFLY)
            lock.set()
            monkeypatch.undo()
            join([closing, *(each for each in threading.enumerate() if each.name == "delta-sharing-poll")])
        with shared.poll_changes(path, starting_version=0) as other:
            assert other.pull() is not None
        assert poller.pull() is None

    def test_a_closed_file_is_not_locked_again(self, path: Path) -> None:
        closed, other = CheckpointFile(path), CheckpointFile(path)
        closed.close()
        with pytest.raises(CheckpointError, match="the poller was closed"):
            closed.lock()
        other.lock()
        other.close()

    def test_a_poller_without_references_releases_the_lock(self, shared: SharedTable, path: Path) -> None:
        assert shared.poll_changes(path, starting_version=0).pull() is not None
        import gc

        gc.collect()
        with shared.poll_changes(path) as poller:
            assert poller.pull() is not None


def _hold(path: str, locked: Any, done: Any) -> None:
    file = CheckpointFile(path)
    file.lock()
    locked.set()
    done.wait(HANG)


def clean_up(table: ChangeTable) -> None:
    """Forget the history of a table."""
    from deltalake import DeltaTable

    DeltaTable(str(table.root)).create_checkpoint()
    for version in range(table.version):
        (table.log / f"{version:020}.json").unlink()


class TestGone:
    """Changes that are no longer available raise an error that describes how to start over."""

    @pytest.fixture
    def behind(self, shared: SharedTable, path: Path, table: ChangeTable) -> Path:
        """A checkpoint at version 3 of a table at version 12."""
        with shared.poll_changes(path, starting_version=0, max_versions=4) as poller:
            batch = poller.pull()
            assert batch is not None
            batch.commit()
        for version in range(10, 13):
            table.commit(table.add(f"f{version}", rows(version)))
        return path

    def test_removed_versions_raise(self, shared: SharedTable, behind: Path, table: ChangeTable) -> None:
        clean_up(table)
        with shared.poll_changes(behind) as poller, pytest.raises(ChangesGoneError) as caught:
            poller.pull()
        assert caught.value.version == 4
        assert f"delete the checkpoint {behind} and poll with starting_version='snapshot'" in str(caught.value)
        behind.unlink()
        with shared.poll_changes(behind, starting_version="snapshot") as poller:
            batch = poller.pull()
            assert batch is not None
            assert len(ids(batch)) == 13

    def test_vacuumed_files_raise(self, shared: SharedTable, behind: Path, table: ChangeTable) -> None:
        (table.root / "f5").unlink()
        with shared.poll_changes(behind) as poller:
            batch = poller.pull()
            assert batch is not None
            with pytest.raises(ChangesGoneError, match="of versions 4 to 12 are gone") as caught:
                batch.to_pandas()
            assert not isinstance(caught.value, FileGoneError)
            assert "starting_version='snapshot'" in str(caught.value)
            with pytest.raises(ChangesGoneError):
                batch.to_polars()

    def test_versions_removed_before_their_files_are_read_raise(
        self,
        shared: SharedTable,
        behind: Path,
        table: ChangeTable,
        share: Callable[..., SharedTable],
        wall_clock: WallClock,
    ) -> None:
        """The URLs have expired, and the server cannot list the files again."""
        short = share(table.root, url_lifetime=timedelta(minutes=1))
        with short.poll_changes(behind) as poller:
            batch = poller.pull()
            assert batch is not None
            wall_clock.advance(60)
            clean_up(table)
            with pytest.raises(ChangesGoneError, match=r"versions 4 to 12 are gone \(.*400"):
                batch.to_pandas()

    @pytest.mark.parametrize("versions", [2, 6, 20])
    def test_a_replaced_table_raises(
        self, shared: SharedTable, behind: Path, table: ChangeTable, versions: int
    ) -> None:
        """Whether the new one has as many versions or not."""
        shutil.rmtree(table.root)
        again = ChangeTable(table.root, table_id="another-id")
        for version in range(versions):
            again.commit(again.add(f"n{version}", rows(100 + version)))
        with shared.poll_changes(behind) as poller, pytest.raises(TableReplacedError) as caught:
            poller.pull()
        assert (caught.value.expected, caught.value.actual) == ("table-id", "another-id")
        assert "delete the checkpoint" in str(caught.value)

    @pytest.mark.parametrize("start", ["snapshot", "latest", 10])
    def test_a_table_replaced_after_the_first_poll_raises(
        self, shared: SharedTable, path: Path, table: ChangeTable, start: str | int
    ) -> None:
        """The poller has read no changes yet; the new table has more versions than the old one."""
        with shared.poll_changes(path, starting_version=start, clock=FakeClock()) as poller:  # type: ignore[arg-type]
            batch = poller.pull()
            assert (batch is not None) == (start == "snapshot")
            if batch is not None:
                batch.commit()
        shutil.rmtree(table.root)
        again = ChangeTable(table.root, table_id="another-id")
        for version in range(20):
            again.commit(again.add(f"another-{version}", rows(100 + version)))
        with shared.poll_changes(path) as poller, pytest.raises(TableReplacedError) as caught:
            poller.pull()
        assert (caught.value.expected, caught.value.actual) == ("table-id", "another-id")

    @pytest.mark.parametrize("start", ["snapshot", 0])
    def test_changes_that_the_server_does_not_support_are_not_gone(
        self, path: Path, table: ChangeTable, share: Callable[..., SharedTable], start: str | int
    ) -> None:
        """The reference server reads no changes of tables with deletion vectors."""
        shared = share(table.root, imitate="reference")
        with shared.poll_changes(path, starting_version=start) as poller:  # type: ignore[arg-type]
            batch = poller.pull()
            assert batch is not None
            batch.commit()
            table.commit(table.protocol(["deletionVectors"]), table.add("v", rows(50)))
            with pytest.raises(BadRequestError, match=r"UNSUPPORTED_OPERATION.*scan\(\) or mirror\(\)"):
                poller.pull()

    def test_refused_changes_after_a_snapshot_are_not_gone(
        self, path: Path, table: ChangeTable, share: Callable[..., SharedTable]
    ) -> None:
        """The feed may have been off all the time."""
        shared = share(table.root)
        with shared.poll_changes(path, starting_version="snapshot") as poller:
            batch = poller.pull()
            assert batch is not None
            batch.commit()
            table.commit(table.metadata(COLUMNS, {}))
            with pytest.raises(BadRequestError, match=r"ask the provider to set .*enableChangeDataFeed"):
                poller.pull()

    def test_a_table_replaced_within_its_log_raises(
        self, shared: SharedTable, behind: Path, table: ChangeTable
    ) -> None:
        table.commit(table.metadata(COLUMNS, table_id="another-id"))
        with (
            shared.poll_changes(behind) as poller,
            pytest.raises(TableReplacedError, match="by another table of this name") as caught,
        ):
            poller.pull()
        assert caught.value.version == 13

    def test_a_table_with_fewer_versions_raises(
        self, shared: SharedTable, behind: Path, table: ChangeTable
    ) -> None:
        for version in range(2, 13):
            (table.log / f"{version:020}.json").unlink()
        gone = "its latest version is 1, and it had version 3 before"
        with shared.poll_changes(behind) as poller, pytest.raises(ChangesGoneError, match=gone):
            poller.pull()
