"""Shredded variants in Parquet files by pyarrow, column by column as the specification lays them out."""

from __future__ import annotations

import decimal
import io
import json
import random
import struct
import uuid
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples
from variant_encoder import Encoder, array, mapping, metadata, number, primitive, text

from delta_sharing_client.errors import DataError
from delta_sharing_client.parquet.arrow_types import VARIANT
from delta_sharing_client.parquet.variant import cast_variant, variant_to_json
from delta_sharing_client.parquet.variant_shredding import MAX_DEPTH

EMPTY = bytes.fromhex("010000")
JSON_NULL = b"\x00"
ABSENT = object()


def group(*, nulls=None, **columns):
    """A Parquet group of these columns, null where `nulls` says."""
    mask = None if nulls is None else pa.array(nulls)
    return pa.StructArray.from_arrays(list(columns.values()), list(columns), mask=mask)


def binary(*values):
    return pa.array(values, pa.binary())


def shredded(typed, value=None, names=None, **options):
    rows = len(typed)
    names = names or [EMPTY] * rows
    columns = {"metadata": binary(*names), "value": binary(*(value or [None] * rows)), "typed_value": typed}
    return group(**columns, **options)


def stored(column):
    """The column as it comes back out of a Parquet file."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"v": column}), sink, store_schema=False)
    (chunk,) = pq.read_table(sink).column("v").chunks
    return chunk


def values_of(column):
    """The values of shredded variants, and their dictionaries unchanged."""
    made = cast_variant(stored(column), file_id="f", column="v")
    made.validate(full=True)
    assert made.type == VARIANT
    rows = made.to_pylist()
    for row, source in zip(rows, column.to_pylist(), strict=True):
        assert (row and row["metadata"]) == (source and source["metadata"])
    return [row and row["value"] for row in rows]


def texts_of(column):
    return variant_to_json(stored(column)).to_pylist()


def refused(column):
    with pytest.raises(DataError) as caught:
        cast_variant(column, file_id="file-7", column="doc")
    assert caught.value.file_id == "file-7"
    assert "'doc'" in str(caught.value)
    return str(caught.value)


LONG = "é" * 40
UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
MICROS = 1_704_164_645_123_456
SCALARS = [
    (pa.bool_(), [True, False], [primitive(1), primitive(2)], ["true", "false"]),
    (pa.int8(), [-128, 127], [b"\x0c\x80", b"\x0c\x7f"], ["-128", "127"]),
    (pa.int16(), [-2, 300], [b"\x10\xfe\xff", b"\x10\x2c\x01"], ["-2", "300"]),
    (pa.int32(), [-(2**31)], [b"\x14\x00\x00\x00\x80"], ["-2147483648"]),
    (pa.int64(), [2**63 - 1, 34], [b"\x18" + b"\xff" * 7 + b"\x7f", b"\x18\x22" + bytes(7)],
     [str(2**63 - 1), "34"]),
    (pa.float32(), [1.5, 0.1], [b"\x38\x00\x00\xc0\x3f", b"\x38" + struct.pack("<f", 0.1)], ["1.5", "0.1"]),
    (pa.float64(), [0.1], [b"\x1c" + struct.pack("<d", 0.1)], ["0.1"]),
    (pa.decimal128(9, 2), [Decimal("-9999999.99"), Decimal("1.50")],
     [b"\x20\x02" + (-999999999).to_bytes(4, "little", signed=True), b"\x20\x02\x96\x00\x00\x00"],
     ["-9999999.99", "1.5"]),
    (pa.decimal128(18, 0), [Decimal(-(10**17))],
     [b"\x24\x00" + (-(10**17)).to_bytes(8, "little", signed=True)], ["-" + "1" + "0" * 17]),
    (pa.decimal128(38, 38), [Decimal("-0." + "9" * 38)],
     [b"\x28\x26" + (1 - 10**38).to_bytes(16, "little", signed=True)], ["-0." + "9" * 38]),
    (pa.date32(), [0, -1], [b"\x2c" + bytes(4), b"\x2c" + b"\xff" * 4], ['"1970-01-01"', '"1969-12-31"']),
    (pa.timestamp("us", "UTC"), [MICROS], [b"\x30" + number(MICROS, 8)], ['"2024-01-02 03:04:05.123456+00:00"']),
    (pa.timestamp("us"), [MICROS], [b"\x34" + number(MICROS, 8)], ['"2024-01-02 03:04:05.123456"']),
    (pa.timestamp("ns", "UTC"), [1], [b"\x48" + number(1, 8)], ['"1970-01-01 00:00:00.000000001+00:00"']),
    (pa.timestamp("ns"), [1000], [b"\x4c" + number(1000, 8)], ['"1970-01-01 00:00:00.000001"']),
    (pa.time64("us"), [1], [b"\x44" + number(1, 8)], ['"00:00:00.000001"']),
    (pa.binary(), [b"", b"\xff"], [b"\x3c" + bytes(4), b"\x3c\x01\x00\x00\x00\xff"], ['""', '"/w=="']),
    (pa.string(), ["", "hi", "x" * 63, LONG],
     [b"\x01", b"\x09hi", b"\xfd" + b"x" * 63, b"\x40\x50\x00\x00\x00" + LONG.encode()],
     ['""', '"hi"', f'"{"x" * 63}"', f'"{LONG}"']),
    (pa.binary(16), [UUID.bytes], [b"\x50" + UUID.bytes], [f'"{UUID}"']),
]  # fmt: skip


class TestScalars:
    @pytest.mark.parametrize(
        ("kind", "values", "encoded", "texts"), SCALARS, ids=[str(case[0]) for case in SCALARS]
    )
    @pytest.mark.protocol("variantShredding")
    def test_each_type(self, kind, values, encoded, texts):
        column = shredded(
            pa.array([None, *values, None, None], kind),
            [b"\x09no", *[None] * len(values), JSON_NULL, None],
            nulls=[False] * (len(values) + 2) + [True],
        )
        assert stored(column).type.field("typed_value").type == kind
        assert values_of(column) == [b"\x09no", *encoded, JSON_NULL, None]
        assert texts_of(column) == ['"no"', *texts, "null", None]

    def test_other_arrow_types_of_the_same_values(self):
        kinds = [pa.large_string(), pa.string_view(), pa.dictionary(pa.int32(), pa.string())]
        for kind in kinds:
            column = shredded(pa.array(["hi", None]).cast(kind), [None, JSON_NULL])
            assert cast_variant(column).field("value").to_pylist() == [b"\x09hi", JSON_NULL]
        for kind in (pa.large_binary(), pa.binary_view()):
            column = shredded(pa.array([b"hi", None]).cast(kind), [None, JSON_NULL])
            assert cast_variant(column).field("value").to_pylist() == [b"\x3c\x02\x00\x00\x00hi", JSON_NULL]
        column = shredded(pa.array([Decimal("1.5")], pa.decimal256(9, 2)))
        assert cast_variant(column).field("value").to_pylist() == [b"\x20\x02\x96\x00\x00\x00"]

    def test_a_uuid_of_arrow(self):
        if not hasattr(pa, "uuid"):
            pytest.skip("this pyarrow has no uuid")
        column = shredded(pa.array([UUID.bytes, None], pa.binary(16)).cast(pa.uuid()))
        assert texts_of(column) == [f'"{UUID}"', "null"]

    def test_slices(self):
        for kind in (pa.decimal128(9, 2), pa.int32(), pa.string(), pa.bool_(), pa.date32()):
            values = {pa.string(): ["a", "b", None, "d"], pa.bool_(): [True, False, None, True]}.get(
                kind, [1, 2, None, 4]
            )
            column = shredded(pa.array(values, pa.int32() if kind == pa.date32() else kind).cast(kind))
            whole = variant_to_json(column).to_pylist()
            assert variant_to_json(column.slice(1, 2)).to_pylist() == whole[1:3]
            assert variant_to_json(column.slice(3)).to_pylist() == whole[3:]

    @pytest.mark.parametrize(
        "kind",
        [pa.uint8(), pa.uint64(), pa.timestamp("ms"), pa.timestamp("s", "UTC"), pa.time32("ms"), pa.time64("ns"),
         pa.duration("us"), pa.binary(7), pa.float16(), pa.decimal256(40, 2), pa.map_(pa.string(), pa.int32())],
        ids=str,
    )  # fmt: skip
    def test_types_that_no_variant_is_shredded_as(self, kind):
        value = [] if pa.types.is_map(kind) else b"1234567" if pa.types.is_fixed_size_binary(kind) else 1
        assert "no variant is shredded as" in refused(shredded(pa.array([value], kind)))

    def test_a_decimal_beyond_its_precision(self):
        raw = (10**9).to_bytes(16, "little") + (2**31).to_bytes(16, "little")
        column = pa.Array.from_buffers(pa.decimal128(9, 0), 2, [None, pa.py_buffer(raw)])
        assert "too large" in refused(shredded(column))

    def test_the_series_of_the_specification(self):
        column = shredded(pa.array([34, None, None, 100]), [None, JSON_NULL, b"\x0dn/a", None])
        assert texts_of(column) == ["34", "null", '"n/a"', "100"]

    def test_value_may_be_absent(self):
        column = group(metadata=binary(EMPTY, EMPTY), typed_value=pa.array([1, None]))
        assert texts_of(column) == ["1", "null"]
        assert texts_of(group(metadata=binary(EMPTY), typed_value=pa.array([None], pa.int64()))) == ["null"]

    def test_both_value_and_typed_value(self):
        assert "row 1 of its batch has both" in refused(shredded(pa.array([1, 2]), [None, JSON_NULL]))


NAMES = ["event_type", "event_ts", "email", "error_msg", "click", "a", "b"]
IDS = {name: n for n, name in enumerate(NAMES)}
DICTIONARY = metadata(NAMES)


def event(value, kind, kind_value, ts, ts_value, present):
    typed = group(
        nulls=[not flag for flag in present],
        event_type=group(value=binary(*kind_value), typed_value=pa.array(kind, pa.string())),
        event_ts=group(value=binary(*ts_value), typed_value=pa.array(ts, pa.int64())),
    )
    return shredded(typed, value, [DICTIONARY] * len(kind))


def residual(**fields):
    return mapping({name: text(value) for name, value in fields.items()}, IDS)


class TestObjects:
    def test_the_series_of_the_specification(self):
        column = event(
            [None, residual(email="u@e"), residual(error_msg="m"), text("no"), residual(click="c"), None, None,
             None, JSON_NULL, None],
            ["noop", "login", None, None, None, None, "noop", None, None, None],
            [None, None, None, None, None, JSON_NULL, None, None, None, None],
            [1, 2, None, None, 3, 4, None, None, None, None],
            [None, None, None, None, None, None, text("2024-10-24"), None, None, None],
            [True, True, True, False, True, True, True, True, False, False],
        )  # fmt: skip
        assert texts_of(column) == [
            '{"event_ts":1,"event_type":"noop"}',
            '{"email":"u@e","event_ts":2,"event_type":"login"}',
            '{"error_msg":"m"}',
            '"no"',
            '{"click":"c","event_ts":3}',
            '{"event_ts":4,"event_type":null}',
            '{"event_ts":"2024-10-24","event_type":"noop"}',
            "{}",
            "null",
            "null",
        ]

    def test_the_bytes(self):
        column = event([residual(email="u")], ["x"], [None], [1], [None], [True])
        expected = mapping({"email": text("u"), "event_ts": b"\x18" + number(1, 8), "event_type": text("x")}, IDS)
        assert values_of(column) == [expected]
        empty = event([None], [None], [None], [None], [None], [True])
        assert values_of(empty) == [bytes.fromhex("020000")]

    def test_an_object_of_many_fields(self):
        names = [f"f{n:03}" for n in range(300)]
        typed = group(**{name: group(typed_value=pa.array([n], pa.int16())) for n, name in enumerate(names)})
        column = shredded(typed, names=[metadata(names)])
        fields = {name: b"\x10" + number(n, 2) for n, name in enumerate(names)}
        assert values_of(column) == [mapping(fields, {name: n for n, name in enumerate(names)})]

    def test_values_that_are_longer_than_their_row_says(self):
        names = metadata(["a", "b"])
        left = mapping({"b": text("x" * 70_000)}, {"b": 1}) + b"unused"
        column = shredded(group(a=group(typed_value=pa.array([1], pa.int8()))), [left], [names])
        (value,) = values_of(column)
        assert value == mapping({"a": b"\x0c\x01", "b": text("x" * 70_000)}, {"a": 0, "b": 1})

    def test_each_row_has_its_own_dictionary(self):
        rows = 50
        names = [["a", f"other{n}"] if n % 2 else [f"other{n}", "a"] for n in range(rows)]
        left = [
            mapping({f"other{n}": primitive(1)}, {f"other{n}": names[n].index(f"other{n}")}) for n in range(rows)
        ]
        typed = group(a=group(typed_value=pa.array(range(rows), pa.int32())))
        column = shredded(typed, left, [metadata(item) for item in names])
        assert [json.loads(item) for item in texts_of(column)] == [
            {"a": n, f"other{n}": True} for n in range(rows)
        ]

    def test_names_are_ordered_by_their_bytes(self):
        names = ["b", "é", "a", "😀", "\uffee"]
        typed = group(**{name: group(typed_value=pa.array([n], pa.int8())) for n, name in enumerate(names)})
        column = shredded(typed, names=[metadata(names)])
        assert texts_of(column) == ['{"a":2,"b":0,"é":1,"\uffee":4,"😀":3}']

    def test_a_group_that_is_null_is_missing(self):
        inner = group(nulls=[False, True], value=binary(None, None), typed_value=pa.array([1, 2]))
        column = shredded(group(a=inner), names=[DICTIONARY] * 2)
        assert variant_to_json(column).to_pylist() == ['{"a":1}', "{}"]

    def test_a_field_without_typed_value(self):
        column = shredded(group(a=group(value=binary(text("x"), None))), names=[DICTIONARY] * 2)
        assert texts_of(column) == ['{"a":"x"}', "{}"]

    @pytest.mark.parametrize(
        ("column", "reason"),
        [
            (shredded(group(a=group(typed_value=pa.array([1])))), "lacks the name of the field 'a'"),
            (shredded(group(a=group(typed_value=pa.array([1]))), names=[b"\x02"]), "version 2"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [text("a")], [DICTIONARY]), "not an object"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [b""], [DICTIONARY]), "not an object"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [b"\x02\x05"], [DICTIONARY]), "5 elements"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [residual(a="x")], [DICTIONARY]), "stored apart"),
            (shredded(group(a=group(typed_value=pa.array([None], pa.int8()))), [residual(a="x")], [DICTIONARY]),
             "stored apart"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [bytes.fromhex("0201630001 00")], [DICTIONARY]),
             "field 99 is not among the 7 names"),
            (shredded(group(a=group(typed_value=pa.array([1]))), [bytes.fromhex("020101090100")], [DICTIONARY]),
             "outside"),
            (shredded(group(a=group(typed_value=pa.array([1]))),
                      [bytes.fromhex("0203010203 000000 05") + text("long")], [DICTIONARY]), "overlap"),
            (shredded(group(a=group(typed_value=pa.array([1]))),
                      [bytes.fromhex("0202010100 0102 0000")], [DICTIONARY]), "same field twice"),
            (shredded(group(a=pa.array([1]))), "group of value and typed_value"),
            (shredded(group(a=group(other=pa.array([1])))), "neither value nor typed_value"),
            (shredded(group(a=group(value=pa.array(["x"])))), "bytes are expected"),
        ],
    )  # fmt: skip
    def test_unsupported_conditions_raise(self, column, reason):
        assert reason in refused(column)

    def test_the_row_is_named(self):
        typed = group(a=group(typed_value=pa.array([1, 2, 3])))
        column = shredded(typed, [None, None, text("x")], [DICTIONARY] * 3)
        assert "row 2" in refused(column)


class TestArrays:
    def test_the_series_of_the_specification(self):
        elements = group(
            value=binary(None, None, None, JSON_NULL, None, None, None),
            typed_value=pa.array(["comedy", "drama", "horror", None, "comedy", "drama", "romance"]),
        )
        nulls = pa.array([False, False, False, True])
        lists = pa.ListArray.from_arrays(pa.array([0, 2, 4, 7, 7], pa.int32()), elements, mask=nulls)
        column = shredded(lists, [None, None, None, JSON_NULL])
        assert texts_of(column) == [
            '["comedy","drama"]',
            '["horror",null]',
            '["comedy","drama","romance"]',
            "null",
        ]
        assert values_of(column)[0] == array([text("comedy"), text("drama")])

    def test_empty_and_missing(self):
        elements = group(value=binary(None), typed_value=pa.array([None], pa.int64()))
        column = shredded(pa.ListArray.from_arrays(pa.array([0, 0, 1], pa.int32()), elements))
        assert values_of(column) == [bytes.fromhex("030000"), array([JSON_NULL])]

    def test_elements_without_typed_value(self):
        lists = pa.ListArray.from_arrays(pa.array([0, 2], pa.int32()), group(value=binary(text("a"), JSON_NULL)))
        assert texts_of(shredded(lists)) == ['["a",null]']

    @pytest.mark.parametrize("kind", ["list", "large", "fixed", "view"])
    def test_lists_of_each_arrow_type(self, kind):
        inner = pa.struct([("typed_value", pa.int8())])
        target = {"list": pa.list_(inner), "large": pa.large_list(inner), "fixed": pa.list_(inner, 2)}.get(kind)
        rows = [[{"typed_value": 1}, {"typed_value": 2}], [{"typed_value": 3}, {"typed_value": 4}]]
        lists = pa.array(rows, pa.list_view(inner) if kind == "view" else target)
        assert variant_to_json(shredded(lists)).to_pylist() == ["[1,2]", "[3,4]"]
        assert variant_to_json(shredded(lists).slice(1)).to_pylist() == ["[3,4]"]

    def test_many_elements(self):
        elements = group(typed_value=pa.array(range(70_000), pa.int32()))
        column = shredded(pa.ListArray.from_arrays(pa.array([0, 255, 511, 70_000], pa.int32()), elements))
        assert values_of(column) == [
            array([b"\x14" + number(n, 4) for n in part])
            for part in (range(255), range(255, 511), range(511, 70_000))
        ]


class TestNesting:
    def test_objects_and_arrays_within_each_other(self):
        rows = 3
        place = group(
            value=binary(None, text("nowhere"), None),
            typed_value=group(
                nulls=[False, True, False],
                lat=group(value=binary(None, None, None), typed_value=pa.array([1.5, None, None])),
                lon=group(value=binary(None, None, JSON_NULL), typed_value=pa.array([2.5, None, None])),
            ),
        )
        tag = group(
            value=binary(None, text("t"), None),
            typed_value=group(
                nulls=[False, True, False], k=group(typed_value=pa.array(["x", None, None], pa.string()))
            ),
        )
        tags = group(
            value=binary(None, mapping({}, {}), None),
            typed_value=pa.ListArray.from_arrays(pa.array([0, None, 2, 3], pa.int32()), tag),
        )
        names = metadata(["place", "tags", "lat", "lon", "k"])
        column = shredded(group(place=place, tags=tags), names=[names] * rows)
        assert texts_of(column) == [
            '{"place":{"lat":1.5,"lon":2.5},"tags":[{"k":"x"},"t"]}',
            '{"place":"nowhere","tags":{}}',
            '{"place":{"lon":null},"tags":[{}]}',
        ]

    def test_too_deep(self):
        column = group(typed_value=pa.array([1], pa.int8()))
        for _ in range(MAX_DEPTH + 1):
            column = group(typed_value=group(a=column))
        column = group(metadata=binary(DICTIONARY), typed_value=column.field("typed_value"))
        assert "deeper than" in refused(column)

    def test_many_rows(self):
        rows = 70_000
        column = shredded(group(a=group(typed_value=pa.array(range(rows), pa.int32()))), names=[DICTIONARY] * rows)
        texts = variant_to_json(column).to_pylist()
        assert texts[:2] == ['{"a":0}', '{"a":1}']
        assert texts[-1] == f'{{"a":{rows - 1}}}'
        broken = shredded(
            group(a=group(typed_value=pa.array(range(rows), pa.int32()))),
            names=[DICTIONARY] * (rows - 5) + [EMPTY] * 5,
        )
        assert f"row {rows - 5} of its batch:" in refused(broken)


# A shredding schema: a scalar type, a list of one schema, an object of several, or None for no typed_value.
schemas = st.recursive(
    st.sampled_from([None, "int64", "string", "bool", "double"]),
    lambda inner: st.one_of(
        st.tuples(inner),
        st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3),
    ),
    max_leaves=6,
)
shreddable = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("xyé", max_size=70),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abcde"), inner, max_size=4),
    max_leaves=8,
)
SCALAR_TYPES = {"int64": pa.int64(), "string": pa.string(), "bool": pa.bool_(), "double": pa.float64()}


def fits(value, schema):
    return {"int64": int, "string": str, "bool": bool, "double": float}.get(schema) is type(value)


def type_of(schema):
    fields = [pa.field("value", pa.binary())]
    if isinstance(schema, str):
        fields.append(pa.field("typed_value", SCALAR_TYPES[schema]))
    elif isinstance(schema, tuple):
        fields.append(pa.field("typed_value", pa.list_(type_of(schema[0]))))
    elif schema is not None:
        fields.append(pa.field("typed_value", pa.struct([(name, type_of(item)) for name, item in schema.items()])))
    return pa.struct(fields)


def shred(value, schema, encode):
    """A place of a shredded column, as the specification has a writer fill it."""
    if value is ABSENT:
        return {}
    if isinstance(schema, str) and fits(value, schema):
        return {"typed_value": value}
    if isinstance(schema, tuple) and isinstance(value, list):
        return {"typed_value": [shred(item, schema[0], encode) for item in value]}
    if isinstance(schema, dict) and isinstance(value, dict):
        left = {name: item for name, item in value.items() if name not in schema}
        typed = {name: shred(value.get(name, ABSENT), item, encode) for name, item in schema.items()}
        return {"typed_value": typed} | ({"value": encode(left)} if left else {})
    return {"value": encode(value)}


class TestRoundTrip:
    @settings(max_examples=examples(60))
    @given(schemas, st.lists(shreddable, min_size=1, max_size=4), st.integers())
    def test_shredded_values_are_restored(self, schema, values, seed):
        draw = random.Random(seed)
        rows = []
        for value in values:
            encoder = Encoder(draw)
            names, _ = encoder.encode([value, dict.fromkeys("abcde")])
            rows.append(shred(value, schema, encoder.value) | {"metadata": names})
        kind = pa.struct([pa.field("metadata", pa.binary()), *type_of(schema)])
        column = stored(pa.array(rows, kind))
        decoded = [json.loads(item) for item in variant_to_json(column).to_pylist()]
        assert decoded == values

    @settings(max_examples=examples(60))
    @given(schemas, st.lists(st.tuples(st.binary(max_size=12), st.binary(max_size=12)), max_size=4))
    def test_any_bytes(self, schema, pairs):
        rows = [
            {"metadata": names, "value": value, "typed_value": {} if isinstance(schema, dict) else None}
            for names, value in pairs
        ]
        kind = pa.struct([pa.field("metadata", pa.binary()), *type_of(schema)])
        try:
            cast_variant(pa.array(rows, kind), file_id="f").validate(full=True)
        except DataError:
            assert isinstance(schema, dict)

    def test_decimals(self):
        with decimal.localcontext(prec=60):
            values = [Decimal(n).scaleb(-9) for n in (0, 1, -1, 10**38 - 1, 1 - 10**38, 10**9, -(10**18))]
            texts = texts_of(shredded(pa.array(values, pa.decimal128(38, 9))))
            assert [Decimal(item) for item in texts] == values
