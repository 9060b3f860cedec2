"""Change data feed: tables with the change rows that Spark reads (`expected/changes-*.parquet`)."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_CDF = {"enableChangeDataFeed": "true"}


def _work(t: GoldenTable) -> None:
    """Append, update, delete and merge."""
    t.append("SELECT CAST(id AS INT) AS id, concat('p', id % 2) AS p, 'first' AS s FROM range(8)")
    t.append("SELECT CAST(id + 8 AS INT) AS id, concat('p', id % 2) AS p, 'second' AS s FROM range(4)")
    t.sql("UPDATE $T SET s = 'updated' WHERE id % 5 = 2", "DELETE FROM $T WHERE id IN (1, 3)")
    t.sql(
        "MERGE INTO $T AS t USING (SELECT CAST(id AS INT) AS id FROM range(6, 14)) AS n ON t.id = n.id "
        "WHEN MATCHED AND n.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET s = 'merged' "
        "WHEN NOT MATCHED THEN INSERT (id, p, s) VALUES (n.id, 'p9', 'inserted')"
    )
    t.sql("DELETE FROM $T WHERE p = 'p9'")


@case("Change data feed with update, delete and merge; rows moved by OPTIMIZE are no changes.")
def cdf(t: GoldenTable) -> None:
    t.create("id INT, p STRING, s STRING", properties=_CDF)
    _work(t)
    t.sql("OPTIMIZE $T", "DELETE FROM $T")
    t.expect_changes(0)
    t.expect_changes(3, 4)
    t.expect(4)


@case("Change data feed of a partitioned table.")
def cdf_partitioned(t: GoldenTable) -> None:
    t.create("id INT, p STRING, s STRING", partitioned_by="p", properties=_CDF)
    _work(t)
    t.append("SELECT 100 AS id, 'p0' AS p, 'overwritten' AS s", mode="overwrite", replaceWhere="p = 'p0'")
    t.expect_changes(0)


@case("Change data feed with deletion vectors: deletes without change files.")
def cdf_dv(t: GoldenTable) -> None:
    t.create("id INT, p STRING, s STRING", properties=_CDF | {"enableDeletionVectors": "true"})
    _work(t)
    t.sql("RESTORE TABLE $T TO VERSION AS OF 3")
    t.expect_changes(0)


@case("Change data feed with columns mapped by name, partitions, deletion vectors.")
def cdf_mapping(t: GoldenTable) -> None:
    t.create(
        "id INT, p STRING, s STRING",
        partitioned_by="p",
        properties=_CDF | {"enableDeletionVectors": "true", "columnMapping.mode": "name"},
    )
    _work(t)
    t.expect_changes(0)


@case("Change data feed switched on later: changes from that version on.")
def cdf_later(t: GoldenTable) -> None:
    t.append("SELECT CAST(id AS INT) AS id, 'p' AS p, 'before' AS s FROM range(4)")
    t.set(enableChangeDataFeed="true")
    t.sql("UPDATE $T SET s = 'after' WHERE id = 1", "ALTER TABLE $T ADD COLUMNS (n INT)")
    t.append("SELECT 50 AS id, 'p' AS p, 's' AS s, 5 AS n")
    t.expect_changes(1)


@case("Change data feed with row tracking and in-commit timestamps.")
def cdf_row_tracking(t: GoldenTable) -> None:
    t.create(
        "id INT, p STRING, s STRING",
        properties=_CDF | {"enableRowTracking": "true", "enableInCommitTimestamps": "true"},
    )
    _work(t)
    t.expect_changes(0)


@case("Change data feed of a table whose types were made wider.")
def cdf_widening(t: GoldenTable) -> None:
    t.create("id INT, n SMALLINT", properties=_CDF | {"enableTypeWidening": "true"})
    t.insert("(1, 1S)", "(2, 2S)")
    t.sql("UPDATE $T SET n = 10 WHERE id = 1", "ALTER TABLE $T ALTER COLUMN n TYPE BIGINT")
    t.sql("UPDATE $T SET n = 5000000000 WHERE id = 1", "DELETE FROM $T WHERE id = 2")
    t.expect_changes(4)
