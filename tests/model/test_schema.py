"""Decoding of schemas, and malformed schemas."""

import json
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from thorough import examples

from delta_sharing_client.errors import ProtocolError, UnsupportedTypeError
from delta_sharing_client.model.schema import (
    MAX_DEPTH,
    PRIMITIVES,
    ArrayType,
    DecimalType,
    GeospatialType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    UnknownType,
    parse_schema,
    parse_type_name,
)


def field(name, kind, **more):
    return {"name": name, "type": kind, "nullable": True, "metadata": {}} | more


def struct(*fields):
    return {"type": "struct", "fields": list(fields)}


def parse(*fields):
    return parse_schema(json.dumps(struct(*fields)))


def type_of(kind):
    return parse(field("c", kind)).fields[0].type


def test_fields_of_structs_are_suggested():
    schema = parse(field("address", struct(field("city", "string"), field("postcode", "string"))))
    assert schema["Address"].type["CITY"].name == "city"
    for call in (lambda: schema["address.ctiy"], lambda: schema["address"].type["ctiy"]):
        with pytest.raises(KeyError, match="did you mean 'city'"):
            call()
    assert "'address' is a struct, which is read as a whole" in schema.suggestion(["address.ctiy"])


def to_json(data_type):
    """The type as Spark writes it."""
    if isinstance(data_type, StructType):
        return struct(
            *(field(f.name, to_json(f.type), nullable=f.nullable, metadata=dict(f.metadata)) for f in data_type)
        )
    if isinstance(data_type, ArrayType):
        return {
            "type": "array",
            "elementType": to_json(data_type.element),
            "containsNull": data_type.contains_null,
        }
    if isinstance(data_type, MapType):
        return {
            "type": "map",
            "keyType": to_json(data_type.key),
            "valueType": to_json(data_type.value),
            "valueContainsNull": data_type.value_contains_null,
        }
    return str(data_type)


names = st.text(min_size=1)
leaves = st.sampled_from(sorted(PRIMITIVES)).map(PrimitiveType) | st.integers(1, 38).flatmap(
    lambda p: st.integers(0, p).map(lambda s: DecimalType(p, s))
)
types = st.recursive(
    leaves,
    lambda inner: (
        st.builds(ArrayType, inner, st.booleans())
        | st.builds(MapType, inner, inner, st.booleans())
        | st.lists(
            st.builds(StructField, names, inner, st.booleans()), max_size=4, unique_by=lambda f: f.name
        ).map(lambda fields: StructType(tuple(fields)))
    ),
    max_leaves=8,
)


