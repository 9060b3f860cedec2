"""History: time travel, schema evolution, overwrites, restores, compaction, conversion, vacuum."""

from __future__ import annotations

import shutil

from writers.kit import GoldenTable, case

_FIRST = "SELECT CAST(id AS INT) AS id, concat('v', id) AS s FROM range(6)"


@case("Append, UPDATE, DELETE and MERGE without deletion vectors: files are rewritten.")
def time_travel(t: GoldenTable) -> None:
    t.append(_FIRST)
    t.append("SELECT CAST(id + 6 AS INT) AS id, 'second' AS s FROM range(4)", files=2)
    t.sql("UPDATE $T SET s = 'updated' WHERE id = 3", "DELETE FROM $T WHERE id = 7")
    t.sql(
        "MERGE INTO $T AS t USING (SELECT 5 AS id UNION ALL SELECT 50) AS n ON t.id = n.id "
        "WHEN MATCHED THEN UPDATE SET s = 'merged' WHEN NOT MATCHED THEN INSERT (id, s) VALUES (n.id, 'inserted')"
    )
    t.expect_all()


@case("Columns and nested fields added by writes and by ALTER TABLE; a column's place changed.")
def schema_evolution(t: GoldenTable) -> None:
    t.append("SELECT 1 AS id, named_struct('a', 1) AS s, array(named_struct('x', 1)) AS arr")
    t.append(
        "SELECT 2 AS id, named_struct('a', 2, 'b', 'new') AS s, array(named_struct('x', 2, 'y', 2.5D), NULL) AS "
        "arr, "
        "'added' AS more",
        mergeSchema="true",
    )
    t.sql("ALTER TABLE $T ADD COLUMNS (first DATE FIRST, s.c DECIMAL(5,2) AFTER a, late MAP<STRING, INT>)")
    t.sql("ALTER TABLE $T ALTER COLUMN more AFTER id")
    t.append(
        "SELECT 3 AS id, DATE'2024-01-01' AS first, named_struct('a', 3, 'c', CAST(1.25 AS DECIMAL(5,2)), 'b', "
        "'x') AS s",
        mergeSchema="true",
    )
    t.expect_all()


@case(
    "Overwritten as a whole, by a predicate, by dynamic partitions, and with another schema and other partitions."
)
def overwritten(t: GoldenTable) -> None:
    query = "SELECT CAST(id AS INT) AS id, concat('p', id % 3) AS p, '{0}' AS s FROM range({1})"
    t.spark.sql(query.format("first", 9)).coalesce(1).write.format("delta").partitionBy("p").save(str(t.path))
    t.append(query.format("whole", 6), mode="overwrite")
    t.append("SELECT 100 AS id, 'p1' AS p, 'replaced' AS s", mode="overwrite", replaceWhere="p = 'p1'")
    t.append("SELECT 200 AS id, 'p2' AS p, 'dynamic' AS s", mode="overwrite", partitionOverwriteMode="dynamic")
    frame = t.spark.sql("SELECT 'text' AS id, 1.5D AS p, 7L AS n")
    frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true").partitionBy("n").save(
        str(t.path)
    )
    t.expect_all()


@case("Deleted from, restored to an earlier version, and written on.")
def restored(t: GoldenTable) -> None:
    t.append(_FIRST)
    t.sql(
        "DELETE FROM $T WHERE id < 3", "ALTER TABLE $T ADD COLUMNS (n INT)", "RESTORE TABLE $T TO VERSION AS OF 0"
    )
    t.append("SELECT 60 AS id, 'after' AS s")
    t.expect_all()


@case("Small files compacted by OPTIMIZE.")
def optimized(t: GoldenTable) -> None:
    for number in range(3):
        t.append(f"SELECT CAST(id + {10 * number} AS INT) AS id, 'x' AS s FROM range(4)")
    t.sql("OPTIMIZE $T", "DELETE FROM $T WHERE id = 1", "OPTIMIZE $T")
    t.expect_all()


