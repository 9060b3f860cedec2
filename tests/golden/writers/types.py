"""Types: every primitive at its extremes, times, `void`, and nested types in each other."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_PRIMITIVES = """
    id INT, b BOOLEAN, i8 TINYINT, i16 SMALLINT, i32 INT, i64 BIGINT, f32 FLOAT, f64 DOUBLE,
    d1 DECIMAL(1,0), d9 DECIMAL(9,2), d18 DECIMAL(18,6), d19 DECIMAL(19,0), d38 DECIMAL(38,0),
    d38_18 DECIMAL(38,18), d38_38 DECIMAL(38,38), s STRING, bin BINARY, dt DATE, ts TIMESTAMP,
    c CHAR(5), vc VARCHAR(10)
"""
_LEAST = """(1, false, -128Y, -32768S, -2147483648, -9223372036854775808L, FLOAT('-Infinity'), DOUBLE('-Infinity'),
    -9, -9999999.99, -999999999999.999999, -9999999999999999999, -99999999999999999999999999999999999999,
    -99999999999999999999.999999999999999999, -0.99999999999999999999999999999999999999, '', X'',
    DATE'0001-01-01', TIMESTAMP'1900-01-01 00:00:00', '', '')"""
_MOST = """(2, true, 127Y, 32767S, 2147483647, 9223372036854775807L, FLOAT('Infinity'), DOUBLE('Infinity'),
    9, 9999999.99, 999999999999.999999, 9999999999999999999, 99999999999999999999999999999999999999,
    99999999999999999999.999999999999999999, 0.99999999999999999999999999999999999999,
    'Größe 漢字 \\U0001F600 \\u0000 "quoted" \\\\ \\n', X'00FF10', DATE'9999-12-31',
    TIMESTAMP'9999-12-31 23:59:59.999999', 'abc', 'varying')"""
_NULLS = "(3" + ", NULL" * 20 + ")"
_ZEROS = """(4, false, 0Y, 0S, 0, 0L, FLOAT('-0.0'), DOUBLE('-0.0'), 0, 0, 0, 0, 0, 0, 0, ' ', X'00',
    DATE'1970-01-01', TIMESTAMP'1970-01-01 00:00:00', '12345', '1234567890')"""
_ODD = """(5, true, 1Y, 1S, 1, 1L, FLOAT('NaN'), DOUBLE('NaN'), 1, 0.01, 0.000001, 1, 1, 0.000000000000000001,
    0.00000000000000000000000000000000000001, 'a\\tb', X'80', DATE'1969-12-31',
    TIMESTAMP'1969-12-31 23:59:59.999999', ' x', ' x ')"""
_TINY = """(6, true, 1Y, 1S, 1, 1L, FLOAT('1.4E-45'), DOUBLE('4.9E-324'), 1, 1.10, 1.100000, 10, 10, 1.1, 0.1,
    'é', X'7F', DATE'2024-02-29', TIMESTAMP'2024-02-29 12:34:56.789012', 'é', 'é')"""


@case("Every primitive type at its extremes, NaN, infinities, -0.0, empty values and nulls; INT96 times.")
def primitives(t: GoldenTable) -> None:
    t.create(_PRIMITIVES)
    t.insert(_LEAST, _MOST, _NULLS)
    t.insert(_ZEROS, _ODD, _TINY)
    t.note(parquet_timestamps="INT96")


@case("Times as TIMESTAMP_MILLIS in one file, TIMESTAMP_MICROS in another and INT96 in a third.")
def timestamp_units(t: GoldenTable) -> None:
    t.create("id INT, ts TIMESTAMP, many ARRAY<TIMESTAMP>")
    for number, unit in enumerate(["TIMESTAMP_MILLIS", "TIMESTAMP_MICROS", "INT96"]):
        with t.conf({"spark.sql.parquet.outputTimestampType": unit}):
            t.insert(
                f"({number}, TIMESTAMP'2024-02-29 12:34:56.789012', array(TIMESTAMP'1969-12-31 23:59:59.999', "
                f"NULL))",
                f"({number + 10}, TIMESTAMP'1901-01-01 00:00:00.001', array())",
            )


@case("Times and dates as far as 64 bits of microseconds and 32 bits of days go, beyond the year 9999 too.")
def timestamps_extreme(t: GoldenTable) -> None:
    with t.conf({"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}):
        t.create("id INT, ts TIMESTAMP, dt DATE")
        t.insert(
            "(1, timestamp_micros(9223372036854775807L), date_from_unix_date(2147483647))",
            "(2, timestamp_micros(-9223372036854775808L), date_from_unix_date(-2147483648))",
            "(3, TIMESTAMP'0001-01-01 00:00:00', DATE'0001-01-01')",
            "(4, TIMESTAMP'+12345-06-07 08:09:10.111213', DATE'+12345-06-07')",
            "(5, TIMESTAMP'-0044-03-15 12:00:00', DATE'-0044-03-15')",
        )
        t.insert("(6, TIMESTAMP'2024-01-01 00:00:00', DATE'2024-01-01')", "(7, NULL, NULL)")
    t.note(beyond_python=True)


@case("Wall-clock times, top-level and nested.")
def timestamp_ntz(t: GoldenTable) -> None:
    t.create("id INT, tn TIMESTAMP_NTZ, many ARRAY<TIMESTAMP_NTZ>, ts TIMESTAMP")
    t.insert(
        "(1, TIMESTAMP_NTZ'0001-01-01 00:00:00', array(), TIMESTAMP'2024-03-31 01:30:00')",
        "(2, TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', NULL, NULL)",
        "(3, NULL, array(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999', NULL), TIMESTAMP'2024-10-27 01:30:00')",
    )
    t.insert("(4, TIMESTAMP_NTZ'2024-03-31 02:30:00.123456', array(TIMESTAMP_NTZ'2024-03-31 02:30:00'), NULL)")


@case("Writes made in a session in another time zone: instants keep their meaning.")
def session_time_zone(t: GoldenTable) -> None:
    t.create("id INT, ts TIMESTAMP, tn TIMESTAMP_NTZ, dt DATE")
    for number, zone in enumerate(["America/Los_Angeles", "Asia/Kolkata", "Europe/Berlin"]):
        with t.zone(zone):
            t.insert(
                f"({number}, TIMESTAMP'2024-03-31 02:30:00', TIMESTAMP_NTZ'2024-03-31 02:30:00', "
                f"DATE'2024-03-31')",
                f"({number + 10}, TIMESTAMP'1910-01-01 00:00:00', TIMESTAMP_NTZ'1910-01-01 00:00:00', "
                f"DATE'1910-01-01')",
            )


@case("A `void` column: the schema has it, no file does, and Spark leaves it out.")
def void(t: GoldenTable) -> None:
    t.append("SELECT id, CAST(NULL AS VOID) AS nothing, 'x' AS s FROM range(3)")


@case("Arrays, maps and structs in each other, with nulls and empty values at every level.")
def nested(t: GoldenTable) -> None:
    t.create(
        "id INT, a ARRAY<INT>, aa ARRAY<ARRAY<STRING>>, m MAP<STRING, BIGINT>, mm MAP<INT, MAP<STRING, DOUBLE>>, "
        "s STRUCT<x: INT, y: STRUCT<z: STRING, w: ARRAY<DECIMAL(10,2)>>>, "
        "ads ARRAY<STRUCT<k: STRING, v: MAP<STRING, ARRAY<STRUCT<p: DATE, q: BINARY>>>>>, "
        "mk MAP<STRUCT<a: INT, b: STRING>, ARRAY<TIMESTAMP>>"
    )
    t.insert(
        "(1, array(1, NULL, 3), array(array('a', NULL), NULL, array()), map('k', 1L, 'n', NULL), "
        "map(1, map('x', 1.5D), 2, NULL, 3, map()), named_struct('x', 1, 'y', named_struct('z', 'zz', 'w', "
        "array(1.10, NULL))), array(named_struct('k', 'one', 'v', map('m', array(named_struct('p', "
        "DATE'2024-01-01', 'q', X'01'), NULL))), NULL), map(named_struct('a', 1, 'b', 'x'), "
        "array(TIMESTAMP'2024-01-01 00:00:00', NULL)))",
        "(2, array(), array(), map(), map(), named_struct('x', NULL, 'y', NULL), array(), map())",
        "(3, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
        "(4, array(NULL), array(NULL), map('only', NULL), map(9, NULL), named_struct('x', 4, 'y', "
        "named_struct('z', NULL, 'w', NULL)), array(named_struct('k', NULL, 'v', NULL)), "
        "map(named_struct('a', NULL, 'b', NULL), NULL))",
    )
    t.insert(
        "(5, sequence(1, 50), array(array('é', '漢')), map('ключ', -1L), map(0, map('NaN', DOUBLE('NaN'))), "
        "named_struct('x', 5, 'y', named_struct('z', '', 'w', array())), array(named_struct('k', 'five', 'v', "
        "map('e', array(), 'n', NULL))), map(named_struct('a', 5, 'b', ''), array()))"
    )


@case("Columns, fields and elements that must not be null.")
def not_null(t: GoldenTable) -> None:
    t.append(
        "SELECT id, named_struct('a', id, 'b', array(id, id + 1)) AS s, map('k', id) AS m FROM range(5)", files=2
    )


@case("A table that was created and never filled.")
def empty(t: GoldenTable) -> None:
    t.create("id INT, s STRING, a ARRAY<STRUCT<x: TIMESTAMP>>, d DECIMAL(10,2), p DATE", partitioned_by="p")


@case("Twelve rows in eight files, one column of each of a few types.")
def many_files(t: GoldenTable) -> None:
    t.append("SELECT CAST(id AS INT) AS id, concat('row ', id) AS s, id / 7 AS f FROM range(12)", files=8)


@case("Files in every compression codec that Spark writes; without dictionaries; with Bloom filters.")
def codecs(t: GoldenTable) -> None:
    t.create("id INT, s STRING, n BIGINT, f DOUBLE, d DECIMAL(20,4), b BOOLEAN, ts TIMESTAMP")
    query = (
        "SELECT CAST(id + {first} AS INT) AS id, concat('text ', id % 7) AS s, id * 1000003 AS n, id / 3 AS f, "
        "CAST(id AS DECIMAL(20,4)) AS d, id % 2 = 0 AS b, timestamp_micros(id * 86399999999) AS ts FROM range(40)"
    )
    for number, codec in enumerate(["none", "snappy", "gzip", "zstd", "lz4_raw"]):
        t.append(query.format(first=100 * number), compression=codec)
    with t.hadoop(
        {
            "parquet.enable.dictionary": "false",
            "parquet.bloom.filter.enabled": "true",
            "parquet.bloom.filter.max.bytes": "1024",
        }
    ):
        t.append(query.format(first=1000))


@case("Parquet's second version of pages, with its encodings (delta-packed numbers, delta strings).")
def parquet_v2(t: GoldenTable) -> None:
    t.create(
        "id INT, s STRING, n BIGINT, f DOUBLE, d DECIMAL(20,4), b BOOLEAN, ts TIMESTAMP, a ARRAY<STRING>",
        properties={"parquet.format.version": "2.12.0"},
    )
    query = (
        "SELECT CAST(id + {0} AS INT) AS id, if(id % 5 = 0, NULL, concat('text ', id)) AS s, id * 1000003 AS n, "
        "id / 3 AS f, "
        "CAST(id AS DECIMAL(20,4)) AS d, id % 2 = 0 AS b, timestamp_micros(id * 86399999999) AS ts, "
        "array('x', concat('y', id), NULL) AS a FROM range(200)"
    )
    t.append(query.format(0))
    with t.hadoop({"parquet.enable.dictionary": "false"}):
        t.append(query.format(1000))


@case("Parquet as old writers laid it out: two-level lists, maps named otherwise, decimals in fixed bytes.")
def parquet_legacy_format(t: GoldenTable) -> None:
    t.create(
        "id INT, a ARRAY<INT>, aa ARRAY<ARRAY<STRING>>, s ARRAY<STRUCT<x: INT>>, two ARRAY<STRUCT<x: INT, y: "
        "STRING>>, "
        "m MAP<STRING, ARRAY<INT>>, d DECIMAL(5,2), e DECIMAL(18,4), f DECIMAL(30,10), ad ARRAY<DECIMAL(9,3)>"
    )
    with t.conf({"spark.sql.parquet.writeLegacyFormat": "true"}):
        t.insert(
            "(1, array(1, NULL), array(array('a', NULL), NULL), array(named_struct('x', 1), NULL), "
            "array(named_struct('x', 1, 'y', 'a'), NULL), map('k', array(1, NULL), 'n', NULL), -1.25, "
            "12345678901234.5678, 12345678901234567890.0123456789, array(123456.789, NULL))",
            "(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)",
            "(3, array(), array(array()), array(), array(named_struct('x', NULL, 'y', NULL)), map(), 0, 0, 0, "
            "array())",
        )
