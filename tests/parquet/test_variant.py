"""Variants as JSON text: bytes by hand, bytes at random, and what Spark makes of its own files."""

from __future__ import annotations

import json
import math
import random
import struct
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from thorough import examples
from variant_encoder import Encoder, array, mapping, metadata, number, primitive, text

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.arrow_types import VARIANT
from delta_sharing_client.parquet.variant import cast_variant, variant_to_json
from delta_sharing_client.parquet.variant_json import MAX_DEPTH

GOLDEN = Path(__file__).parent / "golden_variant"
EMPTY = bytes.fromhex("010000")
ABC = bytes.fromhex("0103000102036162 63")
MICROS = 1_704_164_645_123_456  # 2024-01-02 03:04:05.123456


def variants(*pairs):
    return pa.array([None if pair is None else {"metadata": pair[0], "value": pair[1]} for pair in pairs], VARIANT)


def to_json(value, names=EMPTY):
    return variant_to_json(variants((names, value)), file_id="f", column="v")[0].as_py()


class TestGoldenBytes:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            ("00", "null"),
            ("04", "true"),
            ("08", "false"),
            ("0c 80", "-128"),
            ("0c 7f", "127"),
            ("10 00 80", "-32768"),
            ("14 ff ff ff 7f", "2147483647"),
            ("18 00 00 00 00 00 00 00 80", "-9223372036854775808"),
            ("1c 00 00 00 00 00 00 f8 3f", "1.5"),
            ("20 02 96 00 00 00", "1.5"),
            ("20 00 96 00 00 00", "150"),
            ("24 12 ff ff ff ff ff ff ff ff", "-0.000000000000000001"),
            ("28 26 01 00 00 00 00 00 00 00 00 00 00 00 00 00 00 00", "0." + "0" * 37 + "1"),
            ("2c 00 00 00 00", '"1970-01-01"'),
            ("2c ff ff ff ff", '"1969-12-31"'),
            ("30 00 00 00 00 00 00 00 00", '"1970-01-01 00:00:00+00:00"'),
            ("34 00 00 00 00 00 00 00 00", '"1970-01-01 00:00:00"'),
            ("38 00 00 c0 3f", "1.5"),
            ("3c 03 00 00 00 00 01 ff", '"AAH/"'),
            ("40 02 00 00 00 68 69", '"hi"'),
            ("44 40 42 0f 00 00 00 00 00", '"00:00:01"'),
            ("48 01 00 00 00 00 00 00 00", '"1970-01-01 00:00:00.000000001+00:00"'),
            ("4c ff ff ff ff ff ff ff ff", '"1969-12-31 23:59:59.999999999"'),
            ("50 00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff", '"00112233-4455-6677-8899-aabbccddeeff"'),
            ("01", '""'),
            ("09 68 69", '"hi"'),
            ("02 00 00", "{}"),
            ("03 00 00", "[]"),
            ("03 02 00 02 03 0c 01 00", "[1,null]"),
            # The large flag, with more bytes than needed.
            ("13 02 00 00 00 00 02 03 0c 01 00", "[1,null]"),
            ("0f 01 00 00 00 00 02 00 00 00 0c 01", "[1]"),
        ],
    )
    @pytest.mark.protocol("variantType")
    def test_values(self, value, expected):
        assert to_json(bytes.fromhex(value)) == expected

    @pytest.mark.parametrize(
        "value",
        [
            "02 02 00 02 00 02 04 0c 01 0c 02",
            "0e 02 00 02 00000000 02000000 04000000 0c 01 0c 02",
            "16 02 0000 0200 0000 0200 0400 0c 01 0c 02",
            "2a 02 000000 020000 000000 020000 040000 0c 01 0c 02",
            "3e 02 00000000 02000000 00000000 02000000 04000000 0c 01 0c 02",
            # The large flag.
            "6a 02000000 000000 020000 000000 020000 040000 0c 01 0c 02",
            # The values in another order than the names.
            "02 02 00 02 02 00 04 0c 02 0c 01",
        ],
    )
    def test_objects_with_ids_and_offsets_of_each_width(self, value):
        assert to_json(bytes.fromhex(value), ABC) == '{"a":1,"c":2}'

    @pytest.mark.parametrize(
        "names",
        [
            "01 02 00 01 03 61 c3a9",
            "11 02 00 01 03 61 c3a9",
            "41 0200 0000 0100 0300 61 c3a9",
            "81 020000 000000 010000 030000 61 c3a9",
            "c1 02000000 00000000 01000000 03000000 61 c3a9",
        ],
    )
    def test_dictionaries_with_offsets_of_each_width(self, names):
        assert to_json(bytes.fromhex("02 02 00 01 00 02 04 0c 01 0c 02"), bytes.fromhex(names)) == '{"a":1,"é":2}'

    def test_an_unsorted_dictionary(self):
        value = mapping({"a": primitive(1), "b": primitive(0)}, {"b": 0, "a": 1})
        assert to_json(value, metadata(["b", "a"])) == '{"a":true,"b":null}'

    def test_many_fields_and_elements(self):
        names = [f"k{n:05}" for n in range(70_000)]
        ids = {name: n for n, name in enumerate(names)}
        for count in (255, 256, 70_000):
            value = mapping({name: primitive(3, b"\x01") for name in names[:count]}, ids)
            decoded = json.loads(to_json(value, metadata(names, is_sorted=True)))
            assert list(decoded) == names[:count]
            listed = array([primitive(4, number(n & 0x7FFF, 2)) for n in range(count)])
            assert json.loads(to_json(listed)) == [n & 0x7FFF for n in range(count)]

    def test_bytes_after_the_value_are_ignored(self):
        assert to_json(bytes.fromhex("0c 01 ff ff"), ABC + b"more") == "1"

    def test_duplicate_names_in_a_dictionary(self):
        assert to_json(bytes.fromhex("02 01 01 00 02 0c 01"), metadata(["a", "a"])) == '{"a":1}'


