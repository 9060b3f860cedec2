"""The two notations of predicate hints.

Serves "JSON predicates for Filtering" and "SQL Expressions for Filtering".
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Final

from hint_oracle.predicates import (
    Column,
    Combine,
    Compare,
    IsNull,
    Kind,
    Not,
    Operand,
    Predicate,
    PredicateError,
    Value,
    combine,
    comparison,
    parse_value,
)

_MAX_DEPTH: Final = 64

_KINDS: Final[dict[str, Kind]] = {
    "bool": "bool",
    "boolean": "bool",
    "byte": "long",
    "short": "long",
    "int": "long",
    "integer": "long",
    "long": "long",
    "float": "double",
    "double": "double",
    "string": "string",
    "date": "date",
    "timestamp": "timestamp",
    "decimal": "decimal",
}
_JSON_COMPARISONS: Final = {
    "equal": "=",
    "lessThan": "<",
    "lessThanOrEqual": "<=",
    "greaterThan": ">",
    "greaterThanOrEqual": ">=",
    "notEqual": "<>",
}


def parse_json_hint(text: str) -> Predicate:
    """Return the predicate of a `jsonPredicateHints`; beyond the protocol also `in`, `notEqual`, `startsWith`.

    Args:
        text: the JSON text.

    Raises:
        PredicateError: it does not match the protocol.
    """
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        raise PredicateError("not JSON") from None
    return _json_predicate(tree, 0)


def _json_predicate(node: Any, depth: int) -> Predicate:
    if not isinstance(node, dict) or not isinstance(node.get("children"), list) or depth > _MAX_DEPTH:
        raise PredicateError("an operation is malformed")
    op, children = node.get("op"), node["children"]
    if op in ("and", "or") and len(children) > 1:
        return combine(op, [_json_predicate(child, depth + 1) for child in children])
    if op == "not" and len(children) == 1:
        return Not(child=_json_predicate(children[0], depth + 1))
    operands = [_json_operand(child) for child in children]
    if op == "isNull" and len(operands) == 1:
        return IsNull(operand=operands[0])
    if op == "in" and len(operands) > 1:
        return combine("or", [comparison("=", operands[0], item) for item in operands[1:]])
    if op == "startsWith" and len(operands) == 2:
        return Compare(op="starts", left=operands[0], right=operands[1])
    if op in _JSON_COMPARISONS and len(operands) == 2:
        return comparison(_JSON_COMPARISONS[op], operands[0], operands[1])
    raise PredicateError("an operation is not known, or has the wrong number of children")


def _json_operand(node: Any) -> Operand:
    kind = _KINDS.get(str(node.get("valueType")).lower()) if isinstance(node, dict) else None
    if kind is None:
        raise PredicateError("a column or a literal is malformed")
    if node.get("op") == "column" and isinstance(node.get("name"), str):
        return Column(name=node["name"], kind=kind)
    if node.get("op") == "literal" and "value" in node:
        value = node["value"]
        if value is None:
            return Value(value=None)
        return Value(value=parse_value(str(value), kind))
    raise PredicateError("a column or a literal is malformed")


_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<string>'(?:[^']|'')*')
    | (?P<quoted>`(?:[^`]|``)+`)
    | (?P<number>[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?)
    | (?P<op><=|>=|<>|!=|=|<|>)
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    )""",
    re.VERBOSE,
)


def parse_sql_hint(text: str, kind_of: Callable[[str], Kind]) -> Predicate:
    """Return the predicate of one of the `predicateHints`: comparisons and NULL checks, joined by AND.

    Args:
        text: the SQL text.
        kind_of: returns the type of a column.

    Raises:
        PredicateError: it is more than these expressions.
    """
    tokens: list[tuple[str, str]] = []
    position = 0
    while text[position:].strip():
        match = _TOKEN.match(text, position)
        if match is None:
            raise PredicateError("not a simple comparison")
        tokens.append((str(match.lastgroup), match.group(str(match.lastgroup))))
        position = match.end()
    clauses: list[list[tuple[str, str]]] = [[]]
    for token in tokens:
        if _is_word(token, "AND"):
            clauses.append([])
        else:
            clauses[-1].append(token)
    predicates = [_sql_clause(clause, kind_of) for clause in clauses]
    return predicates[0] if len(predicates) == 1 else Combine(op="and", children=tuple(predicates))


def _is_word(token: tuple[str, str], word: str) -> bool:
    return token[0] == "word" and token[1].upper() == word


def _sql_clause(tokens: list[tuple[str, str]], kind_of: Callable[[str], Kind]) -> Predicate:
    if len(tokens) in (3, 4) and _is_word(tokens[1], "IS") and _is_word(tokens[-1], "NULL"):
        check = IsNull(operand=_sql_column(tokens[0], kind_of))
        if len(tokens) == 3:
            return check
        if _is_word(tokens[2], "NOT"):
            return Not(child=check)
    at = next((index for index, token in enumerate(tokens) if token[0] == "op"), None)
    if at is None:
        raise PredicateError("not a simple comparison")
    left, right = tokens[:at], tokens[at + 1 :]
    if _is_column(left):
        column = _sql_column(left[0], kind_of)
        return comparison(tokens[at][1], column, _sql_literal(right, column))
    if _is_column(right):
        column = _sql_column(right[0], kind_of)
        return comparison(tokens[at][1], _sql_literal(left, column), column)
    raise PredicateError("no column in a comparison")


def _is_column(tokens: list[tuple[str, str]]) -> bool:
    if len(tokens) != 1:
        return False
    kind, text = tokens[0]
    return kind == "quoted" or (kind == "word" and text.upper() not in ("TRUE", "FALSE", "NULL"))


def _sql_column(token: tuple[str, str], kind_of: Callable[[str], Kind]) -> Column:
    if not _is_column([token]):
        raise PredicateError("not a column")
    name = token[1][1:-1].replace("``", "`") if token[0] == "quoted" else token[1]
    return Column(name=name, kind=kind_of(name))


def _sql_literal(tokens: list[tuple[str, str]], column: Column) -> Value:
    """Return a literal as a value of the column's type; SQL casts the text of a date, but no text to a number."""
    kind = column.kind or "string"
    if len(tokens) == 2 and tokens[0][1].upper() in ("DATE", "TIMESTAMP") and tokens[1][0] == "string":
        if tokens[0][1].lower() != kind:
            raise PredicateError("a date is compared with a timestamp")
        tokens = tokens[1:]
    if len(tokens) != 1:
        raise PredicateError("not a literal")
    form, text = tokens[0]
    if _is_word(tokens[0], "NULL"):
        return Value(value=None)
    if form == "string" and kind in ("string", "date", "timestamp"):
        return Value(value=parse_value(text[1:-1].replace("''", "'"), kind))
    if form == "number" and kind in ("long", "double", "decimal"):
        return Value(value=parse_value(text, "double" if kind == "double" else "decimal"))
    if form == "word" and kind == "bool":
        return Value(value=parse_value(text, "bool"))
    raise PredicateError("the literal is of another type than the column")
