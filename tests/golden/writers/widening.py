"""Type widening: each step the engine offers, nested, and with partitions, vectors and mapping."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_WIDENING = {"enableTypeWidening": "true"}


@case("Integers widened step by step, byte to short to int to long, rows written at each.")
def widening_integers(t: GoldenTable) -> None:
    t.create("id INT, b TINYINT, s SMALLINT, i INT, x TINYINT, y SMALLINT", properties=_WIDENING)
    t.insert("(1, -128Y, -32768S, -2147483648, 127Y, 1S)", "(2, NULL, NULL, NULL, NULL, NULL)")
    t.sql("ALTER TABLE $T ALTER COLUMN b TYPE SMALLINT", "ALTER TABLE $T ALTER COLUMN s TYPE INT")
    t.insert("(3, 32767S, 2147483647, 7, 7Y, 7S)")
    t.sql("ALTER TABLE $T ALTER COLUMN b TYPE INT", "ALTER TABLE $T ALTER COLUMN s TYPE BIGINT")
    t.sql("ALTER TABLE $T ALTER COLUMN i TYPE BIGINT", "ALTER TABLE $T ALTER COLUMN x TYPE BIGINT")
    t.insert("(4, 2147483647, 9223372036854775807, -9223372036854775808L, 9223372036854775807, 3S)")
    t.sql("ALTER TABLE $T ALTER COLUMN b TYPE BIGINT", "ALTER TABLE $T ALTER COLUMN y TYPE INT")
    t.insert("(5, 9223372036854775807, 5, 5, 5, 2147483647)")
    t.expect_all()


@case("To double: from byte, short, int and float.")
def widening_to_double(t: GoldenTable) -> None:
    t.create("id INT, b TINYINT, s SMALLINT, i INT, f FLOAT", properties=_WIDENING)
    t.insert(
        "(1, -128Y, -32768S, -2147483648, FLOAT('0.1'))", "(2, NULL, NULL, NULL, NULL)",
        "(3, 127Y, 32767S, 2147483647, FLOAT('NaN'))", "(4, 0Y, 0S, 0, FLOAT('-0.0'))", "(5, 1Y, 1S, 1, "
        "FLOAT('Infinity'))",
    )  # fmt: skip
    for column in "bsif":
        t.sql(f"ALTER TABLE $T ALTER COLUMN {column} TYPE DOUBLE")
    t.insert("(6, 0.1D, 1e300D, -1e-300D, 0.1D)", "(7, DOUBLE('NaN'), NULL, 0.5D, 1.0D)")
    t.expect_all()


@case("To decimal: from byte, short, int and long, with and without fraction digits.")
def widening_to_decimal(t: GoldenTable) -> None:
    t.create("id INT, b TINYINT, s SMALLINT, i INT, l BIGINT, l2 BIGINT, b2 TINYINT", properties=_WIDENING)
    t.insert(
        "(1, -128Y, -32768S, -2147483648, -9223372036854775808L, 9223372036854775807L, 1Y)",
        "(2, NULL, NULL, NULL, NULL, NULL, NULL)",
        "(3, 127Y, 32767S, 2147483647, 0L, -1L, -1Y)",
    )
    for column, kind in [("b", "DECIMAL(10,0)"), ("s", "DECIMAL(12,2)"), ("i", "DECIMAL(10,0)"),
                         ("l", "DECIMAL(20,0)"), ("l2", "DECIMAL(38,18)"), ("b2", "DECIMAL(38,10)")]:  # fmt: skip
        t.sql(f"ALTER TABLE $T ALTER COLUMN {column} TYPE {kind}")
    t.insert(
        "(4, 9999999999, 9999999999.99, 9999999999, 99999999999999999999, 12345678901234567890.5, 0.0000000001)"
    )
    t.expect_all()


@case("Decimals made wider: more digits before the point, behind it, and across 9, 18 and 38 digits.")
def widening_decimals(t: GoldenTable) -> None:
    t.create("id INT, a DECIMAL(5,2), b DECIMAL(9,0), c DECIMAL(18,4), d DECIMAL(20,10)", properties=_WIDENING)
    t.insert("(1, -999.99, 999999999, 12345678901234.5678, -1234567890.0123456789)", "(2, NULL, NULL, NULL, NULL)")
    for column, kind in [
        ("a", "DECIMAL(7,2)"),
        ("b", "DECIMAL(18,0)"),
        ("c", "DECIMAL(22,8)"),
        ("d", "DECIMAL(38,20)"),
    ]:
        t.sql(f"ALTER TABLE $T ALTER COLUMN {column} TYPE {kind}")
    t.insert("(3, 99999.99, 999999999999999999, 12345678901234.56789012, 123456789012345678.01234567890123456789)")
    t.sql("ALTER TABLE $T ALTER COLUMN a TYPE DECIMAL(38,10)", "ALTER TABLE $T ALTER COLUMN b TYPE DECIMAL(38,0)")
    t.insert("(4, 9999999999999999999999999999.9999999999, 99999999999999999999999999999999999999, 1, 1)")
    t.expect_all()


@case("Dates made wall-clock times.")
def widening_dates(t: GoldenTable) -> None:
    t.create("id INT, d DATE, e ARRAY<DATE>", properties=_WIDENING | {"feature.timestampNtz": "supported"})
    t.insert(
        "(1, DATE'0001-01-01', array(DATE'1582-10-04', NULL))", "(2, NULL, NULL)", "(3, DATE'9999-12-31', array())"
    )
    t.sql(
        "ALTER TABLE $T ALTER COLUMN d TYPE TIMESTAMP_NTZ",
        "ALTER TABLE $T ALTER COLUMN e.element TYPE TIMESTAMP_NTZ",
    )
    t.insert("(4, TIMESTAMP_NTZ'2024-02-29 12:34:56.789', array(TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'))")
    t.expect_all()


@case("Fields, elements, keys and values of nested columns made wider.")
def widening_nested(t: GoldenTable) -> None:
    t.create(
        "id INT, s STRUCT<a: TINYINT, b: STRUCT<c: FLOAT>>, arr ARRAY<SMALLINT>, m MAP<TINYINT, INT>, "
        "deep ARRAY<MAP<STRING, STRUCT<x: DECIMAL(5,2)>>>",
        properties=_WIDENING,
    )
    t.insert(
        "(1, named_struct('a', -128Y, 'b', named_struct('c', FLOAT('0.1'))), array(1S, NULL), map(1Y, 1, 2Y, "
        "NULL), "
        "array(map('k', named_struct('x', 1.25)), NULL))",
        "(2, NULL, NULL, NULL, NULL)",
    )
    for column, kind in [("s.a", "INT"), ("s.b.c", "DOUBLE"), ("arr.element", "BIGINT"), ("m.key", "INT"),
                         ("m.value", "BIGINT"), ("deep.element.value.x", "DECIMAL(20,5)")]:  # fmt: skip
        t.sql(f"ALTER TABLE $T ALTER COLUMN {column} TYPE {kind}")
    t.insert(
        "(3, named_struct('a', 70000, 'b', named_struct('c', 0.1D)), array(5000000000, NULL), map(70000, "
        "5000000000), "
        "array(map('k', named_struct('x', 123456789.12345))))"
    )
    t.expect_all()


@case("Partition columns made wider.")
def widening_partitions(t: GoldenTable) -> None:
    t.create(
        "id INT, b TINYINT, f FLOAT, d DECIMAL(5,2), i INT, dt DATE",
        partitioned_by="b, f, d, i, dt",
        properties=_WIDENING | {"feature.timestampNtz": "supported", "randomizeFilePrefixes": "true"},
    )
    t.insert("(1, 127Y, FLOAT('0.1'), 1.25, -1, DATE'2024-01-01')", "(2, NULL, NULL, NULL, NULL, NULL)")
    for column, kind in [
        ("b", "BIGINT"),
        ("f", "DOUBLE"),
        ("d", "DECIMAL(10,4)"),
        ("i", "DECIMAL(12,1)"),
        ("dt", "TIMESTAMP_NTZ"),
    ]:
        t.sql(f"ALTER TABLE $T ALTER COLUMN {column} TYPE {kind}")
    t.insert("(3, 5000000000, 0.1D, 1.0001, 0.5, TIMESTAMP_NTZ'2024-01-01 12:00:00')")
    t.expect_all()


@case("Made wider, with deletion vectors and mapping by name: rows deleted and columns renamed before and after.")
def widening_dv_mapping(t: GoldenTable) -> None:
    t.create(
        "id INT, n TINYINT, s STRUCT<x: SMALLINT>",
        properties=_WIDENING | {"enableDeletionVectors": "true", "columnMapping.mode": "name"},
    )
    t.append(
        "SELECT CAST(id AS INT) AS id, CAST(id AS TINYINT) AS n, named_struct('x', CAST(id AS SMALLINT)) AS s "
        "FROM range(20)"
    )
    t.sql("DELETE FROM $T WHERE id % 4 = 0", "ALTER TABLE $T RENAME COLUMN n TO number")
    t.sql("ALTER TABLE $T ALTER COLUMN number TYPE INT", "ALTER TABLE $T ALTER COLUMN s.x TYPE BIGINT")
    t.sql(
        "ALTER TABLE $T RENAME COLUMN s.x TO xx",
        "UPDATE $T SET number = 70000 WHERE id = 1",
        "DELETE FROM $T WHERE id = 2",
    )
    t.expect_all()


@case("Made wider by writes that bring a wider type (schema evolution).")
def widening_evolved(t: GoldenTable) -> None:
    t.create("id INT, n SMALLINT, d DECIMAL(6,2)", properties=_WIDENING)
    t.insert("(1, 1S, 1.25)")
    t.append("SELECT 2 AS id, 70000 AS n, CAST(123456.125 AS DECIMAL(12,3)) AS d", mergeSchema="true")
    t.expect_all()
