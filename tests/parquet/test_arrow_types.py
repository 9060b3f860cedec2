"""The Arrow type of every type of a table."""

import pyarrow as pa
import pytest
from parquet_files import array_of, field, map_of, struct_of, table_schema

from delta_sharing_client.errors import UnsupportedTypeError
from delta_sharing_client.model.schema import PRIMITIVES, DataType, PrimitiveType
from delta_sharing_client.parquet.arrow_types import arrow_schema, arrow_type


def of(kind):
    return arrow_schema(table_schema(("c", kind))).field("c").type


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("string", pa.string()),
        ("char(5)", pa.string()),
        ("varchar(5)", pa.string()),
        ("long", pa.int64()),
        ("integer", pa.int32()),
        ("short", pa.int16()),
        ("byte", pa.int8()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("void", pa.null()),
        ("decimal(38,10)", pa.decimal128(38, 10)),
        ("decimal(1,1)", pa.decimal128(1, 1)),
        (array_of("long"), pa.list_(pa.int64())),
        (map_of("string", array_of("date")), pa.map_(pa.string(), pa.list_(pa.date32()))),
        (
            struct_of(x="long", y=struct_of(z="date")),
            pa.struct({"x": pa.int64(), "y": pa.struct({"z": pa.date32()})}),
        ),
        (struct_of(), pa.struct([])),
    ],
    ids=str,
)
def test_types(kind, expected):
    assert of(kind) == expected


def test_every_primitive_has_one():
    for name in PRIMITIVES:
        assert isinstance(arrow_type(PrimitiveType(name)), pa.DataType)


def test_all_columns_are_nullable():
    schema = table_schema(field("c", "long") | {"nullable": False}, ("d", struct_of(x="long")))
    got = arrow_schema(schema)
    assert all(f.nullable for f in got)
    assert got.field("d").type.field(0).nullable


@pytest.mark.parametrize(
    "kind", ["hologram", array_of("hologram"), map_of("string", "hologram"), struct_of(x="hologram")]
)
def test_unknown_types_raise_every_time(kind):
    for _ in range(2):
        with pytest.raises(UnsupportedTypeError, match="'hologram'"):
            of(kind)


def test_an_unrelated_type_raises():
    with pytest.raises(UnsupportedTypeError):
        arrow_type(DataType())


def test_schemas_that_differ_only_in_names_are_distinguished():
    one, two = table_schema(("a", "long")), table_schema(("b", "long"))
    assert arrow_schema(one).names == ["a"]
    assert arrow_schema(two).names == ["b"]
    assert arrow_schema(table_schema()) == pa.schema([])
