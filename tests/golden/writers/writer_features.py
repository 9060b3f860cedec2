"""Writer features, which readers ignore."""

from __future__ import annotations

from delta.tables import DeltaTable
from pyspark.sql.types import IntegerType, LongType, StringType

from writers.kit import GoldenTable, case

_FIRST = "SELECT CAST(id AS INT) AS id, concat('v', id) AS s FROM range(6)"


@case("Row tracking: row ids and row commit versions, which are columns of a rewritten file only.")
def row_tracking(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"enableRowTracking": "true"})
    t.append(_FIRST)
    t.sql("UPDATE $T SET s = 'updated' WHERE id = 2", "DELETE FROM $T WHERE id = 4", "OPTIMIZE $T")
    t.expect_all()


@case("Liquid clustering, clustered by OPTIMIZE.")
def clustered(t: GoldenTable) -> None:
    t.create("id INT, s STRING, n BIGINT", cluster_by="n, s")
    for number in range(3):
        t.append(
            f"SELECT CAST(id + {number * 20} AS INT) AS id, concat('s', id % 3) AS s, id * 31 % 17 AS n FROM "
            f"range(20)"
        )
    t.sql("OPTIMIZE $T")


@case("Identity columns.")
def identity(t: GoldenTable) -> None:
    columns = DeltaTable.create(t.spark).location(str(t.path))
    columns = columns.addColumn("id", LongType(), generatedAlwaysAs=None)
    columns = columns.addColumn("number", LongType(), generatedByDefaultAs=_identity(10, 5)).addColumn(
        "s", StringType()
    )
    columns.execute()
    t.append("SELECT id, 'x' AS s FROM range(4)")


def _identity(start: int, step: int) -> object:
    from delta.tables import IdentityGenerator

    return IdentityGenerator(start, step)


@case("Generated columns, one of them the partition column.")
def generated(t: GoldenTable) -> None:
    table = DeltaTable.create(t.spark).location(str(t.path)).addColumn("id", IntegerType())
    table = table.addColumn("ts", "TIMESTAMP").addColumn("day", "DATE", generatedAlwaysAs="CAST(ts AS DATE)")
    table.addColumn("twice", IntegerType(), generatedAlwaysAs="id * 2").partitionedBy("day").execute()
    t.append("SELECT CAST(id AS INT) AS id, timestamp_micros(id * 50000000000) AS ts FROM range(5)")


@case("Columns with defaults, also added ones.")
def defaults(t: GoldenTable) -> None:
    t.create(
        "id INT, s STRING DEFAULT 'none', n INT DEFAULT 7", properties={"feature.allowColumnDefaults": "supported"}
    )
    t.sql("INSERT INTO $T (id) VALUES (1)", "INSERT INTO $T VALUES (2, DEFAULT, NULL)")
    t.sql("ALTER TABLE $T ADD COLUMNS (late STRING)", "ALTER TABLE $T ALTER COLUMN late SET DEFAULT 'late'")
    t.sql("INSERT INTO $T (id) VALUES (3)")
    t.expect_all()


@case("CHECK constraints, NOT NULL and appendOnly.")
def constraints(t: GoldenTable) -> None:
    t.create("id INT NOT NULL, s STRING, st STRUCT<x: INT NOT NULL>", properties={"appendOnly": "true"})
    t.sql("ALTER TABLE $T ADD CONSTRAINT positive CHECK (id >= 0)")
    t.insert("(1, 'a', named_struct('x', 1))", "(2, NULL, named_struct('x', 2))")


@case("In-commit timestamps from the start: the time of a version does not depend on its file.")
def in_commit_timestamps(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"enableInCommitTimestamps": "true"})
    t.append(_FIRST)
    t.sql("DELETE FROM $T WHERE id = 1")
    t.expect_all()
    t.note(timestamps=_times(t))


@case("In-commit timestamps switched on later, then a checkpoint.")
def in_commit_timestamps_later(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"checkpointInterval": "4"})
    t.append(_FIRST)
    t.set(enableInCommitTimestamps="true")
    t.sql("DELETE FROM $T WHERE id = 1", "UPDATE $T SET s = 'u' WHERE id = 2")
    t.expect_all()
    t.note(timestamps={version: time for version, time in _times(t).items() if int(version) >= 3})


def _times(t: GoldenTable) -> dict[str, int]:
    """Versions' times in milliseconds, from the engine's history."""
    history = (
        DeltaTable.forPath(t.spark, str(t.path)).history().selectExpr("version", "unix_millis(timestamp) AS ms")
    )
    return {str(row.version): row.ms for row in sorted(history.collect())}


@case("A table of writer version 7 with every writer feature that goes together.")
def many_writer_features(t: GoldenTable) -> None:
    t.create(
        "id INT, s STRING",
        properties={
            "enableRowTracking": "true",
            "enableChangeDataFeed": "true",
            "enableInCommitTimestamps": "true",
            "enableDeletionVectors": "true",
            "feature.checkConstraints": "supported",
            "feature.generatedColumns": "supported",
            "feature.identityColumns": "supported",
            "feature.allowColumnDefaults": "supported",
            "checkpointPolicy": "v2",
            "checkpointInterval": "3",
        },
    )
    t.append(_FIRST)
    t.sql("UPDATE $T SET s = 'updated' WHERE id = 2", "DELETE FROM $T WHERE id = 4")
    t.append("SELECT 60 AS id, 'last' AS s")
    t.expect_all()


@case("A feature dropped again: the history before it is protected.")
def feature_dropped(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"enableDeletionVectors": "true"})
    t.append(_FIRST)
    t.sql("DELETE FROM $T WHERE id = 4", "ALTER TABLE $T DROP FEATURE deletionVectors")
    t.append("SELECT 60 AS id, 'last' AS s")
