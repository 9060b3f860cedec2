"""Statistics: cut strings, NaN, none at all, few columns, loose bounds."""

from __future__ import annotations

from writers.kit import GoldenTable, case


@case("Long strings, cut in the statistics: maxima with characters beyond the basic plane and the last ones.")
def stats_long_strings(t: GoldenTable) -> None:
    t.create("id INT, s STRING, st STRUCT<x: STRING>")
    values = [
        "repeat('a', 40)",
        "concat(repeat('a', 32), 'b')",
        "concat(repeat('a', 31), '\\U0001F600\\U0001F600')",
        "repeat('\\uFFFF', 40)",
        "repeat('\\U0010FFFF', 40)",
        "concat(repeat('z', 31), 'é', 'é')",
        "repeat('漢', 33)",
        "concat(repeat('x', 32), '\\uD7FF')",
    ]
    for number, value in enumerate(values):
        t.insert(f"({number}, {value}, named_struct('x', {value}))")
    t.insert(
        *[f"({100 + number}, {value}, NULL)" for number, value in enumerate(values)],
        "(200, '', NULL)",
        "(201, NULL, NULL)",
    )


@case("Floats with NaN and infinities, each in files of their own and together.")
def stats_floats(t: GoldenTable) -> None:
    t.create("id INT, f FLOAT, d DOUBLE")
    files = [
        ["1.5", "2.5"],
        ["NaN"],
        ["NaN", "1.0"],
        ["Infinity", "-Infinity"],
        ["-0.0"],
        ["0.0", "-0.0"],
        ["NaN", "-Infinity", "5.0"],
    ]
    for number, values in enumerate(files):
        t.insert(
            *[f"({number * 10 + n}, FLOAT('{v}'), DOUBLE('{v}'))" for n, v in enumerate(values)],
            f"({number * 10 + 9}, NULL, NULL)",
        )


@case("No statistics of any column, only the number of rows.")
def stats_no_columns(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"dataSkippingNumIndexedCols": "0"})
    t.append("SELECT CAST(id AS INT) AS id, concat('s', id) AS s FROM range(20)", files=2)


@case("No statistics at all.")
def stats_absent(t: GoldenTable) -> None:
    t.create("id INT, s STRING")
    with t.conf({"spark.databricks.delta.stats.collect": "false"}):
        t.append("SELECT CAST(id AS INT) AS id, concat('s', id) AS s FROM range(20)", files=2)
    t.append("SELECT CAST(id + 20 AS INT) AS id, concat('s', id) AS s FROM range(5)")


@case("No statistics at all, and deletion vectors.")
def stats_absent_dv(t: GoldenTable) -> None:
    t.create("id INT, s STRING", properties={"enableDeletionVectors": "true"})
    with t.conf({"spark.databricks.delta.stats.collect": "false"}):
        t.append("SELECT CAST(id AS INT) AS id, concat('s', id) AS s FROM range(20)")
    t.sql("DELETE FROM $T WHERE id % 3 = 0")


@case("Statistics of two named columns among five, one of them nested.")
def stats_chosen_columns(t: GoldenTable) -> None:
    t.create(
        "id INT, a INT, b STRING, s STRUCT<x: INT, y: INT>, z DOUBLE",
        properties={"dataSkippingStatsColumns": "a,s.y"},
    )
    t.append(
        "SELECT CAST(id AS INT) AS id, CAST(id AS INT) AS a, 'b' AS b, named_struct('x', CAST(id AS INT), 'y', "
        "CAST(-id AS INT)) AS s, "
        "id / 3 AS z FROM range(20)",
        files=2,
    )


@case("Loose bounds: the rows with the least and the greatest values deleted by a vector, also all nulls.")
def stats_loose_bounds(t: GoldenTable) -> None:
    t.create("id INT, n INT, s STRING", properties={"enableDeletionVectors": "true"})
    t.append(
        "SELECT CAST(id AS INT) AS id, if(id < 10, NULL, CAST(id AS INT)) AS n, if(id < 15, concat('s', id), "
        "NULL) AS s FROM range(20)"
    )
    t.sql(
        "DELETE FROM $T WHERE n IS NULL",
        "DELETE FROM $T WHERE id IN (10, 19)",
        "DELETE FROM $T WHERE s IS NOT NULL AND id < 14",
    )
    t.expect_all()


@case("Times whose maxima are cut to milliseconds in the statistics, with dates and wall-clock times.")
def stats_times(t: GoldenTable) -> None:
    t.create("id INT, ts TIMESTAMP, tn TIMESTAMP_NTZ, dt DATE")
    for number, moment in enumerate(
        [
            "2024-02-29 12:34:56.789999",
            "1969-12-31 23:59:59.999999",
            "1950-06-15 00:00:00.000001",
            "9999-12-31 23:59:59.999999",
        ]
    ):
        t.insert(f"({number}, TIMESTAMP'{moment}', TIMESTAMP_NTZ'{moment}', DATE'{moment[:10]}')")


@case("More columns than have statistics (32 by default), binaries and booleans among them.")
def stats_many_columns(t: GoldenTable) -> None:
    columns = ", ".join(f"CAST(id * {n} AS INT) AS c{n}" for n in range(34))
    t.append(f"SELECT CAST(id AS INT) AS id, id % 2 = 0 AS b, X'01' AS bin, {columns} FROM range(6)", files=2)
