"""Filters as users write them, bound to a table's columns."""

import pickle
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from delta_sharing_client.errors import ColumnError, FilterError
from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Or,
    columns_of,
    is_float,
)
from delta_sharing_client.model.schema import (
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
)

NAMES = [
    "byte",
    "short",
    "integer",
    "long",
    "float",
    "double",
    "string",
    "boolean",
    "binary",
    "date",
    "timestamp",
    "timestamp_ntz",
    "void",
]
SCHEMA = StructType(
    (
        *(StructField(name, PrimitiveType(name)) for name in NAMES),
        StructField("decimal", DecimalType(7, 2)),
        StructField("wide", DecimalType(38, 10)),
        StructField("list", ArrayType(PrimitiveType("long"))),
        StructField("map", MapType(PrimitiveType("string"), PrimitiveType("long"))),
        StructField("struct", StructType((StructField("x", PrimitiveType("long")),))),
        StructField("odd", UnknownType("variant", "odd")),
        StructField("a.b", PrimitiveType("long")),
        StructField("Ünï cödé", PrimitiveType("string")),
    )
)
OPERATORS = ["=", "!=", "<", "<=", ">", ">="]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def bind(*terms):
    return bind_filters(list(terms), SCHEMA)


def column(name):
    return SCHEMA.find(name)


def value(name, literal, op="="):
    """The literal as it was bound."""
    bound = bind((name, op, literal))
    assert isinstance(bound, Compare), bound
    assert bound.op == op
    return bound.value


def never(name):
    return In(column(name), ())


def always(name):
    return Not(In(column(name), ()))


class TestShape:
    def test_one_term(self):
        assert bind(("long", "=", 5)) == Compare(column("long"), "=", 5)

    def test_terms_are_anded(self):
        assert bind(("long", ">", 1), ("string", "=", "x")) == And(
            (Compare(column("long"), ">", 1), Compare(column("string"), "=", "x"))
        )

    def test_groups_are_ored(self):
        one, two = Compare(column("long"), "=", 1), Compare(column("long"), "=", 2)
        assert bind([("long", "=", 1)], [("long", "=", 2)]) == Or((one, two))
        assert bind([("long", "=", 1), ("long", "=", 2)], [("long", "=", 2)]) == Or((And((one, two)), two))
        assert bind([("long", "=", 1)]) == one

    def test_lists_and_tuples_are_equivalent(self):
        assert bind_filters((["long", "=", 1],), SCHEMA) == bind(("long", "=", 1))
        assert bind_filters([(["long", "=", 1],)], SCHEMA) == bind(("long", "=", 1))

    @pytest.mark.parametrize("flip", [1, -1])
    def test_a_mix_of_terms_and_groups_raises(self, flip):
        mix = [("long", ">", 3), [("string", "=", "Asia")]][::flip]
        with pytest.raises(FilterError, match="filters mixes tuples and lists of tuples: write"):
            bind_filters(mix, SCHEMA)

    @pytest.mark.parametrize("wrong", ["long = 5", 5, ("long", "="), []])
    def test_the_malformed_term_is_named(self, wrong):
        with pytest.raises(FilterError, match=r"is not a \(column, operator, value\) tuple") as caught:
            bind_filters([("long", ">", 3), wrong], SCHEMA)
        assert str(caught.value).startswith(repr(wrong or ()))

    def test_a_similar_column_is_suggested(self):
        with pytest.raises(ColumnError, match=r"'lnog'.*; did you mean 'long'\?"):
            bind(("lnog", "=", 1))

    @pytest.mark.parametrize("empty", [[], ()])
    def test_no_filter(self, empty):
        assert bind_filters(empty, SCHEMA) is None

    @pytest.mark.parametrize(
        "filters",
        [
            b"long = 5",
            5,
            ["long = 5"],
            ["abc"],
            ("long", "=", 5),
            [("long", "=")],
            [("long", "=", 5, 6)],
            [("long", 5, "=")],
            [(5, "=", "long")],
            [[("long", "=", 5)], []],
            [[]],
            [("long", "=", 5), [("long", "=", 5)]],
            [None],
            [[None]],
            [["long = 5"]],
            {"long": 5},
        ],
        ids=repr,
    )
    def test_malformed_filters_raise(self, filters):
        with pytest.raises(FilterError):
            bind_filters(filters, SCHEMA)

    def test_names(self):
        assert bind(("LONG", "=", 1)).column is column("long")
        assert bind(("a.b", "=", 1)).column is column("a.b")
        assert bind(("ünï CÖDÉ", "=", "x")).column is column("Ünï cödé")
        with pytest.raises(ColumnError, match=r"'nope'.*it has byte, short") as caught:
            bind(("long", "=", 1), ("nope", "=", 1))
        assert caught.value.columns == ("nope",)

    @pytest.mark.parametrize(("spelling", "op"), [("==", "="), ("<>", "!="), *((op, op) for op in OPERATORS)])
    def test_operators(self, spelling, op):
        assert bind(("long", spelling, 1)) == Compare(column("long"), op, 1)
        assert bind(("long", f" {spelling} ", 1)) == Compare(column("long"), op, 1)

    @pytest.mark.parametrize("op", ["", "like", "~", "=>", "not", "between", "IN NOT"])
    def test_unknown_operators(self, op):
        with pytest.raises(FilterError, match="unknown operator"):
            bind(("long", op, 1))

    def test_is_null(self):
        assert bind(("long", "is", None)) == IsNull(column("long"))
        assert bind(("long", "IS  NOT", None)) == Not(IsNull(column("long")))
        for name in ("list", "struct", "map", "void", "odd"):
            assert bind((name, "is", None)) == IsNull(column(name))
        for op in ("is", "is not"):
            with pytest.raises(FilterError, match="takes None"):
                bind(("long", op, 5))

    @pytest.mark.parametrize("op", OPERATORS)
    def test_a_comparison_with_none_raises(self, op):
        with pytest.raises(FilterError, match="'is', None"):
            bind(("long", op, None))

    def test_columns_of(self):
        bound = bind([("long", "in", [1]), ("string", "!=", "x")], [("long", "not in", [1]), ("date", "is", None)])
        assert [c.name for c in columns_of(bound)] == ["long", "string", "long", "date"]

    def test_predicates_pickle(self):
        bound = bind(
            [("long", "in", [1]), ("timestamp", "<", EPOCH)], [("wide", "not in", [1]), ("a.b", "is", None)]
        )
        assert pickle.loads(pickle.dumps(bound)) == bound
        hash(bound)

    def test_is_float(self):
        assert is_float(PrimitiveType("float"))
        assert is_float(PrimitiveType("double"))
        assert not is_float(PrimitiveType("long"))
        assert not is_float(DecimalType(5, 2))


