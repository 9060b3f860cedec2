"""Every type comes out as the table's schema says, whatever of the same meaning the file holds."""

import datetime as dt
import math
from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_files import FILE_ID, array_of, column, map_of, micros, parquet, read, struct_of

from delta_sharing_client.errors import DataError, UnsupportedTypeError

EPOCH = datetime(1970, 1, 1)
UTC = pa.timestamp("us", tz="UTC")


def at(*args):
    return (datetime(*args) - EPOCH) // dt.timedelta(microseconds=1)


class TestSameType:
    @pytest.mark.parametrize(
        ("kind", "arrow", "values"),
        [
            ("byte", pa.int8(), [-128, 0, None, 127]),
            ("short", pa.int16(), [-(2**15), 0, None, 2**15 - 1]),
            ("integer", pa.int32(), [-(2**31), 0, None, 2**31 - 1]),
            ("long", pa.int64(), [-(2**63), 2**60 + 1, None, 2**63 - 1]),
            ("float", pa.float32(), [-1.5, 0.0, None, math.inf]),
            ("double", pa.float64(), [-1.5, 0.1, None, -math.inf, 5e-324]),
            ("boolean", pa.bool_(), [True, None, False]),
            ("string", pa.string(), ["", "a", None, "ünï 表 🦆", "\x00", "a\nb"]),
            ("char(3)", pa.string(), ["a  ", None]),
            ("varchar(3)", pa.string(), ["abc", None]),
            ("binary", pa.binary(), [b"", b"\x00\xff", None]),
            ("date", pa.date32(), [date(1, 1, 1), date(1969, 12, 31), None, date(9999, 12, 31)]),
            (
                "decimal(38,10)",
                pa.decimal128(38, 10),
                [Decimal("9" * 28 + "." + "9" * 10), None, Decimal("-1E-10")],
            ),
            ("decimal(5,0)", pa.decimal128(5, 0), [Decimal(99999), None]),
            ("decimal(5,5)", pa.decimal128(5, 5), [Decimal("0.99999"), None]),
        ],
        ids=str,
    )
    def test_exact(self, kind, arrow, values):
        got = column(pa.array(values, arrow), kind)
        assert got.type == arrow
        assert got.to_pylist() == values

    def test_nan(self):
        for kind, arrow in (("float", pa.float32()), ("double", pa.float64())):
            first, second = column(pa.array([math.nan, None], arrow), kind).to_pylist()
            assert math.isnan(first)
            assert second is None

    def test_void(self):
        got = column(pa.nulls(3), "void")
        assert got.type == pa.null()
        assert len(got) == 3

    def test_a_type_of_nothing_but_nulls_in_the_file(self):
        for kind in (
            "long",
            "string",
            "timestamp",
            "decimal(5,2)",
            array_of("long"),
            struct_of(x="date"),
            "boolean",
        ):
            got = column(pa.nulls(2), kind)
            assert got.null_count == 2
            assert not pa.types.is_null(got.type)

    def test_an_unknown_type_can_be_left_out_but_not_read(self):
        data = {"c": pa.array([1]), "odd": pa.array([2])}
        assert read(data, ("c", "long")).to_pydict() == {"c": [1]}
        with pytest.raises(UnsupportedTypeError, match="'odd' has the type 'hologram'") as caught:
            read(data, ("c", "long"), ("odd", "hologram"))
        assert caught.value.type_name == "hologram"
        with pytest.raises(UnsupportedTypeError):
            read(data, ("odd", array_of(struct_of(x="hologram"))))


