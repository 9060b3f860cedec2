"""Commits of the Delta sink: what is in the log of its table afterwards."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from change_tables import ChangeTable, column, rows
from deltalake import DeltaTable, write_deltalake
from sink_targets import as_texts, drain

from delta_sharing_client import DeltaLog, SharingClient
from delta_sharing_client.errors import (
    CommitConflictError,
    DeltaLogError,
    DiskFullError,
    MissingDependencyError,
    SinkError,
    UnsupportedFeatureError,
)
from delta_sharing_client.log.durable_files import sync_file
from delta_sharing_client.model.schema import parse_type_name
from delta_sharing_client.parquet.arrow_types import arrow_type
from delta_sharing_client.sinks import DeltaSink, WriteResult, delta
from delta_sharing_client.sinks.delta_write import DeltaWrite
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]
COMMENT = {"metadata": {"comment": "of a column"}}


class TestCommits:
    def test_the_commit_has_the_version_of_the_poller(
        self, table: ChangeTable, share: Share, tmp_path: Path
    ) -> None:
        poller = share(table.root).poll_changes(tmp_path / "c", starting_version=0)
        with DeltaSink(tmp_path / "t") as sink:
            batch = poller.pull()
            assert batch is not None
            sink.write(batch)
            assert sink.last_version(batch.poller_id) == 1
        snapshot = DeltaLog.for_table(tmp_path / "t").snapshot()
        assert snapshot.transactions[batch.poller_id].version == 1
        assert DeltaTable(tmp_path / "t").transaction_version(batch.poller_id) == 1
        (info,) = DeltaLog.for_table(tmp_path / "t").history(1)
        assert (info.operation, info.operation_parameters) == ("WRITE", {"mode": "Append"})

    def test_statistics(self, tmp_path: Path, share: Share) -> None:
        columns = [
            column("id", "long"),
            column("x", "double"),
            column("t", "timestamp"),
            column("s", "string"),
            column("d", "decimal(10,2)"),
            column("flag", "boolean"),
        ]
        from datetime import UTC, datetime
        from decimal import Decimal

        data = pa.table(
            {
                "id": pa.array([3, None, -1], pa.int64()),
                "x": [1.0, float("nan"), None],
                "t": pa.array(
                    [datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(2024, 1, 1, 0, 0, 1, 999_999, UTC), None],
                    pa.timestamp("us", "UTC"),
                ),
                "s": ["a" * 40, "b" * 33, None],
                "d": pa.array([Decimal("1.50"), Decimal("-2.25"), None], pa.decimal128(10, 2)),
                "flag": [True, None, None],
            }
        )
        source = ChangeTable(tmp_path / "source", columns)
        source.commit(source.add("f", data))
        with DeltaSink(tmp_path / "t", change_columns=False) as sink:
            drain(share(source.root).poll_changes(starting_version=0), sink)
        (file,) = DeltaLog.for_table(tmp_path / "t").snapshot().files
        assert json.loads(file.stats or "") == {
            "numRecords": 3,
            "minValues": {"id": -1, "t": "2024-01-01T00:00:00.000Z", "s": "a" * 40, "d": -2.25, "flag": True},
            # Readers of Delta statistics allow for a millisecond.
            "maxValues": {"id": 3, "t": "2024-01-01T00:00:01.999Z", "s": "b" * 33, "d": 1.5, "flag": True},
            "nullCount": {"id": 1, "t": 1, "s": 1, "d": 1, "flag": 2},
        }

    def test_no_bounds_that_do_not_hold(self, tmp_path: Path, share: Share) -> None:
        """Of long decimals deltalake cuts the bounds off at 64 bits; those of floats leave out NaN."""
        from decimal import Decimal

        lists = {"type": "array", "elementType": "double", "containsNull": True}
        columns = [column("x", "double"), column("l", lists), column("z", "float"), column("d", "decimal(38,0)")]
        source = ChangeTable(tmp_path / "source", columns)
        data = pa.table({"x": [1.0, float("nan")], "l": [[1.0], [float("nan")]]})
        data = data.append_column("z", pa.array([-0.0, None], pa.float32()))
        data = data.append_column("d", pa.array([Decimal(10**37), None], pa.decimal128(38, 0)))
        source.commit(source.add("f", data))
        with DeltaSink(tmp_path / "t", change_columns=False) as sink:
            drain(share(source.root).poll_changes(starting_version=0), sink)
        (file,) = (tmp_path / "t").glob("*.parquet")
        group = pq.read_metadata(file).row_group(0)
        assert [group.column(i).is_stats_set for i in range(4)] == [False] * 4
        assert [group.column(i).has_dictionary_page for i in range(3)] == [False] * 3
        (added,) = DeltaLog.for_table(tmp_path / "t").snapshot().files
        stats = json.loads(added.stats or "")
        assert (stats["minValues"], stats["maxValues"]) == ({}, {})

    @pytest.mark.parametrize(
        ("kind", "values"),
        [
            ("decimal(38,0)", ["10000000000000000000000000000000000000", "-1", "5"]),
            ("decimal(20,0)", ["99999999999999999999", "-99999999999999999999", "0"]),
            ("decimal(18,2)", ["9999999999999999.99", "9999999999999999.98", "-0.01"]),
            ("timestamp", ["2024-01-01 00:00:00.999999Z", "2024-01-01 00:00:00.999998Z", "0001-01-01 00:00:00Z"]),
            ("string", ["\U0010ffff" * 70, "a" * 100, ""]),
            ("binary", ["\U0010ffff" * 70, "a", ""]),
        ],
    )
    @pytest.mark.parametrize("foreign", [False, True])
    def test_keys_at_the_bounds_of_statistics_are_found(
        self, tmp_path: Path, share: Share, kind: str, values: list[str], foreign: bool
    ) -> None:
        """Also in files that deltalake wrote without this package, whose statistics are cut off."""
        source = ChangeTable(tmp_path / "source", [column("k", kind), column("x", "long")])
        keys = pa.array(values, pa.string()).cast(arrow_type(parse_type_name(kind)))
        source.commit(source.add("f0", pa.table({"k": keys, "x": [0, 0, 0]})))
        shared, target = share(source.root), tmp_path / "t"
        with DeltaSink(target, mode="apply", keys=["k"]) as sink:
            poller = shared.poll_changes(starting_version="snapshot")
            drain(poller, sink)
            if foreign:
                held = DeltaTable(target).to_pyarrow_table()
                write_deltalake(target, held, mode="overwrite")
            for number in range(3):
                name = f"f{number + 1}"
                changed = [number + 1 if place <= number else 0 for place in range(3)]
                old = pa.table({"k": keys.slice(number, 1), "x": [0]})
                new = pa.table({"k": keys.slice(number, 1), "x": [number + 1]})
                source.commit(
                    source.remove(f"f{number}"),
                    source.add(name, pa.table({"k": keys, "x": changed})),
                    source.cdc(
                        f"c{number}", pa.concat_tables([old, new]), ["update_preimage", "update_postimage"]
                    ),
                )
                (result,) = drain(poller, sink)
                assert (result.inserted, result.deleted) == (1, 1)
        after = DeltaTable(target).to_pyarrow_table()
        assert sorted(after.column("x").to_pylist()) == [1, 2, 3]

    @pytest.mark.parametrize("days", [95_000_001, -95_000_001, 2**31 - 1])
    def test_dates_that_deltalake_cannot_write(self, tmp_path: Path, share: Share, days: int) -> None:
        source = ChangeTable(tmp_path / "source", [column("day", "date")])
        data = pa.table({"day": pa.array([days, None], pa.int32()).cast(pa.date32())})
        source.commit(source.add("f", data))
        with DeltaSink(tmp_path / "t") as sink, pytest.raises(SinkError, match="beyond the year 262,142"):
            drain(share(source.root).poll_changes(starting_version=0), sink)

    def test_unusual_names_create_a_table_with_column_mapping(self, tmp_path: Path, share: Share) -> None:
        columns = [
            column("a b", "long"),
            column("x", {"type": "struct", "fields": [column("i,j", "long")]}),
        ]
        source = ChangeTable(tmp_path / "source", columns)
        source.commit(source.add("f", pa.table({"a b": [1, 2], "x": [{"i,j": 3}, None]})))
        shared = share(source.root)
        poller = shared.poll_changes(starting_version="snapshot")
        with DeltaSink(tmp_path / "t", mode="apply", keys=["A B"]) as sink:
            drain(poller, sink)
            data = pa.table({"a b": [2, 5], "x": [{"i,j": 4}, None]})
            source.commit(source.remove("f"), source.add("g", data))
            drain(poller, sink)
            copy, whole = share(tmp_path / "t").scan().to_arrow(), shared.scan().to_arrow()
            assert as_texts(copy) == as_texts(whole)
            files = {name for file in (tmp_path / "t").rglob("*.parquet") for name in pq.read_schema(file).names}
            assert all(name.startswith("col-") for name in files)
            source.commit(source.metadata([*columns, column("new", "string")]))
            source.commit(source.add("h", pa.table({"a b": [7], "new": ["x"]})))
            with pytest.raises(UnsupportedFeatureError, match="the table maps its columns"):
                drain(poller, sink)
            with pytest.raises(UnsupportedFeatureError, match="the table maps its columns"):
                drain(shared.poll_changes(starting_version="snapshot"), sink)
        assert as_texts(share(tmp_path / "t").scan().to_arrow()) == as_texts(whole)

    def test_new_names_that_need_mapping_are_refused(
        self, table: ChangeTable, share: Share, tmp_path: Path
    ) -> None:
        shared = share(table.root)
        poller = shared.poll_changes(starting_version="snapshot")
        with DeltaSink(tmp_path / "t", mode="apply", keys=["id"]) as sink:
            drain(poller, sink)
            table.commit(table.metadata([column("id", "long"), column("s", "string"), column("a b", "long")]))
            table.commit(table.add("f2", rows(9)))
            for other in (poller, shared.poll_changes(starting_version="snapshot")):
                with pytest.raises(UnsupportedFeatureError, match="'a b' needs column mapping") as raised:
                    drain(other, sink)
                assert raised.value.features == ("columnMapping",)

    def test_variants_among_replaced_columns_are_refused(
        self, client: SharingClient, table: ChangeTable, share: Share, tmp_path: Path
    ) -> None:
        """deltalake would write them as structs."""
        other = client.table("golden.tables.variant")
        with DeltaSink(tmp_path / "t", mode="apply", keys=["id"]) as sink:
            drain(share(table.root).poll_changes(starting_version="snapshot"), sink)
            with pytest.raises(UnsupportedFeatureError, match="the batch has variants"):
                drain(other.poll_changes(starting_version="snapshot"), sink)

    def test_properties_outlast_other_columns(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        """A snapshot with other columns takes the place of all; what the table's owner had set stays."""
        shared, target = share(table.root), tmp_path / "t"
        with DeltaSink(target, mode="apply", keys=["id"]) as sink:
            drain(shared.poll_changes(starting_version="snapshot"), sink)
            log = DeltaLog.for_table(target)
            described = dict(log.snapshot().metadata.raw)
            described["configuration"] |= {"delta.logRetentionDuration": "interval 9 days", "own": "x"}
            log.commit([{"metaData": described}])
            for name in ("a", "c"):
                table.commit(
                    table.metadata([column("id", "long"), column(name, "string") | COMMENT]),
                    *([table.remove(f) for f in ("f0", "f1")] if name == "a" else [table.remove("a")]),
                    table.add(name, pa.table({"id": [5], name: ["x"]})),
                )
                drain(shared.poll_changes(starting_version="snapshot"), sink)
                assert as_texts(share(target).scan().to_arrow()) == as_texts(shared.scan().to_arrow())
        metadata = log.snapshot().metadata
        assert metadata.id == described["id"]
        assert metadata.configuration == described["configuration"]
        assert json.loads(metadata.schema_string)["fields"][1]["metadata"] == {"comment": "of a column"}

    def test_a_new_column_that_needs_a_feature(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        poller = share(table.root).poll_changes(starting_version="snapshot", response_format="delta")
        target = tmp_path / "t"
        with DeltaSink(target, mode="apply", keys=["id"]) as sink:
            drain(poller, sink)
            wider = [column("id", "long"), column("s", "string"), column("w", "timestamp_ntz")]
            data = rows(4).append_column("w", pa.array([0], pa.timestamp("us")))
            table.commit(table.protocol(["timestampNtz"]), table.metadata(wider), table.add("g", data))
            drain(poller, sink)
        protocol = DeltaLog.for_table(target).snapshot().protocol
        assert protocol.reader_features == ("timestampNtz",)
        assert "timestampNtz" in protocol.writer_features
        assert DeltaTable(target).to_pyarrow_table().num_rows == 4

    def test_only_files_with_changed_rows_are_rewritten(
        self, tmp_path: Path, share: Share, table: ChangeTable
    ) -> None:
        poller = share(table.root).poll_changes(starting_version=0, max_versions=1)
        target = tmp_path / "t"
        with DeltaSink(target, mode="apply", keys=["id"]) as sink:
            drain(poller, sink)
            before = {file.path for file in DeltaLog.for_table(target).snapshot().files}
            assert len(before) == 2
            table.commit(table.remove("f0"), table.add("f2", rows(1)), table.cdc("c", rows(2), ["delete"]))
            (result,) = drain(poller, sink)
        after = {file.path for file in DeltaLog.for_table(target).snapshot().files}
        assert len(before & after) == 1
        assert (result.inserted, result.deleted) == (0, 1)

    def test_another_writer_in_between(
        self, table: ChangeTable, share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Another writer appends just before each of the first two commits; the third try finds its rows."""
        target = tmp_path / "t"
        poller = share(table.root).poll_changes(starting_version=0)
        real = DeltaWrite._commit_properties
        other = 2

        def properties(self: DeltaWrite) -> Any:
            nonlocal other
            if other:
                other -= 1
                write_deltalake(target, rows(100 + other), mode="append")
            return real(self)

        with DeltaSink(target, mode="apply", keys=["id"]) as sink:
            drain(poller, sink)
            table.commit(table.remove("f0"))
            monkeypatch.setattr(DeltaWrite, "_commit_properties", properties)
            drain(poller, sink)
        assert other == 0
        assert sorted(DeltaTable(target).to_pyarrow_table().column("id").to_pylist()) == [3, 100, 101]

    @pytest.mark.parametrize("mode", ["append", "apply"])
    def test_another_sink_that_stores_the_same_batch(
        self, table: ChangeTable, share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
    ) -> None:
        """Just before the commit; the batch is not stored twice."""
        target = tmp_path / "t"
        options: dict[str, Any] = {"mode": mode} | ({"keys": ["id"]} if mode == "apply" else {})
        poller = share(table.root).poll_changes(tmp_path / "c", starting_version=0)
        batch = poller.pull()
        assert batch is not None
        real = DeltaWrite._commit_properties

        def properties(self: DeltaWrite) -> Any:
            monkeypatch.undo()
            DeltaSink(target, **options).write(batch)
            return real(self)

        with DeltaSink(target, **options) as sink:
            monkeypatch.setattr(DeltaWrite, "_commit_properties", properties)
            result = sink.write(batch)
        assert result == WriteResult(version=1, skipped=True)
        assert sorted(DeltaTable(target).to_pyarrow_table().column("id").to_pylist()) == [1, 2, 3]

    def test_the_commits_before_a_conflict_are_flushed_too(
        self, table: ChangeTable, share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The first attempt has created the table."""
        target, flushed = tmp_path / "t", []
        real = DeltaWrite._commit_properties

        def properties(self: DeltaWrite) -> Any:
            monkeypatch.setattr(DeltaWrite, "_commit_properties", real)
            raise CommitConflictError("another writer committed first", path=str(target), version=1)

        def flush(file: Path) -> None:
            flushed.append(file.name)
            sync_file(file)

        monkeypatch.setattr(DeltaWrite, "_commit_properties", properties)
        monkeypatch.setattr(delta, "sync_file", flush)
        with DeltaSink(target) as sink:
            drain(share(table.root).poll_changes(starting_version=0), sink)
        commits = sorted(path.name for path in (target / "_delta_log").glob("*.json"))
        assert len(commits) == 2
        assert sorted(name for name in flushed if name.endswith(".json")) == commits

    def test_another_writer_every_time(
        self, table: ChangeTable, share: Share, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        target = tmp_path / "t"
        poller = share(table.root).poll_changes(starting_version=0)
        real = DeltaWrite._commit_properties

        def properties(self: DeltaWrite) -> Any:
            write_deltalake(target, rows(100), mode="append")
            return real(self)

        with DeltaSink(target, mode="apply", keys=["id"]) as sink:
            drain(poller, sink)
            table.commit(table.remove("f0"))
            monkeypatch.setattr(DeltaWrite, "_commit_properties", properties)
            with pytest.raises(CommitConflictError, match="another writer committed first"):
                drain(poller, sink)
        assert DeltaTable(target).to_pyarrow_table().column("id").to_pylist().count(1) == 1

    def test_full_disk(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        """Stands for it: a limit to the size of files."""
        import resource
        import signal

        target = tmp_path / "t"
        poller = share(table.root).poll_changes(starting_version=0, max_versions=1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        with DeltaSink(target) as sink:
            batch = poller.pull()
            assert batch is not None
            sink.write(batch)
            batch.commit()
            batch = poller.pull()
            assert batch is not None
            try:
                resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))
                with pytest.raises(DiskFullError, match="nothing was committed: make room and try again"):
                    sink.write(batch)
            finally:
                resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
                signal.signal(signal.SIGXFSZ, before)
            assert DeltaTable(target).to_pyarrow_table().num_rows == 2
            sink.write(batch)
        assert DeltaTable(target).to_pyarrow_table().num_rows == 3

    def test_damaged_log(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        target = tmp_path / "t"
        poller = share(table.root).poll_changes(starting_version=0, max_versions=1)
        with DeltaSink(target) as sink:
            batch = poller.pull()
            assert batch is not None
            sink.write(batch)
            (target / "_delta_log" / "00000000000000000001.json").write_text("{")
            for use in (lambda: sink.write(batch), lambda: sink.last_version("p")):
                with pytest.raises(DeltaLogError):
                    use()


@pytest.mark.parametrize("name", ["_delta_log", "_delta_log/00000000000000000000.json", "folder"])
def test_links_in_the_target_are_refused(table: ChangeTable, share: Share, tmp_path: Path, name: str) -> None:
    target, outside = tmp_path / "target", tmp_path / "outside"
    sink = DeltaSink(target, change_columns=False)
    poller = share(table.root).poll_changes(starting_version="snapshot")
    drain(poller, sink)
    if (target / name).exists():
        shutil.move(target / name, outside)
    else:
        outside.mkdir()
    (target / name).symlink_to(outside)
    table.commit(table.add("f2", rows(4)))
    with pytest.raises(DeltaLogError, match=f"{name} is a symbolic link"):
        drain(poller, sink)


def test_sink_needs_deltalake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(MissingDependencyError, match=r"DeltaSink needs deltalake.*delta-sharing-client\[delta\]"):
        DeltaSink(tmp_path)
