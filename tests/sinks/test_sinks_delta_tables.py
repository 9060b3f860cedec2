"""Existing Delta tables as targets: their features, rules and values, and the golden tables."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_tables import ChangeTable, column, rows
from deltalake import DeltaTable
from sink_targets import CASES, TABLES, Target, as_texts, drain, in_order

from delta_sharing_client import DeltaLog, SharingClient
from delta_sharing_client.errors import (
    DeltaLogError,
    DeltaSharingError,
    SinkError,
    UnsupportedFeatureError,
    UnsupportedTypeError,
)
from delta_sharing_client.sinks import DeltaSink
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]
#: What keeps a sink from appending to a table, by the table.
REFUSED = {
    "clustered": "clustering",
    "defaults": "allowColumnDefaults",
    "identity": "identityColumns",
    "in_commit_timestamps": "inCommitTimestamp",
    "many_writer_features": "rowTracking",
    "mapping_iceberg_compat": "icebergCompatV2",
    "partition_binary": "binary",
    "partition_materialized": "materializePartitionColumns",
    "partition_types": "decimal",
    "row_tracking": "rowTracking",
    "widening_integers": "typeWidening",
}
APPENDED = [
    "checkpoint_v2_json",
    "constraints",
    "dv_delete",
    "generated",
    "mapping_id",
    "mapping_id_partition_dv",
    "mapping_name",
    "mapping_name_partition_dv",
    "mixed_case",
    "nested",
    "not_null",
    "partition_strings",
    "partition_timestamps",
    "primitives",
    "special_names",
    "special_names_mapped",
    "special_partition_name",
    "stats_chosen_columns",
    "stats_long_strings",
    "stats_many_columns",
    "stats_no_columns",
    "timestamp_ntz",
    "variant",
    "void",
]
FEEDS = ["cdf", "cdf_dv", "cdf_mapping", "cdf_partitioned", "cdf_row_tracking"]


def copy_of(name: str, tmp_path: Path) -> Path:
    return Path(shutil.copytree(TABLES / name / "table", tmp_path / name))


class TestWritersRules:
    @pytest.mark.parametrize("name", APPENDED)
    def test_rows_are_appended(self, client: SharingClient, share: Share, tmp_path: Path, name: str) -> None:
        """A golden table is appended to a copy of itself: each row is there twice."""
        path = copy_of(name, tmp_path)
        before = client.table(f"golden.tables.{name}").scan().to_arrow()
        with DeltaSink(path, change_columns=False) as sink:
            drain(client.table(f"golden.tables.{name}").poll_changes(starting_version="snapshot"), sink)
        after = share(path).scan().to_arrow()
        assert as_texts(after) == sorted(2 * as_texts(before))
        assert after.schema == before.schema

    @pytest.mark.parametrize("name", REFUSED)
    def test_what_cannot_be_done_is_refused_by_name(
        self, client: SharingClient, tmp_path: Path, name: str
    ) -> None:
        path = copy_of(name, tmp_path)
        version = DeltaLog.for_table(path).latest_version()
        files = sorted(path.rglob("*"))
        with (
            DeltaSink(path, change_columns=False) as sink,
            pytest.raises(DeltaSharingError, match=REFUSED[name]) as raised,
        ):
            drain(client.table(f"golden.tables.{name}").poll_changes(starting_version="snapshot"), sink)
        assert isinstance(raised.value, UnsupportedFeatureError | UnsupportedTypeError)
        assert DeltaLog.for_table(path).latest_version() == version
        assert sorted(path.rglob("*")) == files

    def test_append_only(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        target = ChangeTable(tmp_path / "own", configuration={"delta.appendOnly": "true"})
        target.commit()
        shared = share(table.root)
        with DeltaSink(target.root, change_columns=False) as sink:
            drain(shared.poll_changes(starting_version=0), sink)
        assert DeltaTable(target.root).to_pyarrow_table().num_rows == 3
        with (
            DeltaSink(target.root, mode="apply", keys=["id"]) as sink,
            pytest.raises(DeltaLogError, match="append-only"),
        ):
            drain(shared.poll_changes(starting_version=0), sink)

    def test_not_null(self, tmp_path: Path, share: Share) -> None:
        inner = {"type": "array", "elementType": "long", "containsNull": False}
        columns = [column("id", "long"), column("l", inner)]
        target = ChangeTable(tmp_path / "own", [columns[0] | {"nullable": False}, columns[1]], configuration={})
        target.commit()
        for number, (ids, lists) in enumerate([([1, None], [[1], None]), ([1], [[1, None]])]):
            source = ChangeTable(tmp_path / f"s{number}", columns)
            data = pa.table({"id": pa.array(ids, pa.int64()), "l": pa.array(lists, pa.list_(pa.int64()))})
            source.commit(source.add("f", data))
            with (
                DeltaSink(target.root, change_columns=False) as sink,
                pytest.raises(SinkError, match=r"break a rule of the table .*: 1 rows? failed") as raised,
            ):
                drain(share(source.root).poll_changes(starting_version=0), sink)
            assert "Preview" not in str(raised.value)  # of rows
        assert list(target.root.glob("*.parquet")) == []

    def test_texts_of_bounded_length(self, tmp_path: Path, share: Share) -> None:
        short = column("s", "string") | {"metadata": {"__CHAR_VARCHAR_TYPE_STRING": "varchar(3)"}}
        target = ChangeTable(tmp_path / "own", [column("id", "long"), short], configuration={})
        target.commit()
        source = ChangeTable(tmp_path / "source")
        source.commit(source.add("f", pa.table({"id": [1], "s": ["äöü"]})))
        source.commit(source.add("g", pa.table({"id": [2], "s": ["four"]})))
        poller = share(source.root).poll_changes(starting_version=0, max_versions=1)
        with (
            DeltaSink(target.root, change_columns=False) as sink,
            pytest.raises(SinkError, match=r"'s' is varchar\(3\) there, and the batch has a text of 4"),
        ):
            drain(poller, sink)
        assert DeltaTable(target.root).to_pyarrow_table().num_rows == 1

    @pytest.mark.parametrize("mode", ["append", "apply"])
    @pytest.mark.parametrize("rule", ["constraint", "invariant", "generated"])
    def test_rules_of_the_table_are_enforced(
        self, table: ChangeTable, share: Share, tmp_path: Path, mode: str, rule: str
    ) -> None:
        first, second = column("id", "long"), column("s", "string")
        configuration = {"delta.constraints.small": "id < 3"} if rule == "constraint" else {}
        if rule == "invariant":
            first |= {"metadata": {"delta.invariants": json.dumps({"expression": {"expression": "id < 3"}})}}
        elif rule == "generated":
            second |= {"metadata": {"delta.generationExpression": "CAST(id + 1 AS STRING)"}}
        target = ChangeTable(tmp_path / "own", [first, second], configuration=configuration)
        target.commit()
        options: dict[str, Any] = {"keys": ["id"]} if mode == "apply" else {"change_columns": False}
        with (
            DeltaSink(target.root, mode=mode, **options) as sink,  # type: ignore[arg-type]
            pytest.raises(SinkError, match="break a rule of the table"),
        ):
            drain(share(table.root).poll_changes(starting_version=0), sink)
        assert DeltaLog.for_table(target.root).latest_version() == 0

    def test_its_own_feed_has_the_changes_of_a_copy(
        self, table: ChangeTable, share: Share, tmp_path: Path
    ) -> None:
        own = ChangeTable(tmp_path / "own")
        own.commit()
        with DeltaSink(own.root, mode="apply", keys=["id"]) as sink:
            poller = share(table.root).poll_changes(starting_version=0)
            drain(poller, sink)
            table.commit(
                table.remove("f0"),
                table.add("f2", rows(2, text="new")),
                table.cdc(
                    "c2",
                    pa.concat_tables([rows(2), rows(2, text="new"), rows(1)]),
                    ["update_preimage", "update_postimage", "delete"],
                ),
            )
            drain(poller, sink)
        changes = share(own.root).changes(starting_version=2).to_arrow()
        columns = [changes.column(name).to_pylist() for name in ("id", "s", "_change_type")]
        assert in_order(zip(*columns, strict=True)) == in_order(
            [(1, "1", "delete"), (2, "2", "update_preimage"), (2, "new2", "update_postimage")]
        )

    def test_column_names_of_the_feed_are_refused(self, table: ChangeTable, share: Share, tmp_path: Path) -> None:
        own = ChangeTable(tmp_path / "own")
        own.commit()
        shared = share(table.root)
        with (
            DeltaSink(own.root) as sink,
            pytest.raises(SinkError, match="use change_columns=False"),
        ):
            drain(shared.poll_changes(starting_version=0), sink)
        with DeltaSink(own.root, change_columns=False) as sink:
            drain(shared.poll_changes(starting_version=0), sink)
        changes = share(own.root).changes(starting_version=0).to_arrow()
        assert set(changes.column("_change_type").to_pylist()) == {"insert"}

    def test_an_empty_string_as_partition_value_raises(self, tmp_path: Path, share: Share) -> None:
        own = ChangeTable(tmp_path / "own", partitions=["s"], configuration={})
        own.commit()
        source = ChangeTable(tmp_path / "source")
        source.commit(source.add("f", pa.table({"id": [1], "s": [""]})))
        with (
            DeltaSink(own.root, change_columns=False) as sink,
            pytest.raises(SinkError, match="empty text, which a Delta table stores as null"),
        ):
            drain(share(source.root).poll_changes(starting_version=0), sink)


class TestGoldenTables:
    @pytest.mark.parametrize("name", FEEDS)
    def test_a_copy_follows_its_changes(self, client: SharingClient, target: Target, name: str) -> None:
        """From its first version on, in batches of two versions: the copy ends as the table does."""
        shared = client.table(f"golden.tables.{name}")
        poller = shared.poll_changes(starting_version=0, max_versions=2)
        with target.sink(mode="apply", keys=CASES[name]["key"]) as sink:
            drain(poller, sink)
        key = CASES[name]["key"]
        whole = shared.scan().to_arrow()
        expected = in_order(zip(*(whole.column(k).to_pylist() for k in key), strict=True))
        assert target.rows(*key) == expected
        if target.kind == "delta":
            assert as_texts(target.arrow().select(whole.column_names)) == as_texts(whole)

    def test_rows_of_a_partitioned_table_with_mapping_and_vectors(
        self, client: SharingClient, share: Share, tmp_path: Path
    ) -> None:
        name = "mapping_name_partition_dv"
        path = copy_of(name, tmp_path)
        before = client.table(f"golden.tables.{name}").scan().to_arrow()
        fields = json.loads(DeltaLog.for_table(path).snapshot().schema_string)["fields"]
        plain = [column(field["name"], without_metadata(field["type"])) for field in fields]
        source = ChangeTable(tmp_path / "source", plain)
        source.commit()
        ids = sorted(before.column("id").to_pylist())
        old = before.filter(pa.compute.is_in(before.column("id"), pa.array(ids[:2], pa.int32())))
        moved = old.slice(0, 1).set_column(
            before.column_names.index("part"), "part", pa.array(["moved"], pa.string())
        )
        kinds = ["update_preimage", "delete", "update_postimage"]
        data = pa.concat_tables([old, moved])
        assert data.num_rows == 3
        source.commit(source.cdc("c", data, kinds))
        with DeltaSink(path, mode="apply", keys=["id"]) as sink:
            drain(share(source.root).poll_changes(starting_version=0), sink)
        kept = before.filter(pa.compute.invert(pa.compute.is_in(before.column("id"), old.column("id"))))
        assert as_texts(share(path).scan().to_arrow()) == as_texts(pa.concat_tables([kept, moved]))


def without_metadata(kind: Any) -> Any:
    if isinstance(kind, dict):
        return {key: {} if key == "metadata" else without_metadata(value) for key, value in kind.items()}
    return [without_metadata(item) for item in kind] if isinstance(kind, list) else kind