class TestIn:
    def test_in(self):
        assert bind(("long", "in", [1, 2, 1])) == In(column("long"), (1, 2))
        assert bind(("long", "not in", {3})) == Not(In(column("long"), (3,)))
        assert bind(("string", "IN", ("a",))) == In(column("string"), ("a",))

    def test_an_empty_list_matches_nothing(self):
        assert bind(("long", "in", [])) == never("long")
        assert bind(("long", "not in", [])) == always("long")

    def test_values_that_the_column_cannot_have_are_left_out(self):
        assert bind(("byte", "in", [1, 1000, 1.5, float("nan")])) == In(column("byte"), (1,))

    def test_null_in_a_list(self):
        membership = In(column("long"), (1,))
        assert bind(("long", "in", [1, None])) == membership
        with pytest.raises(FilterError, match="'long' not in a list with a null is never true; leave"):
            bind(("long", "not in", [1, None]))

    @pytest.mark.parametrize(
        "values",
        [np.array([1, 2]), pd.Series([1, 2]), pa.array([1, 2]), range(1, 3), iter([1, 2]), pd.Index([1, 2])],
        ids=lambda v: type(v).__module__,
    )
    def test_any_collection(self, values):
        bound = bind(("long", "in", values))
        assert bound == In(column("long"), (1, 2))
        assert all(type(v) is int for v in bound.values)

    NULLS = (
        None,
        pd.NA,
        pd.NaT,
        np.datetime64("NaT"),
        np.datetime64("NaT", "us"),
        np.timedelta64("NaT"),
        pa.scalar(None),
        pa.NULL,
        pa.scalar(None, pa.int64()),
        pa.scalar(None, pa.timestamp("us")),
    )

    @pytest.mark.parametrize("null", NULLS, ids=lambda null: f"{type(null).__name__} {null!r}")
    def test_nulls_of_libraries_are_null(self, null):
        for name, value in (("long", 1), ("string", "x"), ("timestamp", EPOCH), ("date", date(2024, 1, 1))):
            for values in ([value, null], (null, value), [null, value, None]):
                assert bind((name, "in", values)) == bind((name, "in", [value]))
                with pytest.raises(FilterError, match="never true"):
                    bind((name, "not in", values))
            assert bind((name, "in", [null])) == In(column(name), ())
            assert bind((name, "is", null)) == IsNull(column(name))
            for op in ("=", "!=", "<"):
                with pytest.raises(FilterError, match="'is', None"):
                    bind((name, op, null))

    def test_columns_of_libraries_with_nulls(self):
        for values in (
            pd.Series([1, None], dtype="Int64"),
            pd.array([1, pd.NA], dtype="int64[pyarrow]"),
            pa.array([1, None]),
            pa.chunked_array([[1], [None]]),
        ):
            assert bind(("long", "in", values)) == In(column("long"), (1,))
        days = pd.Series(pd.to_datetime(["2024-01-01", None]))
        assert bind(("date", "in", days)) == In(column("date"), (date(2024, 1, 1),))
        assert bind(("timestamp", "in", days.to_numpy())) == bind(("timestamp", "in", [datetime(2024, 1, 1)]))

    def test_nan_is_a_number_and_equals_nothing(self):
        for nan in (float("nan"), np.float64("nan"), np.float32("nan"), Decimal("NaN"), pa.scalar(float("nan"))):
            (value,) = bind(("double", "in", [nan])).values
            assert value != value
            assert isinstance(bind(("double", "not in", [1.0, nan])), Not)

    def test_a_lone_surrogate_raises(self):
        with pytest.raises(FilterError, match="'string' is string"):
            bind(("string", "=", "x\ud83d"))

    @pytest.mark.parametrize("values", ["ab", b"ab", 5, None, {"a": 1}])
    def test_a_value_that_is_not_a_collection_raises(self, values):
        with pytest.raises(FilterError, match="takes a list"):
            bind(("string", "in", values))

    def test_each_value_is_checked(self):
        with pytest.raises(FilterError):
            bind(("long", "in", [1, "x"]))


