"""Column mapping by name and by id; columns renamed, dropped, added; together with other features."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_COLUMNS = (
    "id INT, a STRING, s STRUCT<x: INT, y: STRUCT<z: STRING>>, arr ARRAY<STRUCT<k: INT, v: STRING>>, "
    "m MAP<STRING, STRUCT<q: INT>>"
)
_ROWS = (
    "(1, 'one', named_struct('x', 1, 'y', named_struct('z', 'deep')), array(named_struct('k', 1, 'v', 'a'), "
    "NULL), map('k', named_struct('q', 1)))",
    "(2, NULL, NULL, NULL, NULL)",
    "(3, 'three', named_struct('x', NULL, 'y', NULL), array(), map('n', NULL))",
)


def _evolve(t: GoldenTable) -> None:
    """Rename, drop and add columns and nested fields, writing rows between."""
    t.insert(*_ROWS)
    t.sql("ALTER TABLE $T RENAME COLUMN a TO renamed", "ALTER TABLE $T RENAME COLUMN s.y TO yy")
    t.sql("ALTER TABLE $T RENAME COLUMN arr.element.v TO vv", "ALTER TABLE $T RENAME COLUMN m.value.q TO qq")
    t.insert(*[row.replace("(1,", "(11,").replace("(2,", "(12,").replace("(3,", "(13,") for row in _ROWS])
    t.expect(t.version())
    t.sql("ALTER TABLE $T DROP COLUMN renamed", "ALTER TABLE $T DROP COLUMN s.x")
    t.expect(t.version())
    # The same names again: nothing of the dropped columns may come back.
    t.sql("ALTER TABLE $T ADD COLUMNS (renamed BIGINT, s.x STRING FIRST, arr.element.more DATE)")
    t.expect(t.version())
    t.sql(
        "INSERT INTO $T (id, s, arr, m, renamed) VALUES (21, named_struct('x', 'text', 'yy', named_struct('z', "
        "'new')), "
        "array(named_struct('k', 9, 'vv', 'b', 'more', DATE'2024-01-01')), map('k', named_struct('qq', 7)), "
        "5000000000)"
    )


@case("Mapping by name from the start; columns and nested fields renamed, dropped and added again.")
def mapping_name(t: GoldenTable) -> None:
    t.create(_COLUMNS, properties={"columnMapping.mode": "name"})
    _evolve(t)


@case("Mapping by id from the start; columns and nested fields renamed, dropped and added again.")
def mapping_id(t: GoldenTable) -> None:
    t.create(_COLUMNS, properties={"columnMapping.mode": "id"})
    _evolve(t)


@case("Mapping by name switched on in a table with rows, then the same changes.")
def mapping_upgraded(t: GoldenTable) -> None:
    t.create(_COLUMNS)
    t.insert("(31, 'before', named_struct('x', 31, 'y', named_struct('z', 'old')), array(), map())")
    t.expect(t.version())
    t.set(columnMapping__mode="name", minReaderVersion="2", minWriterVersion="5")
    t.expect(t.version())
    _evolve(t)


@case("Two columns swap their names.")
def mapping_swapped(t: GoldenTable) -> None:
    t.create("id INT, a STRING, b STRING", properties={"columnMapping.mode": "name"})
    t.insert("(1, 'a1', 'b1')")
    t.sql(
        "ALTER TABLE $T RENAME COLUMN a TO c",
        "ALTER TABLE $T RENAME COLUMN b TO a",
        "ALTER TABLE $T RENAME COLUMN c TO b",
    )
    t.insert("(2, 'b2', 'a2')")
    t.expect_all()


@case("Upgraded by name, then two columns swap their names: physical names are other columns' names.")
def mapping_upgraded_swapped(t: GoldenTable) -> None:
    t.create("id INT, a STRING, b STRING, p STRING, q STRING", partitioned_by="p, q")
    t.insert("(1, 'a1', 'b1', 'p1', 'q1')", "(2, 'a2', 'b2', NULL, 'q2')")
    t.set(columnMapping__mode="name", minReaderVersion="2", minWriterVersion="5")
    for one, other in (("a", "b"), ("p", "q")):
        t.sql(
            f"ALTER TABLE $T RENAME COLUMN {one} TO x",
            f"ALTER TABLE $T RENAME COLUMN {other} TO {one}",
            f"ALTER TABLE $T RENAME COLUMN x TO {other}",
        )
    t.insert("(3, 'b3', 'a3', 'q3', 'p3')")
    t.expect_all()


def _combined(t: GoldenTable, mode: str) -> None:
    t.create(
        "id INT, p STRING, d DATE, s STRUCT<x: INT>",
        partitioned_by="p, d",
        properties={"columnMapping.mode": mode, "enableDeletionVectors": "true"},
    )
    t.append(
        "SELECT CAST(id AS INT) AS id, if(id % 3 = 0, NULL, concat('p ', id % 3)) AS p, "
        "DATE'2024-01-01' + CAST(id % 2 AS INT) AS d, named_struct('x', CAST(id AS INT)) AS s FROM range(24)"
    )
    t.sql("DELETE FROM $T WHERE s.x % 4 = 1", "ALTER TABLE $T RENAME COLUMN p TO part")
    t.sql("ALTER TABLE $T RENAME COLUMN s.x TO xx", "UPDATE $T SET s = NULL WHERE id > 20")
    t.sql("ALTER TABLE $T ADD COLUMNS (p INT)", "DELETE FROM $T WHERE part IS NULL AND id < 10")
    t.expect_all()


@case("Mapping by name, partitions and deletion vectors; the partition column renamed, its old name given again.")
def mapping_name_partition_dv(t: GoldenTable) -> None:
    _combined(t, "name")


@case("Mapping by id, partitions and deletion vectors; the partition column renamed, its old name given again.")
def mapping_id_partition_dv(t: GoldenTable) -> None:
    _combined(t, "id")


@case("Field ids for the elements of nested columns too (icebergCompatV2).")
def mapping_iceberg_compat(t: GoldenTable) -> None:
    t.create(
        _COLUMNS + ", aa ARRAY<ARRAY<INT>>",
        properties={"columnMapping.mode": "name", "enableIcebergCompatV2": "true"},
    )
    t.insert(
        "(1, 'one', named_struct('x', 1, 'y', named_struct('z', 'deep')), "
        "array(named_struct('k', 1, 'v', 'a'), NULL), map('k', named_struct('q', 1)), array(array(1, NULL), NULL))"
    )


@case("Mapping as a listed reader feature (reader version 3), but switched off: the mode is none.")
def mapping_feature_only(t: GoldenTable) -> None:
    t.create("id INT, a STRING", properties={"feature.columnMapping": "supported"})
    t.insert("(1, 'a')", "(2, NULL)")


@case("Mapping removed again: the files are rewritten under their logical names.")
def mapping_removed(t: GoldenTable) -> None:
    t.create("id INT, a STRING", properties={"columnMapping.mode": "name"})
    t.insert("(1, 'a')", "(2, NULL)")
    t.sql("ALTER TABLE $T RENAME COLUMN a TO b")
    t.set(columnMapping__mode="none")
    t.insert("(3, 'c')")
    t.expect_all()
