"""Per-file statistics are read as bounds, and never as more than that."""

import json
import math
from datetime import date, datetime, timedelta
from decimal import Decimal

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.expressions.binding import bind_filters
from delta_sharing_client.expressions.column_bounds import ColumnBounds, outcomes
from delta_sharing_client.expressions.record_counts import num_records, record_counts
from delta_sharing_client.expressions.statistics import parse_stats
from delta_sharing_client.model.partition_values import to_float32
from delta_sharing_client.model.schema import (
    PRIMITIVES,
    ArrayType,
    DecimalType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
)


def holds(known, value):
    """Whether a value lies between the bounds that are known."""
    if known is None:
        return True
    return (known.lower is None or known.lower <= value) and (known.upper is None or value <= known.upper)


def cuts(value):
    """Bounds that writers write for a string: truncated at 32 UTF-16 units or at 32 bytes."""
    yield value
    units = value.encode("utf-16-le")
    if len(units) > 64:
        half = units[:64].decode("utf-16-le", "surrogatepass")
        for cut in (half, half.encode("utf-8", "replace").decode()):
            yield cut
            yield cut + "\ufffd"
    if len(value.encode()) > 32:
        yield value.encode()[:32].decode(errors="replace")


def bounds(kind, lower=None, upper=None, nulls=None, records=10, *, name="c", **more):
    """The bounds of one column in statistics."""
    item = {"numRecords": records, "minValues": {}, "maxValues": {}, "nullCount": {}} | more
    for key, value in (("minValues", lower), ("maxValues", upper), ("nullCount", nulls)):
        if value is not None:
            item[key] = {name: value}
    data_type = PrimitiveType(kind) if isinstance(kind, str) else kind
    return parse_stats(json.dumps(item)).bounds(name, data_type)


class TestParse:
    def test_example_of_the_protocol(self):
        stats = parse_stats(
            '{"numRecords":1,"minValues":{"eventTime":"2021-04-28T23:33:48.719Z"},'
            '"maxValues":{"eventTime":"2021-04-28T23:33:48.719Z"},"nullCount":{"eventTime":0}}'
        )
        assert stats.num_records == 1
        known = stats.bounds("eventTime", PrimitiveType("timestamp"))
        assert (known.lower, known.upper) == (1619652828719000, 1619652828720000)
        assert not known.has_null

    @pytest.mark.parametrize("text", [None, "", "nonsense", "[]", "1", "null", '"x"', "{", "[" * 100_000])
    def test_malformed_statistics_are_ignored(self, text):
        assert parse_stats(text) is None

    @pytest.mark.parametrize("count", [None, -1, 1.5, "1", True, [], {}, 2**63])
    def test_an_invalid_row_count_is_ignored(self, count):
        assert parse_stats(json.dumps({"numRecords": count})).num_records is None

    def test_parts_of_the_wrong_kind(self):
        stats = parse_stats('{"numRecords":3,"minValues":[1],"maxValues":"x","nullCount":null}')
        assert stats.num_records == 3
        assert stats.bounds("c", PrimitiveType("long")) is None


def encoded(text):
    """A text as a JSON string of a line."""
    return msgspec.Raw(json.dumps(text).encode())


