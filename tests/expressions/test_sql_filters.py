"""Filters as SQL text: the same trees that tuples give, and SQL's NULL."""

import math
import sqlite3
import string
import sys
from datetime import date, datetime, timedelta
from decimal import Decimal
from types import ModuleType

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from thorough import examples

import delta_sharing_client as ds
from delta_sharing_client.errors import ColumnError, FilterError, MissingDependencyError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.column_bounds import TRUE, ColumnBounds, outcomes
from delta_sharing_client.expressions.predicates import And, Compare, IsNull, Not, Or
from delta_sharing_client.model.schema import (
    ArrayType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
)
from delta_sharing_client.parquet.residual_filter import filter_batch
from delta_sharing_client.server import SharingServer

NAMES = [
    "byte", "short", "integer", "long", "float", "double", "string", "boolean", "binary", "date", "timestamp",
    "timestamp_ntz",
]  # fmt: skip
SCHEMA = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in NAMES),
        StructField("decimal", DecimalType(10, 2)),
        StructField("list", ArrayType(PrimitiveType("long"))),
        StructField("struct", StructType((StructField("x", PrimitiveType("long")),))),
        StructField("a.b", PrimitiveType("long")),
        StructField("two words", PrimitiveType("string")),
        StructField("tick`s", PrimitiveType("long")),
        StructField("Ünï", PrimitiveType("string")),
        StructField("select", PrimitiveType("long")),
        StructField("Order", PrimitiveType("long")),
    )
)


def bind(text):
    return bind_filters(text, SCHEMA)


def column(name):
    return SCHEMA.find(name)


