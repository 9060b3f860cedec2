"""Partition values: every type, null, special characters, times."""

from __future__ import annotations

from writers.kit import GoldenTable, case

#: Files under random prefixes instead of the partition values, which make long paths.
_SHORT_PATHS = {"randomizeFilePrefixes": "true"}
_STRINGS = [
    "'a b'",
    "'a/b'",
    "'a%b'",
    "'a%20b'",
    "'a=b'",
    "'ü/漢 字'",
    "'\\'quoted\\' \"twice\"'",
    "'a+b&c#d?e'",
    "''",
    "NULL",
    "'null'",
    "'__HIVE_DEFAULT_PARTITION__x'",
    "'a:b\\\\c'",
]


@case("Partitioned by one column of each type that can partition a table; nulls in every one.")
def partition_types(t: GoldenTable) -> None:
    names = "b, i8, i16, i32, i64, f32, f64, d, s, dt, ts"
    t.create(
        "id INT, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE, d "
        "DECIMAL(20,5), "
        "s STRING, dt DATE, ts TIMESTAMP",
        partitioned_by=names,
        properties=_SHORT_PATHS,
    )
    t.insert(
        "(1, true, -128Y, -32768S, -2147483648, -9223372036854775808L, FLOAT('-1.5'), 1e300D, -1.50000, 'x', "
        "DATE'0001-01-01', TIMESTAMP'1969-12-31 23:59:59.999999')",
        "(2, false, 127Y, 32767S, 2147483647, 9223372036854775807L, FLOAT('3.4028235E38'), 0.1D, "
        "999999999999999.99999, 'ü', DATE'9999-12-31', TIMESTAMP'2024-02-29 12:34:56.7')",
        "(3" + ", NULL" * 11 + ")",
        "(4, true, 0Y, 0S, 0, 0L, FLOAT('NaN'), DOUBLE('-Infinity'), 0, ' ', DATE'1970-01-01', "
        "TIMESTAMP'1970-01-01 00:00:00')",
        "(5, true, 1Y, 1S, 1, 1L, FLOAT('Infinity'), DOUBLE('NaN'), 1, '1', DATE'2024-02-29', "
        "TIMESTAMP'9999-12-31 00:00:00')",
    )


@case("Partitioned by a binary column.")
def partition_binary(t: GoldenTable) -> None:
    t.create("id INT, p BINARY", partitioned_by="p")
    t.insert("(1, X'6162')", "(2, NULL)", "(3, X'41')")


@case("Strings as partition values: blanks, slashes, percent signs, equals signs, quotes, unicode, empty, null.")
def partition_strings(t: GoldenTable) -> None:
    t.create("id INT, p STRING, q STRING", partitioned_by="p, q")
    _insert_strings(t, _STRINGS)
    t.insert("(100, 'a b', NULL)", "(101, 'a/b', 'x y')")


@case("Strings that not every file system takes in a path; files lie under random prefixes.")
def partition_strings_odd(t: GoldenTable) -> None:
    t.create("id INT, p STRING, q STRING", partitioned_by="p, q", properties=_SHORT_PATHS)
    _insert_strings(
        t, ["' padded '", "'{}[]^~`|<>'", "'.'", "'..'", "'\\t'", "'\\n'", "repeat('long ', 60)", "'CON'"]
    )


def _insert_strings(t: GoldenTable, values: list[str]) -> None:
    t.insert(*[f"({number}, {value}, 'q{number % 2}')" for number, value in enumerate(values)])


@case("Partitioned by times, written from sessions in three time zones.")
def partition_timestamps(t: GoldenTable) -> None:
    t.create("id INT, p TIMESTAMP", partitioned_by="p")
    for number, zone in enumerate(["UTC", "America/Los_Angeles", "Asia/Kolkata"]):
        with t.zone(zone):
            t.insert(
                f"({number}, TIMESTAMP'2024-03-31 02:30:00')",
                f"({number + 10}, TIMESTAMP'2024-12-31 23:59:59.123456')",
                f"({number + 20}, NULL)",
            )


@case(
    "Partitioned by times that are written as wall clocks of the session's zone, as older writers did (UTC here)."
)
def partition_timestamps_plain(t: GoldenTable) -> None:
    t.create("id INT, p TIMESTAMP", partitioned_by="p")
    with t.conf({"spark.databricks.delta.write.utcTimestampPartitionValues": "false"}):
        t.insert("(1, TIMESTAMP'2024-03-31 02:30:00')", "(2, TIMESTAMP'2024-12-31 23:59:59.123456')", "(3, NULL)")


@case("Partitioned by a wall-clock time and a date.")
def partition_timestamp_ntz(t: GoldenTable) -> None:
    t.create("id INT, tn TIMESTAMP_NTZ, dt DATE", partitioned_by="tn, dt")
    t.insert(
        "(1, TIMESTAMP_NTZ'2024-03-31 02:30:00', DATE'2024-03-31')",
        "(2, TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', DATE'1582-10-04')",
        "(3, NULL, NULL)",
    )


@case("Partitioned by char and varchar.")
def partition_char(t: GoldenTable) -> None:
    t.create("id INT, c CHAR(4), v VARCHAR(4)", partitioned_by="c, v")
    t.insert("(1, 'ab', 'ab')", "(2, 'abcd', 'a b')", "(3, NULL, NULL)")


@case("Partition columns between the others, not at the end.")
def partition_order(t: GoldenTable) -> None:
    t.create("p INT, id INT, q STRING, v DOUBLE, r DATE", partitioned_by="r, p, q")
    t.insert(
        "(1, 1, 'a', 0.5, DATE'2024-01-01')", "(2, 2, 'b', NULL, NULL)", "(NULL, 3, NULL, 2.5, DATE'2024-01-02')"
    )


@case("The partition values stand in the files too (feature materializePartitionColumns).")
def partition_materialized(t: GoldenTable) -> None:
    t.create(
        "id INT, p STRING, v DOUBLE",
        partitioned_by="p",
        properties={
            "feature.materializePartitionColumns": "supported",
            "enableMaterializePartitionColumnsFeature": "true",
        },
    )
    t.insert("(1, 'a', 1.0)", "(2, NULL, 2.0)", "(3, 'b c', 3.0)")
