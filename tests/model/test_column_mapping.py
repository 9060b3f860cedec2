"""Physical names and field ids of columns."""

import pytest

from delta_sharing_client.errors import ProtocolError, UnsupportedFeatureError
from delta_sharing_client.model.column_mapping import field_id, mapping_mode, physical_name
from delta_sharing_client.model.schema import PrimitiveType, StructField

LONG = PrimitiveType("long")
MAPPED = StructField(
    "amount", LONG, metadata={"delta.columnMapping.id": 7, "delta.columnMapping.physicalName": "col-1"}
)
PLAIN = StructField("amount", LONG)


@pytest.mark.parametrize(
    ("text", "mode"),
    [(None, "none"), ("", "none"), ("none", "none"), ("NAME", "name"), ("id", "id"), ("Id", "id")],
)
def test_mode(text, mode):
    configuration = {} if text is None else {"delta.columnMapping.mode": text}
    assert mapping_mode(configuration) == mode


def test_an_unknown_mode():
    with pytest.raises(UnsupportedFeatureError, match="'fancy'") as caught:
        mapping_mode({"delta.columnMapping.mode": "fancy"})
    assert caught.value.features == ("columnMapping",)


@pytest.mark.protocol("columnMapping")
def test_physical_names():
    assert physical_name(MAPPED, "none") == "amount"
    assert physical_name(MAPPED, "name") == "col-1"
    assert physical_name(MAPPED, "id") == "col-1"
    assert physical_name(PLAIN, "none") == "amount"


@pytest.mark.parametrize("value", [None, "", 5, []])
def test_a_mapped_column_without_a_physical_name(value):
    column = StructField("amount", LONG, metadata={"delta.columnMapping.physicalName": value})
    for broken in (column, PLAIN):
        with pytest.raises(ProtocolError, match="'amount' has no physical name"):
            physical_name(broken, "name")


def test_field_ids():
    assert field_id(MAPPED) == 7
    for value in (None, "7", True, 7.0):
        with pytest.raises(ProtocolError, match="'amount' has none"):
            field_id(StructField("amount", LONG, metadata={"delta.columnMapping.id": value}))
    with pytest.raises(ProtocolError, match="'amount' has none"):
        field_id(PLAIN)