@case("Ordered by OPTIMIZE ZORDER BY.")
def zordered(t: GoldenTable) -> None:
    t.append(
        "SELECT CAST(id AS INT) AS id, CAST(id * 37 % 100 AS INT) AS a, concat('s', id * 11 % 10) AS s FROM "
        "range(100)",
        files=2,
    )
    t.sql("OPTIMIZE $T ZORDER BY (a, s)")


@case("Parquet files made a Delta table by CONVERT TO DELTA, partitioned, without statistics.")
def converted(t: GoldenTable) -> None:
    frame = t.spark.sql(
        "SELECT id, if(id % 3 = 0, NULL, concat('p ', id % 3)) AS p, DATE'2024-01-01' + CAST(id % 2 AS INT) AS d, "
        "id * 1.5D AS v FROM range(12)"
    )
    frame.coalesce(1).write.partitionBy("p", "d").parquet(str(t.path))
    t.sql(f"CONVERT TO DELTA parquet.`{t.path}` NO STATISTICS PARTITIONED BY (p STRING, d DATE)")
    t.append("SELECT 100L AS id, 'p 1' AS p, DATE'2024-01-01' AS d, 0.5D AS v")
    t.expect_all()


@case("Vacuumed: only the latest version's files are there. With the feature vacuumProtocolCheck.")
def vacuumed(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"feature.vacuumProtocolCheck": "supported"})
    t.append(_FIRST)
    t.sql("UPDATE $T SET s = 'updated' WHERE id > 2")
    t.sql("VACUUM $T RETAIN 0 HOURS")


@case("A shallow clone moved into one directory with its source's files, whose paths are absolute no more.")
def cloned(t: GoldenTable) -> None:
    source = t.path.parent / "source"
    frame = t.spark.sql(_FIRST)
    frame.coalesce(1).write.format("delta").save(str(source))
    t.spark.sql(f"CREATE TABLE {t.name} SHALLOW CLONE delta.`{source}`")
    commit = t.log / f"{0:020}.json"
    # The clone names the source's files by absolute URIs: here they become its own.
    text = commit.read_text()
    for file in source.glob("*.parquet"):
        shutil.copyfile(file, t.path / file.name)
        for prefix in (f"file://{source}/", f"file:{source}/"):
            text = text.replace(prefix + file.name, file.name)
    text = text.replace(str(source), "source")
    commit.write_text(text)
    (t.log / f".{commit.name}.crc").unlink(missing_ok=True)
    for file in [*t.log.glob("*.checkpoint*"), t.log / "_last_checkpoint"]:
        file.unlink()
    shutil.rmtree(source)
    t.spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    t.append("SELECT 60 AS id, 'own' AS s")
    t.expect_all()


@case("Emptied by DELETE without a condition, filled again, truncated.")
def emptied(t: GoldenTable) -> None:
    t.append(_FIRST)
    t.sql("DELETE FROM $T")
    t.append("SELECT 7 AS id, 'again' AS s")
    t.sql("TRUNCATE TABLE $T")
    t.expect_all()


@case("Written by a stream's idempotent commits (transaction identifiers).")
def transactions(t: GoldenTable) -> None:
    for number in (1, 2, 2, 3):
        t.append(f"SELECT {number} AS id, 'txn' AS s", txnAppId="golden", txnVersion=str(number))


@case("A comment, a name's comment and properties changed: versions without files.")
def metadata_only(t: GoldenTable) -> None:
    t.create("id INT COMMENT 'the key', s STRING")
    t.append(_FIRST)
    t.sql("COMMENT ON TABLE $T IS 'a table'", "ALTER TABLE $T ALTER COLUMN s COMMENT 'text'")
    t.sql(
        "ALTER TABLE $T SET TBLPROPERTIES ('my.own' = 'property')", "ALTER TABLE $T ALTER COLUMN id DROP NOT NULL"
    )
