"""Checkpoints: classic, in parts, V2 with sidecars in JSON and Parquet; typed statistics; a cleaned log."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_COLUMNS = "id INT, p STRING, ts TIMESTAMP, s STRUCT<x: INT, y: STRING>"


def _fill(t: GoldenTable, first: int = 0) -> None:
    """Eight commits: appends, a delete, an update."""
    for number in range(first, first + 6):
        t.append(
            f"SELECT CAST(id + {number * 10} AS INT) AS id, if(id = 1, NULL, concat('p=', id % 2)) AS p, "
            f"timestamp_micros(id * 1000001) AS ts, named_struct('x', CAST(id AS INT), 'y', 'text') AS s FROM "
            f"range(3)"
        )
    t.sql(f"DELETE FROM $T WHERE id = {first * 10 + 2}", f"UPDATE $T SET p = 'new' WHERE id = {first * 10 + 11}")


def _clean(t: GoldenTable) -> int:
    """Delete the commits before the latest checkpoint, as the engine's own clean-up does after a month."""
    checkpoint = max(int(file.name[:20]) for file in t.log.glob("[0-9]*.checkpoint*"))
    for version in range(checkpoint):
        (t.log / f"{version:020}.json").unlink()
    return checkpoint


@case("A classic checkpoint every three commits.")
def checkpoint_classic(t: GoldenTable) -> None:
    t.create(_COLUMNS, partitioned_by="p", properties={"checkpointInterval": "3"})
    _fill(t)
    t.expect(2, 3, 4, 6)


@case("A classic checkpoint, and the commits before it gone.")
def checkpoint_cleaned(t: GoldenTable) -> None:
    t.create(_COLUMNS, properties={"checkpointInterval": "7"})
    _fill(t)
    t.note(first_version=_clean(t))
    t.expect(7)


@case("Checkpoints in several parts, and the commits before the last one gone.")
def checkpoint_multipart(t: GoldenTable) -> None:
    t.create(_COLUMNS, partitioned_by="p", properties={"checkpointInterval": "7"})
    with t.conf({"spark.databricks.delta.checkpoint.partSize": "5"}):
        _fill(t)
    t.note(first_version=_clean(t))
    t.expect(7)


@case("Checkpoints with typed statistics and partition values, and no JSON statistics.")
def checkpoint_struct_stats(t: GoldenTable) -> None:
    t.create(
        _COLUMNS + ", d DATE, n DECIMAL(20,4), f DOUBLE, b BOOLEAN, bin BINARY",
        partitioned_by="p, d",
        properties={
            "checkpointInterval": "2",
            "checkpoint.writeStatsAsStruct": "true",
            "checkpoint.writeStatsAsJson": "false",
        },
    )
    for number in range(4):
        t.append(
            f"SELECT CAST(id + {number * 10} AS INT) AS id, if(id = 1, NULL, concat('p=', id % 2)) AS p, "
            "TIMESTAMP'2024-02-29 12:34:56.789999' AS ts, named_struct('x', CAST(id AS INT), 'y', 'text') AS s, "
            "DATE'2024-01-01' AS d, CAST(1.2345 AS DECIMAL(20,4)) AS n, if(id = 2, DOUBLE('NaN'), 1.5D) AS f, "
            "true AS b, X'01' AS bin FROM range(3)"
        )
    _clean(t)
    t.note(first_version=4)


@case("V2 checkpoints: a manifest in JSON, files in Parquet sidecars; the commits before gone.")
def checkpoint_v2_json(t: GoldenTable) -> None:
    t.create(_COLUMNS, partitioned_by="p", properties={"checkpointInterval": "7", "checkpointPolicy": "v2"})
    with t.conf({"spark.databricks.delta.checkpointV2.topLevelFileFormat": "json",
                 "spark.databricks.delta.checkpoint.partSize": "5"}):  # fmt: skip
        _fill(t)
    t.note(first_version=_clean(t))
    t.expect(7)


@case("V2 checkpoints: a manifest in Parquet, files in Parquet sidecars; the commits before gone.")
def checkpoint_v2_parquet(t: GoldenTable) -> None:
    t.create(_COLUMNS, partitioned_by="p", properties={"checkpointInterval": "7", "checkpointPolicy": "v2"})
    with t.conf({"spark.databricks.delta.checkpointV2.topLevelFileFormat": "parquet",
                 "spark.databricks.delta.checkpoint.partSize": "5"}):  # fmt: skip
        _fill(t)
    t.note(first_version=_clean(t))
    t.expect(7)


@case("A checkpoint of files with deletion vectors and mapped columns; the commits before gone.")
def checkpoint_dv_mapping(t: GoldenTable) -> None:
    t.create(
        _COLUMNS,
        partitioned_by="p",
        properties={"checkpointInterval": "8", "enableDeletionVectors": "true", "columnMapping.mode": "name"},
    )
    _fill(t)
    t.note(first_version=_clean(t))