class TestTexts:
    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (100.0, "100.0"), (0.1, "0.1"), (0.001, "0.001"),
            (0.00099, "9.9E-4"), (9999999.0, "9999999.0"), (1e7, "1.0E7"), (12345678.9, "1.23456789E7"),
            (1e22, "1.0E22"), (-1.5e-7, "-1.5E-7"), (123456.789, "123456.789"), (5e-324, "4.9E-324"),
            (1e-323, "9.9E-324"), (2.2250738585072014e-308, "2.2250738585072014E-308"), (1e-310, "1.0E-310"),
            (1.7976931348623157e308, "1.7976931348623157E308"), (float(2**53 + 2), "9.007199254740994E15"),
            (math.nan, '"NaN"'), (math.inf, '"Infinity"'), (-math.inf, '"-Infinity"'),
        ],
    )  # fmt: skip
    def test_doubles(self, number, expected):
        assert to_json(primitive(7, struct.pack("<d", number))) == expected

    @pytest.mark.parametrize(
        ("number", "expected"),
        [
            (0.1, "0.1"), (1e10, "1.0E10"), (3.4028234663852886e38, "3.4028235E38"),
            (1.401298464324817e-45, "1.4E-45"), (16777216.0, "1.6777216E7"), (-0.0, "-0.0"), (100.0, "100.0"),
            (math.nan, '"NaN"'), (-math.inf, '"-Infinity"'),
        ],
    )  # fmt: skip
    def test_floats(self, number, expected):
        assert to_json(primitive(14, struct.pack("<f", number))) == expected

    @given(st.floats(allow_nan=False, allow_infinity=False))
    def test_a_double_comes_back(self, number):
        text = to_json(primitive(7, struct.pack("<d", number)))
        assert struct.pack("<d", float(text)) == struct.pack("<d", number)

    @given(st.floats(allow_nan=False, allow_infinity=False, width=32))
    def test_a_float_comes_back(self, number):
        text = to_json(primitive(14, struct.pack("<f", number)))
        assert np.float32(text).tobytes() == np.float32(number).tobytes()

    @pytest.mark.parametrize(
        ("micros", "expected"),
        [
            (MICROS, "2024-01-02 03:04:05.123456"), (MICROS - 456, "2024-01-02 03:04:05.123"),
            (-1, "1969-12-31 23:59:59.999999"), (-62_135_596_800_000_000, "0001-01-01 00:00:00"),
            (-62_135_596_800_000_001, "0000-12-31 23:59:59.999999"),
            (253_402_300_800_000_000, "+10000-01-01 00:00:00"), (-(2**63), "-290308-12-21 19:59:05.224192"),
            (2**63 - 1, "+294247-01-10 04:00:54.775807"),
        ],
    )  # fmt: skip
    def test_times(self, micros, expected):
        data = micros.to_bytes(8, "little", signed=True)
        assert to_json(primitive(12, data)) == f'"{expected}+00:00"'
        assert to_json(primitive(13, data)) == f'"{expected}"'

    def test_nanoseconds(self):
        data = (MICROS * 1000 + 789).to_bytes(8, "little")
        assert to_json(primitive(18, data)) == '"2024-01-02 03:04:05.123456789+00:00"'
        assert to_json(primitive(19, (MICROS * 1000).to_bytes(8, "little"))) == '"2024-01-02 03:04:05.123456"'
        assert to_json(primitive(17, (86_400_000_000 - 10).to_bytes(8, "little"))) == '"23:59:59.99999"'

    @pytest.mark.parametrize(
        ("days", "expected"),
        [
            (-719_528, "0000-01-01"), (-735_525, "-0044-03-15"), (4_000_000, "+12921-08-18"),
            (19_782, "2024-02-29"), (2**31 - 1, "+5881580-07-11"), (-(2**31), "-5877641-06-23"),
            (2_932_896, "9999-12-31"),
        ],
    )  # fmt: skip
    def test_dates(self, days, expected):
        assert to_json(primitive(11, days.to_bytes(4, "little", signed=True))) == f'"{expected}"'

    def test_escapes(self):
        plain = "\x00\x1f\"\\/\b\f\n\r\t\x7f\u2028é😀<>&'"
        expected = '"\\u0000\\u001F\\"\\\\/\\b\\f\\n\\r\\t\x7f\u2028é😀<>&\'"'
        assert to_json(text(plain)) == to_json(text(plain, long=True)) == expected
        assert to_json(text("\\u00e9")) == '"\\\\u00e9"'
        value = mapping({plain: primitive(0)}, {plain: 0})
        assert to_json(value, metadata([plain])) == "{" + expected + ":null}"


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=80),
    lambda inner: (
        st.lists(inner, max_size=6)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=5), inner, max_size=6)
    ),
    max_leaves=25,
)


