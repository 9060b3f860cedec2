"""Parquet files in the layouts of other and older writers, with their expected rows.

A table's log may name files that no current Delta engine wrote: converted tables, imported files, files of old
releases. `make_layouts.py` writes each case with parquet-java and asks Spark for its rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any


@dataclass(frozen=True)
class Layout:
    """One file.

    Attributes:
        message: its Parquet schema; every file has a column `id` besides.
        fields: the columns of the table, by name, with their types as Delta writes them.
        records: what is written, a mapping by Parquet's names for each row; `id` is counted from 1.
        rows: what a reader of the table gets: the values of `fields` for each row.
        refused: part of the error of a reader that cannot read it, where this package cannot.
        since: the release of pyarrow that reads it; with older ones it is refused.
    """

    message: str
    fields: dict[str, Any]
    records: list[dict[str, Any]]
    rows: list[tuple[Any, ...]]
    refused: str | None = None
    since: int = 16

    @property
    def schema(self) -> dict[str, Any]:
        """The table's schema as Delta writes it."""
        return struct_of(id="integer", **self.fields)


def array_of(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def map_of(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def struct_of(**fields: Any) -> dict[str, Any]:
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in fields.items()]
    return {"type": "struct", "fields": columns}


def signed(number: int, length: int) -> bytes:
    return number.to_bytes(length, "big", signed=True)


INTS = array_of("integer")
NONE: dict[str, Any] = {}

LAYOUTS = {
    # Lists without a group for each element, as Avro, Thrift, Protocol Buffers and old Spark write them.
    "list_two_levels": Layout(
        "optional group f (LIST) { repeated int32 array; }",
        {"f": INTS},
        [{"f": {"array": [1, 2]}}, NONE, {"f": NONE}],
        [([1, 2],), (None,), ([],)],
    ),
    "list_two_levels_of_texts": Layout(
        "optional group f (LIST) { repeated binary element (UTF8); }",
        {"f": array_of("string")},
        [{"f": {"element": ["a", "ü"]}}, NONE, {"f": NONE}],
        [(["a", "ü"],), (None,), ([],)],
    ),
    "list_of_group_array": Layout(
        "optional group f (LIST) { repeated group array { optional int32 a; } }",
        {"f": array_of(struct_of(a="integer"))},
        [{"f": {"array": [{"a": 1}, NONE]}}, NONE, {"f": NONE}],
        [([{"a": 1}, {"a": None}],), (None,), ([],)],
    ),
    "list_of_group_tuple": Layout(
        "optional group f (LIST) { repeated group f_tuple { required int32 a; } }",
        {"f": array_of(struct_of(a="integer"))},
        [{"f": {"f_tuple": [{"a": 1}, {"a": 2}]}}, NONE],
        [([{"a": 1}, {"a": 2}],), (None,)],
    ),
    "list_of_group_with_two_fields": Layout(
        "optional group f (LIST) { repeated group element { optional int32 a; optional binary b (UTF8); } }",
        {"f": array_of(struct_of(a="integer", b="string"))},
        [{"f": {"element": [{"a": 1, "b": "x"}, NONE]}}, NONE],
        [([{"a": 1, "b": "x"}, {"a": None, "b": None}],), (None,)],
    ),
    "list_of_lists_thrift": Layout(
        "optional group n (LIST) { repeated group n_tuple (LIST) { repeated int32 n_tuple_tuple; } }",
        {"n": array_of(INTS)},
        [{"n": {"n_tuple": [{"n_tuple_tuple": [1, 2]}, NONE]}}, NONE],
        [([[1, 2], []],), (None,)],
        since=20,
    ),
    "list_of_lists_avro": Layout(
        "optional group n (LIST) { repeated group array (LIST) { repeated int32 array; } }",
        {"n": array_of(INTS)},
        [{"n": {"array": [{"array": [1, 2]}, NONE]}}, NONE],
        [([[1, 2], []],), (None,)],
        since=20,
    ),
    "list_of_maps_avro": Layout(
        "optional group n (LIST) { repeated group array (MAP) { repeated group map (MAP_KEY_VALUE) "
        "{ required binary key (UTF8); required int32 value; } } }",
        {"n": array_of(map_of("string", "integer"))},
        [{"n": {"array": [{"map": [{"key": "a", "value": 1}]}, NONE]}}, NONE],
        [([[("a", 1)], []],), (None,)],
        since=24,
    ),
    "list_hive": Layout(
        "optional group f (LIST) { repeated group bag { optional int32 array_element; } }",
        {"f": INTS},
        [{"f": {"bag": [{"array_element": 1}, NONE]}}, NONE],
        [([1, None],), (None,)],
    ),
    "list_item": Layout(
        "optional group f (LIST) { repeated group list { optional int32 item; } }",
        {"f": INTS},
        [{"f": {"list": [{"item": 1}, NONE]}}, NONE],
        [([1, None],), (None,)],
    ),
    "list_required": Layout(
        "required group f (LIST) { repeated group list { required int32 element; } }",
        {"f": INTS},
        [{"f": {"list": [{"element": 1}, {"element": 2}]}}, {"f": NONE}],
        [([1, 2],), ([],)],
    ),
    # Repeated fields that nothing marks as lists.
    "repeated": Layout(
        "repeated int32 f; repeated binary s (UTF8);",
        {"f": INTS, "s": array_of("string")},
        [{"f": [1, 2], "s": ["x"]}, NONE],
        [([1, 2], ["x"]), ([], [])],
    ),
    "repeated_group": Layout(
        "repeated group f { required int32 a; optional binary b (UTF8); }",
        {"f": array_of(struct_of(a="integer", b="string"))},
        [{"f": [{"a": 1, "b": "x"}, {"a": 2}]}, NONE],
        [([{"a": 1, "b": "x"}, {"a": 2, "b": None}],), ([],)],
    ),
    "repeated_in_a_group": Layout(
        "optional group g { repeated int32 f; optional binary s (UTF8); }",
        {"g": struct_of(f=INTS, s="string")},
        [{"g": {"f": [1, 2], "s": "x"}}, NONE, {"g": NONE}],
        [({"f": [1, 2], "s": "x"},), (None,), ({"f": [], "s": None},)],
    ),
    "map_key_value": Layout(
        "optional group f (MAP_KEY_VALUE) { repeated group map "
        "{ required binary key (UTF8); optional int32 value; } }",
        {"f": map_of("string", "integer")},
        [{"f": {"map": [{"key": "a", "value": 1}, {"key": "b"}]}}, NONE, {"f": NONE}],
        [([("a", 1), ("b", None)],), (None,), ([],)],
    ),
    "map_old": Layout(
        "optional group f (MAP) { repeated group map (MAP_KEY_VALUE) "
        "{ required binary key (UTF8); optional int32 value; } }",
        {"f": map_of("string", "integer")},
        [{"f": {"map": [{"key": "a", "value": 1}, {"key": "b"}]}}, NONE],
        [([("a", 1), ("b", None)],), (None,)],
    ),
    "map_other_names": Layout(
        "optional group f (MAP) { repeated group entries { required int32 num; optional binary str (UTF8); } }",
        {"f": map_of("integer", "string")},
        [{"f": {"entries": [{"num": 1, "str": "a"}, {"num": 2}]}}, NONE],
        [([(1, "a"), (2, None)],), (None,)],
    ),
    "map_of_lists_thrift": Layout(
        "required group f (MAP) { repeated group map (MAP_KEY_VALUE) { required int32 key; optional group value "
        "(LIST) { repeated group value_tuple { required binary s (UTF8); required int32 i; } } } }",
        {"f": map_of("integer", array_of(struct_of(s="string", i="integer")))},
        [{"f": {"map": [{"key": 1, "value": {"value_tuple": [{"s": "x", "i": 1}]}}, {"key": 2}]}}, {"f": NONE}],
        [([(1, [{"s": "x", "i": 1}]), (2, None)],), ([],)],
    ),
    "map_optional_key": Layout(
        "optional group f (MAP) { repeated group key_value "
        "{ optional binary key (UTF8); optional int32 value; } }",
        {"f": map_of("string", "integer")},
        [{"f": {"key_value": [{"key": "a", "value": 1}, {"key": "b"}]}}, NONE],
        [([("a", 1), ("b", None)],), (None,)],
        refused="Map keys must be annotated as required",
    ),
    # Values in other types than the table's.
    "texts": Layout(
        "optional binary a; optional binary e (ENUM); optional binary j (JSON); optional binary u (UTF8);",
        {"a": "string", "e": "string", "j": "string", "u": "string"},
        [{"a": "x", "e": "RED", "j": "{}", "u": "ü"}, NONE],
        [("x", "RED", "{}", "ü"), (None, None, None, None)],
    ),
    "bytes": Layout(
        "optional binary a (UTF8); optional fixed_len_byte_array(3) f; optional binary j (BSON);",
        {"a": "binary", "f": "binary", "j": "binary"},
        [{"a": "x", "f": b"abc", "j": b"\x00\x01"}, NONE],
        [(b"x", b"abc", b"\x00\x01"), (None, None, None)],
    ),
    "decimals": Layout(
        "optional int32 a (DECIMAL(5,2)); optional int64 b (DECIMAL(10,5)); "
        "optional fixed_len_byte_array(16) c (DECIMAL(20,10)); optional binary d (DECIMAL(20,10)); "
        "optional fixed_len_byte_array(3) e (DECIMAL(5,2)); optional binary f (DECIMAL(5,2)); "
        "optional int64 g (DECIMAL(5,2)); optional fixed_len_byte_array(9) h (DECIMAL(20,10));",
        {
            "a": "decimal(5,2)",
            "b": "decimal(10,5)",
            "c": "decimal(20,10)",
            "d": "decimal(20,10)",
            "e": "decimal(5,2)",
            "f": "decimal(5,2)",
            "g": "decimal(5,2)",
            "h": "decimal(20,10)",
        },
        [
            {
                "a": -12345,
                "b": 1234567890,
                "c": signed(-5, 16),
                "d": signed(-5, 2),
                "e": signed(99999, 3),
                "f": signed(-1, 1),
                "g": 123,
                "h": signed(10**20 - 1, 9),
            },
            NONE,
        ],
        [
            (
                Decimal("-123.45"),
                Decimal("12345.67890"),
                Decimal("-0.0000000005"),
                Decimal("-0.0000000005"),
                Decimal("999.99"),
                Decimal("-0.01"),
                Decimal("1.23"),
                Decimal("9999999999.9999999999"),
            ),
            (None,) * 8,
        ],
    ),
    "integers": Layout(
        "optional int32 a (INT_8); optional int32 b (INT_16); optional int32 c (INT_32); "
        "optional int64 d (INT_64); optional int32 u8 (UINT_8); optional int32 u16 (UINT_16); "
        "optional int32 u32 (UINT_32); optional int32 p;",
        {
            "a": "byte",
            "b": "short",
            "c": "integer",
            "d": "long",
            "u8": "short",
            "u16": "integer",
            "u32": "long",
            "p": "byte",
        },
        [{"a": -1, "b": -2, "c": -3, "d": -4, "u8": 200, "u16": 60000, "u32": -1, "p": 7}, NONE],
        [(-1, -2, -3, -4, 200, 60000, 4294967295, 7), (None,) * 8],
    ),
    "times": Layout(
        "optional int64 a (TIMESTAMP_MILLIS); optional int64 b (TIMESTAMP_MICROS); "
        "optional int64 c (TIMESTAMP(MICROS,false)); optional int64 d (TIMESTAMP(MILLIS,false)); "
        "optional int32 e (DATE);",
        {"a": "timestamp", "b": "timestamp", "c": "timestamp_ntz", "d": "timestamp_ntz", "e": "date"},
        [{"a": 1577866150001, "b": 1577866150001002, "c": -1, "d": -1, "e": -1}, NONE],
        [
            (
                datetime(2020, 1, 1, 8, 9, 10, 1000, UTC),
                datetime(2020, 1, 1, 8, 9, 10, 1002, UTC),
                datetime(1969, 12, 31, 23, 59, 59, 999999),
                datetime(1969, 12, 31, 23, 59, 59, 999000),
                date(1969, 12, 31),
            ),
            (None,) * 5,
        ],
    ),
    # Columns that differ from the table's.
    "names_in_another_case": Layout(
        "optional group F { optional int32 A; }",
        {"f": struct_of(a="integer")},
        [{"F": {"A": 3}}, NONE],
        [({"a": 3},), (None,)],
    ),
    "struct_without_the_field": Layout(
        "optional group f { optional int32 a; }",
        {"f": struct_of(b="integer")},
        [{"f": {"a": 3}}, NONE],
        [({"b": None},), (None,)],
    ),
    "struct_with_others": Layout(
        "optional group f { optional int32 a; optional group l (LIST) { repeated group list "
        "{ optional int32 element; } } optional int32 b; }",
        {"f": struct_of(b="integer", c=INTS)},
        [{"f": {"a": 3, "b": 4, "l": {"list": [{"element": 1}]}}}, NONE],
        [({"b": 4, "c": None},), (None,)],
    ),
}
