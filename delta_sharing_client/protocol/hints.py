"""A predicate as hints for the server: `jsonPredicateHints` and `predicateHints`.

Servers evaluate hints on partition columns and give up on the whole hint where they meet anything else,
so only what speaks of partition columns is sent. Leaving out a part of an AND widens the hint, which is
safe; a part of an OR or NOT cannot be left out.

Serves "JSON predicates for Filtering" and "SQL Expressions for Filtering".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Collection
from datetime import date, datetime, timedelta
from typing import Any, Final

from delta_sharing_client.protocol.partition_values import Value, to_float32
from delta_sharing_client.protocol.predicates import And, Compare, In, IsNull, Not, Or, Predicate
from delta_sharing_client.protocol.schema import DataType, PrimitiveType, StructField

_VALUE_TYPES: Final = {
    "boolean": "bool",
    "byte": "int",
    "short": "int",
    "integer": "int",
    "long": "long",
    "string": "string",
    "date": "date",
    "float": "float",
    "double": "double",
    "timestamp": "timestamp",
}
_JSON_OPS: Final = {
    "=": "equal",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Names that SQL takes for constants or functions.
_NOT_A_COLUMN = re.compile(r"(?i)true|false|null|user|session_user|system_user|local.*|current_.*")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_MICROS: Final = (datetime.min - _EPOCH) // timedelta(microseconds=1)
_LAST_MICROS: Final = (datetime.max - _EPOCH) // timedelta(microseconds=1)
_MAX_IN: Final = 200


def json_hint(predicate: Predicate | None, partition_columns: Collection[str]) -> str | None:
    """Return the `jsonPredicateHints` text for a predicate, or None where no part of it can be said.

    Args:
        predicate: the bound row filter.
        partition_columns: names of the partition columns.
    """
    part = _on_partitions(predicate, partition_columns)
    return None if part is None else json.dumps(_json_node(part), separators=(",", ":"))


def merge_json_hints(given: str | None, ours: str | None) -> str | None:
    """AND the caller's own hint with ours; the caller's alone where it is no JSON object."""
    if given is None or ours is None:
        return given if ours is None else ours
    try:
        theirs = json.loads(given)
    except ValueError:
        return given
    if not isinstance(theirs, dict):
        return given
    return json.dumps({"op": "and", "children": [theirs, json.loads(ours)]}, separators=(",", ":"))


def sql_hints(predicate: Predicate | None, partition_columns: Collection[str]) -> tuple[str, ...]:
    """Return the `predicateHints` for a predicate: the simple comparisons that all rows must satisfy."""
    part = _on_partitions(predicate, partition_columns)
    if part is None:
        return ()
    parts = part.parts if isinstance(part, And) else (part,)
    return tuple(text for text in map(_sql, parts) if text is not None)


def _on_partitions(predicate: Predicate | None, columns: Collection[str]) -> Predicate | None:
    """The widest-reaching consequence of a predicate that speaks of these columns alone."""
    if predicate is None:
        return None
    wanted = {name.lower() for name in columns}

    def sayable(node: Predicate) -> bool:
        if isinstance(node, And | Or):
            return all(map(sayable, node.parts))
        if isinstance(node, Not):
            return sayable(node.part)
        if node.column.name.lower() not in wanted or _value_type(node.column.type) is None:
            return False
        if isinstance(node, Compare):
            return _means_the_same(node.value, node.column, ordered=node.op not in ("=", "!="))
        if isinstance(node, In):
            return 0 < len(node.values) <= _MAX_IN and all(
                _means_the_same(value, node.column, ordered=False) for value in node.values
            )
        return True

    def reduce(node: Predicate) -> Predicate | None:
        if isinstance(node, And):
            parts = tuple(part for part in map(reduce, node.parts) if part is not None)
            return And(parts) if len(parts) > 1 else (parts[0] if parts else None)
        if isinstance(node, Or):
            reduced = [reduce(part) for part in node.parts]
            parts = tuple(part for part in reduced if part is not None)
            return Or(parts) if len(parts) == len(reduced) else None
        return node if sayable(node) else None

    return reduce(predicate)


def _means_the_same(value: Value, column: StructField, *, ordered: bool) -> bool:
    """Whether every server reads the literal as we do, and compares it as we do."""
    if isinstance(value, float):
        # A server that casts both sides to 32 bits loses the difference to a literal that has more.
        narrow = isinstance(column.type, PrimitiveType) and column.type.name == "float"
        return math.isfinite(value) and (not narrow or to_float32(value) == value)
    if isinstance(value, str):
        # Java orders by UTF-16 units: from the surrogates on that is not the order of code points.
        return value.isascii() or not ordered or max(value) < "\ud800"
    if _is_timestamp(column) and isinstance(value, int):
        return _FIRST_MICROS <= value <= _LAST_MICROS
    return True


def _is_timestamp(column: StructField) -> bool:
    return isinstance(column.type, PrimitiveType) and column.type.name == "timestamp"


def _value_type(data_type: DataType) -> str | None:
    return _VALUE_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def _json_node(node: Predicate) -> dict[str, Any]:
    if isinstance(node, And | Or):
        op = "and" if isinstance(node, And) else "or"
        return {"op": op, "children": [_json_node(part) for part in node.parts]}
    if isinstance(node, Not):
        return {"op": "not", "children": [_json_node(node.part)]}
    column = {"op": "column", "name": node.column.name, "valueType": _value_type(node.column.type)}
    if isinstance(node, IsNull):
        return {"op": "isNull", "children": [column]}

    def compare(op: str, value: Value) -> dict[str, Any]:
        literal = {"op": "literal", "value": _text(value, node.column), "valueType": column["valueType"]}
        return {"op": op, "children": [column, literal]}

    if isinstance(node, In):
        terms = [compare("equal", value) for value in node.values]
        return terms[0] if len(terms) == 1 else {"op": "or", "children": terms}
    if node.op == "!=":
        return {"op": "not", "children": [compare("equal", node.value)]}
    return compare(_JSON_OPS[node.op], node.value)


def _text(value: Value, column: StructField) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if _is_timestamp(column) and isinstance(value, int):
        return (_EPOCH + timedelta(microseconds=value)).isoformat() + "Z"
    return str(value)


def _sql(node: Predicate) -> str | None:
    negated = isinstance(node, Not)
    inner = node.part if isinstance(node, Not) else node
    if not isinstance(inner, Compare | IsNull):
        return None
    name = inner.column.name
    if not _PLAIN_NAME.fullmatch(name) or _NOT_A_COLUMN.fullmatch(name):
        return None
    if isinstance(inner, IsNull):
        return f"{name} IS NOT NULL" if negated else f"{name} IS NULL"
    literal = _sql_literal(inner.value, inner.column)
    if negated or literal is None:
        return None
    op = "<>" if inner.op == "!=" else inner.op
    return f"{name} {op} {literal}"


def _sql_literal(value: Value, column: StructField) -> str | None:
    text = _text(value, column)
    if isinstance(value, bool | int | float) and not _is_timestamp(column):
        return text
    # Dialects differ in how a quote or a backslash is written in a string.
    return None if "'" in text or "\\" in text else f"'{text}'"