class TestIntegers:
    @pytest.mark.parametrize(
        "literal",
        [5, 5.0, Decimal(5), Decimal("5.000"), "5", " 5 ", "5.0", np.int8(5), np.float32(5), np.uint64(5)],
    )
    @pytest.mark.parametrize("name", ["byte", "short", "integer", "long"])
    def test_alternative_spellings_of_operators(self, name, literal):
        assert value(name, literal) == 5
        assert type(value(name, literal)) is int

    def test_exact_where_a_double_is_not(self):
        for literal in (2**60 + 1, str(2**60 + 1), Decimal(2**60 + 1), np.int64(2**60 + 1), pa.scalar(2**60 + 1)):
            assert value("long", literal) == 2**60 + 1

    @pytest.mark.parametrize("literal", [1.5, Decimal("1.5"), "1.5", np.float64(1.5)])
    def test_between_two_values(self, literal):
        for op, expected in [("<", 2), ("<=", 1), (">", 1), (">=", 2)]:
            assert value("byte", literal, op) == expected
        assert bind(("byte", "=", literal)) == never("byte")
        assert bind(("byte", "!=", literal)) == always("byte")

    def test_between_two_values_below_zero(self):
        for op, expected in [("<", -1), ("<=", -2), (">", -2), (">=", -1)]:
            assert value("byte", -1.5, op) == expected

    def test_literals_out_of_range(self):
        above = {"=": never, "!=": always, "<": always, "<=": always, ">": never, ">=": never}
        below = {"=": never, "!=": always, "<": never, "<=": never, ">": always, ">=": always}
        for op in OPERATORS:
            for literal in (128, 1e30, float("inf"), Decimal("inf"), "Infinity", Decimal("1E+9999999"), 10**5000):
                assert bind(("byte", op, literal)) == above[op]("byte"), (op, literal)
            for literal in (-129, -1e30, float("-inf"), Decimal("-1E+9999999")):
                assert bind(("byte", op, literal)) == below[op]("byte"), (op, literal)

    def test_literals_at_the_limits(self):
        assert value("byte", 127.5, "<=") == 127
        assert value("byte", -128.5, ">=") == -128
        assert bind(("byte", "<", 127.5)) == always("byte")
        assert bind(("byte", ">=", 127.5)) == never("byte")
        assert bind(("byte", ">", -128.5)) == always("byte")
        assert bind(("byte", "<=", -128.5)) == never("byte")

    def test_very_small_literals(self):
        assert value("byte", Decimal("1E-9999999"), ">=") == 1
        assert value("byte", Decimal("-1E-9999999"), "<") == 0
        assert value("byte", Decimal("0E+9999999")) == 0

    @pytest.mark.parametrize("literal", [float("nan"), Decimal("nan"), "nan", np.float32("nan")])
    def test_nan(self, literal):
        for op in OPERATORS:
            assert bind(("long", op, literal)) == (always("long") if op == "!=" else never("long"))

    @pytest.mark.parametrize(
        "literal",
        [
            "x",
            "",
            True,
            np.bool_(True),
            b"5",
            date(2024, 1, 1),
            datetime(2024, 1, 1),
            [5],
            pd.NA,
            pd.NaT,
            1j,
            pytest.param(object(), id="object"),
        ],
        ids=repr,
    )
    def test_other_literals_than_numbers_raise(self, literal):
        for name in ("long", "double", "decimal"):
            with pytest.raises(FilterError, match=f"'{name}'"):
                bind((name, "=", literal))