class TestTypes:
    @pytest.mark.parametrize("name", sorted(PRIMITIVES))
    def test_primitives(self, name):
        assert type_of(name) == PrimitiveType(name)

    @pytest.mark.parametrize(
        ("name", "plain"),
        [("null", "void"), ("int", "integer"), ("bigint", "long"), ("smallint", "short"), ("tinyint", "byte")],
    )
    def test_other_spellings(self, name, plain):
        assert type_of(name) == PrimitiveType(plain)

    @pytest.mark.parametrize("name", ["char(5)", "varchar(10)", "varchar( 65535 )"])
    def test_char_and_varchar_are_strings(self, name):
        assert type_of(name) == PrimitiveType("string")

    @pytest.mark.parametrize(
        ("name", "expected"),
        [
            ("decimal(10,2)", DecimalType(10, 2)),
            ("decimal( 38 , 38 )", DecimalType(38, 38)),
            ("decimal(1,0)", DecimalType(1, 0)),
            ("decimal", DecimalType(10, 0)),
        ],
    )
    def test_decimals(self, name, expected):
        assert type_of(name) == expected

    @pytest.mark.parametrize(
        ("name", "crs", "edges"),
        [
            ("geometry(4326)", "4326", None),
            ("geometry(OGC:CRS84)", "OGC:CRS84", None),
            ("geography(EPSG:4326, vincenty)", "EPSG:4326", "vincenty"),
            ("geography(srid:4326,spherical)", "srid:4326", "spherical"),
        ],
    )
    def test_geospatial(self, name, crs, edges):
        assert type_of(name) == GeospatialType(name, crs, edges)
        assert str(type_of(name)) == name

    def test_an_unknown_type_with_parameters(self):
        found = type_of({"type": "union", "of": ["long", "string"]})
        assert isinstance(found, UnknownType)
        assert str(found) == "union"

    @pytest.mark.parametrize(
        "name",
        [
            "geometry",
            "interval year to month",
            "geometry()",
            "geography(EPSG:4326)",
            "decimal(39,0)",
            "decimal(0,0)",
            "decimal(5,6)",
            "decimal(5,-1)",
            "decimal(5)",
            "LONG",
            "char",
            "",
            "struct",
        ],
    )
    def test_an_unknown_type_is_kept_until_it_is_read(self, name):
        schema = parse(field("ok", "long"), field("odd", name))
        odd = schema.fields[1].type
        assert odd == UnknownType(name, "odd")
        error = odd.error()
        assert isinstance(error, UnsupportedTypeError)
        assert error.type_name == name
        assert "'odd'" in str(error)

    def test_an_unknown_type_inside_names_its_path(self):
        schema = parse(field("a", {"type": "array", "elementType": struct(field("b.c", "geometry"))}))
        assert "'a.element.b.c'" in str(schema.fields[0].type.element.fields[0].type.error())
        assert parse_type_name("geometry").column == ""
        assert "a column" in str(parse_type_name("geometry").error())

    def test_nested(self):
        kind = type_of(
            {
                "type": "map",
                "keyType": "string",
                "valueType": {
                    "type": "array",
                    "elementType": struct(field("x", "decimal(5,1)", nullable=False), field("y", "date")),
                    "containsNull": False,
                },
                "valueContainsNull": False,
            }
        )
        inner = StructType((StructField("x", DecimalType(5, 1), False), StructField("y", PrimitiveType("date"))))
        assert kind == MapType(PrimitiveType("string"), ArrayType(inner, False), False)
        assert str(kind) == "map<string,array<struct<x: decimal(5,1), y: date>>>"

    def test_a_user_defined_type_has_its_sql_type(self):
        assert type_of({"type": "udt", "class": "x", "sqlType": "double"}) == PrimitiveType("double")

    @pytest.mark.parametrize("metadata", [5, "x", [], True])
    def test_metadata_must_be_an_object(self, metadata):
        with pytest.raises(ProtocolError, match=r"metadata of the column 'a\.b' is not an object"):
            inner = {"type": "struct", "fields": [field("b", "long", metadata=metadata)]}
            parse_schema(json.dumps({"type": "struct", "fields": [field("a", inner)]}))

    @pytest.mark.parametrize("name", ["x\ud83d", "\udc00"])
    def test_a_lone_surrogate_in_a_name(self, name):
        for text in (json.dumps({"type": "struct", "fields": [field(name, "long")]}),):
            with pytest.raises(ProtocolError, match="an unpaired surrogate"):
                parse_schema(text)

    @pytest.mark.parametrize("kind", ["decimal(" + "9" * 5000 + ",2)", "decimal(10," + "9" * 5000 + ")"])
    def test_decimals_of_many_digits_are_unknown(self, kind):
        (column,) = parse_schema(json.dumps({"type": "struct", "fields": [field("a", kind)]}))
        assert isinstance(column.type, UnknownType)

    def test_nullability_and_metadata(self):
        first, second, third = parse(
            field("a", "long", nullable=False, metadata={"comment": "x", "delta.columnMapping.id": 5}),
            {"name": "b", "type": "long"},
            field("c", "long", metadata=None, nullable=None),
        )
        assert (first.nullable, first.metadata) == (False, {"comment": "x", "delta.columnMapping.id": 5})
        assert (second.nullable, second.metadata) == (True, {})
        assert third.metadata == {}

    @given(types.filter(lambda t: isinstance(t, StructType)))
    @settings(max_examples=examples(80), deadline=None)
    def test_round_trip(self, schema):
        again = parse_schema(json.dumps(to_json(schema)))
        assert again == schema
        assert hash(again) == hash(schema)
        assert pickle.loads(pickle.dumps(again)) == schema


