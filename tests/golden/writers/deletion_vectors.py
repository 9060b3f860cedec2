"""Deletion vectors: by DELETE, UPDATE and MERGE; over row groups; several in one file; inline; emptied files."""

from __future__ import annotations

import json

from writers.kit import GoldenTable, case

_VECTORS = {"enableDeletionVectors": "true"}


@case("DELETE twice in one file: each version has its own vector.")
def dv_delete(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s FROM range(40)")
    t.sql("DELETE FROM $T WHERE id % 5 = 0", "DELETE FROM $T WHERE id BETWEEN 7 AND 12 OR id = 39")
    t.expect_all()


@case("UPDATE: the old rows in a vector, the new ones in a new file.")
def dv_update(t: GoldenTable) -> None:
    t.create("id INT, s STRING, n BIGINT", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s, id AS n FROM range(30)")
    t.sql("UPDATE $T SET s = 'updated', n = -n WHERE id % 4 = 1", "UPDATE $T SET n = NULL WHERE id > 25")
    t.expect_all()


@case("MERGE that updates, deletes and inserts.")
def dv_merge(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, 'old' AS s FROM range(20)", files=2)
    t.sql(
        "MERGE INTO $T AS t USING (SELECT CAST(id AS INT) AS id FROM range(10, 30)) AS n ON t.id = n.id "
        "WHEN MATCHED AND n.id % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'new' "
        "WHEN NOT MATCHED THEN INSERT (id, s) VALUES (n.id, 'inserted')"
    )
    t.expect_all()


@case("Every row of one of two files deleted, in two steps; then all rows of the table.")
def dv_whole_file(t: GoldenTable) -> None:
    t.create("id INT, p STRING", partitioned_by="p", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, 'a' AS p FROM range(10)")
    t.append("SELECT CAST(id + 10 AS INT) AS id, 'b' AS p FROM range(10)")
    t.sql(
        "DELETE FROM $T WHERE id < 5", "DELETE FROM $T WHERE id >= 5 AND id < 10", "DELETE FROM $T WHERE id >= 0"
    )
    t.expect_all()


@case("A vector over the many row groups of one file.")
def dv_row_groups(t: GoldenTable) -> None:
    t.create("id INT, s STRING, n BIGINT", properties=_VECTORS)
    with t.hadoop({"parquet.block.size": "512", "parquet.page.size": "256"}):
        t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s, id * id AS n FROM range(1500)")
    t.sql("DELETE FROM $T WHERE id BETWEEN 90 AND 410 OR id % 7 = 0", "DELETE FROM $T WHERE id = 1499 OR id = 101")
    t.expect_all()


@case("One DELETE over four files: their vectors share one file, at four offsets.")
def dv_shared_file(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s FROM range(80)", files=4)
    t.sql("DELETE FROM $T WHERE id % 3 = 0", "DELETE FROM $T WHERE id % 3 = 1 AND id < 40")
    t.expect_all()


@case("A vector with 200,000 rows behind it: array, bitmap and run containers. Parquet's second version of pages.")
def dv_large(t: GoldenTable) -> None:
    t.create("id INT, m SMALLINT", properties=_VECTORS | {"parquet.format.version": "2.12.0"})
    with t.hadoop({"parquet.enable.dictionary": "false"}):
        t.append("SELECT CAST(id AS INT) AS id, CAST(id DIV 1000 AS SMALLINT) AS m FROM range(200000)")
    t.sql(
        "DELETE FROM $T WHERE (id < 65536 AND id % 2 = 0) OR (id BETWEEN 70000 AND 190000) "
        "OR (id > 196608 AND id % 1000 = 7)"
    )


@case(
    "A vector inside the log. The engine writes none of its own accord: its bytes were moved there and it reads "
    "it."
)
def dv_inline(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s FROM range(30)")
    t.sql("DELETE FROM $T WHERE id % 4 = 3 OR id = 0")
    _inline_vectors(t)


def _inline_vectors(t: GoldenTable) -> None:
    """Move the vectors of the latest version from their file into the log, in the engine's own encoding."""
    log = t.log / f"{t.version():020}.json"
    (file,) = t.path.glob("deletion_vector_*.bin")
    data = file.read_bytes()
    codec = getattr(getattr(t.spark._jvm.org.apache.spark.sql.delta.util, "Codec$Base85Codec$"), "MODULE$")
    lines = []
    for line in log.read_text().splitlines():
        action = json.loads(line)
        vector = action.get("add", {}).get("deletionVector")
        if vector:
            start = vector.pop("offset")
            size = int.from_bytes(data[start : start + 4], "big")
            assert size == vector["sizeInBytes"]
            encoded = codec.encodeBytes(bytearray(data[start + 4 : start + 4 + size]))
            vector |= {"storageType": "i", "pathOrInlineDv": encoded}
        lines.append(json.dumps(action, separators=(",", ":"), ensure_ascii=False))
    log.write_text("\n".join(lines) + "\n")
    file.unlink()


@case("Rows deleted with vectors, then purged into new files, then the table restored to before the purge.")
def dv_purged_restored(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties=_VECTORS)
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s FROM range(20)")
    t.sql("DELETE FROM $T WHERE id < 8", "REORG TABLE $T APPLY (PURGE)", "DELETE FROM $T WHERE id > 15")
    t.sql("RESTORE TABLE $T TO VERSION AS OF 2")
    t.expect_all()


@case("Vectors were on for a while: files with and without, and a feature that stays when they are off.")
def dv_switched_off(t: GoldenTable) -> None:
    t.create("id INT, s STRING")
    t.append("SELECT CAST(id AS INT) AS id, 'a' AS s FROM range(10)")
    t.set(enableDeletionVectors="true")
    t.sql("DELETE FROM $T WHERE id = 3")
    t.set(enableDeletionVectors="false")
    t.sql("DELETE FROM $T WHERE id = 4")
    t.append("SELECT CAST(id AS INT) AS id, 'b' AS s FROM range(10, 15)")
    t.expect_all()


@case("Vectors on files of a partitioned table with nested columns.")
def dv_partitioned_nested(t: GoldenTable) -> None:
    t.create(
        "id INT, p DATE, s STRUCT<a: INT, b: ARRAY<STRING>>, m MAP<STRING, INT>",
        partitioned_by="p",
        properties=_VECTORS,
    )
    t.append(
        "SELECT CAST(id AS INT) AS id, if(id % 3 = 0, NULL, DATE'2024-01-01' + CAST(id % 3 AS INT)) AS p, "
        "if(id % 5 = 0, NULL, named_struct('a', CAST(id AS INT), 'b', array(concat('x', id), NULL))) AS s, "
        "if(id % 4 = 0, NULL, map('k', CAST(id AS INT))) AS m FROM range(30)"
    )
    t.sql("DELETE FROM $T WHERE s.a % 2 = 1", "DELETE FROM $T WHERE p IS NULL AND id > 10")
    t.expect_all()