class TestFloats:
    @pytest.mark.parametrize("name", ["float", "double"])
    def test_alternative_spellings_of_operators(self, name):
        for literal in (0.5, Decimal("0.5"), "0.5", np.float32(0.5), pa.scalar(0.5)):
            assert value(name, literal) == 0.5
            assert isinstance(value(name, literal), float)
        assert value(name, 3) == 3.0
        assert value(name, float("inf")) == float("inf")
        nan = value(name, float("nan"))
        assert nan != nan

    def test_numpy_floats_keep_their_value(self):
        assert value("float", np.float32(0.1)) == float(np.float32(0.1)) != 0.1

    @pytest.mark.parametrize("name", ["float", "double"])
    def test_integers_between_two_floats(self, name):
        low, high = 2**53, 2**53 + 2
        assert float(low) == low
        for op, (expected_op, expected) in {
            "<": ("<=", low),
            "<=": ("<=", low),
            ">": (">", low),
            ">=": (">", low),
        }.items():
            assert bind((name, op, low + 1)) == Compare(column(name), expected_op, float(expected))
        assert bind((name, "=", low + 1)) == never(name)
        assert bind((name, "!=", low + 1)) == always(name)
        assert bind((name, "<", high + 1)) == Compare(column(name), "<", float(high + 2))
        assert bind((name, ">=", high + 1)) == Compare(column(name), ">=", float(high + 2))

    @pytest.mark.parametrize("name", ["float", "double"])
    def test_integers_beyond_the_range_of_floats(self, name):
        most = 1.7976931348623157e308
        assert bind((name, "<", 10**400)) == Compare(column(name), "<=", most)
        assert bind((name, ">=", 10**400)) == Compare(column(name), ">", most)
        assert bind((name, ">", -(10**400))) == Compare(column(name), ">=", -most)
        assert bind((name, "=", 10**400)) == never(name)

    def test_a_signalling_nan(self):
        with pytest.raises(FilterError):
            bind(("double", "=", Decimal("sNaN")))