class TestRoundTrip:
    @given(st.lists(json_values, max_size=4), st.integers())
    def test_json_values(self, values, seed):
        draw = random.Random(seed)
        pairs = [Encoder(draw).encode(value) for value in values]
        texts = variant_to_json(variants(None, *pairs, None)).to_pylist()
        assert texts[0] is texts[-1] is None
        assert [json.loads(item) for item in texts[1:-1]] == values
        for item, value in zip(texts[1:-1], values, strict=True):
            plain = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
            if not any(char in plain for char in "{\\."):
                assert item == plain or "e" in plain

    def test_the_fields_are_in_the_order_of_their_names(self):
        names = ["b", "aa", "a", "é", "", "😀", "\uffee"]
        names_bytes, value = Encoder(random.Random(1)).encode(dict.fromkeys(names, 1))
        decoded = json.loads(to_json(value, names_bytes))
        assert list(decoded) == sorted(names, key=str.encode)

    def test_deep(self):
        value = primitive(0)
        for _ in range(MAX_DEPTH):
            value = array([value])
        assert to_json(value) == "[" * MAX_DEPTH + "null" + "]" * MAX_DEPTH

    def test_many_rows(self):
        rows = 70_000
        value = pa.array([primitive(5, number(n, 4)) for n in range(rows)])
        made = pa.StructArray.from_arrays([value, pa.array([EMPTY] * rows)], ["value", "metadata"])
        texts = variant_to_json(made)
        assert texts.type == pa.string()
        assert texts.to_pylist() == [str(n) for n in range(rows)]


