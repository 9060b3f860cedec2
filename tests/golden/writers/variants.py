"""Variants: every kind of value, nested, null, shredded. The expected rows hold their JSON text."""

from __future__ import annotations

from writers.kit import GoldenTable, case

_TEXTS = [
    "null",
    "true",
    "false",
    "0",
    "-1",
    "127",
    "-128",
    "128",
    "32768",
    "-2147483648",
    "2147483648",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "1.5",
    "-0.25",
    "1e300",
    "1.0E-10",
    "100.00",
    "123456789012345678901234567890.12345678",
    '""',
    '"short"',
    '"' + "long text " * 30 + '"',
    '"漢字 é \\u0001 \\"q\\" \\\\n"',
    "[]",
    "{}",
    '[1, "two", null, [3.5, {"k": true}]]',
    '{"b": 1, "a": {"z": null, "y": [1, 2]}, "": 0, "é": "ü"}',
    "[" + ", ".join(str(n) for n in range(300)) + "]",
    "{" + ", ".join(f'"key{n}": {n}' for n in range(300)) + "}",
]


#: An object with fields of several types, not all in every row.
_OBJECT = (
    """parse_json(concat('{"n": ', id, ', "s": "text ', id % 3, '", "list": [', id, ', 1.5], "maybe', id % 2, """
    """'": {"x": null}}'))"""
)


def _rows(t: GoldenTable, first: int = 0) -> str:
    t.spark.createDataFrame(
        [(first + n, text) for n, text in enumerate(_TEXTS)], "id INT, js STRING"
    ).createOrReplaceTempView("texts")
    return "SELECT id, parse_json(js) AS v FROM texts UNION ALL SELECT " + f"{first + 900}, CAST(NULL AS VARIANT)"


@case("JSON values of every kind as variants, and nulls.")
def variant(t: GoldenTable) -> None:
    t.create("id INT, v VARIANT")
    t.append(_rows(t))


@case("Variants of types that JSON does not have: dates, times, binary, float, decimal, NaN.")
def variant_types(t: GoldenTable) -> None:
    t.create("id INT, v VARIANT")
    values = [
        "1Y",
        "1S",
        "1",
        "1L",
        "FLOAT('1.5')",
        "FLOAT('0.1')",
        "FLOAT('NaN')",
        "0.1D",
        "DOUBLE('-Infinity')",
        "DOUBLE('1e21')",
        "DOUBLE('1e-7')",
        "DOUBLE('-0.0')",
        "CAST(1.10 AS DECIMAL(9,2))",
        "CAST(-1.10 AS DECIMAL(18,2))",
        "CAST(12345678901234567890123456789012345678 AS DECIMAL(38,0))",
        "CAST(0.00001 AS DECIMAL(38,38))",
        "true",
        "'text'",
        "X'00FF'",
        "X''",
        "DATE'2024-02-29'",
        "DATE'0001-01-01'",
        "DATE'9999-12-31'",
        "TIMESTAMP'2024-02-29 12:34:56.789012'",
        "TIMESTAMP'1969-12-31 23:59:59.999999'",
        "TIMESTAMP'0001-01-01 00:00:00'",
        "TIMESTAMP_NTZ'2024-02-29 12:34:56.7'",
        "TIMESTAMP_NTZ'9999-12-31 23:59:59.999999'",
        "array(1, NULL, 3)",
        "named_struct('b', 1.5D, 'a', array(X'01'))",
        "map('k', DATE'2024-01-01', 'a', NULL)",
        "named_struct('t', TIMESTAMP'2024-01-01 00:00:00', 'n', TIMESTAMP_NTZ'2024-01-01 00:00:00')",
    ]
    rows = []
    for n, value in enumerate(values):
        nested = value.startswith(("array", "named", "map"))
        rows.append(
            f"SELECT {n} AS id, "
            + (f"to_variant_object({value})" if nested else f"CAST({value} AS VARIANT)")
            + " AS v"
        )
    t.append(" UNION ALL ".join(rows))


_NESTED = (
    "SELECT id, named_struct('v', v, 'n', id) AS s, array(v, NULL, parse_json('[1]')) AS arr, "
    "map('k', v, 'n', NULL) AS m, array(named_struct('deep', map(id, array(v)))) AS deep FROM ({0}) "
    "UNION ALL SELECT -1, NULL, NULL, NULL, NULL UNION ALL SELECT -2, named_struct('v', NULL, 'n', NULL), "
    "array(), map(), array(NULL)"
)
_NESTED_COLUMNS = (
    "id INT, s STRUCT<v: VARIANT, n: INT>, arr ARRAY<VARIANT>, m MAP<STRING, VARIANT>, "
    "deep ARRAY<STRUCT<deep: MAP<INT, ARRAY<VARIANT>>>>"
)


@case("Variants in structs, arrays and maps, at several depths.")
def variant_nested(t: GoldenTable) -> None:
    t.create(_NESTED_COLUMNS)
    t.append(_NESTED.format(_rows(t)))


@case("Variants with deletion vectors, columns mapped by name, and a renamed column.")
def variant_dv_mapping(t: GoldenTable) -> None:
    t.create("id INT, v VARIANT, p STRING", partitioned_by="p",
             properties={"columnMapping.mode": "name", "enableDeletionVectors": "true"})  # fmt: skip
    t.append(f"SELECT id, v, concat('p', id % 2) AS p FROM ({_rows(t)})")
    t.sql("DELETE FROM $T WHERE id % 4 = 1", "ALTER TABLE $T RENAME COLUMN v TO w")
    t.append("SELECT 5000 AS id, parse_json('{\"new\": 1}') AS w, 'p0' AS p")
    t.expect_all()