class TestDecimals:
    @pytest.mark.parametrize("literal", [1.5, Decimal("1.5"), "1.50", np.float32(1.5), pa.scalar(Decimal("1.5"))])
    def test_alternative_spellings_of_operators(self, literal):
        bound = value("decimal", literal)
        assert bound == Decimal("1.50")
        assert bound.as_tuple().exponent == -2

    def test_the_decimal_context_has_no_effect(self):
        big = Decimal("1234567890123456789012345678.0123456789")
        with localcontext(prec=3):
            assert value("wide", big) == big
            assert value("wide", "-12345.6789") == Decimal("-12345.6789")

    def test_between_two_values(self):
        for op, expected in [("<", "1.51"), ("<=", "1.50"), (">", "1.50"), (">=", "1.51")]:
            assert value("decimal", Decimal("1.505"), op) == Decimal(expected)
        assert bind(("decimal", "=", Decimal("1.505"))) == never("decimal")

    @pytest.mark.parametrize("tenth", [0.1, np.float64(0.1), "0.1", Decimal("0.1")])
    def test_a_double_is_bound_by_its_shortest_decimal_form(self, tenth):
        """As a double 0.1 is a little more than a tenth, and no decimal would be equal to it."""
        for op in ("=", "!=", "<", "<=", ">", ">="):
            assert value("decimal", tenth, op) == Decimal("0.1")
        assert bind(("decimal", "in", [tenth])) == bind(("decimal", "in", [Decimal("0.1")]))
        assert value("wide", 1e-10) == Decimal("1E-10")

    def test_literals_out_of_range(self):
        assert bind(("decimal", "<", 100_000)) == always("decimal")
        assert bind(("decimal", "<", Decimal("99999.995"))) == always("decimal")
        assert bind(("decimal", ">=", "-100000")) == always("decimal")
        assert bind(("wide", "<", float("inf"))) == always("wide")
        assert value("decimal", 99999.99, "<=").as_tuple().exponent == -2


class TestStringsBooleansBinary:
    def test_strings(self):
        assert value("string", "x") == "x"
        assert value("string", np.str_("x")) == "x"
        assert value("string", pa.scalar("x")) == "x"
        assert value("string", "") == ""
        for literal in (5, b"x", True, date(2024, 1, 1), {"x": 1}):
            with pytest.raises(FilterError, match="'string' is string"):
                bind(("string", "=", literal))
        for several in (["x"], ("x",), {"x"}):
            with pytest.raises(FilterError, match=r"write \('string', 'in', \[\.\.\.\]\) for several"):
                bind(("string", "=", several))

    @pytest.mark.parametrize("op", OPERATORS)
    def test_booleans(self, op):
        assert value("boolean", True, op) is True
        assert value("boolean", np.bool_(False), op) is False
        for literal in (1, 0, "true", 1.0):
            with pytest.raises(FilterError):
                bind(("boolean", op, literal))

    def test_binary(self):
        for literal in (b"x", bytearray(b"x"), memoryview(b"x"), np.bytes_(b"x"), pa.scalar(b"x")):
            assert value("binary", literal) == b"x"
            assert type(value("binary", literal)) is bytes
        with pytest.raises(FilterError):
            bind(("binary", "=", "x"))


class TestDates:
    @pytest.mark.parametrize(
        "literal",
        [
            date(2024, 1, 5),
            datetime(2024, 1, 5),
            datetime(2024, 1, 5, tzinfo=UTC),
            "2024-01-05",
            " 2024-1-5 ",
            "2024-01-05 00:00:00",
            "2024-01-05T00:00:00.000Z",
            pd.Timestamp("2024-01-05"),
            np.datetime64("2024-01-05"),
            np.datetime64("2024-01-05T00:00:00", "ns"),
            pa.scalar(date(2024, 1, 5)),
        ],
        ids=repr,
    )
    def test_alternative_spellings_of_operators(self, literal):
        assert value("date", literal) == date(2024, 1, 5)
        assert type(value("date", literal)) is date

    @pytest.mark.parametrize(
        "literal",
        [
            datetime(2024, 1, 5, 1),
            "2024-01-05 00:00:01",
            "2024-01-05 00:00:00.0000001",
            np.datetime64("2024-01-05T01"),
            np.datetime64("2024-01-05T00:00:00.000000001"),
            pd.Timestamp("2024-01-05 00:00:00.000000001"),
        ],
        ids=repr,
    )
    def test_a_time_of_day_raises(self, literal):
        with pytest.raises(FilterError, match=r"'date' is date: .* has a time of day"):
            bind(("date", "=", literal))

    @pytest.mark.parametrize(
        "literal",
        ["x", "", 5, 5.0, True, "10000-01-01", "-0001-01-01", pd.NaT, np.datetime64("NaT", "s"), pd.NA],
        ids=repr,
    )
    def test_other_literals_than_dates_raise(self, literal):
        for name in ("date", "timestamp", "timestamp_ntz"):
            with pytest.raises(FilterError, match=f"^filters: '{name}' "):
                bind((name, "=", literal))

    def test_an_impossible_date_is_named_with_the_form_of_dates(self):
        with pytest.raises(FilterError, match=r"'date' is date: '2024-13-01' is not a date \(YYYY-MM-DD\): month"):
            bind(("date", "=", "2024-13-01"))