class TestNumRecords:
    @pytest.mark.parametrize(
        ("text", "count"),
        [
            ('{"numRecords":5}', 5),
            (' { "numRecords" : 5 , "minValues":{}}', 5),
            ('{"minValues":{"numRecords":7},"numRecords":5}', 5),
            ('{"minValues":{"x":1.5},"numRecords":123456789012}', 123456789012),
            ('{"numRecords":0}', 0),
            ('{"numRecords":"5"}', None),
            ('{"numRecords":5.5}', None),
            ('{"numRecords":-5}', None),
            ('{"numRecords":null}', None),
            ('{"numRecords":true}', None),
            ('{"minValues":{"numRecords":5}}', None),
            ('{"minValues":{"a":1},"numRecords":5', None),
            ("[5]", None),
            ("nonsense", None),
            (f'{{"numRecords":{2**63 - 1}}}', 2**63 - 1),
            (f'{{"numRecords":{2**63}}}', None),
            (f'{{"numRecords":{10**30}}}', None),
            ("", None),
            (None, None),
        ],
    )
    def test_examples(self, text, count):
        assert num_records(text) == count
        assert record_counts([encoded(text)]) == [count]
        assert record_counts([encoded('{"numRecords":1}'), encoded(text)]) == [1, count]
        assert record_counts(['{"numRecords":1}', text]) == [1, count]

    @given(
        st.dictionaries(
            st.sampled_from(["numRecords", "minValues", "maxValues", "nullCount", "tightBounds"]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.integers(-5, 2**63)
                | st.floats(allow_nan=False)
                | st.text(max_size=3),
                lambda inner: st.dictionaries(st.sampled_from(["numRecords", "a"]), inner, max_size=2),
                max_leaves=4,
            ),
        ),
        st.booleans(),
        st.booleans(),
    )
    @settings(max_examples=examples(200), deadline=None)
    def test_the_count_equals_that_of_the_decoded_statistics(self, item, spaced, counted):
        """Wherever the count is in the text."""
        first = {"numRecords": 3} | item if counted else item
        text = json.dumps(first, indent=1 if spaced else None, separators=None if spaced else (",", ":"))
        assert num_records(text) == parse_stats(text).num_records
        assert record_counts([encoded(text)] * 2) == [num_records(text)] * 2
        assert record_counts([text] * 2) == [num_records(text)] * 2

    def test_other_json_values_than_strings_raise(self):
        for bad in (b"5", b"{}", b'{"numRecords":5}', b"true", b'"\\ud800"', b'"\xff"'):
            with pytest.raises((msgspec.DecodeError, UnicodeError)):
                record_counts([encoded('{"numRecords":1}'), msgspec.Raw(bad)])
        # What follows the count is not looked at.
        assert record_counts([msgspec.Raw(b'"{\\"numRecords\\":5,\xff"')]) == [5]


class TestNullCount:
    def test_unknown_bounds_allow_every_outcome(self):
        assert bounds("long") is None
        assert bounds("long", records=None) is None

    @pytest.mark.parametrize("tight", [True, False])
    def test_null_counts_of_none_and_all_are_reliable_with_loose_bounds(self, tight):
        assert not bounds("long", 1, 5, 0, tightBounds=tight).has_null
        only = bounds("long", None, None, 10, tightBounds=tight)
        assert (only.has_null, only.has_value) == (True, False)

    @pytest.mark.parametrize("tight", [True, False])
    @pytest.mark.parametrize("nulls", [1, 9])
    def test_null_counts_between_none_and_all(self, nulls, tight):
        some = bounds("long", 1, 5, nulls, tightBounds=tight)
        assert (some.has_null, some.has_value) == (True, True)
        assert (some.lower, some.upper) == (1, 5)

    @pytest.mark.parametrize("nulls", [None, -1, 11, 1.5, "0", False, [0], {"x": 0}])
    def test_impossible_counts_are_ignored(self, nulls):
        known = bounds("long", 1, 5, nulls)
        assert known.has_null
        assert known.has_value

    def test_null_count_without_a_row_count(self):
        assert bounds("long", None, None, 10, records=None).has_value

    def test_no_rows_at_all(self):
        assert bounds("long", None, None, 0, records=0) is not None