@case("A variant column added to a table with rows.")
def variant_added(t: GoldenTable) -> None:
    t.create("id INT")
    t.insert("(1)")
    t.sql("ALTER TABLE $T ADD COLUMNS (v VARIANT)")
    t.append("SELECT 2 AS id, parse_json('[1, 2]') AS v")
    t.expect_all()


def _shredded(t: GoldenTable, schema: str) -> dict[str, str]:
    return {
        "spark.sql.variant.writeShredding.enabled": "true",
        "spark.sql.variant.allowReadingShredded": "true",
        "spark.sql.variant.forceShreddingSchemaForTest": schema,
    }


def _shredding_table(t: GoldenTable, columns: str = "id INT, v VARIANT") -> None:
    t.create(columns, properties={"enableVariantShredding": "true"})


@case("Shredded variants: an object's fields in columns of their own, and rows that don't fit them.")
def variant_shredded_object(t: GoldenTable) -> None:
    _shredding_table(t)
    schema = "a INT, b STRING, c STRUCT<d: DOUBLE, e: ARRAY<INT>>, f DECIMAL(10,2), g BOOLEAN, h BIGINT"
    with t.conf(_shredded(t, schema)):
        texts = [
            '{"a": 1, "b": "text", "c": {"d": 1.5e0, "e": [1, 2, 3]}, "f": 1.25, "g": true, "h": 5000000000}',
            '{"a": "no number", "b": 2, "c": {"d": "x", "e": [1, "two", null], "more": 1}, "f": 1.234, "g": null}',
            '{"a": 1}',
            "{}",
            '{"x": {"y": 1}, "a": 7}',
            '{"a": null, "b": null, "c": null}',
            '{"c": {}}',
            '{"c": [1]}',
            "[1, 2]",
            "5",
            "null",
            '"text"',
            '{"c": {"e": []}}',
            '{"c": {"e": [null]}}',
            '{"a": 3000000000}',
        ]
        t.spark.createDataFrame(list(enumerate(texts)), "id INT, js STRING").createOrReplaceTempView("texts")
        t.append("SELECT id, parse_json(js) AS v FROM texts UNION ALL SELECT 900, NULL")
    # A file without shredding beside it.
    t.append("SELECT 1000 + id AS id, parse_json(js) AS v FROM texts")


@case("Shredded variants: arrays of objects, and scalars of each type.")
def variant_shredded_kinds(t: GoldenTable) -> None:
    _shredding_table(t)
    with t.conf(_shredded(t, "ARRAY<STRUCT<k: STRING, n: BIGINT>>")):
        t.append(
            'SELECT 1 AS id, parse_json(\'[{"k": "a", "n": 1}, {"k": 2}, null, 5, {"n": 1.5, "z": 0}, []]\') AS v '
            "UNION ALL SELECT 2, parse_json('[]') UNION ALL SELECT 3, parse_json('{\"k\": \"a\"}') UNION ALL "
            "SELECT 4, NULL"
        )
    scalars = {
        "TINYINT": "1Y",
        "SMALLINT": "300S",
        "INT": "70000",
        "BIGINT": "5000000000L",
        "FLOAT": "FLOAT('0.1')",
        "DOUBLE": "0.1D",
        "DECIMAL(9,2)": "CAST(1.10 AS DECIMAL(9,2))",
        "DECIMAL(18,4)": "CAST(-1.1000 AS DECIMAL(18,4))",
        "DECIMAL(38,10)": "CAST(12345678901234567890.5 AS DECIMAL(38,10))",
        "BOOLEAN": "false",
        "STRING": "'text'",
        "BINARY": "X'00FF'",
        "DATE": "DATE'2024-02-29'",
        "TIMESTAMP": "TIMESTAMP'2024-02-29 12:34:56.789012'",
        "TIMESTAMP_NTZ": "TIMESTAMP_NTZ'1969-12-31 23:59:59.999999'",
    }
    for number, (kind, value) in enumerate(scalars.items(), 10):
        with t.conf(_shredded(t, kind)):
            t.append(
                f"SELECT {number} AS id, CAST({value} AS VARIANT) AS v UNION ALL "
                f"SELECT {number + 100}, parse_json('[\"does not fit\"]') UNION ALL SELECT {number + 200}, NULL "
                f"UNION ALL SELECT {number + 300}, parse_json('null')"
            )


@case("Shredded as the engine infers it from the rows.")
def variant_shredded_inferred(t: GoldenTable) -> None:
    _shredding_table(t)
    with t.conf(
        {"spark.sql.variant.writeShredding.enabled": "true", "spark.sql.variant.inferShreddingSchema": "true"}
    ):
        t.append(f"SELECT CAST(id AS INT) AS id, {_OBJECT} AS v FROM range(40)")


@case("Shredded variants within structs, shredded as the engine infers it; in arrays and maps it does not shred.")
def variant_shredded_nested(t: GoldenTable) -> None:
    _shredding_table(
        t, "id INT, s STRUCT<v: VARIANT, t: STRUCT<w: VARIANT, n: INT>>, a ARRAY<VARIANT>, m MAP<STRING, VARIANT>"
    )
    with t.conf(
        {"spark.sql.variant.writeShredding.enabled": "true", "spark.sql.variant.inferShreddingSchema": "true"}
    ):
        t.append(
            "SELECT id, if(id % 7 = 6, NULL, named_struct('v', v, 't', "
            "if(id % 5 = 4, NULL, named_struct('w', v, 'n', id)))) AS s, array(v, NULL) AS a, map('k', v) AS m "
            f"FROM (SELECT CAST(id AS INT) AS id, if(id % 6 = 5, NULL, {_OBJECT}) AS v FROM range(40))"
        )
