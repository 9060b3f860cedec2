"""The text of a partition value to a value of the column's type."""

import contextlib
import math
import struct
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal, localcontext

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.partition_values import (
    INTEGER_BITS,
    fit_decimal,
    parse_date,
    parse_partition_value,
    parse_timestamp,
)
from delta_sharing_client.model.schema import (
    PRIMITIVES,
    ArrayType,
    DecimalType,
    MapType,
    PrimitiveType,
    StructType,
    UnknownType,
)

EPOCH = datetime(1970, 1, 1)


def parse(text, kind):
    return parse_partition_value(text, PrimitiveType(kind) if isinstance(kind, str) else kind)


def micros(*args):
    return (datetime(*args) - EPOCH) // timedelta(microseconds=1)


class TestNull:
    @pytest.mark.parametrize("text", [None, "", "__HIVE_DEFAULT_PARTITION__"])
    @pytest.mark.parametrize("kind", [*sorted(PRIMITIVES), DecimalType(10, 2)], ids=str)
    def test_null(self, text, kind):
        assert parse(text, kind) is None

    def test_blanks_are_not_null(self):
        assert parse(" ", "string") == " "
        assert parse("null", "string") == "null"

    def test_void_is_always_null(self):
        assert parse("x", "void") is None


class TestIntegers:
    @pytest.mark.parametrize(("kind", "bits"), INTEGER_BITS.items())
    def test_range(self, kind, bits):
        limit = 2 ** (bits - 1)
        assert parse(str(limit - 1), kind) == limit - 1
        assert parse(str(-limit), kind) == -limit
        for value in (limit, -limit - 1):
            with pytest.raises(ValueError, match=f"out of range for the type {kind}"):
                parse(str(value), kind)

    @pytest.mark.parametrize(("text", "value"), [("+5", 5), (" 5 ", 5), ("-0", 0), ("007", 7)])
    def test_spellings(self, text, value):
        assert parse(text, "long") == value

    @pytest.mark.parametrize("text", ["x", "1.0", "1e3", "0x10", "1_000", "١٢", "--1", "1 2", "9" * 5000])
    def test_malformed_text_raises(self, text):
        with pytest.raises(ValueError):
            parse(text, "long")

    @given(st.sampled_from(sorted(INTEGER_BITS)), st.data())
    @settings(max_examples=examples(60), deadline=None)
    def test_round_trip(self, kind, data):
        limit = 2 ** (INTEGER_BITS[kind] - 1)
        value = data.draw(st.integers(-limit, limit - 1))
        assert parse(str(value), kind) == value


class TestFloats:
    @pytest.mark.parametrize("kind", ["float", "double"])
    def test_spellings(self, kind):
        for text, value in [
            ("1.5", 1.5),
            ("-0.25", -0.25),
            ("1E3", 1000.0),
            ("1.0E-3", 0.001 if kind == "double" else struct.unpack("f", struct.pack("f", 0.001))[0]),
            ("7", 7.0),
            (".5", 0.5),
            ("Infinity", math.inf),
            ("-Infinity", -math.inf),
            ("inf", math.inf),
        ]:
            assert parse(text, kind) == value
        for text in ("NaN", "nan"):
            assert math.isnan(parse(text, kind))
        assert math.copysign(1, parse("-0.0", kind)) == -1

    @pytest.mark.parametrize("text", ["x", "1,5", "0x1p3", "1_0.0", "1e", "١٢", "nano", "--1"])
    def test_malformed_text_raises(self, text):
        for kind in ("float", "double"):
            with pytest.raises(ValueError):
                parse(text, kind)

    def test_a_float_is_the_nearest_value_of_32_bits(self):
        """The value in the column, and so the value in comparisons."""
        value = parse("0.1", "float")
        assert value == struct.unpack("f", struct.pack("f", 0.1))[0]
        assert value != 0.1
        assert parse("1e39", "float") == math.inf
        assert parse("-1e39", "float") == -math.inf
        assert parse("1e-60", "float") == 0
        assert parse("1e309", "double") == math.inf

    @given(st.floats())
    @settings(max_examples=examples(60), deadline=None)
    def test_round_trip_of_doubles(self, value):
        for text in (repr(value), repr(value).upper().replace("INF", "Infinity").replace("NAN", "NaN")):
            again = parse(text, "double")
            assert again == value or (math.isnan(again) and math.isnan(value))

    @given(st.floats(width=32))
    @settings(max_examples=examples(60), deadline=None)
    def test_round_trip_of_floats(self, value):
        again = parse(f"{value:.9g}", "float")
        assert again == value or (math.isnan(again) and math.isnan(value))