class TestNames:
    @pytest.mark.parametrize(
        "name",
        [
            "a.b",
            "a b",
            " a ",
            "`a`",
            "a`b",
            'a"b',
            "a'b",
            "ünïcödé",
            "表",
            "🦆",
            "a\nb",
            "a\\b",
            "select",
            "1",
            "#",
        ],
    )
    def test_any_name(self, name):
        schema = parse(field(name, "long"), field("other", struct(field(name, "date"))))
        assert schema.names == [name, "other"]
        assert schema.find(name) is schema.fields[0]
        assert schema.fields[1].type.find(name).type == PrimitiveType("date")

    def test_a_dot_belongs_to_the_name(self):
        schema = parse(field("a", struct(field("b", "long"))), field("a.b", "string"))
        assert schema.find("a.b").type == PrimitiveType("string")
        assert parse(field("a", struct(field("b", "long")))).find("a.b") is None

    def test_an_exact_name_is_preferred(self):
        schema = parse(field("Id", "long"), field("ID", "string"), field("Ünï", "date"))
        assert schema.find("ID").type == PrimitiveType("string")
        assert schema.find("Id").type == PrimitiveType("long")
        assert schema.find("id").type == PrimitiveType("long")
        assert schema.find("ünï").type == PrimitiveType("date")
        assert schema.find("no") is None

    def test_a_repeated_name_raises(self):
        """Otherwise a filter would be ambiguous."""
        with pytest.raises(ProtocolError, match="'a' twice"):
            parse(field("a", "long"), field("b", "long"), field("a", "string"))
        with pytest.raises(ProtocolError, match=r"'x' twice.*'s'"):
            parse(field("s", struct(field("x", "long"), field("x", "long"))))

    def test_sizes(self):
        schema = parse(field("a", "long"), field("b", "long"))
        assert len(schema) == 2
        assert [f.name for f in schema] == ["a", "b"]
        assert len(parse()) == 0


class TestMalformed:
    @pytest.mark.parametrize(
        "text",
        [
            "",
            "nonsense",
            "[]",
            "null",
            "1",
            '"long"',
            '{"type":"struct"}',
            '{"type":"struct","fields":{}}',
            '{"type":"struct","fields":[1]}',
            '{"type":"struct","fields":[{"name":"a"}]}',
            '{"type":"struct","fields":[{"type":"long"}]}',
            '{"type":"struct","fields":[{"name":1,"type":"long"}]}',
            '{"type":"struct","fields":[{"name":"a","type":null}]}',
            '{"type":"struct","fields":[{"name":"a","type":["long"]}]}',
            '{"type":"struct","fields":[{"name":"a","type":{"type":"array"}}]}',
            '{"type":"struct","fields":[{"name":"a","type":{"type":"map","keyType":"long"}}]}',
            '{"type":"struct","fields":[{"name":"a","type":{"type":["x"]}}]}',
            '{"type":"array","elementType":"long"}',
        ],
    )
    def test_raises(self, text):
        with pytest.raises(ProtocolError, match="the table's schema"):
            parse_schema(text)

    def test_the_error_names_the_path(self):
        with pytest.raises(ProtocolError, match=r"'a\.element\.b'"):
            parse(field("a", {"type": "array", "elementType": struct(field("b", {"type": "map"}))}))

    def test_depth_is_bounded(self):
        def nested(depth):
            node = "long"
            for _ in range(depth):
                node = {"type": "array", "elementType": node}
            return json.dumps(struct(field("a", node)))

        assert parse_schema(nested(MAX_DEPTH - 1))
        for depth in (MAX_DEPTH, 300):
            with pytest.raises(ProtocolError, match="nested deeper than"):
                parse_schema(nested(depth))

    @pytest.mark.parametrize("text", ['{"a":' * 100_000, "[" * 100_000])
    def test_depth_is_bounded_for_the_parser_too(self, text):
        with pytest.raises(ProtocolError):
            parse_schema(text)

    def test_deep_structs_and_maps(self):
        node = "long"
        for _ in range(200):
            node = struct(field("a", {"type": "map", "keyType": "string", "valueType": node}))
        with pytest.raises(ProtocolError, match="nested deeper than"):
            parse_schema(json.dumps(node))

    @given(
        st.recursive(
            st.none()
            | st.booleans()
            | st.integers()
            | st.sampled_from(["long", "struct", "array", "map", "x", "decimal(3,1)"]),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(["type", "fields", "name", "elementType", "keyType", "valueType", "metadata"]),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    @settings(max_examples=examples(200), deadline=None)
    def test_any_json_is_a_schema_or_a_typed_error(self, node):
        try:
            schema = parse_schema(json.dumps(node))
        except ProtocolError:
            return
        assert isinstance(schema, StructType)
        hash(schema)