class TestIntegers:
    @pytest.mark.parametrize("source", [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16()])
    @pytest.mark.parametrize("kind", ["byte", "short", "integer", "long"])
    def test_any_width_holds_small_values(self, source, kind):
        values = [0, 1, None, 127]
        got = column(pa.array(values, source), kind)
        assert got.to_pylist() == values
        assert (
            got.type == {"byte": pa.int8(), "short": pa.int16(), "integer": pa.int32(), "long": pa.int64()}[kind]
        )

    @pytest.mark.parametrize("source", [pa.int32(), pa.uint32(), pa.int64(), pa.uint64()])
    @pytest.mark.parametrize(
        ("kind", "value"), [("byte", 128), ("short", 2**15), ("integer", 2**31), ("byte", 2**31 - 1)]
    )
    def test_a_value_that_does_not_fit(self, source, kind, value):
        if source == pa.int32() and value >= 2**31:
            return
        with pytest.raises(DataError, match=rf"file {FILE_ID}: column 'c' is {kind} in the table"):
            column(pa.array([1, value], source), kind)

    def test_unsigned(self):
        assert column(pa.array([2**32 - 1], pa.uint32()), "long").to_pylist() == [2**32 - 1]
        assert column(pa.array([2**63 - 1], pa.uint64()), "long").to_pylist() == [2**63 - 1]
        with pytest.raises(DataError):
            column(pa.array([2**63], pa.uint64()), "long")


class TestFloats:
    def test_widened(self):
        assert column(pa.array([0.5, np.float32(0.1), None], pa.float32()), "double").to_pylist() == [
            0.5,
            float(np.float32(0.1)),
            None,
        ]
        for source in (pa.int8(), pa.int16(), pa.int32()):
            assert column(pa.array([-5, None, 7], source), "double").to_pylist() == [-5.0, None, 7.0]
        assert column(pa.array([2**31 - 1], pa.int32()), "double").to_pylist() == [2**31 - 1]

    def test_never_rounded(self):
        with pytest.raises(DataError):
            column(pa.array([2**53 + 1], pa.int64()), "double")
        with pytest.raises(DataError):
            column(pa.array([2**24 + 1], pa.int32()), "float")
        with pytest.raises(DataError, match="column 'c' is float in the table and double in the file"):
            column(pa.array([0.1], pa.float64()), "float")


class TestDecimals:
    @pytest.mark.parametrize(
        ("source", "values", "kind"),
        [
            (pa.decimal128(5, 2), ["1.25", "-999.99"], "decimal(10,2)"),
            (pa.decimal128(5, 2), ["1.25", "-999.99"], "decimal(10,4)"),
            (pa.decimal128(20, 2), ["1.25", None], "decimal(5,2)"),
            (pa.decimal128(20, 4), ["1.2500", "0.0100"], "decimal(5,2)"),
            (pa.decimal256(50, 2), ["1.25", None], "decimal(38,2)"),
            (pa.decimal128(38, 0), ["9" * 38], "decimal(38,0)"),
        ],
        ids=str,
    )
    def test_other_precision_and_scale(self, source, values, kind):
        exact = [None if v is None else Decimal(v) for v in values]
        got = column(pa.array(exact, source), kind)
        assert got.to_pylist() == exact
        assert str(got.type) == f"decimal128({kind[8:-1].replace(',', ', ')})"

    @pytest.mark.parametrize("source", [pa.int8(), pa.int32(), pa.int64(), pa.uint32()])
    def test_from_integers(self, source):
        assert column(pa.array([0, None, 100], source), "decimal(10,2)").to_pylist() == [
            Decimal("0.00"),
            None,
            Decimal("100.00"),
        ]

    def test_from_the_greatest_integers(self):
        assert column(pa.array([2**63 - 1, -(2**63)]), "decimal(38,0)").to_pylist() == [2**63 - 1, -(2**63)]

    @pytest.mark.parametrize(
        ("source", "value", "kind"),
        [
            (pa.decimal128(10, 2), Decimal("1000.00"), "decimal(5,2)"),
            (pa.decimal128(10, 4), Decimal("0.1234"), "decimal(10,2)"),
            (pa.int32(), 1000, "decimal(5,2)"),
            (pa.float64(), 1.5, "decimal(5,2)"),
            (pa.string(), "1.5", "decimal(5,2)"),
            (pa.decimal128(5, 0), Decimal(5), "long"),
            (pa.decimal128(5, 0), Decimal(5), "double"),
        ],
        ids=str,
    )
    def test_never_rounded_or_guessed(self, source, value, kind):
        with pytest.raises(DataError, match="column 'c' is"):
            column(pa.array([value], source), kind)

    @pytest.mark.parametrize("as_integer", [True, False])
    def test_stored_as_integers(self, as_integer):
        table = pa.table({"c": pa.array([Decimal("1.25"), None, Decimal("-0.01")], pa.decimal128(9, 2))})
        try:
            data = parquet(table, store_decimal_as_integer=as_integer)
        except TypeError:  # an older pyarrow has only the other way
            data = parquet(table)
        for kind in ("decimal(9,2)", "decimal(20,4)"):
            assert column_of(data, kind).to_pylist() == [Decimal("1.25"), None, Decimal("-0.01")]