class TestBounds:
    @pytest.mark.parametrize(
        ("kind", "lower", "upper", "expected"),
        [
            ("long", 1, 5, (1, 5)),
            ("long", -(10**15) + 1, 10**15 - 1, (-(10**15) + 1, 10**15 - 1)),
            ("integer", "1", "5", (1, 5)),
            ("byte", 1.0, 5.0, (1, 5)),
            ("string", "a", "b", ("a", "b")),
            ("string", "", "ü", ("", "ü")),
            ("date", "2024-01-01", "2024-02-01", (date(2024, 1, 1), date(2024, 2, 1))),
            (DecimalType(5, 2), 1.5, 2, (Decimal("1.5"), Decimal(2))),
            (DecimalType(5, 2), "1.5", "2.00", (Decimal("1.5"), Decimal(2))),
        ],
        ids=str,
    )
    def test_examples(self, kind, lower, upper, expected):
        known = bounds(kind, lower, upper, 0)
        assert (known.lower, known.upper) == expected

    @pytest.mark.parametrize(
        ("kind", "value"),
        [
            ("long", None),
            ("long", True),
            ("long", "x"),
            ("long", [1]),
            ("long", {"a": 1}),
            ("long", math.nan),
            ("long", math.inf),
            ("long", 1.5),
            ("double", "x"),
            ("double", math.nan),
            ("double", "NaN"),
            ("double", True),
            ("string", 5),
            ("date", 5),
            ("date", "x"),
            ("date", "99999-01-01"),
            ("date", "-0044-03-15"),
            ("timestamp", 5),
            ("timestamp", "x"),
            ("timestamp", "9" * 30 + "-01-01T00:00:00Z"),
            ("boolean", True),
            ("boolean", "true"),
            ("binary", "x"),
            ("void", "x"),
            ("timestamp", "2024-01-01"),
            ("double", math.inf),
            ("double", "-Infinity"),
            ("long", 2**63),
            ("byte", 128),
            ("string", 5.5),
            (DecimalType(5, 2), 12345),
            (DecimalType(5, 2), True),
            (DecimalType(5, 2), "x"),
            (DecimalType(5, 2), "NaN"),
            (DecimalType(5, 2), math.nan),
            (DecimalType(5, 2), math.inf),
            (ArrayType(PrimitiveType("long")), 5),
            (StructType((StructField("x", PrimitiveType("long")),)), {"x": 5}),
            (UnknownType("variant", "c"), 5),
        ],
        ids=str,
    )
    def test_unreliable_values_are_ignored(self, kind, value):
        known = bounds(kind, value, value, 3)
        assert (known.lower, known.upper) == (None, None)
        assert (known.has_null, known.has_value) == (True, True)

    @pytest.mark.parametrize("kind", [*sorted(PRIMITIVES), DecimalType(10, 2)], ids=str)
    @given(value=st.recursive(st.none() | st.booleans() | st.integers() | st.floats() | st.text(), st.lists))
    @settings(max_examples=examples(20), deadline=None)
    def test_any_bound_is_read_without_an_error(self, kind, value):
        bounds(kind, value, value, value, value if isinstance(value, int) else 3)

    def test_bounds_of_floats_allow_nan(self):
        for kind in ("float", "double"):
            assert bounds(kind, 1, 2, 0).may_be_nan
        assert not bounds("long", 1, 2, 0).may_be_nan

    @given(st.floats(width=32, allow_nan=False))
    @settings(max_examples=examples(60), deadline=None)
    def test_bounds_of_floats_in_any_notation_contain_the_value(self, value):
        """Spark writes a float's shortest digits, which are not its value."""
        for text in (f"{value:.9g}", repr(value), str(value)):
            if math.isinf(value):
                text = "Infinity" if value > 0 else "-Infinity"
            assert holds(bounds("float", text, text, 0), value)

    @given(st.floats(allow_nan=False))
    @settings(max_examples=examples(100), deadline=None)
    def test_bounds_of_doubles_rounded_to_floats_contain_the_value(self, value):
        """However the float is written; one that is too large becomes infinite, or the greatest there is."""
        single = to_float32(value)
        most = math.copysign(3.4028234663852886e38, value)
        for bound in (value, single, float(f"{single:.9g}"), single if math.isfinite(single) else most):
            assert holds(bounds("double", bound, bound, 0), value)

    def test_bounds_of_floats_are_a_step_of_32_bits_wide_at_the_most(self):
        for kind in ("float", "double"):
            known = bounds(kind, 1.0, 2.5, 0)
            assert 1.0 - 2**-22 < known.lower <= 1.0
            assert 2.5 <= known.upper < 2.5 + 2**-21
            known = bounds(kind, -0.0, 0.0, 0)
            assert -1e-44 < known.lower < 0.0 < known.upper < 1e-44
        assert bounds("double", 1e300, 2e300, 0) == ColumnBounds(1e300, 2e300, has_null=False, may_be_nan=True)

    @given(st.integers(-(10**38) + 1, 10**38 - 1), st.integers(0, 38))
    @settings(max_examples=examples(60), deadline=None)
    def test_bounds_of_decimals_rounded_to_doubles_contain_the_value(self, unscaled, scale):
        """Some writers turn decimals into doubles, which have 15 digits or so."""
        value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
        for text in (str(value), repr(float(value)), repr(unscaled / 10**scale)):
            stats = parse_stats(f'{{"numRecords":1,"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}}}}')
            assert holds(stats.bounds("c", DecimalType(38, scale)), value)

    def test_short_decimals_are_exact(self):
        known = bounds(DecimalType(15, 2), 0.1, 1234567890123.45, 0)
        assert (known.lower, known.upper) == (Decimal("0.1"), Decimal("1234567890123.45"))

    @given(st.integers(-(10**18), 10**17))
    @settings(max_examples=examples(60), deadline=None)
    def test_times_are_cut_to_milliseconds_downward_or_towards_the_epoch(self, micros):
        for cut in (micros // 1000, -(-micros // 1000) if micros < 0 else micros // 1000):
            try:
                text = (datetime(1970, 1, 1) + timedelta(milliseconds=cut)).isoformat(timespec="milliseconds")
            except OverflowError:
                continue
            assert holds(bounds("timestamp", text + "Z", text + "Z", 0), micros)
            assert holds(bounds("timestamp_ntz", text, text, 0), micros)

    def test_bounds_of_times_are_widened_by_a_millisecond(self):
        for kind in ("timestamp", "timestamp_ntz"):
            known = bounds(kind, "1970-01-01T00:00:00.001Z", "1970-01-01T00:00:00.002Z", 0)
            assert known.lower == 1000
            assert 2999 <= known.upper <= 3000
        known = bounds("timestamp", "1969-12-31T23:59:59.998Z", "1969-12-31T23:59:59.998Z", 0)
        assert -3000 <= known.lower <= -2000
        assert -1001 <= known.upper <= -1000

    @pytest.mark.parametrize(
        "text",
        [
            "0001-01-01T00:00:00.000Z",
            "9999-12-31T23:59:59.999Z",
            "9999-12-31T23:59:59Z",
            "2262-04-11T23:47:16.854Z",
            "1677-09-21T00:12:43.145Z",
        ],
    )
    def test_the_first_and_last_times_of_libraries_are_unknown_bounds(self, text):
        for kind in ("timestamp", "timestamp_ntz"):
            known = bounds(kind, text, text, 0)
            assert (known.lower, known.upper) == (None, None)

    def test_the_first_and_last_dates_are_unknown_bounds(self):
        known = bounds("date", "0001-01-01", "9999-12-31", 0)
        assert (known.lower, known.upper) == (None, None)

    def test_a_date_bounds_times_without_a_zone(self):
        """As where a column of dates was widened."""
        known = bounds("timestamp_ntz", "2024-01-01", "2024-01-02", 0)
        assert known.lower == 1_704_067_200_000_000
        assert 1_704_153_600_000_000 <= known.upper <= 1_704_153_600_001_000

    def test_times_with_an_offset(self):
        known = bounds("timestamp", "2021-04-28T16:33:48.719-07:00", None, 0)
        assert known.lower == 1619652828719000

    @given(
        st.text(
            st.sampled_from(list("ab?\u00e9\u4e00\ud7ff\ue000\ufffd\uffff\U0001f600\U0010ffff")),
            min_size=28,
            max_size=45,
        )
        | st.text(max_size=45)
    )
    @settings(max_examples=examples(300), deadline=None)
    def test_a_truncated_string_bounds_the_whole_string(self, value):
        for cut in cuts(value):
            assert holds(bounds("string", cut, cut, 0), value), cut

    def test_a_truncated_upper_bound_includes_all_strings_with_that_prefix(self):
        cut = "x" * 31 + "\u00fc"
        assert bounds("string", cut, cut, 0).upper > cut + "\U0010ffff" * 40

    def test_a_truncated_string_of_the_greatest_characters_has_no_bound(self):
        cut = "\U0010ffff" * 32
        assert bounds("string", cut, cut, 0).upper is None

    def test_a_truncated_string_before_the_surrogates(self):
        cut = "a" * 31 + "\ud7ff"
        known = bounds("string", cut, cut, 0)
        assert known.upper > cut + "\U0010ffff"
        known.upper.encode()

    def test_a_short_string_is_whole(self):
        assert bounds("string", "DE", "DE", 0) == ColumnBounds("DE", "DE", has_null=False)

    def test_contradictory_bounds_are_ignored(self):
        for kind, lower, upper in (("long", 5, 1), ("string", "b", "a"), ("date", "2024-01-02", "2024-01-01")):
            known = bounds(kind, lower, upper, 0)
            assert (known.lower, known.upper) == (None, None)
            assert not known.has_null

    def test_names_with_special_characters(self):
        stats = parse_stats('{"numRecords":2,"minValues":{"a":{"b":1},"a.b":5},"maxValues":{"a":{"b":2},"a.b":6}}')
        known = stats.bounds("a.b", PrimitiveType("long"))
        assert (known.lower, known.upper) == (5, 6)
        assert stats.bounds("a", PrimitiveType("long")) is None
        assert stats.bounds("A.B", PrimitiveType("long")) is None


class TestSaturation:
    """Bounds at the limits of number types stand for everything beyond them."""

    @pytest.mark.parametrize("scale", [0, 2, 10])
    @pytest.mark.parametrize("limit", [2**63 - 1, 2**63, 2**64 - 1, 2**63 + 512, 2**63 - 1024])
    @pytest.mark.parametrize("sign", [1, -1])
    def test_decimals_at_a_limit_of_64_bits_are_unknown(self, scale, limit, sign):
        """As the unscaled number, as the number itself, and either by way of a double."""
        kind = DecimalType(38, scale)
        for number in (Decimal(sign * limit), Decimal(sign * limit).scaleb(-scale)):
            for text in (str(number), repr(float(number))):
                known = parse_stats(f'{{"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}}}}').bounds("c", kind)
                assert known is None, text

    @given(st.integers(-(2**63), 2**63 - 1))
    @settings(max_examples=examples(60), deadline=None)
    def test_bounds_of_integers_rounded_to_doubles_contain_the_value(self, value):
        for bound in (value, float(value), int(float(value))):
            assert holds(bounds("long", bound, bound, 0), value)

    def test_a_bound_beyond_the_type_is_none(self):
        for kind, bound in (("byte", 128), ("short", -(2**15) - 1), ("integer", 2**31), ("long", 2**63)):
            assert (bounds(kind, bound, bound, 0).lower, bounds(kind, bound, bound, 0).upper) == (None, None)


class TestHugeExponents:
    """No number is expanded before its exponent is looked at; but for that these tests would not end."""

    @pytest.mark.parametrize("kind", [*sorted(PRIMITIVES), DecimalType(10, 2), DecimalType(38, 18)], ids=str)
    @pytest.mark.parametrize(
        "text",
        ["1e999999999", "-1e999999999", "1e-999999999", "0e999999999", "1e99999999999999999999", '"1e999999999"'],
    )
    def test_bounds(self, kind, text):
        stats = parse_stats(
            f'{{"numRecords":{text},"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}},"nullCount":{{"c":{text}}}}}'
        )
        assert stats.num_records is None
        known = stats.bounds("c", PrimitiveType(kind) if isinstance(kind, str) else kind)
        column = StructField("c", PrimitiveType(kind) if isinstance(kind, str) else kind)
        if kind in ("long", "integer") or isinstance(kind, DecimalType):
            for op, value in (("=", 0), ("<", 5), (">=", 10**9)):
                outcomes(bind_filters([("c", op, value)], StructType((column,))), lambda _: known)

    @pytest.mark.parametrize("digits", [4000, 100_000])
    def test_many_digits(self, digits):
        for text in ("9" * digits, "0." + "9" * digits, "9" * digits + ".5"):
            stats = parse_stats(f'{{"minValues":{{"c":{text}}},"maxValues":{{"c":{text}}}}}')
            for kind in (PrimitiveType("long"), PrimitiveType("double"), DecimalType(38, 10)):
                if stats is not None:
                    stats.bounds("c", kind)