class TestAsTuples:
    @pytest.mark.parametrize(
        ("text", "tuples"),
        [
            ("long = 5", [("long", "=", 5)]),
            ("long == 5", [("long", "=", 5)]),
            ("long != 5", [("long", "!=", 5)]),
            ("long <=> 5", [("long", "is not", None), ("long", "=", 5)]),
            ("long IS NOT DISTINCT FROM 5", [("long", "is not", None), ("long", "=", 5)]),
            ("boolean IS TRUE", [("boolean", "is not", None), ("boolean", "=", True)]),
            ("boolean IS FALSE", [("boolean", "is not", None), ("boolean", "=", False)]),
            ("long = 5 OR FALSE", [("long", "=", 5)]),
            ("long <> 5", [("long", "!=", 5)]),
            ("LONG<5", [("long", "<", 5)]),
            ("5 > long", [("long", "<", 5)]),
            ("5 >= long", [("long", "<=", 5)]),
            ("5 = long", [("long", "=", 5)]),
            ("(long) >= ((-5))", [("long", ">=", -5)]),
            ("long = +5", [("long", "=", 5)]),
            ("long = - -5", [("long", "=", 5)]),
            ("long = -9223372036854775808", [("long", "=", -(2**63))]),
            ("long < 1.5", [("long", "<", Decimal("1.5"))]),
            ("long < 1e3", [("long", "<", 1000)]),
            ("long = '5'", [("long", "=", 5)]),
            ("long = 5L AND short = 5S AND byte = 5Y", [(n, "=", 5) for n in ("long", "short", "byte")]),
            ("double = 1.5", [("double", "=", 1.5)]),
            ("double = 1.5D", [("double", "=", 1.5)]),
            ("double > .5", [("double", ">", 0.5)]),
            ("double = CAST('Infinity' AS DOUBLE)", [("double", "=", math.inf)]),
            ("float = 0.1", [("float", "=", 0.1)]),
            ("float = 0.1F", [("float", "=", 0.10000000149011612)]),
            ("decimal = 1.50", [("decimal", "=", Decimal("1.50"))]),
            ("decimal > 99999999.999", [("decimal", ">", Decimal("99999999.999"))]),
            ("string = 'abc'", [("string", "=", "abc")]),
            ('string = "abc"', [("string", "=", "abc")]),
            ("string > ''", [("string", ">", "")]),
            ("boolean = TRUE", [("boolean", "=", True)]),
            ("boolean", [("boolean", "=", True)]),
            ("binary = X'1Fa0'", [("binary", "=", b"\x1f\xa0")]),
            ("binary = x'f'", [("binary", "=", b"\x0f")]),
            ("date >= '2024-01-01'", [("date", ">=", date(2024, 1, 1))]),
            ("date >= DATE '2024-01-01'", [("date", ">=", date(2024, 1, 1))]),
            ("DATE'2024-01-01' <= date", [("date", ">=", date(2024, 1, 1))]),
            ("date = CAST('2024-01-01' AS DATE)", [("date", "=", date(2024, 1, 1))]),
            ("date = '2024-01-01'::date", [("date", "=", date(2024, 1, 1))]),
            ("date = TIMESTAMP '2024-01-01 00:00:00'", [("date", "=", date(2024, 1, 1))]),
            ("timestamp > '2024-01-01 10:30'", [("timestamp", ">", datetime(2024, 1, 1, 10, 30))]),
            ("timestamp > TIMESTAMP '2024-01-01 10:30:00'", [("timestamp", ">", datetime(2024, 1, 1, 10, 30))]),
            ("timestamp > TIMESTAMP '2024-01-01T10:30:00+02:00'",
             [("timestamp", ">", datetime(2024, 1, 1, 8, 30))]),
            ("timestamp > DATE '2024-01-01'", [("timestamp", ">", datetime(2024, 1, 1))]),
            ("timestamp_ntz > TIMESTAMP_NTZ '2024-01-01 10:30:00'",
             [("timestamp_ntz", ">", datetime(2024, 1, 1, 10, 30))]),
            ("timestamp_ntz > TIMESTAMP '2024-01-01 10:30:00'",
             [("timestamp_ntz", ">", datetime(2024, 1, 1, 10, 30))]),
            ("timestamp = CAST(DATE '2024-01-01' AS TIMESTAMP)", [("timestamp", "=", datetime(2024, 1, 1))]),
            ("long IN (1, 2, 3)", [("long", "in", [1, 2, 3])]),
            ("long IN ('1', 2.0)", [("long", "in", [1, 2])]),
            ("long NOT IN (1, 2)", [("long", "not in", [1, 2])]),
            ("NOT long IN (1, 2)", [("long", "not in", [1, 2])]),
            ("string in ('a', 'b')", [("string", "in", ["a", "b"])]),
            ("long BETWEEN 1 AND 2", [("long", ">=", 1), ("long", "<=", 2)]),
            ("5 BETWEEN long AND short", [("long", "<=", 5), ("short", ">=", 5)]),
            ("long IS NULL", [("long", "is", None)]),
            ("long IS NOT NULL", [("long", "is not", None)]),
            ("list IS NULL AND struct IS NOT NULL", [("list", "is", None), ("struct", "is not", None)]),
            ("NULL <=> long", [("long", "is", None)]),
            ("NOT (long <=> NULL)", [("long", "is not", None)]),
            ("`a.b` = 1", [("a.b", "=", 1)]),
            ("`two words` = 'x'", [("two words", "=", "x")]),
            ("`tick``s` = 1", [("tick`s", "=", 1)]),
            ("`Ünï` = 'é' and ünï = 'é'", [("Ünï", "=", "é"), ("Ünï", "=", "é")]),
            ("`select` = 1", [("select", "=", 1)]),
            ("order = 1", [("Order", "=", 1)]),
            ("long = CAST('5' AS BIGINT)", [("long", "=", 5)]),
            ("long = TRY_CAST(5.0 AS INT)", [("long", "=", 5)]),
            ("decimal = CAST('1.5' AS DECIMAL(4, 2))", [("decimal", "=", Decimal("1.50"))]),
            ("string = CAST(5 AS STRING)", [("string", "=", "5")]),
            ("boolean = CAST('true' AS BOOLEAN)", [("boolean", "=", True)]),
            ("binary = CAST('a' AS BINARY)", [("binary", "=", b"a")]),
            ("long = 5;", [("long", "=", 5)]),
            ("long = 5 -- it's the one", [("long", "=", 5)]),
            ("/* it's */ long = /* ; */ 5", [("long", "=", 5)]),
            ("1 = 1 AND long = 5", [("long", "=", 5)]),
            ("long = 5 AND TRUE", [("long", "=", 5)]),
            ("long = 1 AND short = 2 AND byte = 3", [("long", "=", 1), ("short", "=", 2), ("byte", "=", 3)]),
            ("long = 1 AND (short = 2 AND (byte = 3))", [("long", "=", 1), ("short", "=", 2), ("byte", "=", 3)]),
            ("long = 1 OR short = 2 AND byte = 3", [[("long", "=", 1)], [("short", "=", 2), ("byte", "=", 3)]]),
        ],
    )  # fmt: skip
    def test_examples(self, text, tuples):
        assert bind(text) == bind_filters(tuples, SCHEMA)

    def test_a_chain_may_be_long(self):
        text = " AND ".join(f"long <> {n}" for n in range(3000))
        assert bind(text) == bind_filters([("long", "!=", n) for n in range(3000)], SCHEMA)

    @pytest.mark.parametrize("text", ["-- nothing", "TRUE", "1 = 1", "NOT FALSE", "long = 5 OR TRUE"])
    def test_every_row(self, text):
        predicate = bind(text)
        assert predicate is None or outcomes(predicate, lambda _: None) == TRUE

    @pytest.mark.parametrize(
        "text",
        ["FALSE", "NULL", "NOT NULL", "1 = 2", "long IN (NULL)", "'a' > 'b'", "NULL <=> 1", "TRUE IS NULL",
         "long = 5 AND FALSE"],
    )  # fmt: skip
    def test_no_row(self, text):
        assert not outcomes(bind(text), lambda _: None) & TRUE

    @pytest.mark.parametrize("op", ["=", "==", "!=", "<>", "<", "<=", ">", ">="])
    @pytest.mark.parametrize("text", ["long {} NULL", "NULL {} long", "NOT long {} CAST(NULL AS INT)"])
    def test_a_comparison_with_null_raises_as_that_of_a_tuple_does(self, text, op):
        with pytest.raises(FilterError, match=r"'long' .* null is never true; .* IS NULL or IS NOT NULL") as one:
            bind(text.format(op))
        with pytest.raises(FilterError) as two:
            bind_filters([("long", str(one.value).split()[2], None)], SCHEMA)
        assert str(one.value) == str(two.value)

    @pytest.mark.parametrize(
        "text",
        ["NULL = NULL", "NULL <> 1", "string LIKE NULL", "string NOT LIKE NULL", "long BETWEEN NULL AND 5",
         "long BETWEEN 5 AND NULL", "long NOT BETWEEN NULL AND 5", "NULL BETWEEN 1 AND 2",
         "long = 1 OR byte = -NULL"],
    )  # fmt: skip
    def test_other_comparisons_with_null_raise(self, text):
        with pytest.raises(FilterError, match=r"is never true; .*IS NULL or IS NOT NULL"):
            bind(text)

    @pytest.mark.parametrize(
        "text",
        ["long NOT IN (1, NULL)", "NOT (long IN (1, NULL))", "NOT (byte = 1 OR long IN (NULL, 1))",
         "long = 5 OR NOT NOT long NOT IN (NULL)"],
    )  # fmt: skip
    def test_a_list_with_null_after_not_in_raises_as_that_of_a_tuple_does(self, text):
        with pytest.raises(FilterError, match="never true") as one:
            bind(text)
        with pytest.raises(FilterError) as two:
            bind_filters([("long", "not in", [1, None])], SCHEMA)
        assert str(one.value) == str(two.value)

    @pytest.mark.parametrize(
        "text",
        [
            "timestamp_ntz = '2024-01-01 00:00:00+05:30'",
            "'2024-01-01T00:00Z' <= timestamp_ntz",
            "timestamp_ntz IN ('2024-01-01', '2024-01-01 00:00:00+05:30')",
            "timestamp_ntz BETWEEN '2024-01-01 00:00:00' AND '2024-01-01 00:00:00+05:30'",
            "timestamp_ntz > TIMESTAMP '2024-01-01 00:00:00+05:30'",
            "timestamp_ntz > TIMESTAMP_NTZ '2024-01-01 00:00:00+05:30'",
            "timestamp_ntz > CAST('2024-01-01 00:00:00Z' AS TIMESTAMP_NTZ)",
        ],
    )
    def test_a_zone_for_a_column_without_one_raises(self, text):
        with pytest.raises(FilterError, match="without the zone"):
            bind(text)

    @pytest.mark.parametrize("text", ["long IN (1, NULL)", "NOT (long NOT IN (NULL, 1))"])
    def test_a_list_with_null_after_in_leaves_it_out(self, text):
        assert bind(text) == bind_filters([("long", "in", [1, None])], SCHEMA) == bind("long IN (1)")

    def test_negation_keeps_null(self):
        equal = Compare(column("long"), "=", 1)
        flag = Compare(column("boolean"), "=", True)
        assert bind("NOT long = 1") == Not(equal)
        assert bind("NOT NOT long = 1") == equal
        assert bind("NOT (long = 1 AND NOT boolean)") == Not(And((equal, Not(flag))))
        assert bind("NOT (long = 1 OR boolean)") == Not(Or((equal, flag)))
        assert bind("!boolean") == Not(flag)
        assert bind("NOT (long <=> 1)") == Not(And((Not(IsNull(column("long"))), equal)))
        assert bind("boolean IS NOT TRUE") == Not(And((Not(IsNull(column("boolean"))), flag)))