class TestTexts:
    @pytest.mark.parametrize(
        "source",
        [
            pa.string(),
            pa.large_string(),
            pa.binary(),
            pa.large_binary(),
            pa.dictionary(pa.int32(), pa.string()),
            pa.dictionary(pa.int8(), pa.large_string()),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("kind", ["string", "binary"])
    def test_any_kind_of_text(self, source, kind):
        values = ["ä", None, "", "🦆", "ä"]
        plain = pa.array([None if v is None else v.encode() for v in values], pa.binary())
        if pa.types.is_dictionary(source):
            stored = plain.cast(pa.string()).cast(source.value_type).dictionary_encode().cast(source)
        else:
            stored = plain.cast(source)
        got = column(stored, kind)
        assert got.type == (pa.string() if kind == "string" else pa.binary())
        assert got.to_pylist() == (values if kind == "string" else plain.to_pylist())

    @pytest.mark.skipif(not hasattr(pa, "string_view"), reason="this pyarrow has no views")
    def test_views(self):
        for kind, source in (
            ("string", pa.string_view()),
            ("binary", pa.binary_view()),
            ("binary", pa.string_view()),
        ):
            values = ["a", None, "b" * 100]
            try:
                data = parquet({"c": pa.array(values, pa.string()).cast(source)})
            except pa.ArrowNotImplementedError:
                pytest.skip("this pyarrow cannot write views")
            expected = values if kind == "string" else [None if v is None else v.encode() for v in values]
            assert column_of(data, kind).to_pylist() == expected

    def test_text_without_its_annotation(self):
        data = parquet({"c": pa.array([b"\xc3\xa4", None])})
        assert column_of(data, "string").to_pylist() == ["ä", None]

    def test_bytes_that_are_no_text(self):
        with pytest.raises(DataError, match=r"column 'c' is string in the table and binary in the file.*UTF8"):
            column(pa.array([b"\xff\xfe"]), "string")

    @pytest.mark.parametrize("broken", [b"\xff", b"\xc3", b"\xed\xa0\x80", b"a\xf8bc"])
    def test_a_broken_text_that_is_annotated_as_text(self, broken):
        """Arrow does not look; what comes after it would fail in its own way, or worse."""
        texts = pa.array([b"ok", None, broken]).view(pa.string())
        nested = {
            "list": (pa.ListArray.from_arrays(pa.array([0, 3]), texts), array_of("string")),
            "struct": (pa.StructArray.from_arrays([texts], ["x"]), struct_of(x="string")),
            "map": (
                pa.MapArray.from_arrays(pa.array([0, 3]), pa.array(["a", "b", "c"]), texts),
                map_of("string", "string"),
            ),
        }
        for stored, kind in [(texts, "string"), (texts.dictionary_encode(), "string"), *nested.values()]:
            with pytest.raises(DataError, match=r"column 'c' .*UTF"):
                column(stored, kind)
        assert column(pa.array([b"ok", None, broken]), "binary").to_pylist() == [b"ok", None, broken]

    def test_a_character_that_is_cut_between_two_texts(self):
        halves = pa.array([b"a\xc3", b"\xa4"]).view(pa.string())
        with pytest.raises(DataError, match="UTF"):
            column(halves, "string")

    def test_fixed_size_binary(self):
        stored = pa.array([b"abcd", None], pa.binary(4))
        assert column(stored, "binary").to_pylist() == [b"abcd", None]
        assert column(stored, "string").to_pylist() == ["abcd", None]

    def test_a_stored_extension_type_is_its_storage(self):
        if not hasattr(pa, "json_"):
            pytest.skip("this pyarrow has no JSON type")
        stored = pa.array(['{"a":1}', None], pa.string()).cast(pa.json_())
        assert column(stored, "string").to_pylist() == ['{"a":1}', None]


def column_of(data, kind):
    return read(data, ("c", kind)).column("c")


class TestDates:
    VALUES = [date(1, 1, 1), date(1969, 12, 31), None, date(1970, 1, 1), date(9999, 12, 31)]

    def test_date64(self):
        assert column(pa.array(self.VALUES, pa.date64()), "date").to_pylist() == self.VALUES

    def test_plain_integers(self):
        stored = pa.array(self.VALUES, pa.date32()).cast(pa.int32())
        assert column(stored, "date").to_pylist() == self.VALUES

    def test_a_date_becomes_a_wall_clock(self):
        got = column(pa.array(self.VALUES, pa.date32()), "timestamp_ntz")
        assert micros(got) == [None if v is None else at(v.year, v.month, v.day) for v in self.VALUES]

    @pytest.mark.parametrize("source", [pa.timestamp("us"), pa.timestamp("us", tz="UTC"), pa.int64(), pa.string()])
    def test_a_time_never_becomes_a_date(self, source):
        value = "2024-01-01" if source == pa.string() else 0
        with pytest.raises(DataError):
            column(pa.array([value], source), "date")

    def test_a_date_is_no_instant(self):
        with pytest.raises(DataError):
            column(pa.array([date(2024, 1, 1)]), "timestamp")


def int96(table):
    """A file of INT96 times; older releases of pyarrow write those before 1970 wrongly."""
    before = parquet({"c": pa.array([-1], pa.timestamp("us"))}, use_deprecated_int96_timestamps=True)
    if micros(column_of(before, "timestamp_ntz")) != [-1]:
        pytest.skip("this pyarrow writes INT96 wrongly")
    data = parquet(table, use_deprecated_int96_timestamps=True, store_schema=False)
    assert pq.ParquetFile(pa.BufferReader(data)).schema.column(0).physical_type == "INT96"
    return data


class TestTimes:
    MICROS = [at(1, 1, 1), -1_500, -1, None, 0, 1, at(9999, 12, 31, 23, 59, 59, 999_999)]

    @pytest.mark.parametrize(("kind", "target"), [("timestamp", UTC), ("timestamp_ntz", pa.timestamp("us"))])
    @pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+05:30"])
    def test_microseconds(self, kind, target, zone):
        got = column(pa.array(self.MICROS, pa.timestamp("us", tz=zone)), kind)
        assert got.type == target
        assert micros(got) == self.MICROS

    @pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
    @pytest.mark.parametrize("zone", [None, "UTC"])
    def test_milliseconds_and_seconds(self, kind, zone):
        values = [-1, None, 0, 1, 253_402_300_799_999]
        got = column(pa.array(values, pa.timestamp("ms", tz=zone)), kind)
        assert micros(got) == [None if v is None else v * 1000 for v in values]
        seconds = [-62_135_596_800, None, 253_402_300_799]
        got = column(pa.array(seconds, pa.timestamp("s", tz=zone)), kind)
        assert micros(got) == [None if v is None else v * 1_000_000 for v in seconds]

    @pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
    @pytest.mark.parametrize("zone", [None, "UTC", "Asia/Tokyo"])
    def test_nanoseconds_are_rounded_down(self, kind, zone):
        values = [-1, -999, -1000, -1001, None, 0, 999, 1000, 1001, -(2**63) + 1, 2**63 - 1]
        got = column(pa.array(values, pa.timestamp("ns", tz=zone)), kind)
        assert micros(got) == [None if v is None else v // 1000 for v in values]

    @pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
    def test_int96(self, kind):
        """In years that nanoseconds since the epoch cannot reach."""
        values = [
            at(1600, 2, 29, 1, 2, 3, 4),
            at(1969, 12, 31, 23, 59, 59, 999_999),
            None,
            0,
            at(9999, 12, 31, 23, 59, 59, 999_999),
            at(1, 1, 1),
        ]
        data = int96({"c": pa.array(values, pa.timestamp("us"))})
        assert micros(column_of(data, kind)) == values

    def test_int96_of_nanoseconds(self):
        values = [-1, 999, None, 1_700_000_000_123_456_789]
        data = int96({"c": pa.array(values, pa.timestamp("ns"))})
        assert micros(column_of(data, "timestamp")) == [-1, 0, None, 1_700_000_000_123_456]

    def test_int96_inside_other_types(self):
        values = [[at(1600, 1, 1), None], None, [at(9999, 1, 1)]]
        data = int96({"c": pa.array(values, pa.list_(pa.timestamp("us")))})
        got = column_of(data, array_of("timestamp"))
        assert got.cast(pa.list_(pa.int64())).to_pylist() == values

    def test_plain_integers_are_microseconds(self):
        assert micros(column(pa.array([-1, None, 5]), "timestamp")) == [-1, None, 5]

    def test_times_past_what_microseconds_can_hold(self):
        with pytest.raises(DataError, match="column 'c'"):
            column(pa.array([2**62], pa.timestamp("ms")), "timestamp")

    @pytest.mark.parametrize(
        "source", [pa.string(), pa.float64(), pa.int32(), pa.bool_(), pa.time64("us")], ids=str
    )
    def test_literals_that_are_no_times_raise(self, source):
        value = {"string": "2024-01-01", "bool": True, "time64[us]": dt.time(1)}.get(str(source), 5)
        with pytest.raises(DataError, match=r"column 'c' is timestamp in the table and .* in the file"):
            column(pa.array([value], source), "timestamp")


SOURCES = {
    "int": pa.array([1]),
    "float": pa.array([1.5]),
    "bool": pa.array([True]),
    "text": pa.array(["x"]),
    "bytes": pa.array([b"x"]),
    "date": pa.array([date(2024, 1, 1)]),
    "time": pa.array([1], pa.timestamp("us")),
    "decimal": pa.array([Decimal("1.5")]),
    "list": pa.array([[1]]),
    "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
    "struct": pa.array([{"x": 1}]),
    "time of day": pa.array([dt.time(1)]),
    "duration": pa.array([1], pa.duration("us")),
}
KINDS = {
    "int": ["byte", "short", "integer", "long"],
    "float": ["float", "double"],
    "bool": ["boolean"],
    "text": ["string"],
    "bytes": ["binary"],
    "date": ["date"],
    "time": ["timestamp", "timestamp_ntz"],
    "decimal": ["decimal(5,2)"],
    "list": [array_of("long")],
    "map": [{"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}],
    "struct": [struct_of(x="long")],
}
RELATED = {
    ("int", "float"),
    ("int", "decimal"),
    ("int", "time"),  # plain integers are microseconds
    ("duration", "int"),  # stored as plain integers, were it not for Arrow's own schema
    ("text", "bytes"),
    ("bytes", "text"),
    ("date", "time"),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("family", KINDS)
def test_types_without_a_common_meaning_are_a_data_error(source, family):
    for kind in KINDS[family]:
        if source == family or (source, family) in RELATED:
            continue
        with pytest.raises(DataError) as caught:
            column(SOURCES[source], kind)
        assert FILE_ID in str(caught.value)
        assert "column 'c'" in str(caught.value)
        assert caught.value.file_id == FILE_ID
        assert "\n" not in str(caught.value)