class TestDecimals:
    @pytest.mark.parametrize(
        ("text", "kind", "value"),
        [
            ("1.5", DecimalType(10, 2), "1.50"),
            ("1.50000", DecimalType(10, 2), "1.50"),
            ("-0.01", DecimalType(3, 2), "-0.01"),
            ("1E+2", DecimalType(5, 0), "100"),
            ("1.2E-1", DecimalType(5, 2), "0.12"),
            ("0", DecimalType(1, 1), "0.0"),
            ("0E-300", DecimalType(5, 2), "0.00"),
            ("0E+300", DecimalType(5, 2), "0.00"),
            ("9" * 38, DecimalType(38, 0), "9" * 38),
            ("0." + "9" * 38, DecimalType(38, 38), "0." + "9" * 38),
            ("1" + "0" * 120 + "E-120", DecimalType(38, 5), "1.00000"),
            (" 5 ", DecimalType(5, 0), "5"),
        ],
    )
    def test_examples(self, text, kind, value):
        parsed = parse(text, kind)
        assert parsed == Decimal(value)
        assert parsed.as_tuple().exponent == -kind.scale

    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("100", DecimalType(2, 0)),
            ("0.001", DecimalType(5, 2)),
            ("1E300", DecimalType(38, 0)),
            ("1E-300", DecimalType(38, 38)),
            ("1E999999999", DecimalType(38, 0)),
            ("1E-999999999", DecimalType(38, 0)),
            ("NaN", DecimalType(5, 2)),
            ("sNaN", DecimalType(5, 2)),
            ("Infinity", DecimalType(5, 2)),
            ("x", DecimalType(5, 2)),
            ("1_0", DecimalType(5, 2)),
            ("1,5", DecimalType(5, 2)),
        ],
    )
    def test_decimals_that_do_not_fit_raise(self, text, kind):
        with pytest.raises(ValueError):
            parse(text, kind)

    @given(st.data())
    @settings(max_examples=examples(100), deadline=None)
    def test_round_trip(self, data):
        precision = data.draw(st.integers(1, 38))
        kind = DecimalType(precision, data.draw(st.integers(0, precision)))
        unscaled = data.draw(st.integers(-(10**precision) + 1, 10**precision - 1))
        value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -kind.scale))
        with localcontext(prec=3):
            for text in (str(value), format(value, "f")):
                assert parse(text, kind) == value
            assert fit_decimal(value, kind) == value


class TestBooleansStringsBinary:
    @pytest.mark.parametrize("text", ["true", "True", "TRUE", " true "])
    def test_true(self, text):
        assert parse(text, "boolean") is True

    @pytest.mark.parametrize("text", ["false", "False", "FALSE"])
    def test_false(self, text):
        assert parse(text, "boolean") is False

    @pytest.mark.parametrize("text", ["yes", "1", "0", "t", "truee"])
    def test_malformed_booleans_raise(self, text):
        with pytest.raises(ValueError, match="is not a boolean"):
            parse(text, "boolean")

    @given(st.text(min_size=1).filter(lambda s: s != "__HIVE_DEFAULT_PARTITION__"))
    @settings(max_examples=examples(60), deadline=None)
    def test_strings_are_unchanged(self, text):
        assert parse(text, "string") == text

    def test_binary_is_the_utf_8_of_the_text(self):
        assert parse("\u0001\u0002ü", "binary") == b"\x01\x02\xc3\xbc"

    def test_a_lone_surrogate_raises(self):
        with pytest.raises(ValueError):
            parse("\ud800", "binary")
        with pytest.raises(ValueError):
            parse("a\ud800", "string")


class TestDates:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("2024-02-29", date(2024, 2, 29)),
            ("0001-01-01", date(1, 1, 1)),
            ("9999-12-31", date(9999, 12, 31)),
            ("2024-1-5", date(2024, 1, 5)),
            ("+2024-01-05", date(2024, 1, 5)),
            (" 2024-01-05 ", date(2024, 1, 5)),
            ("2024-01-05 00:00:00", date(2024, 1, 5)),
            ("2024-01-05T00:00:00.000Z", date(2024, 1, 5)),
        ],
    )
    def test_spellings(self, text, value):
        assert parse(text, "date") == value
        assert type(parse(text, "date")) is date

    @pytest.mark.parametrize(
        "text",
        [
            "-0001-01-01",
            "-2024-01-01",
            "0000-01-01",
            "10000-01-01",
            "+12345-01-01",
            "9" * 30 + "-01-01",
            "2023-02-29",
            "2024-13-01",
            "2024-00-01",
            "24-01-01",
            "20240101",
            "2024/01/01",
            "x",
            "٢٠٢٤-01-01",
        ],
    )
    def test_malformed_dates_raise(self, text):
        with pytest.raises(ValueError) as caught:
            parse(text, "date")
        assert not isinstance(caught.value, OverflowError)
        assert str(caught.value)

    def test_years_out_of_range_are_named(self):
        for text in ("-0001-01-01", "10000-01-01", "+12345-01-01"):
            for kind in ("date", "timestamp"):
                with pytest.raises(ValueError, match=r"years 1 to 9999"):
                    parse(text, kind)

    @given(st.dates())
    @settings(max_examples=examples(60), deadline=None)
    def test_round_trip(self, value):
        assert parse_date(value.isoformat()) == value