class TestStrings:
    """String literals have the value that Spark gives them."""

    @pytest.mark.parametrize(
        ("literal", "value"),
        [
            ("'it''s'", "it's"),
            (r"'it\'s'", "it's"),
            ('"it\'s"', "it's"),
            ('"a""b"', 'a"b'),
            ("\"a''b\"", "a''b"),
            ("'a\"\"b'", 'a""b'),
            (r"'a\\b'", r"a\b"),
            (r"'a\nb\tc\rd\be\0f\Zg'", "a\nb\tc\rd\be\0f\x1ag"),
            (r"'a\qb'", "aqb"),
            (r"'a\_b\%c'", r"a\_b\%c"),
            (r"'\u00e9\U0001F600'", "é😀"),
            (r"'\ud83d\ude00'", "😀"),
            (r"'\101\x'", "Ax"),
            (r"r'a\nb'", r"a\nb"),
            (r'R"a\"', "a\\"),
            ("'a\nb'", "a\nb"),
            ("'-- no comment'", "-- no comment"),
            ("'/* nor */ this'", "/* nor */ this"),
            ("'`'", "`"),
            ("'$string0$'", "$string0$"),
            ("''", ""),
            ("''''", "'"),
        ],
    )
    def test_examples(self, literal, value):
        assert bind(f"string = {literal}") == Compare(column("string"), "=", value)
        assert bind(f"'x' = `two words` OR {literal} <> string") == Or(
            (Compare(column("two words"), "=", "x"), Compare(column("string"), "!=", value))
        )

    @pytest.mark.parametrize("literal", [r"'\ud83d'", r"'\UFFFFFFFF'"])
    def test_invalid_escapes_raise(self, literal):
        with pytest.raises(FilterError, match="not a character"):
            bind(f"string = {literal}")


