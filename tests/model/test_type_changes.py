"""Which changes of type a reader takes: those that the Delta protocol lists, and no others."""

import json

import pytest

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.schema import parse_schema, parse_type_name
from delta_sharing_client.model.type_widening import check_type_changes, is_widening
from delta_sharing_client.scan.file_tasks import read_spec

KNOWN = [
    ("byte", "short"),
    ("byte", "long"),
    ("short", "integer"),
    ("integer", "long"),
    ("float", "double"),
    ("byte", "double"),
    ("integer", "double"),
    ("date", "timestamp_ntz"),
    ("decimal(6,2)", "decimal(10,4)"),
    ("decimal(6,2)", "decimal(7,2)"),
    ("decimal(6,2)", "decimal(6,2)"),
    ("byte", "decimal(10,0)"),
    ("integer", "decimal(14,4)"),
    ("long", "decimal(20,0)"),
    ("long", "decimal(38,18)"),
    ("string", "string"),
    ("string", "string collate UTF8_LCASE"),
    ("string collate UNICODE", "string"),
]
OTHERS = [
    ("long", "integer"),
    ("long", "double"),
    ("double", "float"),
    ("integer", "float"),
    ("integer", "string"),
    ("date", "timestamp"),
    ("timestamp_ntz", "timestamp"),
    ("long", "timestamp"),
    ("integer", "date"),
    ("decimal(6,2)", "decimal(7,4)"),
    ("decimal(6,2)", "decimal(5,2)"),
    ("decimal(6,2)", "decimal(8,1)"),
    ("integer", "decimal(10,1)"),
    ("long", "decimal(19,0)"),
    ("decimal(6,0)", "long"),
    ("decimal(6,0)", "double"),
    ("float", "decimal(38,18)"),
    ("boolean", "integer"),
    ("interval day", "long"),
    ("integer", "geometry"),
    ("integer", "string collate UNICODE"),
]


def schema_of(*fields):
    return json.dumps({"type": "struct", "fields": list(fields)})


def field(name, kind, *changes, **more):
    listed = [{"fromType": before, "toType": after} | more for before, after in changes]
    return {
        "name": name,
        "type": kind,
        "nullable": True,
        "metadata": {"delta.typeChanges": listed} if listed else {},
    }


@pytest.mark.parametrize(("before", "after"), KNOWN)
def test_known(before, after):
    assert is_widening(parse_type_name(before), parse_type_name(after))


@pytest.mark.parametrize(("before", "after"), OTHERS)
def test_others(before, after):
    assert not is_widening(parse_type_name(before), parse_type_name(after))


def test_every_change_counts():
    columns = parse_schema(
        schema_of(field("a", "long", ("byte", "short"), ("string", "integer"), ("integer", "long")))
    )
    with pytest.raises(UnsupportedFeatureError, match=r"column 'a' was changed from string to integer") as caught:
        check_type_changes(columns)
    assert caught.value.features == ("typeWidening",)


def test_changes_inside_a_column():
    inner = {"type": "struct", "fields": [field("x", "string", ("integer", "string"))]}
    array = {"type": "array", "elementType": inner, "containsNull": True}
    mapped = {"type": "map", "keyType": "double", "valueType": array, "valueContainsNull": True}
    columns = parse_schema(schema_of(field("m", mapped, ("float", "double"), fieldPath="key")))
    with pytest.raises(
        UnsupportedFeatureError, match=r"'m\.value\.element\.x' was changed from integer to string"
    ):
        check_type_changes(columns)
    columns = parse_schema(schema_of(field("m", mapped, ("string", "double"), fieldPath="key")))
    with pytest.raises(UnsupportedFeatureError, match=r"'m\.key' was changed from string to double"):
        check_type_changes(columns)


def test_columns_that_are_not_read_are_ignored():
    metadata = Metadata("t", schema_of(field("a", "string", ("integer", "string")), field("b", "long")))
    assert read_spec(metadata, ["b"], None).output.names == ["b"]
    with pytest.raises(UnsupportedFeatureError, match="'a' was changed"):
        read_spec(metadata, None, None)
    with pytest.raises(UnsupportedFeatureError, match=r"columns=\["):
        read_spec(metadata, ["a", "b"], None)


def test_a_list_of_changes_as_text():
    changes = {"delta.typeChanges": json.dumps([{"fromType": "integer", "toType": "string", "tableVersion": 3}])}
    columns = parse_schema(schema_of(field("a", "string") | {"metadata": changes}))
    with pytest.raises(UnsupportedFeatureError, match="'a' was changed"):
        check_type_changes(columns)


@pytest.mark.parametrize(
    "changes", ["", "x", "{}", {}, [1], 5, [{"fromType": "integer"}], [{"fromType": 1, "toType": 2}]]
)
def test_malformed(changes):
    columns = parse_schema(schema_of(field("a", "long") | {"metadata": {"delta.typeChanges": changes}}))
    with pytest.raises(ProtocolError, match="'a'"):
        check_type_changes(columns)
