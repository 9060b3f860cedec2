"""Predicates as hints for the server: `jsonPredicateHints` and `predicateHints`.

A hint must be true for every file with a matching row, on every server. Comparisons that servers may evaluate
differently are not sent. NOT is pushed down to the comparisons.

JSON predicates have partition columns, and data columns, which some servers compare with the statistics of files
(version 2 of the reference server, with floats and timestamps as types). Servers do not report what they support.
A server without support for data columns ignores a hint from the first one on, so partition columns come first in
an AND. Known behaviour of servers:

* Over statistics, a comparison means "a row may match", so its negation has no meaning. Missing statistics count
  as null. For data columns neither NOT nor IS NULL is sent.
* Times in literals, partition values and statistics are truncated to milliseconds.
* Bounds of data columns are used without regard to rounding by writers, so hints are widened.
* Floats have Java's order: -0.0 is less than 0.0, NaN is greater than all numbers.
* Dates before 1583 are parsed in another calendar.
* Columns may be looked up by name, while partition values and statistics have the physical name.

Serves "JSON predicates for Filtering" and "SQL Expressions for Filtering".
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Collection, Sequence
from datetime import date, datetime, timedelta
from typing import Any, Final, TypeAlias

from msgspec import Struct

from delta_sharing_client.expressions.bound_values import DOUBLE_EXACT, FLOAT_MAX, MILLISECOND, TRUNCATED
from delta_sharing_client.expressions.predicates import (
    And,
    Compare,
    Constant,
    In,
    IsNull,
    Not,
    Operator,
    Or,
    Predicate,
    columns_of,
    is_collated,
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
#: Types whose bounds in statistics all servers parse equally.
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
#: Names that are constants or functions in SQL.
_NOT_A_COLUMN = re.compile(r"(?i)true|false|null|user|session_user|system_user|local.*|current_.*")
_EPOCH: Final = datetime(1970, 1, 1)
_FIRST_MICROS: Final = (datetime.min - _EPOCH) // timedelta(microseconds=1)
_LAST_MICROS: Final = (datetime.max - _EPOCH) // timedelta(microseconds=1)
_FIRST_DATE: Final = date(1583, 1, 1)
_MAX_IN: Final = 200

Json = dict[str, Any]
#: Builds the comparison of a column with a literal.
_Comparison: TypeAlias = Callable[[Operator, Value, StructField], Json | None]


class HintColumns(Struct, frozen=True, kw_only=True):
    """The columns of hints.

    Attributes:
        partitions: partition columns.
        data: columns that are compared with the statistics of files.
        renamed: partition columns with a different physical name.
    """

    partitions: frozenset[str]
    data: frozenset[str] = frozenset()
    renamed: frozenset[str] = frozenset()

    @classmethod
    def of(cls, schema: StructType, partition_columns: Collection[str], mode: MappingMode = "none") -> HintColumns:
        """Return the columns for hints on a table, without columns whose name is another's physical name."""
        physical = {field.name: physical_name(field, mode) for field in schema.fields}
        renamed = {name for name, other in physical.items() if name != other}
        ambiguous = renamed & set(physical.values())
        wanted = {name.lower() for name in partition_columns}
        partitions = {name for name in physical if name.lower() in wanted} - ambiguous
        data = {name for name in physical if name.lower() not in wanted} - renamed
        return cls(partitions=frozenset(partitions), data=frozenset(data), renamed=frozenset(partitions & renamed))


def json_hint(predicate: Predicate | None, columns: HintColumns) -> str | None:
    """Return the `jsonPredicateHints` for a predicate; None if no part of it can be sent."""
    hint = None if predicate is None else _hint(predicate, columns, negated=False)
    return None if hint is None else json.dumps(hint, separators=(",", ":"))


def with_long_integers(hint: str | None) -> str | None:
    """Return a hint that names the type of all integers `long`: servers compare the same numbers."""
    # Quotes within values are escaped.
    return None if hint is None else hint.replace('"valueType":"int"', '"valueType":"long"')


def merge_json_hints(given: str | None, ours: str | None) -> str | None:
    """Return the AND of the caller's hint and ours; both are JSON objects."""
    if given is None or ours is None:
        return given if ours is None else ours
    return json.dumps({"op": "and", "children": [json.loads(given), json.loads(ours)]}, separators=(",", ":"))


def sql_hints(predicate: Predicate | None, columns: HintColumns) -> tuple[str, ...]:
    """Return the `predicateHints` for a predicate: comparisons of partition columns that all rows must satisfy."""
    parts = predicate.parts if isinstance(predicate, And) else () if predicate is None else (predicate,)
    names = columns.partitions - columns.renamed
    return tuple(filter(None, (_sql(part, names) for part in parts)))


def _hint(node: Predicate, columns: HintColumns, *, negated: bool) -> Json | None:
    if isinstance(node, Not):
        return _hint(node.part, columns, negated=not negated)
    if isinstance(node, And | Or):
        # A part that is null makes no row match. Partition columns first, for older servers; the sort is stable.
        known_parts = [part for part in node.parts if part != Constant(None)]
        parts = sorted(known_parts, key=lambda part: not _on_partitions(part, columns))
        hints = [_hint(part, columns, negated=negated) for part in parts]
        return _join("and" if isinstance(node, And) != negated else "or", hints)
    if isinstance(node, Constant):
        return None
    if is_collated(node.column) and not isinstance(node, IsNull):
        return None
    if node.column.name in columns.partitions:
        return _partition_hint(node, negated=negated, renamed=node.column.name in columns.renamed)
    return _bounds_hint(node, negated=negated) if node.column.name in columns.data else None