class TestLike:
    @pytest.mark.parametrize(
        ("text", "bounds"),
        [
            ("LIKE 'abc%'", ("abc", "abd")),
            ("LIKE 'abc%%%'", ("abc", "abd")),
            ("LIKE '%'", ("", None)),
            ("LIKE 'z\U0010ffff%'", ("z\U0010ffff", "{")),
            ("LIKE '\U0010ffff%'", ("\U0010ffff", None)),
            ("LIKE '\ud7ff%'", ("\ud7ff", "\ue000")),
            (r"LIKE 'a\_b%'", ("a_b", "a_c")),
            (r"LIKE 'a\\\\%'", ("a\\", "a]")),
            ("LIKE 'a/%b%' ESCAPE '/'", ("a%b", "a%c")),
            ("LIKE 'a//%' ESCAPE '/'", ("a/", "a0")),
        ],
    )
    def test_prefixes(self, text, bounds):
        lower, upper = bounds
        parts = [("string", ">=", lower)] + ([("string", "<", upper)] if upper else [])
        assert bind(f"string {text}") == bind_filters(parts, SCHEMA)

    def test_without_wildcards(self):
        assert bind("string LIKE 'abc'") == bind("string = 'abc'")
        assert bind(r"string LIKE 'a\%\_'") == bind("string = 'a%_'")
        assert bind("string LIKE ''") == bind("string = ''")
        assert bind("string NOT LIKE 'abc'") == bind("NOT string = 'abc'")

    def test_negation(self):
        lower, upper = Compare(column("string"), ">=", "ab"), Compare(column("string"), "<", "ac")
        assert bind("string NOT LIKE 'ab%'") == Not(And((lower, upper)))
        assert bind("NOT (string NOT LIKE 'ab%')") == And((lower, upper))
        assert bind("string NOT LIKE 'a!b%' ESCAPE 'b'".replace("!b", "bb")) == Not(And((lower, upper)))

    @pytest.mark.parametrize(
        "pattern", ["'%abc'", "'a%b'", "'a_'", "'_'", "'a%_'", r"'a\\'", r"'a\\b%'", "'a!' ESCAPE '!'"]
    )
    def test_other_patterns_than_prefixes_raise(self, pattern):
        with pytest.raises(FilterError, match="has a pattern other than a prefix"):
            bind(f"string LIKE {pattern}")

    @settings(max_examples=examples(300))
    @given(st.text(max_size=5), st.text(max_size=6))
    def test_the_range_is_exact(self, prefix, value):
        escaped = "".join("!" + c if c in "%_!" else c for c in prefix)
        quoted = escaped.replace("\\", "\\\\").replace("'", "''")
        predicate = bind(f"string LIKE '{quoted}%' ESCAPE '!'")
        for candidate in (value, prefix + value, prefix[:-1] + value):
            possible = outcomes(predicate, lambda _, value=candidate: ColumnBounds.constant(value))
            assert bool(possible & TRUE) == candidate.startswith(prefix)


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "part"),
        [
            ("lower(string) = 'a'", r"LOWER\(string\) is neither a column nor a literal"),
            ("long + 1 = 2", r"long \+ 1 is neither a column nor a literal"),
            ("long = short", "long = short compares two columns"),
            ("long <=> short", "compares two columns"),
            ("string LIKE `two words`", "has a column as its pattern"),
            ("long LIKE '5%'", "no column of strings before LIKE"),
            ("'a' LIKE 'a%'", "no column of strings before LIKE"),
            ("string LIKE 'a' ESCAPE '!!'", "one character as its escape"),
            ("string ILIKE 'a%'", "is not a condition"),
            ("string RLIKE 'a'", "is not a condition"),
            ("long IN (SELECT 1)", "has a part that a filter cannot hold"),
            ("long IN (1, short)", "short is neither a column nor a literal"),
            ("5 IN (long)", "not a column IN a list"),
            ("long IN ()", "not a column IN a list"),
            ("(long, short) = (1, 2)", "is neither a column nor a literal"),
            ("EXISTS (SELECT 1)", "is not a condition"),
            ("CASE WHEN boolean THEN TRUE END", "is not a condition"),
            ("CAST(long AS INT) = 1", "casts a column"),
            ("long = CAST(5.5 AS INT)", "digits behind the point"),
            ("long = CAST(300 AS TINYINT)", "out of range"),
            ("long = CAST(1e999999999 AS INT)", "too large"),
            ("decimal = CAST(1.55 AS DECIMAL(3, 1))", "does not fit"),
            ("long = CAST(1 AS INTERVAL)", "not a cast that a filter can hold|cannot be parsed"),
            ("date = DATE 'tomorrow'", "is not such a value: 'tomorrow' is not a date"),
            ("long = 1 2", "cannot be parsed at '2'"),
            ("long = 'a", "cannot be parsed"),
            ("long =", "cannot be parsed"),
            ("SELECT 1", "cannot be parsed at 'SELECT 1'"),
            ("long = 1 ORDER BY long", "cannot be parsed at 'ORDER BY long'"),
            ("from = 'it''s'", "cannot be parsed at .*backticks"),
            ("long = 1; short = 2", "2 statements"),
            ("long", "long is long, and not a condition by itself"),
            ("NOT string", "string is string, and not a condition"),
            ("string IS TRUE", "takes a column of booleans, and 'string' is string"),
            ("(long = 1) IS NULL", "is neither a column nor a literal"),
            ("(long = 1) = TRUE", "is neither a column nor a literal"),
            ("long = ?", "is neither a column nor a literal"),
            ("long = :p", "is neither a column nor a literal"),
            ("date = current_date", "is neither a column nor a literal"),
            ("date = DATE '2024-01-01' + INTERVAL 1 DAY", "is neither a column nor a literal"),
            ("struct.x = 1", "struct.x is not a column of the table, but a part"),
            ("a.b = 1", "for the column of that name write `a.b`"),
            ("list[0] = 1", "is neither a column nor a literal"),
            ("list = 1", "which cannot be compared"),
            ("string = 5", "cannot be compared"),
            ("long = 'abc'", "is not a number|not a number|cannot"),
            ("long = X'1F'", "cannot be compared"),
            ("boolean = 'true'", "cannot be compared"),
            ("string = 'a' 'b'", "is neither a column nor a literal"),
            ("1 = 'a'", "compares literals of two types"),
            ("-'a' = string", "is neither a column nor a literal"),
            ("5.0 < CAST('NaN' AS DOUBLE)", "no order"),
            ("long BETWEEN SYMMETRIC 2 AND 1", "has a part|cannot be parsed"),
            ("(" * 3000 + "long = 1" + ")" * 3000, "nested too deeply"),
            ("NOT " * 3000 + "boolean", "nested too deeply"),
        ],
    )
    def test_the_unsupported_part_is_named(self, text, part):
        with pytest.raises(FilterError, match=part):
            bind(text)

    def test_the_supported_syntax_is_listed(self):
        with pytest.raises(FilterError, match="a filter as SQL text compares columns with literals: = == "):
            bind("upper(string) = 'A'")

    def test_strings_are_shown_as_written(self):
        with pytest.raises(FilterError, match=r"LOWER\('it''s'\) is neither"):
            bind("string = lower('it''s')")

    def test_unknown_columns(self):
        with pytest.raises(ColumnError, match="the column 'nope'") as caught:
            bind("long = 1 AND nope = 2")
        assert caught.value.columns == ("nope",)
        with pytest.raises(ColumnError):
            bind("nope = 1 OR TRUE")

    def test_a_table_without_columns(self):
        assert outcomes(bind_filters("TRUE", StructType(())), lambda _: None) == TRUE
        assert not outcomes(bind_filters("FALSE", StructType(())), lambda _: None) & TRUE

    @pytest.mark.parametrize("version", [None, "20.0.0", "unknown"])
    def test_without_sqlglot(self, monkeypatch, version):
        old = None
        if version:
            old, old_errors = ModuleType("sqlglot"), ModuleType("sqlglot.errors")
            old.__version__, old.errors, old_errors.SqlglotError = version, old_errors, ValueError
            monkeypatch.setitem(sys.modules, "sqlglot.errors", old_errors)
        monkeypatch.setitem(sys.modules, "sqlglot", old)
        with pytest.raises(MissingDependencyError, match=r"pip install 'delta-sharing-client\[sql\]'"):
            bind("long = 1")
        assert bind_filters([("long", "=", 1)], SCHEMA) is not None