class TestMalformed:
    @pytest.mark.parametrize(
        ("value", "names", "reason"),
        [
            ("", "010000", "outside"),
            ("0c", "010000", "too soon"),
            ("54", "010000", "type 21"),
            ("fc", "010000", "type 63"),
            ("09 68", "010000", "too soon"),
            ("40 05 00 00 00 68", "010000", "too soon"),
            ("40 ff ff ff ff 68", "010000", "too soon"),
            ("40 05 00", "010000", "too soon"),
            ("20 27 00 00 00 00", "010000", "decimal"),
            ("28 00 ff ff ff ff ff ff ff ff ff ff ff ff ff ff ff 7f", "010000", "decimal"),
            ("44 ff ff ff ff ff ff ff ff", "010000", "within a day"),
            ("05 ff", "010000", "UTF-8"),
            ("09 c3 28", "010000", "UTF-8"),
            ("02", "010000", "too soon"),
            ("02 02 00", "010000", "lists of 2"),
            ("42 ff ff ff ff 00", "010000", "lists of 4294967295"),
            ("13 ff ff ff ff", "010000", "lists of 4294967295"),
            ("02 01 01 00 01 00", "01 01 00 01 61", "field 1 is not among the 1 names"),
            ("02 02 00 00 00 01 02 00 00", "01 01 00 01 61", "same field twice"),
            ("02 02 00 01 00 01 02 00 00", "01 02 00 01 02 61 61", "same field twice"),
            ("03 01 05 01 00", "010000", "outside"),
            ("03 02 00 00 01 00", "010000", "overlap"),
            ("00", "", "metadata is empty"),
            ("00", "02 00 00", "version 2"),
            ("00", "01", "too soon"),
            ("00", "01 02 00", "too short for 2 names"),
            ("00", "c1 ff ff ff ff", "too short for 4294967295 names"),
            ("00", "01 01 00 05 61", "outside"),
            ("00", "01 02 00 01 00 61", "outside"),
            ("00", "01 01 00 01 ff", "UTF-8"),
        ],
    )
    def test_a_supported_comparison_is_sent(self, value, names, reason):
        pair = (bytes.fromhex(names), bytes.fromhex(value))
        with pytest.raises(DataError, match=reason) as caught:
            variant_to_json(variants((EMPTY, b"\x00"), pair), file_id="file-7", column="doc")
        assert caught.value.file_id == "file-7"
        assert "'doc'" in str(caught.value)
        assert "row 1" in str(caught.value)

    def test_too_deep(self):
        value = primitive(0)
        for _ in range(MAX_DEPTH + 1):
            value = array([value])
        with pytest.raises(DataError, match="deeper than"):
            to_json(value)

    def test_elements_that_overlap_do_not_multiply(self):
        # Each level names the next one twice: 2 to the 60 values in a few hundred bytes.
        value = primitive(0)
        for _ in range(60):
            value = bytes([3 | 1 << 2, 2]) + number(0, 2) * 2 + number(len(value), 2) + value
        with pytest.raises(DataError, match="overlap"):
            to_json(value)
        long = text("x" * 100_000)
        many = bytes([3 | 1 << 2 | 1 << 4]) + number(10_000, 4) + bytes(20_000) + number(0, 2) + long
        with pytest.raises(DataError, match="overlap"):
            to_json(many)

    def test_a_long_name_does_not_multiply(self):
        one = mapping({"n" * 1_000_000: primitive(0)}, {"n" * 1_000_000: 0})
        with pytest.raises(DataError, match="characters of names"):
            to_json(array([one] * 300), metadata(["n" * 1_000_000]))

    @settings(max_examples=examples(200))
    @given(st.binary(max_size=60), st.binary(max_size=30) | st.just(ABC))
    @example(b"\x02\x00", ABC)
    @example(b"\x03", ABC)
    def test_any_bytes(self, value, names):
        with suppress(DataError):
            json.loads(to_json(value, names))

    @given(
        json_values,
        st.integers(),
        st.lists(st.tuples(st.integers(0), st.integers(0, 255)), min_size=1, max_size=4),
    )
    def test_bytes_that_were_changed(self, value, seed, changes):
        names, data = map(bytearray, Encoder(random.Random(seed)).encode(value))
        for position, byte in changes:
            target = names if position % 4 == 0 else data
            target[position // 4 % len(target)] = byte
        with suppress(DataError):
            json.loads(to_json(bytes(data), bytes(names)))

    @given(json_values, st.integers(), st.integers(0))
    def test_bytes_that_were_cut(self, value, seed, length):
        names, data = Encoder(random.Random(seed)).encode(value)
        with pytest.raises(DataError):
            to_json(data[: length % len(data)], names)


class TestSpark:
    @pytest.mark.parametrize("path", sorted(GOLDEN.glob("[dt]*.parquet")), ids=lambda path: path.stem)
    def test_the_texts_are_those_of_to_json(self, path):
        table = pq.read_table(path)
        (source,) = table.column("v").chunks
        assert variant_to_json(source).to_pylist() == table.column("j").to_pylist()
        conformed = cast_variant(source)
        conformed.validate(full=True)
        assert conformed.type == VARIANT
        assert variant_to_json(conformed).to_pylist() == table.column("j").to_pylist()

    def test_golden_files_are_present(self):
        assert len(list(GOLDEN.glob("*.parquet"))) == 9