class TestTimestamps:
    @pytest.mark.parametrize(
        ("text", "value"),
        [
            ("1970-01-01 00:00:00", 0),
            ("1970-01-01", 0),
            ("1970-01-01T00:00:00Z", 0),
            ("1970-01-01t00:00:00z", 0),
            ("1970-01-01 00:00", 0),
            ("1970-01-01 00:00:00.000001", 1),
            ("1970-01-01 00:00:00,5", 500_000),
            ("1970-01-01 00:00:00.1", 100_000),
            ("1970-01-01 00:00:00.123456789", 123_456),
            ("1969-12-31 23:59:59.9999999", -1),
            ("1970-01-01 01:00:00+01:00", 0),
            ("1970-01-01 01:00:00+01", 0),
            ("1970-01-01 05:30:00+0530", 0),
            ("1969-12-31 18:30:00-05:30", 0),
            ("1970-01-01T00:00:00 UTC", 0),
            ("1970-01-01T00:00:00GMT", 0),
            ("2024-01-01 12:34:56", micros(2024, 1, 1, 12, 34, 56)),
            ("2021-04-28T16:33:48.719-07:00", micros(2021, 4, 28, 23, 33, 48, 719_000)),
            ("0001-01-01 00:00:00", micros(1, 1, 1)),
            ("9999-12-31 23:59:59.999999", micros(9999, 12, 31, 23, 59, 59, 999_999)),
            ("9999-12-31 23:59:59-18:00", micros(9999, 12, 31, 23, 59, 59) + 18 * 3_600_000_000),
        ],
    )
    def test_spellings(self, text, value):
        assert parse(text, "timestamp") == value

    def test_wall_clock_times_ignore_zones(self):
        for zone in ("", "Z", "+05:30", " UTC"):
            assert parse(f"2024-01-01 12:00:00{zone}", "timestamp_ntz") == micros(2024, 1, 1, 12)

    @pytest.mark.parametrize(
        "text",
        [
            "2024-01-01 24:00:00",
            "2024-01-01 00:60:00",
            "2024-01-01 00:00:60",
            "2024-01-01 12",
            "2024-01-01 00:00:00 Europe/Berlin",
            "2024-01-01 00:00:00+24:00",
            "2024-01-01 00:00:00+99",
            "2024-01-01 00:00:00.",
            "2023-02-29 00:00:00",
            "-0044-03-15 00:00:00",
            "10000-01-01 00:00:00",
            "9" * 30 + "-01-01 00:00:00",
            "1700000000",
            "x",
        ],
    )
    def test_malformed_timestamps_raise(self, text):
        for kind in ("timestamp", "timestamp_ntz"):
            with pytest.raises(ValueError):
                parse(text, kind)

    @given(
        st.datetimes(),
        st.integers(-18 * 60, 18 * 60).map(lambda m: timezone(timedelta(minutes=m))),
        st.sampled_from(["T", " ", "t"]),
    )
    @example(datetime(1, 1, 1), timezone(timedelta(hours=18)), "T")
    @settings(max_examples=examples(100), deadline=None)
    def test_round_trip(self, value, zone, separator):
        plain = (value - EPOCH) // timedelta(microseconds=1)
        assert parse_timestamp(value.isoformat(separator)) == plain
        assert parse_timestamp(value.isoformat(separator) + "Z") == plain
        aware = value.replace(tzinfo=zone)
        instant = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
        assert parse_timestamp(aware.isoformat(separator)) == instant
        assert parse_timestamp(aware.isoformat(separator), wall_clock=True) == plain


@pytest.mark.parametrize(
    "kind",
    [
        ArrayType(PrimitiveType("long")),
        MapType(PrimitiveType("long"), PrimitiveType("long")),
        StructType(()),
        UnknownType("variant", "c"),
    ],
    ids=str,
)
def test_types_that_cannot_partition(kind):
    with pytest.raises(UnsupportedTypeError, match="cannot partition"):
        parse("x", kind)


@given(
    st.text(), st.sampled_from([*map(PrimitiveType, sorted(PRIMITIVES)), DecimalType(5, 2), DecimalType(38, 10)])
)
@settings(max_examples=examples(300), deadline=None)
def test_any_text_is_a_value_or_a_value_error(text, kind):
    with contextlib.suppress(ValueError):
        parse_partition_value(text, kind)
