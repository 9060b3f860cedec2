"""Changes of a table's columns between versions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delta_sharing_client.errors import ProtocolError
from delta_sharing_client.model.actions import Metadata
from delta_sharing_client.model.schema_evolution import ColumnChange, column_changes

PLAIN = ("none", "none")
MAPPED = ("name", "name")


def field(name: str, kind: Any = "long", physical: str | None = None, *, nullable: bool = True) -> dict[str, Any]:
    metadata = {} if physical is None else {"delta.columnMapping.physicalName": physical}
    return {"name": name, "type": kind, "nullable": nullable, "metadata": metadata}


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def mapping(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def metadata(*fields: dict[str, Any]) -> Metadata:
    return Metadata(id="x", schema_string=json.dumps(struct(*fields)))


def changes(before: list[Any], after: list[Any], modes: Any = PLAIN) -> list[ColumnChange]:
    return list(column_changes(metadata(*before), metadata(*after), modes))


def test_equal_schemas_have_no_changes() -> None:
    columns = [field("a"), field("b", struct(field("c", array("string"))))]
    assert changes(columns, columns) == []
    assert changes([field("a"), field("b")], [field("b"), field("a")]) == []
    assert changes([field("a", nullable=False)], [field("a")]) == []
    assert changes([field("a", "varchar(3)")], [field("a", "string")]) == []
    assert changes([field("a", physical="p")], [field("a", physical="p")], MAPPED) == []


@pytest.mark.parametrize(
    ("before", "after", "modes", "expected"),
    [
        ([field("a")], [field("a"), field("b")], PLAIN, ["column 'b' was added"]),
        ([field("a"), field("b")], [field("a")], PLAIN, ["column 'b' was dropped"]),
        ([field("a")], [field("b")], PLAIN, ["column 'a' was dropped", "column 'b' was added"]),
        ([field("a")], [field("A")], PLAIN, ["column 'a' was dropped", "column 'A' was added"]),
        ([field("a", physical="p")], [field("b", physical="p")], MAPPED, ["column 'a' was renamed to 'b'"]),
        (
            [field("a", physical="p")],
            [field("a", physical="q")],
            MAPPED,
            ["column 'a' was dropped", "column 'a' was added"],
        ),
        (
            [field("a", "long", "p")],
            [field("b", "double", "p")],
            MAPPED,
            ["column 'a' was renamed to 'b'", "column 'a' changed its type from long to double"],
        ),
        ([field("a")], [field("b", physical="a")], ("none", "name"), ["column 'a' was renamed to 'b'"]),
        (
            [field("a", "integer")],
            [field("a", array("integer"))],
            PLAIN,
            ["column 'a' changed its type from integer to array<integer>"],
        ),
        (
            [field("a", "decimal(5,2)")],
            [field("a", "decimal(6,2)")],
            PLAIN,
            ["column 'a' changed its type from decimal(5,2) to decimal(6,2)"],
        ),
        (
            [field("m", mapping(struct(field("k")), array(struct(field("v", "date")))))],
            [field("m", mapping(struct(field("k", "short")), array(struct(field("v", "date"), field("w")))))],
            PLAIN,
            ["column 'm.key.k' changed its type from long to short", "column 'm.value.element.w' was added"],
        ),
        (
            [field("s", struct(field("x", physical="i")), "p")],
            [field("t", struct(field("y", physical="i")), "p")],
            MAPPED,
            ["column 's' was renamed to 't'", "column 's.x' was renamed to 'y'"],
        ),
    ],
)
def test_each_kind(before: list[Any], after: list[Any], modes: Any, expected: list[str]) -> None:
    assert [str(item) for item in changes(before, after, modes)] == expected


def test_the_top_level_column() -> None:
    before = [field("s", struct(field("x", physical="i")), "p"), field("g", physical="q")]
    after = [field("t", struct(field("y", "string", physical="i")), "p")]
    found = changes(before, after, MAPPED)
    assert [(item.kind, item.top) for item in found] == [
        ("renamed", "t"),
        ("renamed", "t"),
        ("type", "t"),
        ("dropped", "g"),
    ]
    assert [item.additive for item in changes([field("a")], [field("a"), field("b")])] == [True]
    assert not any(item.additive for item in found)


def test_a_mapped_column_without_a_physical_name() -> None:
    with pytest.raises(ProtocolError, match="'b' has no physical name"):
        changes([field("a", physical="p")], [field("b")], MAPPED)