def sql_string(value):
    return "'" + value.replace("\\", "\\\\").replace("'", "''") + "'"


def sql_literal(value):
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, datetime):
        return f"TIMESTAMP '{value.isoformat(sep=' ')}'"
    if isinstance(value, date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, float):
        return f"{value!r}D" if math.isfinite(value) else f"CAST('{value}' AS DOUBLE)"
    if isinstance(value, bytes):
        return f"X'{value.hex()}'"
    return sql_string(value) if isinstance(value, str) else str(value)


def sql_term(term):
    name, op, value = term
    quoted = "`" + name.replace("`", "``") + "`"
    if op in ("is", "is not"):
        return f"{quoted} {op} NULL"
    if op in ("in", "not in"):
        return f"{quoted} {op} ({', '.join(map(sql_literal, value))})"
    return f"{quoted} {op} {sql_literal(value)}"


VALUES = {
    "long": st.integers(-(2**70), 2**70),
    "byte": st.integers(-200, 200) | st.decimals(-200, 200, places=2),
    "double": st.floats(allow_nan=False),
    "decimal": st.decimals(-(10**9), 10**9, places=4),
    "string": st.text(),
    "two words": st.text(string.ascii_letters + "'\\\"%_-/*`$", max_size=12),
    "boolean": st.booleans(),
    "binary": st.binary(max_size=6),
    "date": st.dates(),
    "timestamp": st.datetimes(),
    "timestamp_ntz": st.datetimes(),
    "tick`s": st.integers(),
    "a.b": st.integers(),
}


