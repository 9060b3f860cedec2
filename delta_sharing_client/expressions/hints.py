"""A predicate as hints for the server: `jsonPredicateHints` and `predicateHints`.

A hint must be true of every file that holds a matching row, on whatever server: one that a server may read
otherwise than we do is not sent. Leaving out a part of an AND widens the hint, which is safe; a part of an
OR cannot be left out. NOT is pushed down to the single comparisons first.

The JSON predicates speak of partition columns and, as servers evaluate them over the statistics of the files
(what the reference server calls version 2: data columns, and floats and timestamps as types), of others.
No server tells which it takes; one that knows partition columns alone keeps the files for which it does not
understand the hint, so what speaks of these comes first in an AND. What is known of servers:

* over statistics a comparison means "some row may be so", so that its negation means nothing, and the
  absence of statistics is taken for null: of data columns no NOT and no IS NULL are sent;
* times, in literals, partition values and statistics, are cut to milliseconds;
* bounds of data columns are taken as they are, though writers round them: what is sent reaches a little further;
* floats are ordered as Java does: -0.0 is less than 0.0, NaN is greater than everything;
* dates before 1583 are read in another calendar;
* columns may be looked up by name where partition values and statistics have the physical name.

Serves "JSON predicates for Filtering" and "SQL Expressions for Filtering".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeAlias

from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    columns_of,
    is_float,
)
from delta_sharing_client.model.column_mapping import MappingMode, physical_name
from delta_sharing_client.model.partition_values import Value, to_float32
from delta_sharing_client.model.schema import DataType, PrimitiveType, StructField, StructType

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
#: Types whose statistics are bounds that every server reads alike.
_STATS_TYPES: Final = frozenset({"integer", "long", "string", "date", "float", "double", "timestamp"})
_JSON_OPS: Final = {
    "=": "equal",
    "<": "lessThan",
    "<=": "lessThanOrEqual",
    ">": "greaterThan",
    ">=": "greaterThanOrEqual",
}
_OPPOSITES: Final[dict[Operator, Operator]] = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Names that SQL takes for constants or functions.
_NOT_A_COLUMN = re.compile(r"(?i)true|false|null|user|session_user|system_user|local.*|current_.*")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_MICROS: Final = (datetime.min - _EPOCH) // timedelta(microseconds=1)
_LAST_MICROS: Final = (datetime.max - _EPOCH) // timedelta(microseconds=1)
_MILLISECOND: Final = 1000
_FIRST_DATE: Final = date(1583, 1, 1)
_MAX_IN: Final = 200
#: Characters from which on a string in statistics may have been cut.
_CUT: Final = 32
#: The greatest 32-bit float; and integers from which on a double has not all.
_FLOAT_MOST: Final = 3.4028234663852886e38
_DOUBLE_EXACT: Final = 10**15

Json = dict[str, Any]
#: How a column is compared with one literal.
_Comparison: TypeAlias = Callable[[Operator, Value, StructField], Json | None]


@dataclass(frozen=True, kw_only=True)
class HintColumns:
    """What hints may speak of.

    Attributes:
        partitions: partition columns.
        data: columns to be compared over the statistics of the files.
        renamed: those of the partition columns that go by another name in the files' partition values.
    """

    partitions: frozenset[str]
    data: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: StructType, partition_columns: Collection[str], mode: MappingMode = "none") -> HintColumns:
        """Return what hints on a table may speak of.

        A column whose name is another's physical name is left out: it could be taken for that one.

        Args:
            schema: the table's columns.
            partition_columns: names of its partition columns.
            mode: its column mapping mode.
        """
        physical = {field.name: physical_name(field, mode) for field in schema.fields}
        renamed = {name for name, other in physical.items() if name != other}
        ambiguous = renamed & set(physical.values())
        wanted = {name.lower() for name in partition_columns}
        partitions = {name for name in physical if name.lower() in wanted} - ambiguous
        data = {name for name in physical if name.lower() not in wanted} - renamed
        return cls(partitions=frozenset(partitions), data=frozenset(data), renamed=frozenset(partitions & renamed))


def json_hint(predicate: Predicate | None, columns: HintColumns) -> str | None:
    """Return the `jsonPredicateHints` text for a predicate, or None where no part of it can be said.

    Args:
        predicate: the bound row filter.
        columns: what it may speak of.
    """
    said = None if predicate is None else _say(predicate, columns, negated=False)
    return None if said is None else json.dumps(said, separators=(",", ":"))


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


def sql_hints(predicate: Predicate | None, columns: HintColumns) -> tuple[str, ...]:
    """Return the `predicateHints` for a predicate: the simple comparisons that all rows must satisfy.

    They speak of partition columns alone: they are the older notation, which is given up.

    Args:
        predicate: the bound row filter.
        columns: what it may speak of.
    """
    parts = predicate.parts if isinstance(predicate, And) else () if predicate is None else (predicate,)
    names = columns.partitions - columns.renamed
    return tuple(text for text in (_sql(part, names) for part in parts) if text is not None)


def _say(node: Predicate, columns: HintColumns, *, negated: bool) -> Json | None:
    if isinstance(node, Not):
        return _say(node.part, columns, negated=not negated)
    if isinstance(node, And | Or):
        # What older servers understand comes first; sorting keeps the order otherwise.
        parts = sorted(node.parts, key=lambda part: not _on_partitions(part, columns))
        said = [_say(part, columns, negated=negated) for part in parts]
        known = [part for part in said if part is not None]
        if isinstance(node, And) != negated:
            return _join("and", known)
        return _join("or", known) if len(known) == len(said) else None
    if node.column.name in columns.partitions:
        return _say_of_partition(node, negated=negated, renamed=node.column.name in columns.renamed)
    return _say_of_data(node, negated=negated) if node.column.name in columns.data else None


def _on_partitions(node: Predicate, columns: HintColumns) -> bool:
    return all(column.name in columns.partitions for column in columns_of(node))


def _join(op: str, parts: Sequence[Json]) -> Json | None:
    if len(parts) < 2:
        return parts[0] if parts else None
    return {"op": op, "children": list(parts)}


def _not(part: Json) -> Json:
    return {"op": "not", "children": [part]}


def _say_of_partition(node: Compare | In | IsNull, *, negated: bool, renamed: bool) -> Json | None:
    """One comparison, evaluated over the one value that all rows of a file have."""
    column = node.column
    if _value_type(column.type) is None:
        return None
    if isinstance(node, IsNull):
        if renamed:
            return None
        check: Json = {"op": "isNull", "children": [_column(column)]}
        return _not(check) if negated else check
    if isinstance(node, In):
        return _say_in(node, _compare, negated=negated)
    op = node.op
    if negated and is_float(column.type) and op not in ("=", "!="):
        # NaN is on neither side for us and greater than everything for others.
        said = _compare(op, node.value, column) if op in ("<", "<=") else None
        return None if said is None else _not(said)
    op = _OPPOSITES[op] if negated else op
    if op != "!=":
        return _compare(op, node.value, column)
    equal = None if _is_timestamp(column) else _compare("=", node.value, column)
    return None if equal is None else _not(equal)


def _say_in(node: In, compare: _Comparison, *, negated: bool) -> Json | None:
    if not 0 < len(node.values) <= _MAX_IN or (negated and _is_timestamp(node.column)):
        return None
    terms = [compare("=", value, node.column) for value in node.values]
    known = [term for term in terms if term is not None]
    said = _join("or", known) if len(known) == len(terms) else None
    return _not(said) if said is not None and negated else said


def _say_of_data(node: Compare | In | IsNull, *, negated: bool) -> Json | None:
    """One comparison, evaluated over the least and the greatest value of a file: true if some row may be so."""
    column = node.column
    if isinstance(node, IsNull) or not isinstance(column.type, PrimitiveType):
        return None
    if column.type.name not in _STATS_TYPES:
        return None
    values = node.values if isinstance(node, In) else (node.value,)
    # A shorter one, in ASCII, compares with a cut bound as with the whole of it, in every order of characters.
    if any(isinstance(value, str) and not (value.isascii() and len(value) < _CUT) for value in values):
        return None
    if isinstance(node, In):
        return None if negated else _say_in(node, _compare_bounds, negated=False)
    if negated and is_float(column.type):
        return None
    op = _OPPOSITES[node.op] if negated else node.op
    if op != "!=":
        return _compare_bounds(op, node.value, column)
    if is_float(column.type) or _is_timestamp(column):
        return None
    sides = [_compare_bounds("<", node.value, column), _compare_bounds(">", node.value, column)]
    known = [side for side in sides if side is not None]
    return _join("or", known) if len(known) == len(sides) else None


def _compare_bounds(op: Operator, value: Value, column: StructField) -> Json | None:
    """A comparison that is true wherever this one is, although writers round bounds (see `bound_values`)."""
    low = high = value
    if isinstance(value, float):
        if not abs(value) < _FLOAT_MOST:
            return None
        slack = abs(value) * 2.0**-22 + 2.0**-148
        low, high = value - slack, value + slack
        if isinstance(column.type, PrimitiveType) and column.type.name == "float":
            low, high = to_float32(low), to_float32(high)
    elif _is_timestamp(column) and isinstance(value, int):
        high = value if value > 0 else value + _MILLISECOND
    elif isinstance(value, int) and abs(value) >= _DOUBLE_EXACT:
        slack = abs(value) >> 46
        low, high = max(value - slack, -(2**63)), min(value + slack, 2**63 - 1)
    if low == high:
        return _compare(op, value, column)
    least = None if op in ("<", "<=") else _compare(">=", low, column)
    most = None if op in (">", ">=") else _compare("<=", high, column)
    return _join("and", [side for side in (least, most) if side is not None])


def _compare(op: Operator, value: Value, column: StructField) -> Json | None:
    """A comparison that every server reads as we do, or one that is true wherever this one is."""
    if not _means_the_same(value, column, ordered=op not in ("=", "!=")):
        return None
    if not _is_timestamp(column) or not isinstance(value, int):
        return _node(op, value, column)
    below = value // _MILLISECOND * _MILLISECOND
    above = below if below == value else below + _MILLISECOND
    if below < _FIRST_MICROS or above > _LAST_MICROS:
        return None
    if op == "=" and below != above:
        return {"op": "and", "children": [_node(">=", below, column), _node("<=", above, column)]}
    return _node(">=", below, column) if op in (">", ">=") else _node(op, above, column)


def _node(op: Operator, value: Value, column: StructField) -> Json:
    literal = {"op": "literal", "value": _text(value, column), "valueType": _value_type(column.type)}
    return {"op": _JSON_OPS[op], "children": [_column(column), literal]}


def _column(column: StructField) -> Json:
    return {"op": "column", "name": column.name, "valueType": _value_type(column.type)}


def _means_the_same(value: Value, column: StructField, *, ordered: bool) -> bool:
    """Whether every server reads the literal as we do, and compares it as we do."""
    if isinstance(value, float):
        # A server that casts both sides to 32 bits loses the difference to a literal that has more.
        narrow = isinstance(column.type, PrimitiveType) and column.type.name == "float"
        return math.isfinite(value) and value != 0 and (not narrow or to_float32(value) == value)
    if isinstance(value, str):
        # Java orders by UTF-16 units: from the surrogates on that is not the order of code points.
        return value.isascii() or not ordered or max(value) < "\ud800"
    if isinstance(value, date):
        return value >= _FIRST_DATE
    if _is_timestamp(column) and isinstance(value, int):
        return _FIRST_MICROS <= value <= _LAST_MICROS
    return True


def _is_timestamp(column: StructField) -> bool:
    return isinstance(column.type, PrimitiveType) and column.type.name == "timestamp"


def _value_type(data_type: DataType) -> str | None:
    return _VALUE_TYPES.get(data_type.name) if isinstance(data_type, PrimitiveType) else None


def _text(value: Value, column: StructField) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, date):
        return value.isoformat()
    if _is_timestamp(column) and isinstance(value, int):
        return (_EPOCH + timedelta(microseconds=value)).isoformat() + "Z"
    return str(value)


def _sql(node: Predicate, names: Collection[str]) -> str | None:
    negated = isinstance(node, Not)
    inner = node.part if isinstance(node, Not) else node
    if not isinstance(inner, Compare | IsNull) or inner.column.name not in names:
        return None
    name = inner.column.name
    if _value_type(inner.column.type) is None or not _PLAIN_NAME.fullmatch(name) or _NOT_A_COLUMN.fullmatch(name):
        return None
    if isinstance(inner, IsNull):
        return f"{name} IS NOT NULL" if negated else f"{name} IS NULL"
    if negated or not _means_the_same(inner.value, inner.column, ordered=inner.op not in ("=", "!=")):
        return None
    literal = _sql_literal(inner.value, inner.column)
    op = "<>" if inner.op == "!=" else inner.op
    return None if literal is None else f"{name} {op} {literal}"


def _sql_literal(value: Value, column: StructField) -> str | None:
    text = _text(value, column)
    if isinstance(value, bool | int | float) and not _is_timestamp(column):
        return text
    # Dialects differ in how a quote or a backslash is written in a string.
    return None if "'" in text or "\\" in text else f"'{text}'"
