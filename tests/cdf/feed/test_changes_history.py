"""The schema of a range of versions: added columns are null in earlier rows; other changes raise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from change_tables import COLUMNS, FEED, ChangeTable, change_rows, column, rows
from loading_tables import array_of, map_of, struct_of

from delta_sharing_client.errors import (
    ColumnError,
    SchemaChangedError,
    TableReplacedError,
    UnsupportedFeatureError,
)
from delta_sharing_client.table.shared_table import SharedTable

Share = Callable[..., SharedTable]
ID, S = COLUMNS


def mapped(name: str, physical: str, number: int, kind: Any = "long") -> dict[str, Any]:
    names = {"delta.columnMapping.physicalName": physical, "delta.columnMapping.id": number}
    return {"name": name, "type": kind, "nullable": True, "metadata": names}


def by(mode: str) -> dict[str, str]:
    return FEED | {"delta.columnMapping.mode": mode}


def evolved(tmp_path: Path, *schemas: list[dict[str, Any]]) -> ChangeTable:
    """A table with these schemas, one after the other: rows in versions 0, 2, 4, ..., new ones in 1, 3, ..."""
    table = ChangeTable(tmp_path / "t", schemas[0])
    table.commit(table.add("f0", rows(0)))
    for number, schema in enumerate(schemas[1:], 1):
        table.commit(table.metadata(schema))
        table.commit(table.add(f"f{number}", rows(number)))
    return table


class TestAdded:
    def test_an_added_column_is_null_in_earlier_rows(
        self, tmp_path: Path, share: Share, response_format: Any
    ) -> None:
        table = ChangeTable(tmp_path / "t")
        table.commit(table.add("f0", rows(0)))
        table.commit(table.metadata([ID, column("n", "integer"), S]))
        table.commit(table.add("f1", rows(1).append_column("n", pa.array([7], pa.int32()))))
        shared = share(table.root)
        changes = shared.changes(0, response_format=response_format).to_arrow()
        assert changes.column_names[:3] == ["id", "n", "s"]
        assert change_rows(changes, "id", "n") == [(0, "insert", 0, None), (2, "insert", 1, 7)]
        before = shared.changes(0, 0, response_format=response_format)
        assert before.to_arrow().column_names[:3] == ["id", "s", "_change_type"]
        assert before.schema == before.to_arrow().schema

    def test_an_added_nested_field_is_null_in_earlier_rows(self, tmp_path: Path, share: Share) -> None:
        def schema(*fields: dict[str, Any]) -> list[dict[str, Any]]:
            return [ID, column("m", map_of("string", array_of(struct_of(*fields))))]

        old, new = column("a", "long"), column("b", "long")
        table = ChangeTable(tmp_path / "t", schema(old))

        def filled(value: Any, *names: str) -> pa.Table:
            kind = pa.map_(pa.string(), pa.list_(pa.struct([(name, pa.int64()) for name in names])))
            return pa.table({"id": pa.array([1], pa.int64()), "m": pa.array([[("k", [value])]], kind)})

        table.commit(table.add("f0", filled({"a": 1}, "a")))
        table.commit(table.metadata(schema(old, new)), table.add("f1", filled({"a": 2, "b": 3}, "a", "b")))
        changes = share(table.root).changes(0).to_arrow()
        assert changes.column("m").to_pylist() == [[("k", [{"a": 1, "b": None}])], [("k", [{"a": 2, "b": 3}])]]

    def test_metadata_without_column_changes_has_no_effect(self, tmp_path: Path, share: Share) -> None:
        table = evolved(tmp_path, COLUMNS, [ID, column("s", "string", comment="a text")], COLUMNS)
        assert [row[2] for row in change_rows(share(table.root).changes(0).to_arrow())] == [0, 1, 2]


class TestRefused:
    @pytest.mark.parametrize(
        ("schema", "columns", "word"),
        [
            ([ID], ["s"], "column 's' was dropped"),
            ([ID, column("t", "string")], ["s"], "column 's' was dropped"),
            ([ID, column("s", "long")], ["s"], "column 's' changed its type from string to long"),
            (
                [column("id", "integer"), column("s", "long")],
                ["id", "s"],
                "'id' changed its type from long to integer; ",
            ),
        ],
    )
    def test_dropped_and_retyped_columns_raise(
        self, tmp_path: Path, share: Share, response_format: Any, schema: Any, columns: list[str], word: str
    ) -> None:
        table = evolved(tmp_path, COLUMNS, COLUMNS, schema)
        shared = share(table.root)
        with pytest.raises(SchemaChangedError, match=f"table s.s.t: in version 3 .*{word}") as caught:
            shared.changes(0, response_format=response_format).to_arrow()
        assert (caught.value.version, caught.value.columns) == (3, tuple(columns))
        assert "in version 3" in str(caught.value)
        assert [row[2] for row in change_rows(shared.changes(0, 2).to_arrow())] == [0, 1]
        assert shared.changes(4).count() == 1

    def test_dropped_and_retyped_nested_fields_raise(self, tmp_path: Path, share: Share) -> None:
        def schema(kind: str) -> list[dict[str, Any]]:
            return [ID, column("n", struct_of(column("a", array_of(struct_of(column("b", kind))))))]

        table = evolved(tmp_path, schema("long"), schema("string"))
        with pytest.raises(SchemaChangedError, match=r"'n\.a\.element\.b' changed its type from long to string"):
            share(table.root).changes(0).to_arrow()

    def test_changes_of_columns_that_are_not_read_have_no_effect(self, tmp_path: Path, share: Share) -> None:
        table = evolved(tmp_path, COLUMNS, [ID, column("s", "long")], [ID])
        shared = share(table.root)
        assert [row[2] for row in change_rows(shared.changes(0, columns=["id"]).to_arrow())] == [0, 1, 2]
        with pytest.raises(SchemaChangedError, match=r"leave the column out with columns="):
            shared.changes(0, 2, columns=["s"]).to_arrow()
        with pytest.raises(ColumnError, match="no column 's'; it has id"):
            shared.changes(0, columns=["s"]).to_arrow()

    def test_another_table_of_the_same_name_raises(self, tmp_path: Path, share: Share) -> None:
        table = ChangeTable(tmp_path / "t")
        table.commit(table.add("f0", rows(0)))
        table.commit(table.metadata(COLUMNS, table_id="another"))
        with pytest.raises(TableReplacedError, match="it was replaced in version 1 by another table"):
            share(table.root).changes(0).to_arrow()

    def test_unsupported_features_within_the_range_raise(self, tmp_path: Path, share: Share) -> None:
        table = ChangeTable(tmp_path / "t", features=["deletionVectors"])
        table.commit(table.add("f0", rows(0)))
        table.commit(table.protocol(["deletionVectors", "fromTheFuture"]))
        with pytest.raises((UnsupportedFeatureError, Exception), match="fromTheFuture"):
            share(table.root).changes(0).to_arrow()


class TestColumnMapping:
    def table(self, tmp_path: Path, mode: str, *schemas: list[dict[str, Any]]) -> ChangeTable:
        table = ChangeTable(tmp_path / "t", schemas[0], configuration=by(mode), features=["columnMapping"])
        table.commit(table.add("f0", self.stored(0)))
        for number, schema in enumerate(schemas[1:], 1):
            table.commit(table.metadata(schema, by(mode)))
            table.commit(table.add(f"f{number}", self.stored(number)))
        return table

    def stored(self, *ids: int) -> pa.Table:
        """Rows under their physical names, with field ids."""
        schema = pa.schema(
            [
                pa.field("c1", pa.int64(), metadata={b"PARQUET:field_id": b"1"}),
                pa.field("c2", pa.string(), metadata={b"PARQUET:field_id": b"2"}),
            ]
        )
        return pa.table([pa.array(ids, pa.int64()), pa.array([f"s{i}" for i in ids])], schema=schema)

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_change_files(self, tmp_path: Path, share: Share, mode: str) -> None:
        """Their `_change_type` has its own name, and no id, whatever the mapping."""
        table = self.table(tmp_path, mode, [mapped("id", "c1", 1), mapped("s", "c2", 2, "string")])
        table.commit(table.cdc("u", self.stored(0, 5), ["update_preimage", "update_postimage"]))
        changes = share(table.root).changes(0).to_arrow()
        assert change_rows(changes, "id", "s") == [
            (0, "insert", 0, "s0"),
            (1, "update_preimage", 0, "s0"),
            (1, "update_postimage", 5, "s5"),
        ]

    @pytest.mark.parametrize("mode", ["name", "id"])
    def test_a_renamed_column_keeps_its_values(self, tmp_path: Path, share: Share, mode: str) -> None:
        before = [mapped("id", "c1", 1), mapped("s", "c2", 2, "string")]
        after = [mapped("id", "c1", 1), mapped("text", "c2", 2, "string")]
        shared = share(self.table(tmp_path, mode, before, after).root)
        with pytest.raises(SchemaChangedError, match="in version 1 column 's' was renamed to 'text'") as caught:
            shared.changes(0).to_arrow()
        assert (caught.value.version, caught.value.columns) == (1, ("s",))
        assert [row[2] for row in change_rows(shared.changes(0, columns=["id"]).to_arrow())] == [0, 1]
        assert shared.changes(0, 0).to_arrow().column_names[1] == "s"
        assert shared.changes(1).to_arrow().column("text").to_pylist() == ["s1"]

    def test_swapped_names(self, tmp_path: Path, share: Share) -> None:
        before = [mapped("a", "c1", 1), mapped("b", "c2", 2, "string")]
        after = [mapped("b", "c1", 1), mapped("a", "c2", 2, "string")]
        with pytest.raises(SchemaChangedError, match="'a' was renamed to 'b'; column 'b' was renamed to 'a'"):
            share(self.table(tmp_path, "name", before, after).root).changes(0).to_arrow()

    def test_a_reused_name_is_another_column(self, tmp_path: Path, share: Share) -> None:
        before = [mapped("id", "c1", 1), mapped("s", "c2", 2, "string")]
        after = [mapped("id", "c1", 1), mapped("s", "c9", 9, "string")]
        with pytest.raises(SchemaChangedError, match="column 's' was dropped"):
            share(self.table(tmp_path, "name", before, after).root).changes(0, columns=["s"]).to_arrow()

    def test_mapping_enabled_within_the_range(self, tmp_path: Path, share: Share) -> None:
        """Columns keep their names in the files; the protocol that maps them is in the range."""
        table = ChangeTable(tmp_path / "t")
        table.commit(table.add("f0", rows(0)))
        upgraded = [mapped("id", "id", 1), mapped("s", "s", 2, "string")]
        table.commit(table.protocol(["columnMapping"]), table.metadata(upgraded, by("name")))
        table.commit(table.metadata([*upgraded, mapped("n", "c3", 3)], by("name")))
        table.commit(table.add("f1", rows(1).append_column("c3", pa.array([7]))))
        changes = share(table.root).changes(0).to_arrow()
        assert change_rows(changes, "id", "n") == [(0, "insert", 0, None), (3, "insert", 1, 7)]

    def test_mapping_disabled_within_the_range_raises(self, tmp_path: Path, share: Share) -> None:
        table = self.table(tmp_path, "name", [mapped("id", "c1", 1)])
        table.commit(table.metadata([ID]), table.add("g", rows(5)))
        with pytest.raises(
            SchemaChangedError, match="in version 1 its column mapping changed from 'name' to 'none'"
        ):
            share(table.root).changes(0).to_arrow()