@st.composite
def terms(draw):
    name = draw(st.sampled_from(sorted(VALUES)))
    op = draw(st.sampled_from(["=", "==", "!=", "<>", "<", "<=", ">", ">=", "in", "not in", "is", "is not"]))
    if op in ("is", "is not"):
        return name, op, None
    return name, op, draw(st.lists(VALUES[name], min_size=1, max_size=4) if "in" in op else VALUES[name])


class TestProperties:
    @settings(max_examples=examples(200), deadline=None)
    @given(st.lists(st.lists(terms(), min_size=1, max_size=4), min_size=1, max_size=4))
    @example([[("string", "=", "a\\'b\n"), ("double", "<", -0.0)], [("timestamp", ">", datetime(1, 1, 1))]])
    def test_tuples_as_text_are_the_same_filter(self, groups):
        text = " OR ".join("(" + " AND ".join(map(sql_term, group)) + ")" for group in groups)
        assert repr(bind(text)) == repr(joined(bind_filters([group], SCHEMA) for group in groups))


def joined(parts):
    """The OR of groups, where a group may be an OR by itself."""
    flat = []
    for part in parts:
        flat.extend(part.parts if isinstance(part, Or) else [part])
    return flat[0] if len(flat) == 1 else Or(tuple(flat))


def constant_sql():
    return st.sampled_from(["0", "1", "2", "-1", "1.5", "2e0"])