@pytest.mark.parametrize(
    "literal",
    [
        np.datetime64(2**62, "s"),
        np.datetime64("300000-01-01"),
        np.datetime64(2**40, "Y"),
        np.datetime64(2**62, "1000s"),
        np.datetime64(-(2**62), "400ns"),
    ],
    ids=lambda literal: str(literal.dtype),
)
def test_numpy_times_beyond_microseconds_raise(literal):
    for name in ("date", "timestamp", "timestamp_ntz"):
        with pytest.raises(FilterError, match=f"'{name}'"):
            bind((name, ">", literal))


@pytest.mark.parametrize("unit", ["ns", "ps", "1000ps", "fs", "as", "3as"])
def test_numpy_times_of_fine_units(unit):
    for name in ("timestamp", "timestamp_ntz"):
        for ticks in (0, -1, 1, 2**63 - 1, -(2**63) + 1):
            literal = np.datetime64(ticks, unit)
            above, least = bind((name, ">", literal)), bind((name, ">=", literal))
            assert least.value - above.value == (ticks != 0)
    assert bind(("timestamp", ">", np.datetime64(-1, unit))).value == -1
    assert bind(("timestamp", "<", np.datetime64(-1, unit))).value == 0


@pytest.mark.parametrize("unit", ["Y", "M", "25M", "W", "D", "h", "15m", "s", "ms", "us", "1000ns"])
def test_numpy_times_of_other_units(unit):
    for ticks in (-7, -1, 0, 1, 5, 13, 300):
        literal = np.datetime64(ticks, unit)
        micros = int(literal.astype("datetime64[us]").astype("int64"))
        assert value("timestamp", literal) == value("timestamp", np.array(literal)) == micros


def test_numpy_literals_keep_their_nulls():
    for text in ("a\0", "\0", "a\0\0"):
        assert value("string", np.str_(text)) == text
        assert value("string", np.array(text, object)) == text
        assert bind(("string", "in", np.array([text], object))).values == (text,)
        assert value("binary", np.bytes_(text.encode())) == text.encode()
        assert value("binary", pa.scalar(text.encode())) == text.encode()
        assert value("string", pa.scalar(text)) == text


def test_integers_beyond_64_signed_bits():
    assert bind(("long", "=", np.uint64(2**64 - 1))) == In(column("long"), ())
    assert value("long", np.uint64(2**63 - 1)) == 2**63 - 1


def test_durations_are_no_numbers():
    for name in ("long", "double", "string", "timestamp"):
        with pytest.raises(FilterError, match=f"'{name}'"):
            bind((name, "=", np.timedelta64(5, "ns")))