def _on_partitions(node: Predicate, columns: HintColumns) -> bool:
    return all(column.name in columns.partitions for column in columns_of(node))


def _join(op: str, parts: Sequence[Json | None]) -> Json | None:
    """Join hints: an AND without its unknown parts is wider, which is safe; an OR needs all parts."""
    known = [part for part in parts if part is not None]
    if not known or (op == "or" and len(known) < len(parts)):
        return None
    return known[0] if len(known) == 1 else {"op": op, "children": known}


def _not(part: Json | None) -> Json | None:
    return None if part is None else {"op": "not", "children": [part]}


def _partition_hint(node: Compare | In | IsNull, *, negated: bool, renamed: bool) -> Json | None:
    """Return the hint for a term on a partition column, which has one value for all rows of a file."""
    column = node.column
    if _value_type(column.type) is None:
        return None
    if isinstance(node, IsNull):
        if renamed:
            return None
        check: Json = {"op": "isNull", "children": [_column(column)]}
        return _not(check) if negated else check
    if isinstance(node, In):
        return _in_hint(node, _compare, negated=negated)
    op = node.op
    if negated and is_float(column.type) and op not in ("=", "!="):
        # NaN is greater than all numbers for servers.
        return _not(_compare(op, node.value, column)) if op in ("<", "<=") else None
    op = _OPPOSITES[op] if negated else op
    if op != "!=":
        return _compare(op, node.value, column)
    return None if _is_timestamp(column) else _not(_compare("=", node.value, column))


def _in_hint(node: In, compare: _Comparison, *, negated: bool) -> Json | None:
    if not 0 < len(node.values) <= _MAX_IN or (negated and _is_timestamp(node.column)):
        return None
    hint = _join("or", [compare("=", value, node.column) for value in node.values])
    return _not(hint) if negated else hint


def _bounds_hint(node: Compare | In | IsNull, *, negated: bool) -> Json | None:
    """Return the hint for a term on a data column, which is compared with the bounds of a file."""
    column = node.column
    if isinstance(node, IsNull) or not isinstance(column.type, PrimitiveType):
        return None
    if column.type.name not in _STATS_TYPES:
        return None
    values = node.values if isinstance(node, In) else (node.value,)
    # Short ASCII strings compare with a truncated bound as with the full one, in every order of characters.
    if any(isinstance(value, str) and not (value.isascii() and len(value) < TRUNCATED) for value in values):
        return None
    if isinstance(node, In):
        return None if negated else _in_hint(node, _compare_bounds, negated=False)
    if negated and is_float(column.type):
        return None
    op = _OPPOSITES[node.op] if negated else node.op
    if op != "!=":
        return _compare_bounds(op, node.value, column)
    if is_float(column.type) or _is_timestamp(column):
        return None
    return _join("or", [_compare_bounds("<", node.value, column), _compare_bounds(">", node.value, column)])


def _compare_bounds(op: Operator, value: Value, column: StructField) -> Json | None:
    """Return a comparison that is widened by the rounding of bounds (see `bound_values`)."""
    low = high = value
    if isinstance(value, float):
        if not abs(value) < FLOAT_MAX:
            return None
        slack = abs(value) * 2.0**-22 + 2.0**-148
        low, high = value - slack, value + slack
        if isinstance(column.type, PrimitiveType) and column.type.name == "float":
            low, high = to_float32(low), to_float32(high)
    elif _is_timestamp(column) and isinstance(value, int):
        high = value if value > 0 else value + MILLISECOND
    elif isinstance(value, int) and abs(value) >= DOUBLE_EXACT:
        slack = abs(value) >> 46
        low, high = max(value - slack, -(2**63)), min(value + slack, 2**63 - 1)
    if low == high:
        return _compare(op, value, column)
    least = None if op in ("<", "<=") else _compare(">=", low, column)
    most = None if op in (">", ">=") else _compare("<=", high, column)
    return _join("and", [least, most])


def _compare(op: Operator, value: Value, column: StructField) -> Json | None:
    """Return a comparison, or a wider one, that all servers evaluate equally; None if there is none."""
    if not _is_portable(value, column, ordered=op not in ("=", "!=")):
        return None
    if not _is_timestamp(column) or not isinstance(value, int):
        return _node(op, value, column)
    below = value // MILLISECOND * MILLISECOND
    above = below if below == value else below + MILLISECOND
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


def _is_portable(value: Value, column: StructField, *, ordered: bool) -> bool:
    """Whether all servers parse and compare a literal equally."""
    if isinstance(value, float):
        # Servers may cast both sides to 32 bits.
        narrow = isinstance(column.type, PrimitiveType) and column.type.name == "float"
        return math.isfinite(value) and value != 0 and (not narrow or to_float32(value) == value)
    if isinstance(value, str):
        # Java orders by UTF-16 units, which differs from code points for surrogates. U+0000 ends a text of C.
        return "\0" not in value and (value.isascii() or not ordered or max(value) < "\ud800")
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
    if isinstance(inner, Compare) and is_collated(inner.column):
        return None
    if isinstance(inner, IsNull):
        return f"{name} IS NOT NULL" if negated else f"{name} IS NULL"
    if negated or not _is_portable(inner.value, inner.column, ordered=inner.op not in ("=", "!=")):
        return None
    literal = _sql_literal(inner.value, inner.column)
    op = "<>" if inner.op == "!=" else inner.op
    return None if literal is None else f"{name} {op} {literal}"


def _sql_literal(value: Value, column: StructField) -> str | None:
    text = _text(value, column)
    if isinstance(value, bool | int | float) and not _is_timestamp(column):
        return text
    # Dialects differ in the escapes of quotes and backslashes.
    return None if "'" in text or "\\" in text else f"'{text}'"