def word_sql():
    return st.sampled_from(["'a'", "'ab'", "'b'", "''", "'it''s'", "'ABC'"])


@st.composite
def conditions(draw, depth=3):
    """Random conditions that Spark and SQLite understand alike; `<=>` is written as IS for the latter."""
    if depth and draw(st.booleans()):
        kind = draw(st.sampled_from(["AND", "OR", "NOT"]))
        one = draw(conditions(depth - 1))
        if kind == "NOT":
            return f"NOT ({one})"
        return f"({one}) {kind} ({draw(conditions(depth - 1))})"
    name, literal = draw(st.sampled_from([("x", constant_sql()), ("y", constant_sql()), ("s", word_sql())]))
    kind = draw(st.sampled_from(["compare", "flipped", "in", "between", "like", "is", "flag", "same", "constant"]))
    negation = draw(st.sampled_from(["", "NOT "]))
    if kind == "compare":
        return f"{name} {draw(st.sampled_from(['=', '==', '!=', '<>', '<', '<=', '>', '>=']))} {draw(literal)}"
    if kind == "flipped":
        return f"{draw(literal)} {draw(st.sampled_from(['=', '!=', '<', '<=', '>', '>=']))} {name}"
    if kind == "in":
        listed = draw(st.lists(literal | st.just("NULL"), min_size=1, max_size=3))
        return f"{name} {negation}IN ({', '.join(listed)})"
    if kind == "between":
        return f"{name} {negation}BETWEEN {draw(literal)} AND {draw(literal)}"
    if kind == "like":
        return f"s {negation}LIKE {draw(st.sampled_from([chr(39) * 2, repr('a%'), repr('%'), repr('ab')]))}"
    if kind == "is":
        return f"{name} IS {negation}NULL"
    if kind == "flag":
        return (
            f"flag{draw(st.sampled_from(['', ' = TRUE', ' IS TRUE', ' IS NOT FALSE', ' <> FALSE', ' IS NULL']))}"
        )
    if kind == "same":
        return f"{name} <=> {draw(literal | st.just('NULL'))}"
    return draw(st.sampled_from(["TRUE", "FALSE", "NULL", "1 = 1", "1 > 2"]))