NOON = (datetime(2024, 1, 5, 12, tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


class TestTimes:
    @pytest.mark.parametrize(
        "literal",
        [
            datetime(2024, 1, 5, 12),
            datetime(2024, 1, 5, 12, tzinfo=UTC),
            datetime(2024, 1, 5, 13, tzinfo=timezone(timedelta(hours=1))),
            "2024-01-05 12:00:00",
            "2024-01-05T12:00:00Z",
            "2024-01-05T13:00:00+01:00",
            "2024-01-05T12:00:00.000000000Z",
            pd.Timestamp("2024-01-05 12:00"),
            pd.Timestamp("2024-01-05 13:00", tz="Europe/Berlin"),
            np.datetime64("2024-01-05T12"),
            np.datetime64("2024-01-05T12:00:00.000", "ns"),
            pa.scalar(datetime(2024, 1, 5, 12)),
            pa.scalar(datetime(2024, 1, 5, 12), pa.timestamp("ns", tz="UTC")),
        ],
        ids=repr,
    )
    def test_instants(self, literal):
        assert value("timestamp", literal) == NOON

    @pytest.mark.parametrize(
        "literal",
        [
            datetime(2024, 1, 5, 12, tzinfo=timezone(timedelta(hours=5))),
            datetime(2024, 1, 5, 12, tzinfo=UTC),
            "2024-01-05T12:00:00+05:00",
            "2024-01-05 12:00:00 +0530",
            "2024-01-05T12:00Z",
            "2024-01-05 12:00:00 UTC",
            pd.Timestamp("2024-01-05 12:00", tz="Asia/Tokyo"),
            pa.scalar(datetime(2024, 1, 5, 12), pa.timestamp("us", tz="Asia/Tokyo")),
            np.array([pd.Timestamp("2024-01-05 12:00", tz="Asia/Tokyo")]),
        ],
        ids=repr,
    )
    def test_wall_clock_times_have_no_zone(self, literal):
        for op, given in (
            ("=", literal),
            ("!=", literal),
            ("<", literal),
            ("in", [literal]),
            ("not in", [literal]),
        ):
            with pytest.raises(FilterError, match=r"'timestamp_ntz' is timestamp_ntz: .* without the zone"):
                bind(("timestamp_ntz", op, given))

    def test_wall_clock_times(self):
        for literal in (
            datetime(2024, 1, 5, 12),
            "2024-01-05T12:00:00",
            pd.Timestamp("2024-01-05 12:00"),
            np.datetime64("2024-01-05T12:00"),
        ):
            assert value("timestamp_ntz", literal) == NOON

    @pytest.mark.parametrize(
        "literal",
        [
            datetime(2024, 1, 5, tzinfo=timezone(timedelta(hours=3))),
            "2024-01-05T00:00:00+05:30",
            pd.Timestamp("2024-01-05", tz="Asia/Tokyo"),
        ],
        ids=repr,
    )
    def test_dates_have_no_offset(self, literal):
        with pytest.raises(
            FilterError, match=r"'date' is date: .* has an offset from UTC, .* write the date alone"
        ):
            bind(("date", ">=", literal))

    def test_a_date_is_its_midnight(self):
        assert value("timestamp", date(2024, 1, 5)) == NOON - 12 * 3_600_000_000
        assert value("timestamp", "2024-01-05") == NOON - 12 * 3_600_000_000

    @pytest.mark.parametrize(
        "literal",
        [
            datetime(1, 1, 1),
            datetime(9999, 12, 31, 23, 59, 59, 999_999),
            datetime(1600, 2, 29, 1, 2, 3, 4),
            datetime(1969, 12, 31, 23, 59, 59, 999_999),
            pd.Timestamp("9999-12-31 23:59:59"),
            pd.Timestamp("1600-01-01", tz="UTC"),
            np.datetime64("0001-01-01T00:00:00.000001"),
        ],
        ids=repr,
    )
    def test_far_years(self, literal):
        plain = pd.Timestamp(literal).to_pydatetime() if isinstance(literal, np.datetime64) else literal
        expected = plain.replace(tzinfo=UTC) - EPOCH
        if isinstance(expected, pd.Timedelta):
            expected = literal.to_pydatetime().replace(tzinfo=UTC) - EPOCH
        assert value("timestamp", literal) == expected // timedelta(microseconds=1)

    @pytest.mark.parametrize(
        "literal",
        [
            pd.Timestamp("2024-01-05 12:00:00.000000001"),
            pd.Timestamp("2024-01-05 12:00:00.000000999", tz="UTC"),
            np.datetime64("2024-01-05T12:00:00.000000500"),
            "2024-01-05T12:00:00.0000001Z",
            "2024-01-05 12:00:00.0000009",
            pa.scalar(NOON * 1000 + 1, pa.timestamp("ns")),
        ],
        ids=repr,
    )
    def test_between_two_microseconds(self, literal):
        zoned = getattr(literal, "tzinfo", None) or str(literal).endswith("Z")
        for name in ("timestamp",) if zoned else ("timestamp", "timestamp_ntz"):
            for op, expected in [("<", NOON + 1), ("<=", NOON), (">", NOON), (">=", NOON + 1)]:
                assert value(name, literal, op) == expected
            assert bind((name, "=", literal)) == never(name)
            assert bind((name, "!=", literal)) == always(name)

    def test_between_two_microseconds_before_the_epoch(self):
        for literal in (np.datetime64(-1, "ns"), pd.Timestamp(-1), "1969-12-31 23:59:59.999999999"):
            assert value("timestamp", literal, "<=") == -1
            assert value("timestamp", literal, "<") == 0


@pytest.mark.parametrize("name", ["list", "map", "struct", "odd", "void"])
@pytest.mark.parametrize(("op", "literal"), [("=", 5), (">", "x"), ("in", [5])])
def test_types_that_cannot_be_compared(name, op, literal):
    with pytest.raises(FilterError, match=f"'{name}' is "):
        bind((name, op, literal))