ROWS = [
    (x, y, s, flag)
    for x, s in [(None, None), (0, "a"), (1, "ab"), (2, "b"), (-1, ""), (3, "it's"), (1, "ABC")]
    for y, flag in [(None, None), (1.5, 1), (2.0, 0)]
]
SMALL = StructType(
    (
        StructField("x", PrimitiveType("long")),
        StructField("y", PrimitiveType("double")),
        StructField("s", PrimitiveType("string")),
        StructField("flag", PrimitiveType("boolean")),
    )
)


@pytest.fixture(scope="module")
def oracle():
    connection = sqlite3.connect(":memory:")
    connection.execute("PRAGMA case_sensitive_like = ON")
    connection.execute("CREATE TABLE t (id INTEGER, x INTEGER, y REAL, s TEXT, flag INTEGER)")
    connection.executemany("INSERT INTO t VALUES (?, ?, ?, ?, ?)", [(n, *row) for n, row in enumerate(ROWS)])
    yield lambda text: [
        n for (n,) in connection.execute(f"SELECT id FROM t WHERE {text.replace('<=>', 'IS')} ORDER BY id")
    ]
    connection.close()


class TestOracle:
    """SQLite selects the rows for which a condition is true."""

    @settings(max_examples=examples(400), deadline=None)
    @given(text=conditions())
    @example(text="NOT (x = 1 AND NULL)")
    @example(text="NOT (x NOT IN (1, NULL))")
    @example(text="NOT (x NOT IN (1, NULL) AND y IN (2, NULL))")
    @example(text="NOT ((s <=> 'a') OR (NOT (s LIKE 'a%')))")
    def test_the_same_rows(self, oracle, text):
        batch = pa.RecordBatch.from_pydict(
            {
                "id": list(range(len(ROWS))),
                "x": [row[0] for row in ROWS],
                "y": [row[1] for row in ROWS],
                "s": [row[2] for row in ROWS],
                "flag": [None if row[3] is None else bool(row[3]) for row in ROWS],
            },
            pa.schema(
                [
                    ("id", pa.int64()),
                    ("x", pa.int64()),
                    ("y", pa.float64()),
                    ("s", pa.string()),
                    ("flag", pa.bool_()),
                ]
            ),
        )
        try:
            predicate = bind_filters(text, SMALL)
        except FilterError as error:
            assume("not in a list with a null is never true" not in str(error))
            raise
        kept = batch if predicate is None else filter_batch(batch, predicate)
        assert kept.column("id").to_pylist() == oracle(text)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("sql") / "orders"
    days = [date(2024, 1, 1) + timedelta(n) for n in range(6)]
    for n, day in enumerate(days):
        rows = pa.table(
            {
                "date": [day] * 3,
                "amount": pa.array([n, n + 10, None], pa.int64()),
                "name": [f"a{n}", f"b{n}", None],
            }
        )
        write_deltalake(path, rows, partition_by=["date"], mode="append")
    with SharingServer({"s.s.orders": path}) as server, ds.SharingClient(server.profile) as client:
        yield client.table("s.s.orders")


class TestEndToEnd:
    def test_scan(self, table):
        scan = table.scan(filters="date >= '2024-01-03' AND amount > 5", columns=["amount"])
        assert sorted(scan.to_arrow()["amount"].to_pylist()) == [12, 13, 14, 15]
        assert len(scan.files()) == 4
        assert scan.count() == 4
        assert scan.replace(filters="name LIKE 'a%' AND NOT date = '2024-01-01'").count() == 5

    def test_columns_are_hinted(self, table):
        request = table.scan(filters="date IN ('2024-01-03', '2024-01-04') AND amount > 5").plan().request
        assert '"valueType":"date"' in request.json_predicate_hints
        assert '"name":"amount"' in request.json_predicate_hints
        assert not [hint for hint in request.predicate_hints if "amount" in hint]

    def test_constant_conditions(self, table):
        assert table.scan(filters="1 = 2").to_arrow().num_rows == 0
        assert table.scan(filters="1 = 2").files() == []
        assert table.scan(filters="1 = 1").count() == 18

    def test_errors(self, table):
        with pytest.raises(FilterError, match="LOWER"):
            table.scan(filters="lower(name) = 'a1'").to_arrow()
        with pytest.raises(ColumnError, match="'nope'"):
            table.scan(filters="nope = 1").to_pandas()
